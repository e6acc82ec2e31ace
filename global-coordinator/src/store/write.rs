//! Writing what the machine decided: the changes of a whole batch, gathered,
//! in few statements. Each guards what it overwrites: the row locks make these
//! guards idle, and a guard that is not says that a promise was about to break.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::fact::Decided;
use muster_protocol::generation::GenerationId;
use muster_protocol::global::{Audit, Barrier, Change, Generation, Waiver};
use muster_protocol::invariant::Invariant;
use muster_protocol::mutant;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::report::RegionReport;
use muster_protocol::spec::Spec;

use super::StoreError;
use super::backend::{Clock, Transaction};
use super::error::{defect, violation};
use super::query::{Query, ROWS_MAX, Row, batches, guarded, row};
use super::record::{generation_row, text_of};

const BARRIER: &str = "update barriers set revision = $3, deleted = $4, next_n = $5, lost_from = $6
    where namespace = $1 and name = $2 and revision <= $3 and next_n <= $5";

/// Products of these with a small factor stay within a column.
const RETENTION_STORED_MAX: u64 = i64::MAX as u64 / 1_024;

const RETENTION: &str = "update barriers set retention_ms = $3, retention_generations = $4
    where namespace = $1 and name = $2";

const DEADLINE: &str = "update generations set deadline_at = $4
    where namespace = $1 and name = $2 and n = $3 and deadline_at is null and decided is null";

const DECIDED: &str = "update generations set verdict = $4, decided = $5, digest = $6, decided_at = $7
    where namespace = $1 and name = $2 and n = $3 and decided is null";

const SETTLED: &str = "update generations set settled = $4
    where namespace = $1 and name = $2 and n = $3 and decided is not null";

const REPORTS: &str = "insert into reports
    (namespace, name, n, region, history, shard, log_index, complete, applied, body, received_at, waiver) ";

const REPORTS_NEWER: &str = " on conflict (namespace, name, n, region) do update set history = excluded.history,
    shard = excluded.shard, log_index = excluded.log_index, complete = excluded.complete,
    applied = excluded.applied, body = excluded.body, received_at = excluded.received_at, waiver = excluded.waiver
    where reports.history <> excluded.history or reports.log_index <= excluded.log_index";

const WAIVERS_WIDER: &str = " on conflict (namespace, name, n, region) do update set revision = excluded.revision,
    participants = excluded.participants, actor = excluded.actor, reason = excluded.reason
    where waivers.revision < excluded.revision";

/// What a known bug has: a number is opened once.
const OVER_ANOTHER: &str = " on conflict (namespace, name, n) do update set opened_at = excluded.opened_at";

/// What was decided by whom.
pub(super) const AUDIT: &str = "insert into audit (at, action, namespace, name, generation, actor, reason, object) ";

const UNUSED_SPECS: &str = "select s.revision from specs as s
    join barriers as b on b.namespace = s.namespace and b.name = s.name
    where s.namespace = $1 and s.name = $2 and s.revision <> b.revision
    and not exists (select 1 from generations as g
        where g.namespace = s.namespace and g.name = s.name and g.revision = s.revision)";

const CLOSED: &str = "update generations set closed = true, version = version + 1
    where decided is not null and (namespace, name, n)";

/// The changes of one batch.
pub(super) struct Writes<'a> {
    clock: &'a Clock,
    barriers: BTreeSet<BarrierName>,
    specs: Vec<Row>,
    retentions: BTreeMap<BarrierName, Row>,
    spec_regions: Vec<Row>,
    spec_labels: Vec<Row>,
    generations: Vec<Row>,
    /// The last of each region: the ones before it would be overwritten.
    reports: BTreeMap<(BarrierName, u64, RegionName), Row>,
    deadlines: Vec<Row>,
    decided: Vec<Row>,
    settled: Vec<Row>,
    /// The last of each region says what the ones before it said.
    waivers: BTreeMap<(BarrierName, u64, RegionName), Row>,
    closed: Vec<Row>,
    forgotten: BTreeMap<BarrierName, Vec<Row>>,
    audits: Vec<Row>,
    touched: BTreeSet<(BarrierName, u64)>,
}

