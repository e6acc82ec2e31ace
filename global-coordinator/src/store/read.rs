//! What the store is asked: barriers, generations, and what is due.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_protocol::generation::State;
use muster_protocol::global::Barrier;
use muster_protocol::identity::Timestamp;
use muster_protocol::name::{BarrierName, Key};
use muster_protocol::spec::Spec;
use muster_wire::reference::Reference;

use super::backend::{End, Transaction};
use super::error::defect;
use super::load::{self, Specs};
use super::page::{Mark, cut, end_of_prefix, page_length, place};
use super::query::Query;
use super::record::{Loaded, NameRecord, barrier_name, generation_row, unsigned};
use super::regions::since;
use super::{Cursor, Due, GenerationFilter, GenerationRow, Page, StoreError, successors};

/// A generation's place, as a list is cut by it.
#[derive(sqlx::FromRow)]
struct MarkRecord {
    opened_at: i64,
    namespace: String,
    name: String,
    n: i64,
}

impl MarkRecord {
    fn mark(&self) -> Result<Mark, StoreError> {
        let barrier = barrier_name(&self.namespace, &self.name)?;
        Ok(Mark { opened_at: self.opened_at, barrier, n: self.n, region: None })
    }
}

/// A barrier without its generations.
pub(super) async fn barrier<T: Transaction>(
    tx: &mut T,
    name: BarrierName,
) -> Result<(Option<Barrier>, End), StoreError> {
    Ok((with_specs(tx, &[name]).await?.pop(), End::Rollback))
}

/// Defined barriers, by namespace and name.
pub(super) async fn barriers<T: Transaction>(
    tx: &mut T,
    prefix: Option<String>,
    cursor: Cursor,
    limit: u32,
) -> Result<(Page<Barrier>, End), StoreError> {
    let length = page_length(limit);
    let mut query = Query::new("select namespace, name from barriers as g where not deleted");
    if let Some(prefix) = &prefix {
        query = beginning_with(query, prefix);
    }
    if let Some(after) = place::<BarrierName>(&cursor) {
        query = query.push(" and (namespace, name) > (").bind(after.namespace()).push(", ").bind(after.name());
        query = query.push(")");
    }
    query = query.push(" order by namespace, name limit ").bind(length as u64 + 1);
    let rows: Vec<NameRecord> = tx.fetch(query).await?;
    let names = rows.iter().map(|row| barrier_name(&row.namespace, &row.name)).collect::<Result<Vec<_>, _>>()?;
    let page = cut(names, length, BarrierName::to_string);
    Ok((Page { items: with_specs(tx, &page.items).await?, next: page.next }, End::Rollback))
}

/// Barriers with the spec in force, in the order of their names.
async fn with_specs<T: Transaction>(tx: &mut T, names: &[BarrierName]) -> Result<Vec<Barrier>, StoreError> {
    let mut found = load::barriers(tx, names).await?;
    let revisions = found.values().map(|barrier| (barrier.name.clone(), barrier.revision)).collect();
    for ((name, revision), spec) in load::specs(tx, revisions).await? {
        found.get_mut(&name).map(|barrier| barrier.specs.insert(revision, spec));
    }
    Ok(names.iter().filter_map(|name| found.remove(name)).collect())
}

/// Keeps the barriers whose full name begins with a text.
fn beginning_with(query: Query, prefix: &str) -> Query {
    let (column, prefix) = match prefix.split_once('/') {
        None => (" and g.namespace", prefix),
        Some((namespace, rest)) => {
            let query = query.push(" and g.namespace = ").bind(namespace);
            return between(query, " and g.name", rest);
        }
    };
    between(query, column, prefix)
}

fn between(query: Query, column: &'static str, prefix: &str) -> Query {
    let query = query.push(column).push(" >= ").bind(prefix);
    query.push(column).push(" < ").bind(end_of_prefix(prefix))
}

