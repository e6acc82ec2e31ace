//! One batch, sorted by what has to happen first: what can't be read is set
//! aside, greetings make a history current, reports are decided, signs of life
//! wait for all of these.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_bus::{Headers, Place, Poison, Received};
use muster_protocol::fact::{AgentId, Heartbeat, Hello, Standing, Welcome};
use muster_protocol::identity::History;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::report::RegionReport;
use muster_telemetry::metrics;
use muster_wire::record::{Downward, Upward};

use super::decision::decide;
use super::{GaveUp, persist};
use crate::coordinator::Coordinator;
use crate::repeats::Greetings;

/// A report with where it came from and what travelled with it.
#[derive(Clone, Debug)]
pub(super) struct Reported {
    pub(super) place: Place,
    pub(super) headers: Headers,
    pub(super) report: RegionReport,
}

/// What one report replaces: an older one of the same life of the same region.
type Subject = (RegionName, History, BarrierName, u64);

#[derive(Default)]
pub(super) struct Batch {
    poison: Vec<(Place, Poison)>,
    greetings: BTreeMap<(RegionName, AgentId, History), (Hello, Headers)>,
    heartbeats: BTreeMap<(RegionName, AgentId), Heartbeat>,
    reports: BTreeMap<Subject, Reported>,
}

impl Batch {
    /// Sorts records. Of several reports on one subject only the latest
    /// counts: reports are states, not events. An agent that greeted several
    /// times while nobody listened is answered once.
    pub(super) fn sort(received: Vec<Received<Upward>>) -> Self {
        let mut batch = Self::default();
        for Received { place, headers, content } in received {
            match content {
                Err(poison) => batch.poison.push((place, poison)),
                Ok(Upward::Hello(hello)) => {
                    let from = (hello.region.clone(), hello.agent.clone(), hello.history);
                    batch.greetings.insert(from, (hello, headers));
                }
                Ok(Upward::Heartbeat(beat)) => {
                    batch.heartbeats.insert((beat.region.clone(), beat.agent.clone()), beat);
                }
                Ok(Upward::Report(report)) => batch.add(Reported { place, headers, report }),
            }
        }
        batch
    }

    fn add(&mut self, new: Reported) {
        let report = &new.report;
        let id = &report.generation;
        let subject = (report.region.clone(), report.stamp.history, id.barrier.clone(), id.n);
        match self.reports.entry(subject) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(new);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                // At one index the later word was said for a later entry of the
                // batch there, or for another life of the store.
                if entry.get().report.stamp.index <= new.report.stamp.index {
                    entry.insert(new);
                }
            }
        }
    }

    /// Does what the batch demands.
    ///
    /// # Errors
    /// Only when the service is to stop; the batch is then read again by
    /// whoever comes next.
    pub(super) async fn handle(self, coordinator: &Arc<Coordinator>, greetings: &Greetings) -> Result<(), GaveUp> {
        if !self.poison.is_empty() {
            set_aside(coordinator, &self.poison).await?;
        }
        for (hello, headers) in self.greetings.into_values() {
            greet(coordinator, greetings, &hello, headers).await?;
        }
        if !self.reports.is_empty() {
            metrics::coordinator_batch_reports().record(self.reports.len() as f64);
            decide(coordinator, self.reports.into_values().collect()).await?;
        }
        let heartbeats: Vec<Heartbeat> = self.heartbeats.into_values().collect();
        if heartbeats.is_empty() {
            return Ok(());
        }
        let what = "signs of life";
        match persist(coordinator, what, || coordinator.store.heartbeats(&heartbeats)).await {
            Ok(welcomes) => {
                welcome_anew(coordinator, welcomes).await;
                Ok(())
            }
            Err(gave_up) => skip_defect(Err(gave_up), what),
        }
    }
}