impl<'a> Writes<'a> {
    /// Nothing, yet.
    pub(super) fn new(clock: &'a Clock) -> Self {
        Self {
            clock,
            barriers: BTreeSet::new(),
            specs: Vec::new(),
            retentions: BTreeMap::new(),
            spec_regions: Vec::new(),
            spec_labels: Vec::new(),
            generations: Vec::new(),
            reports: BTreeMap::new(),
            deadlines: Vec::new(),
            decided: Vec::new(),
            settled: Vec::new(),
            waivers: BTreeMap::new(),
            closed: Vec::new(),
            forgotten: BTreeMap::new(),
            audits: Vec::new(),
            touched: BTreeSet::new(),
        }
    }

    /// Adds one change.
    pub(super) fn add(&mut self, name: &BarrierName, change: &Change) -> Result<(), StoreError> {
        match change {
            Change::Defined { revision, spec } => self.add_spec(name, *revision, spec)?,
            Change::Deleted => drop(self.barriers.insert(name.clone())),
            Change::Opened(generation) => {
                self.barriers.insert(name.clone());
                self.generations.push(opened(name, generation));
                for (region, waiver) in &generation.waived {
                    self.waive(name, generation.id.n, region, waiver)?;
                }
            }
            Change::Reported { n, report } => {
                self.touched.insert((name.clone(), *n));
                let row = reported(name, *n, report, self.clock)?;
                self.reports.insert((name.clone(), *n, report.region.clone()), row);
            }
            Change::DeadlineSet { n, at } => {
                self.touched.insert((name.clone(), *n));
                self.deadlines.push(row![name.namespace(), name.name(), *n, at.0]);
            }
            Change::Decided { n, decided } => {
                self.touched.insert((name.clone(), *n));
                self.decided.push(ended(name, *n, decided)?);
            }
            Change::Settled { n } => {
                self.touched.insert((name.clone(), *n));
                self.settled.push(row![name.namespace(), name.name(), *n, true]);
            }
            Change::Waived { n, region, waiver } => {
                self.touched.insert((name.clone(), *n));
                self.waive(name, *n, region, waiver)?;
            }
            Change::Closed { n } => {
                self.reports.retain(|(of, report_n, _), _| of != name || !n.contains(report_n));
                self.closed.extend(n.iter().map(|n| generation_row(name, *n)));
            }
            Change::Forgotten { n } => {
                self.barriers.insert(name.clone());
                self.forgotten.entry(name.clone()).or_default().extend(n.iter().map(|n| generation_row(name, *n)));
            }
            Change::Audited(audit) => self.audits.push(audited(audit)),
        }
        Ok(())
    }

    fn waive(&mut self, name: &BarrierName, n: u64, region: &RegionName, waiver: &Waiver) -> Result<(), StoreError> {
        let participants = waiver.participants.as_ref().map(|ids| text_of("waiver", ids)).transpose()?;
        let row = row![
            name.namespace(),
            name.name(),
            n,
            region.as_str(),
            u64::from(waiver.revision),
            participants,
            waiver.by.actor.clone(),
            waiver.by.reason.as_str(),
        ];
        self.waivers.insert((name.clone(), n, region.clone()), row);
        Ok(())
    }

    fn add_spec(&mut self, name: &BarrierName, revision: u64, spec: &Spec) -> Result<(), StoreError> {
        let (namespace, short) = (name.namespace(), name.name());
        self.barriers.insert(name.clone());
        let after = spec.after.as_ref();
        self.specs.push(row![
            namespace,
            short,
            revision,
            text_of("spec", spec)?,
            self.clock.now.0,
            after.map(|after| after.namespace().to_owned()),
            after.map(|after| after.name().to_owned()),
        ]);
        let retention_ms = spec.retention_ms.min(RETENTION_STORED_MAX);
        let retention = row![namespace, short, retention_ms, u64::from(spec.retention_generations)];
        self.retentions.insert(name.clone(), retention);
        let regions = spec.regions.keys();
        self.spec_regions.extend(regions.map(|region| row![namespace, short, revision, region.as_str()]));
        let labels = spec.labels.iter();
        self.spec_labels
            .extend(labels.map(|(label, value)| row![namespace, short, revision, label.as_str(), value.as_str()]));
        Ok(())
    }

