//! Breaks what is out of time, and what comes after something that broke. The
//! database's clock decides, never this one: a deadline acts late by a moment,
//! never early.

use std::sync::Arc;
use std::time::Duration;

use muster_protocol::global::{Command, Reply};

use crate::backoff::Backoff;
use crate::coordinator::Coordinator;
use crate::store::{Mode, StoreError};

/// Generations that are ended in one transaction.
const BATCH_MAX: u32 = 100;
/// How long a look at the clock holds though nobody poked: another coordinator
/// may have set a deadline and died.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Between a deadline and the look after it: clocks tick in steps.
const TICK: Duration = Duration::from_millis(1);
/// After a look at what is due and can't be decided yet: a region has to speak
/// first.
const UNDECIDABLE: Duration = Duration::from_millis(250);

/// Watches the clock until the service stops.
pub(crate) async fn run(coordinator: Arc<Coordinator>) {
    let mut backoff = Backoff::short();
    loop {
        match expire(&coordinator).await {
            Ok(next) => {
                backoff = Backoff::short();
                tokio::select! {
                    () = tokio::time::sleep(next) => {}
                    () = coordinator.deadlines.notified() => {}
                }
            }
            Err(error) => {
                tracing::warn!(error = %muster_telemetry::chain(&error), "look for deadlines that have passed");
                backoff.pause().await;
            }
        }
    }
}

/// Ends what is due; returns how long nothing else will be.
async fn expire(coordinator: &Arc<Coordinator>) -> Result<Duration, StoreError> {
    let due = coordinator.store.due(BATCH_MAX).await?;
    if due.generations.is_empty() && due.orphaned.is_empty() {
        return Ok(due.next_in.map_or(LOOK_MAX, |next| (next + TICK).min(LOOK_MAX)));
    }
    let expired = due.generations.into_iter().map(|(barrier, n)| (barrier, Command::Expire { n }));
    let orphaned = due.orphaned.into_iter();
    let orphaned = orphaned.map(|(barrier, n, predecessor)| (barrier, Command::PredecessorBroke { n, predecessor }));
    let steps = coordinator.decide(&*coordinator.store, orphaned.chain(expired).collect(), Mode::Commit).await?;
    let none = steps.iter().all(|step| matches!(step.reply, Ok(Reply::NotDue) | Err(_)));
    coordinator.publish(steps.into_iter().flat_map(|step| step.facts).collect());
    Ok(if none { UNDECIDABLE } else { Duration::ZERO })
}
