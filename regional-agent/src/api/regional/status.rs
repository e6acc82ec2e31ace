//! A regional generation as people read it: pure functions of the region's
//! state and now.
//!
//! Its deadline counts on the region clock, which nobody can read; people are
//! told the wall time that is as far away.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::generation::State;
use muster_protocol::global;
use muster_protocol::identity::{Digest, Stamp, Timestamp};
use muster_protocol::outcome::{BreakReason, Outcome, Release, Verdict};
use muster_protocol::region::{Generation, Region};
use muster_protocol::report::RegionReport;
use muster_protocol::spec::Spec;
use muster_wire::answer::{GenerationRow, Link, NextEvent, Reason, RegionState, Status};
use muster_wire::time::rfc3339;
use muster_wire::verdict;

use super::super::read::region_status;

/// What can be known of a generation when somebody asks.
pub(super) struct Seen<'a> {
    pub(super) generation: &'a Generation,
    /// The decider's part, until it has forgotten it.
    pub(super) decider: Option<&'a global::Generation>,
    pub(super) spec: Option<&'a Spec>,
    pub(super) report: RegionReport,
    /// Milliseconds on the region clock.
    clock_ms: u64,
    waiting: usize,
    pub(super) now: Timestamp,
}

impl<'a> Seen<'a> {
    /// A generation of the region, with how many wait for it here.
    pub(super) fn of(region: &'a Region, generation: &'a Generation, waiting: usize, now: Timestamp) -> Option<Self> {
        let id = generation.id();
        let barrier = region.regional_barrier(&id.barrier)?;
        let decider = barrier.generations.get(&id.n);
        let spec = decider.and_then(|decider| barrier.specs.get(&decider.revision)).or_else(|| barrier.spec());
        let report = region.report(&id.barrier, id.n)?;
        Some(Self { generation, decider, spec, report, clock_ms: region.clock_ms(), waiting, now })
    }

    pub(super) fn outcome(&self) -> Option<&'a Outcome> {
        self.generation.ended().map(|ended| &ended.outcome)
    }

    /// When it breaks, as people read it.
    pub(super) fn deadline_at(&self) -> Option<Timestamp> {
        let due = self.decider?.deadline_at.filter(|_| self.outcome().is_none())?;
        Some(self.now.plus_ms(due.0.saturating_sub(self.clock_ms)))
    }

    /// Whether the whole region is waived, which releases it.
    fn is_waived(&self) -> bool {
        self.decider.is_some_and(|decider| decider.waived.values().any(global::Waiver::is_whole))
    }

    /// How many have not arrived and not failed for good.
    pub(super) fn missing(&self) -> u32 {
        if self.report.complete { 0 } else { self.report.missing.count + self.report.retrying }
    }

    /// `/v1/barriers/etl/map/generations/2026-10-07`.
    fn path(&self) -> String {
        let id = self.generation.id();
        format!("/v1/barriers/{}/generations/{}", id.barrier, id.label())
    }

    /// Where in the log this was true, and what was: an index that changes when
    /// the generation does.
    pub(super) fn index(&self) -> String {
        let Stamp { history, index, .. } = self.report.stamp;
        let still = RegionReport { stamp: Stamp { index: 0, ..self.report.stamp }, ..self.report.clone() };
        let waived = self.decider.map(|decider| &decider.waived);
        let what = Digest::of(&(still, waived, self.generation.is_closed())).to_string();
        format!("{history}:{index}.{}", &what[..8])
    }
}

/// The status document.
pub(super) fn status(seen: &Seen<'_>) -> Status {
    let (id, report, outcome) = (seen.generation.id(), &seen.report, seen.outcome());
    let (reason, message) = reason(seen);
    let mut region = region_status(report, Link::Up);
    if seen.is_waived() {
        region.state = RegionState::Waived;
    }
    let skew_ms = report.last_arrival_at.zip(report.first_arrival_at).map(|(last, first)| last.since_ms(first));
    let deadline_at = seen.deadline_at().map(rfc3339);
    let next = deadline_at.clone();
    Status {
        barrier: id.barrier.clone(),
        generation: id.label().to_string(),
        n: id.n,
        round: id.round,
        state: seen.generation.state(),
        reason,
        message,
        expected: report.expected.into(),
        arrived: report.arrived.into(),
        failed: report.failed.into(),
        waiting: seen.waiting as u64,
        opened_at: rfc3339(seen.generation.opened_at()),
        deadline_at,
        decided_at: outcome.map(|outcome| rfc3339(outcome.decided_at)),
        index: seen.index(),
        owner: seen.spec.map(|spec| spec.owner.clone()).unwrap_or_default(),
        next: next.map(|at| NextEvent { at, what: "break".to_owned(), reason: Reason::DeadlineExceeded }),
        regions: vec![region],
        release: outcome.and_then(verdict::release_status),
        broken: outcome.and_then(verdict::broken_status),
        skew_seconds: skew_ms.filter(|_| report.complete).map(|ms| Duration::from_millis(ms).as_secs_f64()),
        links: links(seen),
    }
}

