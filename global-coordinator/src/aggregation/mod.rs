//! Takes what the regions say, decides each batch in one transaction, tells
//! the regions, and only then lets go of the batch.
//!
//! ```text
//! join ─▶ next batch ─▶ greetings ─▶ reports: one transaction ─▶ facts sent ─▶ commit
//!   ▲                                                                            │
//!   └───── regions changed · the bus lost our place ◀────────────────────────────┘
//! ```
//!
//! Offsets carry no meaning: a batch that is read twice changes nothing. A
//! coordinator that can't reach its store for long leaves its place, and the
//! batch with it, to others that may: it joins again once its store answers.

mod batch;
mod decision;
mod propagation;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use muster_bus::Up;
use muster_protocol::name::RegionName;

use self::batch::Batch;
pub(crate) use self::propagation::Propagation;
use crate::backoff::Backoff;
use crate::coordinator::Coordinator;
use crate::repeats::Greetings;
use crate::store::StoreError;

/// Records that are taken together.
const BATCH_MAX: usize = 500;
/// How long a batch waits for the store. Longer than a restart of Postgres
/// takes, shorter than people take to wonder.
const STORE_PATIENCE: Duration = Duration::from_secs(8);
/// How often the declared regions are looked at though nobody declared one
/// here: another coordinator may have.
const LOOK: Duration = Duration::from_secs(3);

/// Why something of a batch was not done.
enum GaveUp {
    /// The store does not understand it, now and later.
    Defect(StoreError),
    /// The store is away, or the service is to stop: the batch is another's.
    Left,
}

/// Aggregates until the service stops.
pub(crate) async fn run(coordinator: Arc<Coordinator>, greetings: Greetings) {
    let mut backoff = Backoff::short();
    while !coordinator.shutdown.is_cancelled() {
        let joined = tokio::select! {
            joined = join(&coordinator) => joined,
            () = coordinator.shutdown.cancelled() => return,
        };
        let Some((regions, mut up)) = joined else { continue };
        tracing::info!(?regions, "listening to the regions");
        let handled = take_part(&coordinator, &greetings, &regions, up.as_mut()).await;
        // The old place is left before another is taken.
        drop(up);
        if handled {
            backoff = Backoff::short();
        }
        tokio::select! {
            () = backoff.pause() => {}
            () = coordinator.shutdown.cancelled() => return,
        }
    }
}

/// Waits for regions to be declared, and takes part in reading from them.
async fn join(coordinator: &Coordinator) -> Option<(BTreeSet<RegionName>, Box<dyn Up>)> {
    let mut declared = coordinator.declared.subscribe();
    let mut backoff = Backoff::short();
    loop {
        let regions = match declared_regions(coordinator).await {
            Ok(regions) if regions.is_empty() => {
                tokio::select! {
                    _ = declared.changed() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
                continue;
            }
            Ok(regions) => regions,
            Err(error) => {
                tracing::warn!(error = %muster_telemetry::chain(&error), "read which regions are declared; trying on");
                backoff.pause().await;
                continue;
            }
        };
        let list: Vec<RegionName> = regions.iter().cloned().collect();
        let joined = match coordinator.bus.prepare(&list).await {
            Ok(()) => coordinator.bus.join_up(&list).await,
            Err(error) => Err(error),
        };
        match joined {
            Ok(up) => return Some((regions, up)),
            Err(error) => {
                tracing::warn!(%error, "listen to the regions; trying on");
                backoff.pause().await;
            }
        }
    }
}

async fn declared_regions(coordinator: &Coordinator) -> Result<BTreeSet<RegionName>, StoreError> {
    Ok(coordinator.store.regions().await?.into_iter().map(|region| region.name).collect())
}

/// Handles batches until the regions change, the place on the bus is lost, or
/// the service is to stop. True if any batch was handled.
async fn take_part(
    coordinator: &Arc<Coordinator>,
    greetings: &Greetings,
    regions: &BTreeSet<RegionName>,
    up: &mut dyn Up,
) -> bool {
    let mut handled = false;
    let changed = regions_change(coordinator, regions);
    tokio::pin!(changed);
    loop {
        // A read is given up only together with the place: nothing that was
        // handed out is left unhandled and committed.
        let received = tokio::select! {
            received = up.next_batch(BATCH_MAX) => received,
            () = changed.as_mut() => return true,
            () = coordinator.shutdown.cancelled() => return handled,
        };
        let received = match received {
            // An empty batch says that nothing will come here any more.
            Ok(received) if received.is_empty() => return handled,
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(%error, "read what the regions say; joining again");
                return handled;
            }
        };
        fail::fail_point!("coordinator.received");
        if Batch::sort(received).handle(coordinator, greetings).await.is_err() {
            return handled;
        }
        handled = true;
        up.commit();
    }
}

/// Returns when other regions are declared than these.
async fn regions_change(coordinator: &Coordinator, regions: &BTreeSet<RegionName>) {
    let mut declared = coordinator.declared.subscribe();
    loop {
        tokio::select! {
            _ = declared.changed() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        match declared_regions(coordinator).await {
            Ok(now) if now != *regions => return,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "read which regions are declared"),
        }
    }
}

/// Asks the store until it answers, for [`STORE_PATIENCE`].
async fn persist<'a, T>(
    coordinator: &Coordinator,
    what: &'static str,
    ask: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
) -> Result<T, GaveUp> {
    let (began, mut backoff) = (Instant::now(), Backoff::short());
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error @ StoreError::Defect(_)) => return Err(GaveUp::Defect(error)),
            Err(error) => error,
        };
        let error = muster_telemetry::chain(&error);
        if began.elapsed() >= STORE_PATIENCE {
            tracing::warn!(%error, what, "the store does not take a batch; leaving it to other coordinators");
            return Err(GaveUp::Left);
        }
        tracing::warn!(%error, what, "the store did not take a batch; trying on");
        tokio::select! {
            () = backoff.pause() => {}
            () = coordinator.shutdown.cancelled() => return Err(GaveUp::Left),
        }
    }
}
