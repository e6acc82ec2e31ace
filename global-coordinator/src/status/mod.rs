//! Speaking of a generation: from what the store knows to what people read.
//!
//! Pure functions of (generation, regions, now). The rest of the coordinator
//! decides; nothing here does.

mod explain;
mod reason;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use muster_protocol::generation::State;
use muster_protocol::global::{self, Context, Declared, Waiver};
use muster_protocol::identity::{Era, Timestamp};
use muster_protocol::name::{RegionName, ZoneName};
use muster_protocol::outcome::Outcome;
use muster_protocol::participants::IdSet;
use muster_protocol::report::{Apart, RegionReport, ZoneReport};
use muster_protocol::spec::Slice;
use muster_wire::answer::{self, Link, NextEvent, Reason, RegionState, Status, ZoneStatus};
use muster_wire::time::rfc3339;
use muster_wire::verdict;

pub(crate) use self::explain::{explain, gathering_members};
use crate::store::{GenerationRow, RegionRow};

/// Milliseconds without a sign of life after which a region is silent.
pub(crate) const SILENT_AFTER_MS: u128 = 10_000;

/// What can be known about a generation when somebody asks.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The generation.
    pub(crate) row: &'a GenerationRow,
    /// The declared regions.
    pub(crate) regions: &'a BTreeMap<RegionName, RegionRow>,
    /// The same as decisions see them.
    pub(crate) declared: &'a BTreeMap<RegionName, Declared>,
    /// The life of the store, which issues indexes.
    pub(crate) era: &'a Era,
    /// How many calls wait for it here.
    pub(crate) waiting: u64,
    /// For durations in sentences.
    pub(crate) now: Timestamp,
}

/// One region's part, with nothing known as zero.
#[derive(Clone, Copy)]
struct Part<'a> {
    name: &'a RegionName,
    slice: &'a Slice,
    report: Option<&'a RegionReport>,
    region: Option<&'a RegionRow>,
    applied: bool,
    waiver: Option<&'a Waiver>,
    closed: bool,
}

impl Part<'_> {
    fn expected(&self) -> u32 {
        self.slice.participants.expected()
    }

    fn arrived(&self) -> u32 {
        self.report.map_or(0, |report| report.arrived)
    }

    fn failed(&self) -> u32 {
        self.report.map_or(0, |report| report.failed)
    }

    fn complete(&self) -> bool {
        self.report.is_some_and(|report| report.complete)
    }

    /// Whether nobody waits for the region.
    fn waived(&self) -> bool {
        self.waiver.is_some_and(Waiver::is_whole)
    }

    /// Whether something is still to come from the region.
    fn pending(&self) -> bool {
        !self.complete() && !self.waived()
    }

    /// How many were not heard of.
    fn missing_count(&self) -> u32 {
        match self.report {
            _ if self.waived() || self.closed => 0,
            Some(report) if report.complete => 0,
            Some(report) => report.missing.count,
            None => self.expected(),
        }
    }

    fn retrying(&self) -> u32 {
        self.report.filter(|_| self.pending()).map_or(0, |report| report.retrying)
    }

    /// How many have not arrived and not failed for good.
    fn missing(&self) -> u32 {
        self.missing_count() + self.retrying()
    }

    fn apart(&self) -> Apart {
        self.report.map(|report| report.apart).unwrap_or_default()
    }

    fn zones(&self) -> BTreeMap<ZoneName, ZoneStatus> {
        let zone = |(name, ids): (&ZoneName, &IdSet)| {
            let known = self.report.and_then(|report| report.zones.get(name));
            let ZoneReport { arrived, failed, complete, .. } = known.copied().unwrap_or_default();
            (name.clone(), ZoneStatus { arrived, expected: ids.len(), failed, complete })
        };
        self.slice.participants.zones().map(zone).collect()
    }

    fn missing_names(&self) -> &str {
        self.report.filter(|_| self.pending()).map_or("", |report| report.missing.names.as_str())
    }

    fn link(&self) -> Link {
        self.region.map_or(Link::Never, link)
    }

    fn state(&self) -> RegionState {
        match self.report {
            _ if self.waived() => RegionState::Waived,
            None if self.closed => RegionState::Unknown,
            None => RegionState::Unopened,
            Some(report) if report.over_failures => RegionState::Failed,
            Some(report) if report.complete => RegionState::Complete,
            Some(_) => RegionState::Gathering,
        }
    }
}

