//! Reading barriers and generations, many at once.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::global::{Barrier, Names};
use muster_protocol::identity::Timestamp;
use muster_protocol::name::BarrierName;
use muster_protocol::spec::Spec;

use super::StoreError;
use super::backend::Transaction;
use super::error::defect;
use super::query::{Query, ROWS_MAX, Row, row};
use super::record::{
    BarrierRecord, CountRecord, GenerationRecord, Loaded, ReportRecord, SpecRecord, WaiverRecord, barrier_name,
    document, generation_row, name_row, unsigned,
};
use super::retention;

const BARRIERS: &str =
    "select namespace, name, revision, deleted, next_n, lost_from from barriers where (namespace, name)";

const GATHERING: &str = "select namespace, name, count(*) as count from generations
    where decided is null and (namespace, name)";

const SPECS: &str = "select namespace, name, revision, spec from specs where (namespace, name, revision)";

const GENERATIONS: &str = "select namespace, name, n, key, round, revision, opened_at, deadline_at, era, decided,
    settled, version, carry, closed from generations as g where ";

const LATEST_ROUND: &str = " and round = (select max(round) from generations as any_round
    where any_round.namespace = g.namespace and any_round.name = g.name and any_round.key = g.key)";

const HIGHEST: &str = " and n = (select max(n) from generations as any_number
    where any_number.namespace = g.namespace and any_number.name = g.name)";

const WAIVERS: &str = "select namespace, name, n, region, revision, participants, actor, reason from waivers
    where (namespace, name, n)";

const REPORTS: &str = "select namespace, name, n, applied, body, received_at from reports where (namespace, name, n)";

/// Specs by barrier and revision.
pub(super) type Specs = BTreeMap<(BarrierName, u64), Spec>;

/// Generations by barrier and number.
pub(super) type Generations = BTreeMap<(BarrierName, u64), Loaded>;

/// Barriers without specs and generations, but with how many gather.
pub(super) async fn barriers<T: Transaction>(
    tx: &mut T,
    names: &[BarrierName],
) -> Result<BTreeMap<BarrierName, Barrier>, StoreError> {
    let mut found = BTreeMap::new();
    for chunk in names.chunks(ROWS_MAX) {
        let rows: Vec<Row> = chunk.iter().map(name_row).collect();
        let gathering = Query::new(GATHERING).among(rows.clone()).push(" group by namespace, name");
        let mut counts = BTreeMap::new();
        for count in tx.fetch::<CountRecord>(gathering).await? {
            counts.insert(barrier_name(&count.namespace, &count.name)?, unsigned(count.count)?);
        }
        for record in tx.fetch::<BarrierRecord>(Query::new(BARRIERS).among(rows)).await? {
            let mut barrier = record.barrier(0)?;
            barrier.gathering = counts.get(&barrier.name).copied().unwrap_or(0);
            found.insert(barrier.name.clone(), barrier);
        }
    }
    Ok(found)
}