    /// Writes all of it; `barriers` hold the state that it leads to.
    pub(super) async fn write<T: Transaction>(
        self,
        tx: &mut T,
        barriers: &BTreeMap<BarrierName, Barrier>,
    ) -> Result<(), StoreError> {
        for barrier in self.barriers.iter().filter_map(|name| barriers.get(name)) {
            write_barrier(tx, barrier).await?;
        }
        for row in self.retentions.into_values() {
            one(tx, RETENTION, row).await?.map_err(|row| defect(format!("no barrier to keep things of: {row:?}")))?;
        }
        for (into, rows, conflict) in [
            (
                "insert into specs (namespace, name, revision, spec, defined_at, after_namespace, after_name) ",
                self.specs,
                "",
            ),
            ("insert into spec_regions (namespace, name, revision, region) ", self.spec_regions, ""),
            ("insert into spec_labels (namespace, name, revision, label, value) ", self.spec_labels, ""),
            (
                "insert into generations (namespace, name, n, key, round, revision, opened_at, deadline_at, era,
                settled, version, carry, closed) ",
                self.generations,
                if mutant!(OpenedTwice) { OVER_ANOTHER } else { "" },
            ),
            (
                "insert into waivers (namespace, name, n, region, revision, participants, actor, reason) ",
                self.waivers.into_values().collect(),
                guarded(WAIVERS_WIDER, " where", mutant!(WaiverNarrows)),
            ),
            (AUDIT, self.audits, ""),
        ] {
            insert(tx, into, rows, conflict).await?;
        }
        for row in self.deadlines {
            one(tx, DEADLINE, row).await?.map_err(|row| defect(format!("a deadline is set twice: {row:?}")))?;
        }
        for row in self.decided {
            let twice = |row: Row| format!("a second outcome was to be written: {:?}", &row[..3]);
            let decided = guarded(DECIDED, " and decided", mutant!(SecondOutcomeWritten));
            one(tx, decided, row).await?.map_err(|row| violation(Invariant::OneOutcome, twice(row)))?;
        }
        for row in self.settled {
            one(tx, SETTLED, row).await?.map_err(|row| defect(format!("nothing is decided to settle: {row:?}")))?;
        }
        let touched: Vec<Row> = self.touched.iter().map(|(name, n)| generation_row(name, *n)).collect();
        for rows in touched.chunks(ROWS_MAX) {
            let query = Query::new("update generations set version = version + 1 where (namespace, name, n)");
            tx.execute(query.among(rows.to_vec())).await?;
        }
        for rows in self.closed.chunks(ROWS_MAX) {
            tx.execute(Query::new(CLOSED).among(rows.to_vec())).await?;
            tx.execute(Query::new("delete from reports where (namespace, name, n)").among(rows.to_vec())).await?;
        }
        // What came to one that was closed before it stays; what came first is gone.
        let newer = guarded(REPORTS_NEWER, " where", mutant!(OlderReportWritten));
        insert(tx, REPORTS, self.reports.into_values().collect(), newer).await?;
        for (name, rows) in &self.forgotten {
            forget(tx, name, rows).await?;
        }
        Ok(())
    }
}