/// Whether a region can be heard, by the database's clock.
pub(crate) fn link(region: &RegionRow) -> Link {
    match region.silence {
        None => Link::Never,
        Some(silence) if silence.as_millis() > SILENT_AFTER_MS => Link::Silent,
        Some(_) => Link::Up,
    }
}

/// Where a generation's state was true: opaque to callers.
pub(crate) fn index(era: &Era, row: &GenerationRow) -> String {
    format!("{}:{}.{}", era.0, row.generation.id.n, row.version)
}

/// Whether a row is newer than an index that a caller hands back. An index of
/// another origin is no reason to wait.
pub(crate) fn is_newer(era: &Era, row: &GenerationRow, index: &str) -> bool {
    position(era, index).is_none_or(|position| (row.generation.id.n, row.version) > position)
}

/// Whether a row has come as far as an index of this origin.
pub(crate) fn is_at_least(era: &Era, row: &GenerationRow, index: &str) -> bool {
    position(era, index).is_none_or(|position| (row.generation.id.n, row.version) >= position)
}

fn position(era: &Era, index: &str) -> Option<(u64, u64)> {
    let (origin, place) = index.rsplit_once(':')?;
    let (n, version) = place.split_once('.')?;
    (origin == era.0).then_some((n.parse().ok()?, version.parse().ok()?))
}

impl<'a> View<'a> {
    fn parts(&self) -> Vec<Part<'a>> {
        let generation = &self.row.generation;
        let part = |(name, slice)| Part {
            name,
            slice,
            report: generation.reports.get(name),
            region: self.regions.get(name),
            applied: generation.settled || generation.applied(name),
            waiver: generation.waived.get(name),
            closed: generation.closed,
        };
        self.row.spec.regions.iter().map(part).collect()
    }

    fn outcome(&self) -> Option<&'a Outcome> {
        self.row.generation.decided.as_ref().map(|decided| &decided.outcome)
    }

    /// Asks something of the generation as it is judged.
    fn judged<T>(&self, ask: impl FnOnce(&global::View<'_>) -> T) -> T {
        let context =
            Context { now: self.now, at: self.now, era: self.era, regions: self.declared, barriers_in_namespace: 0 };
        ask(&global::View { generation: &self.row.generation, spec: &self.row.spec, context: &context })
    }

    /// The region that has to speak before anything is decided.
    fn behind(&self) -> Option<RegionName> {
        self.outcome().map_or_else(|| self.judged(|view| view.behind().cloned()), |_| None)
    }

    /// What the rule still needs.
    fn needs(&self) -> Option<String> {
        self.judged(|view| view.needs())
    }

    /// `/v1/barriers/etl/map/generations/2026-10-07`.
    fn path(&self) -> String {
        let id = &self.row.generation.id;
        format!("/v1/barriers/{}/generations/{}", id.barrier, id.label())
    }
}

