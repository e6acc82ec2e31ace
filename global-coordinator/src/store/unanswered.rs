//! What the regions have not answered yet, found by the rows that owe it and
//! said by the pure machine.

use std::collections::BTreeMap;

use muster_protocol::fact::Fact;
use muster_protocol::mutant;
use muster_protocol::name::{BarrierName, RegionName};

use super::backend::{End, Transaction};
use super::page::{Mark, cut, page_length, place};
use super::query::Query;
use super::read::{at, revisions, spec_of};
use super::record::{barrier_name, parsed, unsigned};
use super::{Cursor, Page, StoreError, load};

/// A region has answered an opening when it has reported, a waiver of
/// participants when it reports that one or a later one, and an end when it
/// reports the end's digest as applied. Where it has applied an end that is not
/// known here, the opening is said again, which it answers with that end.
const OWED: &str = "select g.opened_at, g.namespace, g.name, g.n, s.region from generations as g
    join spec_regions as s on s.namespace = g.namespace and s.name = g.name and s.revision = g.revision
    left join reports as r on r.namespace = g.namespace and r.name = g.name and r.n = g.n and r.region = s.region
    left join waivers as w on w.namespace = g.namespace and w.name = g.name and w.n = g.n and w.region = s.region
    where not g.settled
    and (r.region is null or (g.digest is not null and (r.applied is null or r.applied <> g.digest))
        or (g.digest is null and r.applied is not null)
        or (g.digest is null and w.participants is not null and w.revision > r.waiver))";

/// Generations read at once: each may bring its outputs, and its reports too.
const GENERATIONS_AT_ONCE: usize = 32;

#[derive(sqlx::FromRow)]
struct OwedRecord {
    opened_at: i64,
    namespace: String,
    name: String,
    n: i64,
    region: String,
}

/// Facts that regions have not answered, the oldest generation's first.
pub(super) async fn unanswered<T: Transaction>(
    tx: &mut T,
    region: Option<RegionName>,
    cursor: Cursor,
    limit: u32,
) -> Result<(Page<(RegionName, Fact)>, End), StoreError> {
    let length = page_length(limit);
    let mut query = Query::new(OWED).push(if mutant!(AnyEndAnswers) { " and r.applied is null" } else { "" });
    if let Some(region) = &region {
        query = query.push(" and s.region = ").bind(region.as_str());
    }
    if let Some(Mark { opened_at, barrier, n, region: Some(region) }) = place(&cursor) {
        query = query.push(" and (g.opened_at, g.namespace, g.name, g.n, s.region) > (").bind(opened_at);
        query = query.push(", ").bind(barrier.namespace()).push(", ").bind(barrier.name());
        query = query.push(", ").bind(n).push(", ").bind(region.as_str()).push(")");
    }
    query = query.push(" order by g.opened_at, g.namespace, g.name, g.n, s.region limit ").bind(length as u64 + 1);
    let owed: Vec<OwedRecord> = tx.fetch(query).await?;
    let marks = owed.iter().map(mark).collect::<Result<Vec<_>, _>>()?;
    let page = cut(marks, length, Mark::to_string);
    Ok((Page { items: facts(tx, &page.items).await?, next: page.next }, End::Rollback))
}

fn mark(record: &OwedRecord) -> Result<Mark, StoreError> {
    let barrier = barrier_name(&record.namespace, &record.name)?;
    let region = Some(parsed("region", &record.region)?);
    Ok(Mark { opened_at: record.opened_at, barrier, n: record.n, region })
}

async fn facts<T: Transaction>(tx: &mut T, owed: &[Mark]) -> Result<Vec<(RegionName, Fact)>, StoreError> {
    let mut regions: BTreeMap<(i64, &BarrierName, u64), Vec<&RegionName>> = BTreeMap::new();
    for mark in owed {
        let at = (mark.opened_at, &mark.barrier, unsigned(mark.n)?);
        regions.entry(at).or_default().extend(&mark.region);
    }
    let regions: Vec<_> = regions.into_iter().collect();
    let mut facts = Vec::with_capacity(owed.len());
    for chunk in regions.chunks(GENERATIONS_AT_ONCE) {
        let keys: Vec<_> = chunk.iter().map(|((_, barrier, n), _)| ((*barrier).clone(), *n)).collect();
        let loaded = at(tx, &keys).await?;
        let specs = load::specs(tx, revisions(loaded.values())).await?;
        for (key, (_, regions)) in keys.iter().zip(chunk) {
            let Some(one) = loaded.get(key) else { continue };
            let spec = spec_of(&specs, one)?;
            let said = |region: &&RegionName| Some(((*region).clone(), one.generation.unanswered(spec, region)?));
            facts.extend(regions.iter().filter_map(said));
        }
    }
    Ok(facts)
}
