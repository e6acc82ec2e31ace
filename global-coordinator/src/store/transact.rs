//! The one transaction that decides: lock, load, apply, write.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::global::{self, Barrier, Change, Command, Context, Declared, Names, Reply, Step};
use muster_protocol::identity::History;
use muster_protocol::invariant::{self, Invariant};
use muster_protocol::mutant;
use muster_protocol::name::{BarrierName, RegionName};

use super::backend::{Clock, End, Transaction};
use super::error::{defect, violation};
use super::query::{Query, ROWS_MAX, Row, batches, row};
use super::record::{NameRecord, barrier_name, name_row, unsigned};
use super::write::Writes;
use super::{Mode, StoreError, load, regions};

/// Locks, loads, applies and writes one batch. What it says is true once the
/// transaction has ended as it says.
pub(super) async fn transact<T: Transaction>(
    tx: &mut T,
    batch: &[(BarrierName, Command)],
    mode: Mode,
) -> Result<(Vec<Step>, End), StoreError> {
    if !mutant!(LockAndCountAtOnce) {
        lock(tx, batch).await?;
    }
    fail::fail_point!("store.locked");
    // From here on, in statements of their own: one that locks and reads at
    // once reads what was there before it had to wait for the lock.
    let clock = tx.clock().await?;
    let regions = regions::current(tx, clock.now).await?;
    let mut barriers = load::named(tx, &named(batch), clock.now).await?;
    if mutant!(LockAndCountAtOnce) {
        lock(tx, batch).await?;
    }
    let mut defined = count_defined(tx, batch).await?;
    let steps = apply(batch, &clock, &regions, &mut barriers, &mut defined)?;
    if mode == Mode::DryRun && !mutant!(TriedIsWritten) || steps.iter().all(|step| step.changes.is_empty()) {
        return Ok((steps, End::Rollback));
    }
    let mut writes = Writes::new(&clock);
    for ((name, _), step) in batch.iter().zip(&steps) {
        step.changes.iter().try_for_each(|change| writes.add(name, change))?;
    }
    writes.write(tx, &barriers).await?;
    drop_unused(tx, &barriers).await?;
    regions::raise(tx, highest_indices(batch, &steps)).await?;
    Ok((steps, End::Commit))
}

/// Locks the rows of the batch in the order of their names. Only a definition
/// makes a row; a name that has none has nothing to decide.
///
/// Rows are made before any is locked, and in the same order: who waits to
/// make one then holds none that somebody else could wait to lock.
async fn lock<T: Transaction>(tx: &mut T, batch: &[(BarrierName, Command)]) -> Result<(), StoreError> {
    let defines = batch.iter().filter(|(_, command)| matches!(command, Command::Define { .. }));
    let defines = in_order(defines.map(|(name, _)| name));
    let known = select(tx, &defines, "").await?;
    let missing = defines.iter().filter(|name| !known.contains(*name));
    let missing = missing.map(|name| row![name.namespace(), name.name(), 0_u64, true, 1_u64]).collect();
    for rows in batches(missing) {
        let insert = Query::new("insert into barriers (namespace, name, revision, deleted, next_n) ");
        tx.execute(insert.rows(rows).push(" on conflict (namespace, name) do nothing")).await?;
    }
    let locking = if mutant!(NoLock) { "" } else { T::LOCKING };
    let locked = select(tx, &in_order(batch.iter().map(|(name, _)| name)), locking).await?;
    match defines.iter().find(|name| !locked.contains(*name)) {
        None => Ok(()),
        Some(name) => Err(defect(format!("the row of {name} could not be made"))),
    }
}

/// Distinct names in the order in which every transaction locks them.
fn in_order<'a>(names: impl Iterator<Item = &'a BarrierName>) -> Vec<BarrierName> {
    let pairs: BTreeMap<(&str, &str), &BarrierName> =
        names.map(|name| ((name.namespace(), name.name()), name)).collect();
    pairs.into_values().cloned().collect()
}

async fn select<T: Transaction>(
    tx: &mut T,
    names: &[BarrierName],
    locking: &'static str,
) -> Result<BTreeSet<BarrierName>, StoreError> {
    let mut found = BTreeSet::new();
    for chunk in names.chunks(ROWS_MAX) {
        let query = Query::new("select namespace, name from barriers where (namespace, name)")
            .among(chunk.iter().map(name_row).collect())
            .push(" order by namespace, name")
            .push(locking);
        for record in tx.fetch::<NameRecord>(query).await? {
            found.insert(barrier_name(&record.namespace, &record.name)?);
        }
    }
    Ok(found)
}

