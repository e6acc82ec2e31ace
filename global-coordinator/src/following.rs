//! Hears what other coordinators decide: the global topic, read as an agent
//! reads it. It only wakes; the store says what is true.

use std::sync::Arc;
use std::time::Duration;

use muster_bus::Down;
use muster_protocol::fact::Fact;
use muster_wire::record::Downward;

use crate::backoff::Backoff;
use crate::coordinator::Coordinator;

/// Follows until the service stops.
pub(crate) async fn run(coordinator: Arc<Coordinator>) {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
    loop {
        // Whoever deletes the topic stops nothing for longer than this takes.
        let followed = match coordinator.bus.prepare(&[]).await {
            Ok(()) => coordinator.bus.follow_down().await,
            Err(error) => Err(error),
        };
        match followed {
            Ok(mut down) => {
                let heard = listen(&coordinator, down.as_mut()).await;
                if heard {
                    backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
                }
            }
            Err(error) => tracing::warn!(%error, "follow the facts of other coordinators"),
        }
        backoff.pause().await;
    }
}

/// Returns when its place is lost; true if anything was heard.
async fn listen(coordinator: &Coordinator, down: &mut dyn Down) -> bool {
    let mut heard = false;
    loop {
        match down.next().await {
            Ok(received) => {
                heard = true;
                // What can't be read here can't be read by agents either: they count it.
                if let Ok(Downward::Fact(fact)) = received.content {
                    heed(coordinator, &fact);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "lost the place among the facts");
                return heard;
            }
        }
    }
}

fn heed(coordinator: &Coordinator, fact: &Fact) {
    let id = fact.generation();
    coordinator.hub.wake(&id.barrier, id.n);
    match fact {
        Fact::Opened(_) => coordinator.hub.opened(),
        Fact::Decided(decided) if decided.next.is_some() => coordinator.hub.opened(),
        Fact::Decided(_) | Fact::Closed(_) | Fact::Waived(_) => {}
    }
}