/// One row of a list.
pub(super) fn row(seen: &Seen<'_>) -> GenerationRow {
    let status = status(seen);
    GenerationRow {
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

fn links(seen: &Seen<'_>) -> BTreeMap<String, String> {
    let path = seen.path();
    let mut names = vec!["explain", "participants"];
    match seen.outcome() {
        None => names.push("wait"),
        Some(outcome) if outcome.verdict.is_released() => names.push("outputs"),
        Some(_) => {}
    }
    let mut links: BTreeMap<String, String> =
        names.into_iter().map(|name| (name.to_owned(), format!("{path}/{name}"))).collect();
    links.insert("self".to_owned(), path);
    links
}

/// Why it is where it is: one word, and a sentence.
fn reason(seen: &Seen<'_>) -> (Reason, String) {
    match seen.outcome().map(|outcome| &outcome.verdict) {
        Some(Verdict::Released(release)) => released(release),
        Some(Verdict::Broken(cause)) => {
            let by = cause.actor.as_deref().map(|actor| format!(" by {actor}")).unwrap_or_default();
            let message = match cause.reason {
                BreakReason::Aborted => format!("aborted{by}: {}", cause.message),
                BreakReason::Deleted => format!("its barrier was deleted{by}: {}", cause.message),
                _ => cause.message.clone(),
            };
            (verdict::reason(cause.reason), message)
        }
        None => gathering(seen),
    }
}

fn released(release: &Release) -> (Reason, String) {
    if let Some(by) = &release.forced {
        let who = by.actor.as_deref().map(|actor| format!(" by {actor}")).unwrap_or_default();
        return (Reason::Forced, format!("released by force{who}: {}", by.reason));
    }
    let mut without = Vec::new();
    if release.failed > 0 {
        without.push(format!("{} failed", count(release.failed, "participant")));
    }
    if release.excluded > 0 {
        without.push(format!("{} lost and excluded", count(release.excluded, "participant")));
    }
    without.extend(release.waived.iter().map(|(region, ids)| match ids.as_str() {
        "" => format!("{region} was waived"),
        ids => format!("{ids} of {region} waived"),
    }));
    match without.is_empty() {
        true => (Reason::Released, "released: everybody arrived".to_owned()),
        false => (Reason::Released, format!("released, not whole: {}", without.join("; "))),
    }
}

fn gathering(seen: &Seen<'_>) -> (Reason, String) {
    let (report, missing) = (&seen.report, missing(seen));
    let nobody = report.arrived == 0 && report.failed == 0 && report.apart.working == 0;
    if seen.generation.state() == State::Gathering && nobody && seen.deadline_at().is_none() {
        return (Reason::Idle, format!("nobody has arrived and no time runs; {missing}"));
    }
    (Reason::WaitingForParticipants, missing)
}

/// "3 of 10 participants missing: [4-6]; 2 working, 1 lost".
pub(super) fn missing(seen: &Seen<'_>) -> String {
    let report = &seen.report;
    let who = if report.missing.names.is_empty() { String::new() } else { format!(": {}", report.missing.names) };
    let doing = [(report.apart.working, "working"), (report.apart.lost, "lost"), (report.retrying, "retrying")];
    let doing: Vec<String> =
        doing.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")).collect();
    let doing = if doing.is_empty() { String::new() } else { format!("; {}", doing.join(", ")) };
    format!("{} of {} missing{who}{doing}", seen.missing(), count(report.expected, "participant"))
}

/// "1 participant", "3 participants".
pub(super) fn count(number: u32, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