/// The barriers of a batch, with everything that it names of them.
pub(super) async fn named<T: Transaction>(
    tx: &mut T,
    names: &BTreeMap<BarrierName, Names>,
    now: Timestamp,
) -> Result<BTreeMap<BarrierName, Barrier>, StoreError> {
    let every: Vec<BarrierName> = names.keys().cloned().collect();
    let mut barriers = barriers(tx, &every).await?;
    let known = || names.iter().filter(|(name, _)| barriers.contains_key(*name));
    let numbers = known().flat_map(|(name, names)| names.numbers.iter().map(|n| generation_row(name, *n))).collect();
    let keys = known().flat_map(|(name, names)| {
        let barrier = barriers.get(name);
        let lost = move |n: u64| barrier.is_some_and(|barrier| barrier.takes_up(n));
        let said = names.said.iter().filter(move |(n, _)| lost(*n)).map(|(_, key)| key);
        names.keys.iter().chain(said).map(|key| row![name.namespace(), name.name(), key.as_str()])
    });
    let keys: Vec<Row> = keys.collect();
    let gathering = known().filter(|(_, names)| names.gathering).map(|(name, _)| name_row(name)).collect();
    let latest = known().filter(|(_, names)| names.latest).map(|(name, _)| name_row(name)).collect();
    let finished: Vec<BarrierName> =
        known().filter(|(_, names)| names.finished).map(|(name, _)| name.clone()).collect();

    // What is past its retention comes without its reports: they are to go.
    let mut loaded = Generations::new();
    for name in &finished {
        loaded.append(&mut retention::finished(tx, name, now).await?);
    }
    loaded.append(&mut generations(tx, "(namespace, name, n)", numbers, "").await?);
    loaded.append(&mut generations(tx, "(namespace, name, key)", keys, LATEST_ROUND).await?);
    loaded.append(&mut generations(tx, "(namespace, name)", gathering, " and decided is null").await?);
    loaded.append(&mut generations(tx, "(namespace, name)", latest, HIGHEST).await?);
    for name in &finished {
        let numbers = retention::numbers(tx, name).await?;
        if let Some(barrier) = barriers.get_mut(name) {
            barrier.numbers = numbers;
        }
    }
    let of_generations = loaded.values().map(|one| (one.generation.id.barrier.clone(), one.generation.revision));
    let of_barriers = barriers.values().map(|barrier| (barrier.name.clone(), barrier.revision));
    for ((name, revision), spec) in specs(tx, of_generations.chain(of_barriers).collect()).await? {
        barriers.get_mut(&name).map(|barrier| barrier.specs.insert(revision, spec));
    }
    for ((name, n), one) in loaded {
        barriers.get_mut(&name).map(|barrier| barrier.generations.insert(n, one.generation));
    }
    Ok(barriers)
}

/// Specs at these revisions; every one that a committed row names is there.
pub(super) async fn specs<T: Transaction>(
    tx: &mut T,
    revisions: BTreeSet<(BarrierName, u64)>,
) -> Result<Specs, StoreError> {
    let rows: Vec<Row> = revisions.iter().map(|(name, revision)| generation_row(name, *revision)).collect();
    let mut specs = Specs::new();
    for chunk in rows.chunks(ROWS_MAX) {
        for record in tx.fetch::<SpecRecord>(Query::new(SPECS).among(chunk.to_vec())).await? {
            let at = (barrier_name(&record.namespace, &record.name)?, unsigned(record.revision)?);
            specs.insert(at, document("spec", &record.spec)?);
        }
    }
    Ok(specs)
}

/// Generations whose columns are in the rows, with their reports.
pub(super) async fn generations<T: Transaction>(
    tx: &mut T,
    columns: &'static str,
    rows: Vec<Row>,
    condition: &'static str,
) -> Result<Generations, StoreError> {
    let mut found = Generations::new();
    for chunk in rows.chunks(ROWS_MAX) {
        let query = Query::new(GENERATIONS).push(columns).among(chunk.to_vec()).push(condition);
        found.append(&mut bare(tx, query).await?);
    }
    let rows: Vec<Row> = found.keys().map(|(name, n)| generation_row(name, *n)).collect();
    for chunk in rows.chunks(ROWS_MAX) {
        for record in tx.fetch::<WaiverRecord>(Query::new(WAIVERS).among(chunk.to_vec())).await? {
            let at = (barrier_name(&record.namespace, &record.name)?, unsigned(record.n)?);
            found.get_mut(&at).ok_or_else(|| defect("a waiver of no generation was read"))?.waive(record)?;
        }
        for record in tx.fetch::<ReportRecord>(Query::new(REPORTS).among(chunk.to_vec())).await? {
            let at = (barrier_name(&record.namespace, &record.name)?, unsigned(record.n)?);
            found.get_mut(&at).ok_or_else(|| defect("a report of no generation was read"))?.add(&record)?;
        }
    }
    Ok(found)
}

async fn bare<T: Transaction>(tx: &mut T, query: Query) -> Result<Generations, StoreError> {
    let mut found = Generations::new();
    for record in tx.fetch::<GenerationRecord>(query).await? {
        let loaded = record.loaded()?;
        found.insert((loaded.generation.id.barrier.clone(), loaded.generation.id.n), loaded);
    }
    Ok(found)
}

/// Generations without reports and waivers.
pub(super) async fn without_reports<T: Transaction>(
    tx: &mut T,
    narrow: impl FnOnce(Query) -> Query,
) -> Result<Generations, StoreError> {
    bare(tx, narrow(Query::new(GENERATIONS))).await
}