/// The status document.
pub(crate) fn status(view: &View<'_>) -> Status {
    let (row, parts) = (view.row, view.parts());
    let generation = &row.generation;
    let (reason, message) = reason::reason(view, &parts);
    let sum = |of: fn(&Part<'_>) -> u32| parts.iter().map(|part| u64::from(of(part))).sum();
    Status {
        barrier: generation.id.barrier.clone(),
        generation: generation.id.label().to_string(),
        n: generation.id.n,
        round: generation.id.round,
        state: generation.state(),
        reason,
        message,
        expected: sum(|part| part.expected()),
        arrived: sum(|part| part.arrived()),
        failed: sum(|part| part.failed()),
        waiting: view.waiting,
        opened_at: rfc3339(generation.opened_at),
        deadline_at: generation.deadline_at.map(rfc3339),
        decided_at: view.outcome().map(|outcome| rfc3339(outcome.decided_at)),
        index: index(view.era, row),
        owner: row.spec.owner.clone(),
        next: next(view),
        regions: parts.iter().map(|part| region(row, part)).collect(),
        release: view.outcome().and_then(verdict::release_status),
        broken: view.outcome().and_then(verdict::broken_status),
        skew_seconds: skew_seconds(row),
        links: links(view),
    }
}

fn next(view: &View<'_>) -> Option<NextEvent> {
    let at = view.row.generation.deadline_at.filter(|_| view.outcome().is_none())?;
    Some(NextEvent { at: rfc3339(at), what: "break".to_owned(), reason: Reason::DeadlineExceeded })
}

fn region(row: &GenerationRow, part: &Part<'_>) -> answer::RegionStatus {
    let apart = part.apart();
    let completed = part.report.filter(|report| report.complete).and_then(|report| report.last_arrival_at);
    answer::RegionStatus {
        name: part.name.clone(),
        state: part.state(),
        arrived: part.arrived(),
        expected: part.expected(),
        failed: part.failed(),
        missing: part.missing_names().to_owned(),
        missing_count: part.missing_count(),
        retrying: part.retrying(),
        working: if part.pending() { apart.working } else { 0 },
        lost: if part.pending() { apart.lost } else { 0 },
        excluded: apart.excluded,
        waived: apart.waived,
        zones: part.zones(),
        completed_at: completed.map(rfc3339),
        applied: part.applied,
        link: part.link(),
        as_of_seconds: row.report_ages.get(part.name).map(std::time::Duration::as_secs_f64),
    }
}

/// Seconds from the first arrival to the last, once every region is complete.
pub(crate) fn skew_seconds(row: &GenerationRow) -> Option<f64> {
    let report = |region| row.generation.reports.get(region).filter(|report| report.complete);
    let complete: Vec<&RegionReport> = row.spec.regions.keys().map(report).collect::<Option<_>>()?;
    let first = complete.iter().filter_map(|report| report.first_arrival_at).min()?;
    let last = complete.iter().filter_map(|report| report.last_arrival_at).max()?;
    Some(std::time::Duration::from_millis(last.since_ms(first)).as_secs_f64())
}

fn links(view: &View<'_>) -> BTreeMap<String, String> {
    let path = view.path();
    let mut links: BTreeMap<String, String> =
        ["explain", "participants"].into_iter().map(|name| (name.to_owned(), format!("{path}/{name}"))).collect();
    links.insert("self".to_owned(), path.clone());
    if view.outcome().is_none() {
        links.insert("wait".to_owned(), format!("{path}/wait"));
    }
    if view.outcome().is_some_and(|outcome| outcome.verdict.is_released()) {
        links.insert("outputs".to_owned(), format!("{path}/outputs"));
    }
    links
}

/// One row of the list of generations.
pub(crate) fn list_row(view: &View<'_>) -> answer::GenerationRow {
    let status = status(view);
    answer::GenerationRow {
        barrier: status.barrier,
        generation: status.generation,
        n: status.n,
        state: status.state,
        reason: status.reason,
        arrived: status.arrived,
        expected: status.expected,
        opened_at: status.opened_at,
        deadline_at: status.deadline_at,
        decided_at: status.decided_at,
    }
}

/// What whoever passes is handed; `None` unless it is released.
pub(crate) fn released(row: &GenerationRow) -> Option<answer::Released> {
    let state = match row.generation.state() {
        State::Released => State::Released,
        _ => State::Releasing,
    };
    verdict::released(&row.generation.decided.as_ref()?.outcome, state)
}
