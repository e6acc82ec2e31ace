//! Says again what no region has answered: 1 s after it was first seen, then
//! at doubling intervals up to 30 s, and at once to a region that greets.
//!
//! What is unanswered is read from the store, so a fact that was never sent,
//! lost, or sent by a coordinator that died is repeated like any other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use muster_protocol::fact::Fact;
use muster_protocol::name::{BarrierName, RegionName};
use muster_telemetry::metrics;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::coordinator::Coordinator;
use crate::store::StoreError;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// How often what is unanswered is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// A look may take this part of the time, however much is unanswered.
const REST_PER_LOOK: u32 = 10;
/// Rows in one page, and facts in one send.
const PAGE: u32 = 200;
/// Greetings that may wait for a look. More are lost: regions greet again.
const GREETINGS_MAX: usize = 1_024;

/// What owes an answer: a region, for the opening or the end of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Debt {
    region: RegionName,
    barrier: BarrierName,
    n: u64,
    decided: bool,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    interval: Duration,
    look: u64,
}

/// The clock of the repeats: what is due when. Pure but for the instants it is given.
#[derive(Debug, Default)]
struct Schedule {
    due: HashMap<Debt, Due>,
    look: u64,
}

impl Schedule {
    /// Whether a debt is to be repeated now.
    fn is_due(&mut self, debt: Debt, now: Instant, greeted: bool) -> bool {
        let first = Due { at: now + FIRST, interval: FIRST, look: self.look };
        let due = self.due.entry(debt).or_insert(first);
        due.look = self.look;
        if greeted {
            *due = first;
            return true;
        }
        if now < due.at {
            return false;
        }
        due.interval = (due.interval * 2).min(LONGEST);
        due.at = now + due.interval;
        true
    }

    /// Forgets what was not seen since the last call: it was answered.
    fn end_look(&mut self) {
        let look = self.look;
        self.due.retain(|_, due| due.look == look);
        self.look += 1;
    }
}

/// Tells the repeats that a region greeted.
#[derive(Clone)]
pub(crate) struct Greetings(mpsc::Sender<RegionName>);

impl Greetings {
    pub(crate) fn new() -> (Self, mpsc::Receiver<RegionName>) {
        let (sender, receiver) = mpsc::channel(GREETINGS_MAX);
        (Self(sender), receiver)
    }

    /// The region is told at once what it lacks.
    pub(crate) fn greeted(&self, region: &RegionName) {
        if self.0.try_send(region.clone()).is_err() {
            tracing::debug!(%region, "too many greetings at once; this region will greet again");
        }
    }
}

/// Repeats until the service stops.
pub(crate) async fn run(coordinator: Arc<Coordinator>, mut greetings: mpsc::Receiver<RegionName>) {
    let mut schedule = Schedule::default();
    let mut greeted = BTreeSet::new();
    let mut backoff = Backoff::short();
    loop {
        let began = Instant::now();
        match look(&coordinator, &mut schedule, &greeted).await {
            Ok(()) => {
                greeted.clear();
                backoff = Backoff::short();
            }
            Err(error) => {
                tracing::warn!(error = %muster_telemetry::chain(&error), "read which facts are unanswered");
                backoff.pause().await;
            }
        }
        let rest = LOOK.max(began.elapsed() * REST_PER_LOOK);
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            region = greetings.recv() => greeted.extend(region),
        }
        while let Ok(region) = greetings.try_recv() {
            greeted.insert(region);
        }
    }
}

/// One pass: those who greeted first, then everybody.
async fn look(
    coordinator: &Coordinator,
    schedule: &mut Schedule,
    greeted: &BTreeSet<RegionName>,
) -> Result<(), StoreError> {
    let mut counts: BTreeMap<RegionName, u64> =
        coordinator.store.regions().await?.into_iter().map(|region| (region.name, 0)).collect();
    for region in greeted {
        pages(coordinator, schedule, Some(region), &BTreeSet::from([region.clone()]), &mut BTreeMap::new()).await?;
    }
    pages(coordinator, schedule, None, &BTreeSet::new(), &mut counts).await?;
    schedule.end_look();
    for (region, count) in counts {
        metrics::unanswered_facts(region.to_string()).set(count as f64);
    }
    Ok(())
}

async fn pages(
    coordinator: &Coordinator,
    schedule: &mut Schedule,
    region: Option<&RegionName>,
    greeted: &BTreeSet<RegionName>,
    counts: &mut BTreeMap<RegionName, u64>,
) -> Result<(), StoreError> {
    let mut cursor = None;
    loop {
        let page = coordinator.store.unanswered(region, cursor, PAGE).await?;
        let now = Instant::now();
        let mut facts = Vec::new();
        let mut ends = BTreeSet::new();
        for (region, fact) in page.items {
            *counts.entry(region.clone()).or_default() += 1;
            let (barrier, n) = (fact.generation().barrier.clone(), fact.generation().n);
            let decided = matches!(fact, Fact::Decided(_));
            let debt = Debt { region, barrier: barrier.clone(), n, decided };
            let greeted = greeted.contains(&debt.region);
            // An end is heard by every region: once is enough for all that lack it.
            if schedule.is_due(debt, now, greeted) && (!decided || ends.insert((barrier, n))) {
                facts.push(fact);
            }
        }
        coordinator.send(facts).await;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt() -> Debt {
        Debt { region: "us-east".parse().unwrap(), barrier: "etl/map".parse().unwrap(), n: 1, decided: false }
    }

    #[test]
    fn intervals_double_up_to_the_limit() {
        let (start, mut schedule) = (Instant::now(), Schedule::default());
        let mut sent = Vec::new();
        for second in 0..120 {
            if schedule.is_due(debt(), start + Duration::from_secs(second), false) {
                sent.push(second);
            }
            schedule.end_look();
        }
        assert_eq!(sent, [1, 3, 7, 15, 31, 61, 91]);
    }

    #[test]
    fn a_greeting_begins_anew() {
        let (start, mut schedule) = (Instant::now(), Schedule::default());
        let at = |second| start + Duration::from_secs(second);
        assert!(!schedule.is_due(debt(), at(0), false));
        assert!(schedule.is_due(debt(), at(20), false));
        assert!(schedule.is_due(debt(), at(21), true), "who greets is told at once");
        assert!(schedule.is_due(debt(), at(22), false), "and again a second later");
    }

    #[test]
    fn what_was_answered_is_forgotten() {
        let mut schedule = Schedule::default();
        schedule.is_due(debt(), Instant::now(), false);
        schedule.end_look();
        assert_eq!(schedule.due.len(), 1);
        schedule.end_look();
        assert!(schedule.due.is_empty());
    }
}
