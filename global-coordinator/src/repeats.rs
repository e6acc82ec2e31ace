//! Says again what no region has answered, when
//! [`muster_protocol::repeats`] says so. What is unanswered is read from the
//! store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_protocol::name::RegionName;
use muster_protocol::repeats::Repeats;
use muster_telemetry::metrics;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::coordinator::Coordinator;
use crate::store::StoreError;

/// How often what is unanswered is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// A look may take this part of the time, however much is unanswered.
const REST_PER_LOOK: u32 = 10;
/// Rows in one page, and facts in one send.
const PAGE: u32 = 200;
/// Greetings that may wait for a look. More are lost: regions greet again.
const GREETINGS_MAX: usize = 1_024;

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

/// The machine, with the zero of its instants.
struct Clock {
    machine: Repeats,
    started: Instant,
}

/// Repeats until the service stops.
pub(crate) async fn run(coordinator: Arc<Coordinator>, mut greetings: mpsc::Receiver<RegionName>) {
    let mut clock = Clock { machine: Repeats::default(), started: Instant::now() };
    let mut greeted = BTreeSet::new();
    let mut backoff = Backoff::short();
    loop {
        let began = Instant::now();
        match look(&coordinator, &mut clock, &greeted).await {
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
async fn look(coordinator: &Coordinator, clock: &mut Clock, greeted: &BTreeSet<RegionName>) -> Result<(), StoreError> {
    let mut counts: BTreeMap<RegionName, u64> =
        coordinator.store.regions().await?.into_iter().map(|region| (region.name, 0)).collect();
    for region in greeted {
        pages(coordinator, clock, Some(region), &BTreeSet::from([region.clone()]), &mut BTreeMap::new()).await?;
    }
    pages(coordinator, clock, None, &BTreeSet::new(), &mut counts).await?;
    clock.machine.end_look();
    for (region, count) in counts {
        metrics::unanswered_facts(region.to_string()).set(count as f64);
    }
    Ok(())
}

async fn pages(
    coordinator: &Coordinator,
    clock: &mut Clock,
    region: Option<&RegionName>,
    greeted: &BTreeSet<RegionName>,
    counts: &mut BTreeMap<RegionName, u64>,
) -> Result<(), StoreError> {
    let mut cursor = None;
    loop {
        let page = coordinator.store.unanswered(region, cursor, PAGE).await?;
        for (region, _) in &page.items {
            *counts.entry(region.clone()).or_default() += 1;
        }
        let facts = clock.machine.page(page.items, greeted, clock.started.elapsed());
        coordinator.send(facts).await;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}
