//! Gathering generations whose predecessor broke: a job's barriers go down
//! together.

use muster_protocol::generation::GenerationId;
use muster_protocol::name::{BarrierName, Key};

use super::StoreError;
use super::backend::Transaction;
use super::query::Query;
use super::record::{barrier_name, parsed, unsigned};

/// Of the same key the latest round counts, else the same number. Two queries,
/// so that each finds the predecessor by an index of its own.
const ORPHANED: &str = "select g.namespace, g.name, g.n, p.namespace as before_namespace, p.name as before_name,
    p.n as before_n, p.key as before_key, p.round as before_round
    from specs as s
    join generations as g on g.namespace = s.namespace and g.name = s.name and g.revision = s.revision
    join generations as p on p.namespace = s.after_namespace and p.name = s.after_name and p.key = g.key
    where s.after_name is not null and g.decided is null and p.verdict = 'broken'
    and p.round = (select max(r.round) from generations as r
        where r.namespace = p.namespace and r.name = p.name and r.key = p.key)
    union all
    select g.namespace, g.name, g.n, p.namespace, p.name, p.n, p.key, p.round
    from specs as s
    join generations as g on g.namespace = s.namespace and g.name = s.name and g.revision = s.revision
    join generations as p on p.namespace = s.after_namespace and p.name = s.after_name and p.n = g.n
    where s.after_name is not null and g.decided is null and p.verdict = 'broken'
    and g.key is null and p.key is null
    order by 1, 2, 3 limit ";

#[derive(sqlx::FromRow)]
struct OrphanedRecord {
    namespace: String,
    name: String,
    n: i64,
    before_namespace: String,
    before_name: String,
    before_n: i64,
    before_key: Option<String>,
    before_round: i64,
}

/// Generations to break, with the predecessor that broke.
pub(super) async fn orphaned<T: Transaction>(
    tx: &mut T,
    length: usize,
) -> Result<Vec<(BarrierName, u64, GenerationId)>, StoreError> {
    let rows: Vec<OrphanedRecord> = tx.fetch(Query::new(ORPHANED).bind(length as u64)).await?;
    rows.into_iter().map(OrphanedRecord::read).collect()
}

impl OrphanedRecord {
    fn read(self) -> Result<(BarrierName, u64, GenerationId), StoreError> {
        let before = GenerationId {
            barrier: barrier_name(&self.before_namespace, &self.before_name)?,
            n: unsigned(self.before_n)?,
            key: self.before_key.as_deref().map(|key| parsed::<Key>("key", key)).transpose()?,
            round: unsigned(self.before_round)?,
        };
        Ok((barrier_name(&self.namespace, &self.name)?, unsigned(self.n)?, before))
    }
}
