//! Lets go of what is past its retention, and tells the regions. What that is
//! stands in the store; the pure machine has the last word.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use muster_protocol::global::{Command, Reply};
use muster_protocol::name::BarrierName;
use tokio::sync::Notify;

use crate::backoff::Backoff;
use crate::coordinator::Coordinator;
use crate::store::{Mode, StoreError};

/// How often it is looked for though nobody poked.
const LOOK: Duration = Duration::from_secs(10);
/// Between two looks, however often somebody pokes.
const REST: Duration = Duration::from_secs(1);
/// Barriers that are collected in one transaction: each may bring hundreds of
/// generations.
const BATCH_MAX: usize = 8;
/// Barriers that one look finds.
const FOUND_MAX: u32 = 200;
/// Generations that one command collects at most.
const COLLECTED_MAX: usize = 500;
/// How often a barrier's regions are told what is forgotten, at most.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Barriers that are remembered for that.
const TOLD_MAX: usize = 10_000;

/// What others ask of the collection.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    poked: Notify,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    now: BTreeSet<BarrierName>,
    told: BTreeMap<BarrierName, Instant>,
}

impl Collection {
    /// There may be something to collect.
    pub(crate) fn poke(&self) {
        self.poked.notify_one();
    }

    /// A region speaks of a generation that is forgotten: it is told so, but
    /// not with each of its words.
    pub(crate) fn tell(&self, barrier: &BarrierName) {
        if self.lock().ask(barrier, Instant::now()) {
            self.poke();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    /// Takes a wish, unless it was fulfilled a moment ago.
    fn ask(&mut self, barrier: &BarrierName, now: Instant) -> bool {
        self.told.retain(|_, at| now.saturating_duration_since(*at) < TELL_EVERY);
        if self.told.len() >= TOLD_MAX || self.told.contains_key(barrier) {
            return false;
        }
        self.told.insert(barrier.clone(), now);
        self.now.insert(barrier.clone())
    }
}

/// Collects until the service stops.
pub(crate) async fn run(coordinator: Arc<Coordinator>) {
    let mut backoff = Backoff::short();
    loop {
        match look(&coordinator).await {
            // There is more: it goes on at once.
            Ok(collected) if collected >= COLLECTED_MAX => continue,
            Ok(_) => {
                backoff = Backoff::short();
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    () = coordinator.collection.poked.notified() => {}
                }
            }
            Err(error) => {
                tracing::warn!(error = %muster_telemetry::chain(&error), "collect what is past its retention");
                backoff.pause().await;
            }
        }
        tokio::time::sleep(REST).await;
    }
}

/// One look; how many generations it made less of.
async fn look(coordinator: &Arc<Coordinator>) -> Result<usize, StoreError> {
    let asked = std::mem::take(&mut coordinator.collection.lock().now);
    let found = coordinator.store.collectable(FOUND_MAX).await?;
    let names: BTreeSet<BarrierName> = found.into_iter().chain(asked.iter().cloned()).collect();
    let names: Vec<BarrierName> = names.into_iter().collect();
    let mut collected = 0;
    for names in names.chunks(BATCH_MAX) {
        let collect = |name: &BarrierName| (name.clone(), Command::Collect { tell: asked.contains(name) });
        let steps = coordinator.decide(&*coordinator.store, names.iter().map(collect).collect(), Mode::Commit).await?;
        for step in &steps {
            if let Ok(Reply::Collected { count }) = step.reply {
                collected += count;
            }
        }
        coordinator.send(steps.into_iter().flat_map(|step| step.facts).collect()).await;
    }
    Ok(collected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_is_told_of_once_in_a_while() {
        let (mut asked, now) = (Asked::default(), Instant::now());
        let (map, reduce) = ("etl/map".parse().unwrap(), "etl/reduce".parse().unwrap());
        assert!(asked.ask(&map, now));
        assert!(!asked.ask(&map, now + Duration::from_secs(4)));
        assert!(asked.ask(&reduce, now + Duration::from_secs(4)));
        asked.now.clear();
        assert!(asked.ask(&map, now + TELL_EVERY));
        assert_eq!(asked.told.len(), 2);
    }
}