/// Keeps records that can't be handled, so that they hold up nothing.
pub(super) async fn set_aside(coordinator: &Coordinator, poison: &[(Place, Poison)]) -> Result<(), GaveUp> {
    for (place, poison) in poison {
        tracing::warn!(?place, error = poison.error, "set aside a record that can't be handled");
        metrics::poison_messages().increment(1);
    }
    let kept = persist(coordinator, "records set aside", || coordinator.store.set_aside(poison)).await;
    skip_defect(kept, "records set aside")
}

/// Tells agents that the database has begun another life, as it may have lost
/// what they were told, and those whose log does not count.
async fn welcome_anew(coordinator: &Coordinator, welcomes: Vec<Welcome>) {
    for welcome in &welcomes {
        let (region, agent, standing) = (&welcome.region, &welcome.agent.name, welcome.standing);
        tracing::info!(%region, agent, ?standing, tell_ends = welcome.tell_ends, "the store knows another life; asking anew");
    }
    let records = welcomes.into_iter().map(|welcome| (Downward::Welcome(welcome), Headers::new()));
    coordinator.send_down(records.collect()).await;
}

async fn greet(
    coordinator: &Arc<Coordinator>,
    greetings: &Greetings,
    hello: &Hello,
    headers: Headers,
) -> Result<(), GaveUp> {
    let welcome = match persist(coordinator, "a greeting", || coordinator.store.hello(hello)).await {
        Ok(welcome) => welcome,
        Err(gave_up) => return skip_defect(Err(gave_up), "a greeting"),
    };
    let standing = welcome.standing;
    tracing::info!(region = %hello.region, agent = hello.agent.name, head = hello.head, ?standing, "a region greets");
    if standing != Standing::Current {
        tracing::warn!(
            region = %hello.region, history = %hello.history, ?standing,
            "the region's log is not the one that counts: it is told nothing"
        );
    }
    coordinator.send_down(vec![(Downward::Welcome(welcome), headers)]).await;
    if standing == Standing::Current {
        greetings.greeted(&hello.region);
    }
    Ok(())
}

/// A defect is logged where it can't be told to anybody; only a stop goes on up.
fn skip_defect(done: Result<(), GaveUp>, what: &'static str) -> Result<(), GaveUp> {
    match done {
        Err(GaveUp::Defect(error)) => {
            tracing::error!(error = %muster_telemetry::chain(&error), what, "the store does not take it");
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use muster_bus::embedded::Embedded as EmbeddedBus;
    use muster_http::Forwarder;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::store::Store;
    use crate::store::embedded::Embedded as EmbeddedStore;

    fn hello(history: u8) -> Received<Upward> {
        let agent = AgentId { name: "agent-1".to_owned(), instance: "a".to_owned() };
        let hello = Hello {
            region: "us-east".parse().unwrap(),
            agent,
            history: History([history; 16]),
            shard: 0,
            head: 1,
            machine_version: 1,
            address: "http://127.0.0.1:7171".to_owned(),
            era: None,
        };
        let place = Place { topic: "muster.region.us-east".to_owned(), partition: 0, offset: 0 };
        Received { place, headers: Headers::new(), content: Ok(Upward::Hello(hello)) }
    }

    #[tokio::test]
    async fn only_the_life_that_counts_is_told_what_it_lacks() {
        let store = Arc::new(EmbeddedStore::in_memory().await.unwrap());
        store.declare(&"us-east".parse().unwrap()).await.unwrap();
        let bus = Arc::new(EmbeddedBus::new(8));
        let coordinator = Coordinator::new(bus, store, Forwarder::new().unwrap(), 1, CancellationToken::new());
        let (greetings, mut greeted) = Greetings::new();
        for (history, told) in [(1, true), (2, false), (1, true)] {
            assert!(Batch::sort(vec![hello(history)]).handle(&coordinator, &greetings).await.is_ok());
            assert_eq!(greeted.try_recv().is_ok(), told, "history {history}");
        }
        assert!(Batch::sort(vec![hello(1), hello(1), hello(1)]).handle(&coordinator, &greetings).await.is_ok());
        assert!(greeted.try_recv().is_ok());
        assert!(greeted.try_recv().is_err(), "one agent is answered once");
    }
}