/// One generation.
pub(super) async fn generation<T: Transaction>(
    tx: &mut T,
    name: BarrierName,
    id: Reference,
) -> Result<(Option<GenerationRow>, End), StoreError> {
    let Some(barrier) = with_specs(tx, std::slice::from_ref(&name)).await?.pop() else {
        return Ok((None, End::Rollback));
    };
    let spec = barrier.specs.get(&barrier.revision);
    let keyed = spec.is_some_and(|spec| spec.generations.are_keyed());
    let query = Query::new("select opened_at, namespace, name, n from generations where namespace = ")
        .bind(name.namespace())
        .push(" and name = ")
        .bind(name.name());
    let query = match (&id, id.number()) {
        (Reference::Latest, _) => query,
        (_, Some(n)) if !keyed => query.push(" and n = ").bind(n),
        _ => of_key(query, id.key(), id.round()),
    };
    let found: Vec<MarkRecord> = tx.fetch(query.push(" order by n desc limit 1")).await?;
    let mut rows = rows(tx, &found).await?;
    Ok((rows.pop(), End::Rollback))
}

fn of_key(query: Query, key: Option<&Key>, round: Option<u32>) -> Query {
    let query = query.push(" and key = ").bind(key.map(|key| key.as_str().to_owned()));
    match round {
        None => query,
        Some(round) => query.push(" and round = ").bind(u64::from(round)),
    }
}

/// Generations, the newest first: of one barrier by number, else by age.
pub(super) async fn generations<T: Transaction>(
    tx: &mut T,
    filter: GenerationFilter,
    cursor: Cursor,
    limit: u32,
) -> Result<(Page<GenerationRow>, End), StoreError> {
    let length = page_length(limit);
    let after = place::<Mark>(&cursor);
    let query = Query::new("select g.opened_at, g.namespace, g.name, g.n from generations as g where true");
    let query = match &filter.barrier {
        Some(barrier) => {
            let query = query.push(" and g.namespace = ").bind(barrier.namespace());
            let query = query.push(" and g.name = ").bind(barrier.name());
            let query = matching(query, &filter);
            let query = match after {
                None => query,
                Some(after) => query.push(" and g.n < ").bind(after.n),
            };
            query.push(" order by g.n desc")
        }
        None => {
            let query = matching(query, &filter);
            let query = match after {
                None => query,
                Some(after) => query
                    .push(" and (g.opened_at, g.namespace, g.name, g.n) < (")
                    .bind(after.opened_at)
                    .push(", ")
                    .bind(after.barrier.namespace())
                    .push(", ")
                    .bind(after.barrier.name())
                    .push(", ")
                    .bind(after.n)
                    .push(")"),
            };
            query.push(" order by g.opened_at desc, g.namespace desc, g.name desc, g.n desc")
        }
    };
    let found: Vec<MarkRecord> = tx.fetch(query.push(" limit ").bind(length as u64 + 1)).await?;
    let marks = found.iter().map(MarkRecord::mark).collect::<Result<Vec<_>, _>>()?;
    let next = cut(marks, length, Mark::to_string).next;
    let items = rows(tx, found.get(..length).unwrap_or(&found)).await?;
    Ok((Page { items, next }, End::Rollback))
}

fn matching(mut query: Query, filter: &GenerationFilter) -> Query {
    if let Some(prefix) = &filter.prefix {
        query = beginning_with(query, prefix);
    }
    if let Some((label, value)) = &filter.label {
        query = query
            .push(" and exists (select 1 from spec_labels as l where l.namespace = g.namespace and l.name = g.name")
            .push(" and l.revision = g.revision and l.label = ")
            .bind(label.as_str())
            .push(" and l.value = ")
            .bind(value.as_str())
            .push(")");
    }
    if let Some(region) = &filter.region {
        query = query
            .push(" and exists (select 1 from spec_regions as r where r.namespace = g.namespace and r.name = g.name")
            .push(" and r.revision = g.revision and r.region = ")
            .bind(region.as_str())
            .push(")");
    }
    for (at, state) in filter.states.iter().enumerate() {
        query = query.push(if at == 0 { " and (" } else { " or " }).push(match state {
            State::Gathering => "g.decided is null",
            State::Releasing => "(g.verdict = 'released' and not g.settled)",
            State::Released => "(g.verdict = 'released' and g.settled)",
            State::Broken => "g.verdict = 'broken'",
        });
    }
    if filter.states.is_empty() { query } else { query.push(")") }
}