fn named(batch: &[(BarrierName, Command)]) -> BTreeMap<BarrierName, Names> {
    let mut names: BTreeMap<BarrierName, Names> = BTreeMap::new();
    for (name, command) in batch {
        names.entry(name.clone()).or_default().add(command);
    }
    names
}

/// How many barriers are defined in each namespace in which the batch defines.
async fn count_defined<T: Transaction>(
    tx: &mut T,
    batch: &[(BarrierName, Command)],
) -> Result<BTreeMap<String, u32>, StoreError> {
    let defines = batch.iter().filter(|(_, command)| matches!(command, Command::Define { .. }));
    let namespaces: BTreeSet<&str> = defines.map(|(name, _)| name.namespace()).collect();
    let mut counts = BTreeMap::new();
    for namespace in namespaces {
        let query = Query::new("select count(*) as count from barriers where not deleted and namespace = $1");
        let counted: Vec<(i64,)> = tx.fetch(query.with(namespace)).await?;
        counts.insert(namespace.to_owned(), counted.first().map_or(Ok(0), |(count,)| unsigned(*count))?);
    }
    Ok(counts)
}

fn apply(
    batch: &[(BarrierName, Command)],
    clock: &Clock,
    regions: &BTreeMap<RegionName, Declared>,
    barriers: &mut BTreeMap<BarrierName, Barrier>,
    defined: &mut BTreeMap<String, u32>,
) -> Result<Vec<Step>, StoreError> {
    let mut steps = Vec::with_capacity(batch.len());
    for (name, command) in batch {
        let barrier = barriers.entry(name.clone()).or_insert_with(|| Barrier::new(name.clone()));
        let barriers_in_namespace = defined.get(name.namespace()).copied().unwrap_or(0);
        let context = Context { now: clock.now, at: clock.now, era: &clock.era, regions, barriers_in_namespace };
        let was_deleted = barrier.deleted;
        let step = global::apply(barrier, &context, command);
        if let Some(count) = defined.get_mut(name.namespace()) {
            *count = count.saturating_add_signed(i32::from(was_deleted) - i32::from(barrier.deleted));
        }
        step.changes.iter().try_for_each(|change| check(barrier, change))?;
        steps.push(step);
    }
    Ok(steps)
}

/// A release without the promises that its rule requires must not become
/// durable.
fn check(barrier: &Barrier, change: &Change) -> Result<(), StoreError> {
    let Change::Decided { n, .. } = change else { return Ok(()) };
    let promised =
        barrier.loaded(*n).is_some_and(|(generation, spec)| invariant::released_only_when_complete(generation, spec));
    match promised {
        true => Ok(()),
        false => Err(violation(
            Invariant::ReleasedOnlyWhenComplete,
            format!("{} generation {n} was to be released without the promises that its rule requires", barrier.name),
        )),
    }
}

/// A definition that was refused leaves no row.
async fn drop_unused<T: Transaction>(tx: &mut T, barriers: &BTreeMap<BarrierName, Barrier>) -> Result<(), StoreError> {
    let unused: Vec<Row> =
        barriers.values().filter(|barrier| barrier.revision == 0).map(|one| name_row(&one.name)).collect();
    for rows in unused.chunks(ROWS_MAX) {
        let query = Query::new("delete from barriers where revision = 0 and (namespace, name)");
        tx.execute(query.among(rows.to_vec())).await?;
    }
    Ok(())
}

/// The highest index that the batch has shown of each region's history.
fn highest_indices(batch: &[(BarrierName, Command)], steps: &[Step]) -> BTreeMap<(RegionName, History), u64> {
    let mut highest = BTreeMap::new();
    for ((_, command), step) in batch.iter().zip(steps) {
        if let (Command::Report(report), Ok(Reply::Reported { .. })) = (command, &step.reply) {
            let index = highest.entry((report.region.clone(), report.stamp.history)).or_insert(0);
            *index = report.stamp.index.max(*index);
        }
    }
    highest
}
