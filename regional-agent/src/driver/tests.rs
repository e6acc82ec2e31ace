//! The driver over the embedded log: what the replica's own tests can't show.

use std::collections::BTreeSet;

use muster_protocol::entry::Snapshot;
use muster_protocol::fact::{Fact, Opened};
use muster_protocol::generation::GenerationId;
use muster_protocol::identity::Timestamp;
use muster_protocol::name::RegionName;
use muster_protocol::participants::Participants;
use muster_protocol::region::{ArrivalOutcome, Arrive, Command, Reply};
use muster_protocol::spec::Slice;

use super::*;
use crate::log::embedded::Embedded;

fn region() -> RegionName {
    "us-east".parse().unwrap()
}

fn slice(count: u32) -> Slice {
    Slice {
        participants: Participants::Count(count),
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: 1_024,
        deadline_ms: None,
        retention_ms: 1_000,
    }
}

fn open(n: u64, count: u32) -> Command {
    let slice = slice(count);
    Command::Fact(Fact::Opened(Opened {
        generation: GenerationId { barrier: "t/b".parse().unwrap(), n, key: None, round: 0 },
        region: region(),
        spec: slice.digest(),
        slice: Some(slice),
        opened_at: Timestamp(0),
        carry: None,
    }))
}

fn arrive(n: u64, who: u32) -> Command {
    Command::Arrive(Arrive {
        barrier: "t/b".parse().unwrap(),
        n,
        participant: format!("p-{who}").parse().unwrap(),
        attempt: 1,
        outcome: ArrivalOutcome::Ok,
        note: None,
        output: None,
        session: None,
        at: Timestamp(0),
    })
}

struct Agent {
    handle: Handle,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    _news: mpsc::UnboundedReceiver<News>,
}

async fn agent(log: &Embedded, name: &str) -> Agent {
    let log: Arc<dyn RegionLog> = Arc::new(log.clone());
    let identity = log.identity().await.unwrap();
    let settings = Settings {
        region: region(),
        agent_name: name.to_owned(),
        address: "http://127.0.0.1:1".to_owned(),
        lease_ttl: Duration::from_secs(10),
    };
    let shutdown = CancellationToken::new();
    let blank = Region::new(region(), identity.history, identity.shard);
    let (handle, news, task) = start(settings, log, blank, shutdown.clone());
    handle.status().wait_for(|status| status.following).await.unwrap();
    Agent { handle, shutdown, task, _news: news }
}

impl Agent {
    /// The whole state, encoded, once it has come to an index.
    async fn state_at(&self, index: u64) -> Snapshot {
        let reached = self.handle.status().wait_for(|status| status.index >= index).await.map(|_| ());
        reached.unwrap();
        self.handle.replica(|replica| replica.snapshot().0)
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_shares_few_appends() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let agent = agent(&log, "a").await;
    agent.handle.submit(open(1, 1_000), None).await.unwrap();
    let before = log.head().await.unwrap();
    let crowd = (0..1_000).map(|who| {
        let handle = agent.handle.clone();
        tokio::spawn(async move { handle.submit(arrive(1, who), None).await })
    });
    let firsts = futures::future::join_all(crowd)
        .await
        .into_iter()
        .filter(|reply| matches!(reply, Ok(Ok(Reply::Arrived(arrived))) if arrived.first));
    assert_eq!(firsts.count(), 1_000);
    let entries = log.head().await.unwrap() - before;
    assert!(entries <= 200, "1,000 arrivals took {entries} entries");
    assert!(agent.handle.read(|region| region.report(&"t/b".parse().unwrap(), 1).unwrap().complete));
    agent.stop().await;
}

/// Agents that write together, one that restarts and one that comes late after
/// a snapshot took the place of the log's prefix: all come to the same bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_come_to_the_same_state_byte_for_byte() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let (one, two) = (agent(&log, "one").await, agent(&log, "two").await);
    one.handle.submit(open(1, 600), None).await.unwrap();
    let write = |agent: &Agent, range: std::ops::Range<u32>| {
        let handle = agent.handle.clone();
        tokio::spawn(async move {
            for who in range {
                handle.submit(arrive(1, who), None).await.unwrap();
            }
        })
    };
    let (first, second) = (write(&one, 0..200), write(&two, 100..300));
    first.await.unwrap();
    let (snapshot, seqs) = one.handle.replica(Replica::snapshot);
    let writer = one.handle.replica(Replica::writer).unwrap();
    let epoch = log.campaign(writer).await.unwrap().unwrap();
    let installed = log.install_snapshot(epoch, snapshot.region.index(), &snapshot.encode(), &seqs).await.unwrap();
    assert_eq!(installed, crate::log::Installed::Yes);
    second.await.unwrap();
    two.stop().await;
    let two = agent(&log, "two").await;
    let late = agent(&log, "three").await;
    write(&late, 300..400).await.unwrap();
    let head = log.head().await.unwrap();
    let states: BTreeSet<Vec<u8>> = [one.state_at(head).await, two.state_at(head).await, late.state_at(head).await]
        .iter()
        .map(Snapshot::encode)
        .collect();
    assert_eq!(states.len(), 1, "replicas at one index have one state (I12)");
    for agent in [one, two, late] {
        agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_registration_is_taken_anew_and_nothing_is_lost() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let agent = agent(&log, "a").await;
    agent.handle.submit(open(1, 100), None).await.unwrap();
    let arrivals: Vec<_> = (0..100)
        .map(|who| {
            let handle = agent.handle.clone();
            tokio::spawn(async move { handle.submit(arrive(1, who), None).await })
        })
        .collect();
    let writer = agent.handle.replica(Replica::writer).unwrap();
    assert!(log.expel(writer).await);
    for arrival in arrivals {
        assert!(matches!(arrival.await.unwrap(), Ok(Reply::Arrived(_))));
    }
    assert_ne!(agent.handle.replica(Replica::writer), Some(writer));
    assert_eq!(agent.handle.read(|region| region.report(&"t/b".parse().unwrap(), 1).unwrap().arrived), 100);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_read_sees_what_another_agent_acknowledged() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let (writer, reader) = (agent(&log, "w").await, agent(&log, "r").await);
    writer.handle.submit(open(1, 50), None).await.unwrap();
    for who in 0..50 {
        writer.handle.submit(arrive(1, who), None).await.unwrap();
        reader.handle.fresh().await.unwrap();
        let arrived = reader.handle.read(|region| region.report(&"t/b".parse().unwrap(), 1).unwrap().arrived);
        assert_eq!(arrived, who + 1);
    }
    writer.stop().await;
    reader.stop().await;
}
