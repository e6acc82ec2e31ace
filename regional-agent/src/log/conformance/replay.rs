//! Replicas over the log, as agents drive them: whoever comes, whenever, comes
//! to the same state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use muster_protocol::entry::Snapshot;
use muster_protocol::fact::{Fact, Opened};
use muster_protocol::generation::GenerationId;
use muster_protocol::identity::{Epoch, Timestamp};
use muster_protocol::name::RegionName;
use muster_protocol::participants::Participants;
use muster_protocol::region::{ArrivalOutcome, Arrive, Command, Region};
use muster_protocol::replica::{Input, Logged, Replica};
use muster_protocol::spec::Slice;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Harness;
use crate::driver::{Handle, News, Settings, start};
use crate::log::{Installed, RawEntry, RegionLog};

/// Snapshots that are put in place before the late one comes.
const SNAPSHOTS: usize = 3;
/// Entries that come between two looks at a log under load.
const ENTRIES_BETWEEN: u64 = 25;
/// Arrivals of one agent that are on their way at once.
const CALLERS: usize = 4;

/// A replica, driven.
pub struct Agent {
    /// Its handle.
    pub handle: Handle,
    log: Arc<dyn RegionLog>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    _news: mpsc::UnboundedReceiver<News>,
}

impl Agent {
    /// Starts one, and returns when it follows the log.
    pub async fn join(log: Arc<dyn RegionLog>, name: &str) -> Self {
        let blank = blank(&log).await;
        let settings = Settings {
            region: region(),
            agent_name: name.to_owned(),
            address: "http://127.0.0.1:1".to_owned(),
            lease_ttl: Duration::from_secs(10),
        };
        let shutdown = CancellationToken::new();
        let (handle, news, task) = start(settings, log.clone(), blank, shutdown.clone());
        handle.status().wait_for(|status| status.following).await.unwrap();
        Self { handle, log, shutdown, task, _news: news }
    }

    /// The whole state, encoded, once it has come to an index.
    pub async fn state_at(&self, index: u64) -> Vec<u8> {
        self.come_to(index).await;
        self.handle.replica(|replica| replica.snapshot().0.encode())
    }

    /// Ends it, as a process that is asked to stop.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }

    fn index(&self) -> u64 {
        self.handle.read(Region::index)
    }

    async fn come_to(&self, index: u64) {
        self.handle.status().wait_for(|status| status.index >= index).await.unwrap();
    }

    /// Others, or it, go on writing.
    async fn some_more(&self) {
        self.come_to(self.index() + ENTRIES_BETWEEN).await;
    }

    async fn lead(&self) -> Epoch {
        let writer = self.handle.replica(Replica::writer).unwrap();
        self.log.campaign(writer).await.unwrap().unwrap()
    }

    /// Puts its state in place of what led to it, once that is on record.
    async fn snapshot(&self, epoch: Epoch, record: &Record) {
        let (snapshot, seqs) = self.handle.replica(Replica::snapshot);
        record.seen.clone().wait_for(|seen| *seen >= snapshot.region.index()).await.unwrap();
        let installed = self.log.install_snapshot(epoch, snapshot.region.index(), &snapshot.encode(), &seqs).await;
        assert_eq!(installed.unwrap(), Installed::Yes);
    }
}

fn region() -> RegionName {
    "us-east".parse().unwrap()
}

/// The region before the log's first entry.
async fn blank(log: &Arc<dyn RegionLog>) -> Region {
    let identity = log.identity().await.unwrap();
    Region::new(region(), identity.history, identity.shard)
}

/// Opens a generation of so many participants.
#[must_use]
pub fn open(n: u64, count: u32) -> Command {
    let slice = Slice {
        participants: Participants::Count(count),
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: 1_024,
        deadline_ms: None,
        retention_ms: 1_000,
    };
    Command::Fact(Fact::Opened(Opened {
        generation: GenerationId { barrier: "t/b".parse().unwrap(), n, key: None, round: 0 },
        region: region(),
        spec: slice.digest(),
        slice: Some(slice),
        opened_at: Timestamp(0),
        carry: None,
    }))
}

