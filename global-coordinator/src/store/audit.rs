//! The audit log: who decided what participants had not.

use muster_protocol::global::Action;
use muster_protocol::identity::Timestamp;
use muster_protocol::outcome::Override;

use super::backend::{End, Transaction};
use super::page::{cut, page_length, place};
use super::query::{Query, row};
use super::record::{barrier_name, timestamp};
use super::write::AUDIT;
use super::{AuditFilter, AuditRow, Cursor, Page, StoreError};

/// What was decided about a region.
pub(super) struct Entry<'a> {
    pub(super) at: Timestamp,
    pub(super) action: Action,
    pub(super) by: &'a Override,
    pub(super) object: &'a str,
}

#[derive(sqlx::FromRow)]
struct Record {
    position: i64,
    at: i64,
    action: String,
    namespace: Option<String>,
    name: Option<String>,
    generation: Option<String>,
    actor: Option<String>,
    reason: String,
    object: String,
}

/// Writes an entry of no barrier.
pub(super) async fn write<T: Transaction>(tx: &mut T, entry: Entry<'_>) -> Result<(), StoreError> {
    let Entry { at, action, by, object } = entry;
    let none = None::<String>;
    let row =
        row![at.0, action.as_str(), none.clone(), none.clone(), none, by.actor.clone(), by.reason.as_str(), object,];
    tx.execute(Query::new(AUDIT).rows(vec![row])).await.map(drop)
}

/// Entries, the latest first.
pub(super) async fn audit<T: Transaction>(
    tx: &mut T,
    filter: AuditFilter,
    cursor: Cursor,
    limit: u32,
) -> Result<(Page<AuditRow>, End), StoreError> {
    let length = page_length(limit);
    let mut query = Query::new(
        "select position, at, action, namespace, name, generation, actor, reason, object from audit where true",
    );
    if let Some(actor) = filter.actor {
        query = query.push(" and actor = ").bind(actor);
    }
    if let Some(barrier) = &filter.barrier {
        query = query.push(" and namespace = ").bind(barrier.namespace()).push(" and name = ").bind(barrier.name());
    }
    if let Some(since) = filter.since {
        query = query.push(" and at >= ").bind(since.0);
    }
    if let Some(before) = place::<i64>(&cursor) {
        query = query.push(" and position < ").bind(before);
    }
    query = query.push(" order by position desc limit ").bind(length as u64 + 1);
    let page = cut(tx.fetch::<Record>(query).await?, length, |record| record.position.to_string());
    let items = page.items.into_iter().map(Record::read).collect::<Result<_, _>>()?;
    Ok((Page { items, next: page.next }, End::Rollback))
}

impl Record {
    fn read(self) -> Result<AuditRow, StoreError> {
        let barrier = self.namespace.as_deref().zip(self.name.as_deref());
        Ok(AuditRow {
            at: timestamp(self.at)?,
            action: self.action,
            barrier: barrier.map(|(namespace, name)| barrier_name(namespace, name)).transpose()?,
            generation: self.generation,
            by: Override { actor: self.actor, reason: self.reason },
            object: self.object,
        })
    }
}