/// The generations at these places, in this order.
async fn rows<T: Transaction>(tx: &mut T, found: &[MarkRecord]) -> Result<Vec<GenerationRow>, StoreError> {
    let marks = found.iter().map(MarkRecord::mark).collect::<Result<Vec<_>, _>>()?;
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    let now = tx.clock().await?.now;
    let keys = marks.iter().map(|mark| Ok((mark.barrier.clone(), unsigned(mark.n)?)));
    let keys = keys.collect::<Result<Vec<(BarrierName, u64)>, StoreError>>()?;
    let mut loaded = at(tx, &keys).await?;
    let specs = load::specs(tx, revisions(loaded.values())).await?;
    let row = |key| {
        let loaded = loaded.remove(key).ok_or_else(|| defect("a generation just listed is not there"))?;
        let spec = spec_of(&specs, &loaded)?.clone();
        let report_ages = loaded.received.iter().map(|(region, at)| (region.clone(), since(now, *at))).collect();
        Ok(GenerationRow { generation: loaded.generation, spec, version: loaded.version, report_ages })
    };
    keys.iter().map(row).collect()
}

/// Generations by barrier and number.
pub(super) async fn at<T: Transaction>(
    tx: &mut T,
    keys: &[(BarrierName, u64)],
) -> Result<load::Generations, StoreError> {
    let rows = keys.iter().map(|(name, n)| generation_row(name, *n)).collect();
    load::generations(tx, "(namespace, name, n)", rows, "").await
}

/// The revisions that generations were opened with.
pub(super) fn revisions<'a>(loaded: impl Iterator<Item = &'a Loaded>) -> BTreeSet<(BarrierName, u64)> {
    loaded.map(|one| (one.generation.id.barrier.clone(), one.generation.revision)).collect()
}

/// The spec that a generation was opened with.
pub(super) fn spec_of<'a>(specs: &'a Specs, loaded: &Loaded) -> Result<&'a Spec, StoreError> {
    let at = (loaded.generation.id.barrier.clone(), loaded.generation.revision);
    specs.get(&at).ok_or_else(|| defect(format!("{} has no spec at revision {}", at.0, at.1)))
}

/// Gathering generations whose time is up, and when the next one's is; and
/// those whose predecessor broke.
pub(super) async fn due<T: Transaction>(tx: &mut T, limit: u32) -> Result<(Due, End), StoreError> {
    let clock = tx.clock().await?;
    let length = page_length(limit);
    let mut due = Due { orphaned: successors::orphaned(tx, length).await?, ..Due::default() };
    // Those of an older life of the database may have to wait for a region
    // that is away; they must not stand in the way of the others.
    for of_present in ["era = ", "era <> "] {
        let query = Query::new("select deadline_at, namespace, name, n from generations where decided is null")
            .push(" and deadline_at is not null and ")
            .push(of_present)
            .bind(clock.era.0.as_str())
            .push(" order by deadline_at, namespace, name, n limit ")
            .bind(length as u64 + 1);
        let rows: Vec<(i64, String, String, i64)> = tx.fetch(query).await?;
        for (taken, (deadline_at, namespace, name, n)) in rows.into_iter().enumerate() {
            let at = Timestamp(unsigned(deadline_at)?);
            if at > clock.now || taken == length {
                let next_in = Duration::from_millis(at.since_ms(clock.now));
                due.next_in = Some(due.next_in.map_or(next_in, |other| other.min(next_in)));
                break;
            }
            due.generations.push((barrier_name(&namespace, &name)?, unsigned(n)?));
        }
    }
    Ok((due, End::Rollback))
}