/// Deletes generations, and the specs that nothing refers to any more.
async fn forget<T: Transaction>(tx: &mut T, name: &BarrierName, rows: &[Row]) -> Result<(), StoreError> {
    for rows in rows.chunks(ROWS_MAX) {
        for delete in [
            "delete from reports where (namespace, name, n)",
            "delete from waivers where (namespace, name, n)",
            "delete from generations where decided is not null and (namespace, name, n)",
        ] {
            tx.execute(Query::new(delete).among(rows.to_vec())).await?;
        }
    }
    let (namespace, short) = (name.namespace(), name.name());
    let unused: Vec<(i64,)> = tx.fetch(Query::new(UNUSED_SPECS).with(namespace).with(short)).await?;
    let unused: Vec<Row> = unused.into_iter().map(|(revision,)| row![namespace, short, revision]).collect();
    for rows in unused.chunks(ROWS_MAX) {
        for delete in [
            "delete from spec_labels where (namespace, name, revision)",
            "delete from spec_regions where (namespace, name, revision)",
            "delete from specs where (namespace, name, revision)",
        ] {
            tx.execute(Query::new(delete).among(rows.to_vec())).await?;
        }
    }
    Ok(())
}

async fn write_barrier<T: Transaction>(tx: &mut T, barrier: &Barrier) -> Result<(), StoreError> {
    let name = &barrier.name;
    let lost_from = barrier.lost_from.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let row = row![name.namespace(), name.name(), barrier.revision, barrier.deleted, barrier.next_n, lost_from];
    one(tx, guarded(BARRIER, " and revision", mutant!(NumbersFall)), row).await?.map_err(|_| {
        violation(Invariant::GenerationsApart, format!("the numbers of {name} were to fall or its row is gone"))
    })
}

/// Inserts rows; every one of them must have an effect.
async fn insert<T: Transaction>(
    tx: &mut T,
    into: &'static str,
    rows: Vec<Row>,
    conflict: &'static str,
) -> Result<(), StoreError> {
    for rows in batches(rows) {
        let expected = rows.len() as u64;
        let written = tx.execute(Query::new(into).rows(rows).push(conflict)).await?;
        if written != expected {
            return Err(defect(format!("{written} of {expected} rows were written by {into}")));
        }
    }
    Ok(())
}

/// Runs an update of exactly one row; gives the values back if it was not one.
async fn one<T: Transaction>(tx: &mut T, statement: &'static str, row: Row) -> Result<Result<(), Row>, StoreError> {
    let changed = tx.execute(Query::new(statement).with_all(row.clone())).await?;
    Ok(if changed == 1 { Ok(()) } else { Err(row) })
}

fn opened(name: &BarrierName, generation: &Generation) -> Row {
    let GenerationId { n, key, round, .. } = &generation.id;
    row![
        name.namespace(),
        name.name(),
        *n,
        key.as_ref().map(|key| key.as_str().to_owned()),
        u64::from(*round),
        generation.revision,
        generation.opened_at.0,
        generation.deadline_at.map(|at| i64::try_from(at.0).unwrap_or(i64::MAX)),
        generation.era.0.as_str(),
        generation.settled,
        1_u64,
        generation.carry.map(|n| i64::try_from(n).unwrap_or(i64::MAX)),
        generation.closed,
    ]
}

fn reported(name: &BarrierName, n: u64, report: &RegionReport, clock: &Clock) -> Result<Row, StoreError> {
    Ok(row![
        name.namespace(),
        name.name(),
        n,
        report.region.as_str(),
        report.stamp.history.to_string(),
        u64::from(report.stamp.shard),
        report.stamp.index,
        report.complete,
        report.applied.map(|digest| digest.to_string()),
        text_of("report", report)?,
        clock.now.0,
        u64::from(report.apart.waiver),
    ])
}

fn ended(name: &BarrierName, n: u64, decided: &Decided) -> Result<Row, StoreError> {
    let outcome = &decided.outcome;
    let verdict = if outcome.verdict.is_released() { "released" } else { "broken" };
    let digest = outcome.digest().to_string();
    Ok(row![name.namespace(), name.name(), n, verdict, text_of("outcome", decided)?, digest, outcome.decided_at.0])
}

fn audited(audit: &Audit) -> Row {
    row![
        audit.at.0,
        audit.action.as_str(),
        audit.barrier.namespace(),
        audit.barrier.name(),
        audit.generation.as_ref().map(|id| id.label().to_string()),
        audit.by.actor.clone(),
        audit.by.reason.as_str(),
        audit.object.as_str(),
    ]
}
