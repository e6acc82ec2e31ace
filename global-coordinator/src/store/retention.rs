//! What is past its retention, found by the rows: the same rule as the pure
//! machine's, which has the last word.

use std::collections::BTreeSet;

use muster_protocol::caps::VERDICTS_FACTOR;
use muster_protocol::identity::Timestamp;
use muster_protocol::name::BarrierName;

use super::StoreError;
use super::backend::{End, Transaction};
use super::load::{self, Generations};
use super::page::page_length;
use super::query::Query;
use super::record::{NameRecord, barrier_name, unsigned};

/// Generations that one command collects.
pub(super) const FINISHED_MAX: u64 = 500;

/// Ways to be past a retention, each found by one index.
#[derive(Clone, Copy)]
enum Past {
    ByTime,
    ByCount,
}

/// Adds the condition that a generation `g` of a barrier `b` has ended and is
/// past what is left of it: its details, or its verdict once it is closed.
fn past(query: Query, how: Past, closed: bool, now: Timestamp) -> Query {
    let times = if closed { u64::from(VERDICTS_FACTOR) } else { 1 };
    let query = query.push("g.closed = ").bind(closed).push(" and g.decided_at is not null and ");
    match how {
        Past::ByTime => query.push("g.decided_at < ").bind(now.0).push(" - b.retention_ms * ").bind(times),
        Past::ByCount => query.push("g.n < b.next_n - 1 - b.retention_generations * ").bind(times),
    }
}

/// Adds something for each way to be past a retention, with `or` between.
fn each_way(mut query: Query, now: Timestamp, before: &'static str) -> Query {
    let ways = [(Past::ByTime, false), (Past::ByCount, false), (Past::ByTime, true), (Past::ByCount, true)];
    for (at, (how, closed)) in ways.into_iter().enumerate() {
        query = query.push(if at == 0 { "" } else { " or " }).push(before);
        query = past(query, how, closed, now).push(")");
    }
    query
}

/// The finished generations of a barrier that are past their retention, the
/// oldest first, without reports.
pub(super) async fn finished<T: Transaction>(
    tx: &mut T,
    name: &BarrierName,
    now: Timestamp,
) -> Result<Generations, StoreError> {
    let narrow = |query: Query| {
        let query = query.push("(namespace, name, n) in (select g.namespace, g.name, g.n from generations as g");
        let query = query.push(" join barriers as b on b.namespace = g.namespace and b.name = g.name");
        let query = query.push(" where b.namespace = ").bind(name.namespace());
        let query = query.push(" and b.name = ").bind(name.name()).push(" and (");
        each_way(query, now, "(").push(") order by g.n limit ").bind(FINISHED_MAX).push(")")
    };
    load::without_reports(tx, narrow).await
}

/// The numbers of all generations of a barrier.
pub(super) async fn numbers<T: Transaction>(tx: &mut T, name: &BarrierName) -> Result<BTreeSet<u64>, StoreError> {
    let query = Query::new("select n from generations where namespace = $1 and name = $2");
    let rows: Vec<(i64,)> = tx.fetch(query.with(name.namespace()).with(name.name())).await?;
    rows.into_iter().map(|(n,)| unsigned(n)).collect()
}

/// Barriers that have something past its retention.
pub(super) async fn collectable<T: Transaction>(tx: &mut T, limit: u32) -> Result<(Vec<BarrierName>, End), StoreError> {
    let now = tx.clock().await?.now;
    let found = "exists (select 1 from generations as g where g.namespace = b.namespace and g.name = b.name and ";
    let query = each_way(Query::new("select b.namespace, b.name from barriers as b where "), now, found);
    let query = query.push(" order by b.namespace, b.name limit ").bind(page_length(limit) as u64);
    let rows: Vec<NameRecord> = tx.fetch(query).await?;
    let names = rows.iter().map(|row| barrier_name(&row.namespace, &row.name)).collect::<Result<_, _>>()?;
    Ok((names, End::Rollback))
}