/// One of them arrives.
#[must_use]
pub fn arrive(n: u64, who: u32) -> Command {
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

/// Participants that arrive through an agent until they are told to stop.
struct Load {
    stop: CancellationToken,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// `next` counts the arrivals of all agents. Each participant comes twice,
    /// through any two of them.
    fn through(agent: &Agent, next: &Arc<AtomicU32>) -> Self {
        let stop = CancellationToken::new();
        let caller = || {
            let (handle, next, stop) = (agent.handle.clone(), next.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.is_cancelled() {
                    let who = next.fetch_add(1, Ordering::Relaxed) / 2;
                    handle.submit(arrive(1, who), None).await.unwrap();
                }
            })
        };
        Self { callers: (0..CALLERS).map(|_| caller()).collect(), stop }
    }

    async fn stop(self) {
        self.stop.cancel();
        for caller in self.callers {
            caller.await.unwrap();
        }
    }
}

/// Every entry there ever was, however much of the log is cut off meanwhile.
struct Record {
    entries: mpsc::UnboundedReceiver<RawEntry>,
    /// The index of the newest.
    seen: watch::Receiver<u64>,
}

impl Record {
    /// Begins with the log.
    async fn begin(log: &Arc<dyn RegionLog>) -> Self {
        let mut follow = log.follow(log.catch_up(0).await.unwrap().position).await.unwrap();
        let (record, entries) = mpsc::unbounded_channel();
        let (newest, seen) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok(entries) = follow.next().await {
                newest.send_replace(entries.last().map_or(0, |last| last.index));
                entries.into_iter().for_each(|entry| record.send(entry).unwrap_or_default());
            }
        });
        Self { entries, seen }
    }

    /// The state that they lead to, entry by entry, with no snapshot between.
    async fn replayed_to(mut self, head: u64, blank: Region) -> Vec<u8> {
        let mut entries: Vec<Logged> = Vec::new();
        while entries.last().is_none_or(|last| last.index < head) {
            entries.push(self.entries.recv().await.unwrap().into());
        }
        let mut replica = Replica::new(blank);
        let _ = replica.start();
        let _ = replica.step(Input::CaughtUp { snapshot: None, entries, head });
        assert_eq!(replica.region().index(), head, "it doubts what a writer was when it wrote");
        replica.snapshot().0.encode()
    }
}

/// Agents that write together, one that restarts, and one that comes late while
/// others write and snapshots take the place of the log's prefix.
pub async fn replicas_come_to_the_same_state_byte_for_byte(harness: &dyn Harness) {
    let one = Agent::join(harness.open().await, "one").await;
    let record = Record::begin(&one.log).await;
    let two = Agent::join(harness.open().await, "two").await;
    one.handle.submit(open(1, 1_000_000), None).await.unwrap();
    let next = Arc::new(AtomicU32::new(0));
    let (through_one, through_two) = (Load::through(&one, &next), Load::through(&two, &next));
    let epoch = one.lead().await;
    for _ in 0..SNAPSHOTS {
        one.some_more().await;
        one.snapshot(epoch, &record).await;
    }
    through_two.stop().await;
    two.stop().await;
    let two = Agent::join(harness.open().await, "two").await;
    let through_two = Load::through(&two, &next);

    let caught_up = one.log.catch_up(0).await.unwrap();
    assert!(caught_up.snapshot.is_some(), "the log reaches back to its first entry");
    let (late, ()) = tokio::join!(
        async { Agent::join(harness.open().await, "late").await },
        // The prefix goes on to be cut off while it reads.
        async {
            one.some_more().await;
            one.snapshot(epoch, &record).await;
        }
    );
    // The others write on, and then it does too.
    late.some_more().await;
    let through_late = Load::through(&late, &next);
    late.some_more().await;
    one.some_more().await;
    one.snapshot(epoch, &record).await;
    late.some_more().await;

    for load in [through_one, through_two, through_late] {
        load.stop().await;
    }
    let head = one.log.head().await.unwrap();
    let replayed = record.replayed_to(head, blank(&one.log).await).await;
    for agent in [&one, &two, &late] {
        assert!(agent.state_at(head).await == replayed, "a replica differs from what the log says (I12)");
    }
    truncated(harness, &one, head).await;
    for agent in [one, two, late] {
        agent.stop().await;
    }
}

/// The store holds what follows the snapshot, and nothing of what it covers.
async fn truncated(harness: &dyn Harness, agent: &Agent, head: u64) {
    let caught_up = agent.log.catch_up(0).await.unwrap();
    let covered = Snapshot::decode(&caught_up.snapshot.unwrap()).unwrap().region.index();
    assert!(covered > SNAPSHOTS as u64 * ENTRIES_BETWEEN, "the newest snapshot is in place, not one at {covered}");
    let left = harness.entries_kept().await;
    assert_eq!((left, caught_up.entries.len() as u64), (head - covered, head - covered));
}
