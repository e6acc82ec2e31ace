//! The region's leader: counts the region's time, sees which agents are gone,
//! replaces the log's prefix by snapshots, and repeats what is unanswered.
//! It is on nobody's way: arrivals and releases need no leader.
//!
//! Leadership is a hint. What makes it safe is the epoch that every command of
//! a leader carries, and that `apply` refuses an older one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_protocol::identity::{Epoch, Writer};
use muster_protocol::region::{Command, Refusal, Reply};
use muster_telemetry::metrics;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::driver::Handle;
use crate::log::{Installed, RegionLog};

/// Time between two looks at who leads.
const CAMPAIGN_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks at which agents are gone.
const AGENTS_INTERVAL: Duration = Duration::from_secs(10);
/// How often the region's time is counted while only retention waits for it.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);

/// Whether this agent leads, for everybody in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leading(Arc<AtomicU64>);

impl Leading {
    /// Whether this agent leads, as far as it knows.
    #[must_use]
    pub(crate) fn is_leading(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn set(&self, epoch: Option<Epoch>) {
        self.0.store(epoch.map_or(0, |epoch| epoch.0), Ordering::Relaxed);
    }
}

/// One agent's part in leading its region.
pub(crate) struct Leadership {
    handle: Handle,
    log: Arc<dyn RegionLog>,
    leading: Leading,
    reign: Option<Reign>,
    snapshot_index: u64,
    snapshot_every: u64,
}

/// What a leader remembers.
struct Reign {
    writer: Writer,
    epoch: Epoch,
    /// Up to when the region's time was counted.
    counted_at: Instant,
    agents_at: Instant,
}

impl Leadership {
    /// Stands for election with this replica. Once in `snapshot_every` entries
    /// it puts a snapshot in place of them.
    #[must_use]
    pub(crate) fn new(handle: Handle, log: Arc<dyn RegionLog>, leading: Leading, snapshot_every: u64) -> Self {
        Self { handle, log, leading, reign: None, snapshot_index: 0, snapshot_every: snapshot_every.max(1) }
    }

    /// Leads, or waits to, until the shutdown.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut status = self.handle.status();
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = status.wait_for(|status| status.following) => {}
        }
        let mut interval = tokio::time::interval(CAMPAIGN_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = interval.tick() => self.turn().await,
            }
        }
        self.leading.set(None);
        if let Some(reign) = self.reign
            && let Err(error) = self.log.resign(reign.writer, reign.epoch).await
        {
            debug!(%error, "step down; the lease does it");
        }
    }

    async fn turn(&mut self) {
        let writer = self.handle.replica(|replica| replica.writer().filter(|_| replica.is_following()));
        let epoch = match writer {
            None => None,
            Some(writer) => match self.log.campaign(writer).await {
                Ok(epoch) => epoch.map(|epoch| (writer, epoch)),
                Err(error) => {
                    debug!(%error, "stand for election");
                    None
                }
            },
        };
        match epoch {
            None => self.step_down(),
            Some((writer, epoch)) => {
                if self.reign.as_ref().is_none_or(|reign| reign.epoch != epoch) {
                    self.take_over(writer, epoch).await;
                }
                self.lead().await;
            }
        }
    }

    fn step_down(&mut self) {
        self.leading.set(None);
        if let Some(reign) = self.reign.take() {
            info!(epoch = %reign.epoch, "no longer leads the region");
        }
    }

    /// Acts only after its own word has been applied: from there on every
    /// older leader is powerless.
    async fn take_over(&mut self, writer: Writer, epoch: Epoch) {
        if let Ok(Reply::Done { .. }) = self.handle.submit(Command::TookOver { epoch }, None).await {
            info!(%epoch, "leads the region");
            let now = Instant::now();
            self.reign = Some(Reign { writer, epoch, counted_at: now, agents_at: now });
            self.leading.set(Some(epoch));
        }
    }

    async fn lead(&mut self) {
        let Some(reign) = &self.reign else { return };
        let epoch = reign.epoch;
        if reign.counted_at.elapsed() >= CLOCK_INTERVAL {
            self.count_time(epoch).await;
        }
        if self.reign.as_ref().is_some_and(|reign| reign.agents_at.elapsed() >= AGENTS_INTERVAL) {
            self.look_for_lost_agents(epoch).await;
        }
        self.snapshot(epoch).await;
    }

    async fn count_time(&mut self, epoch: Epoch) {
        let Some(reign) = &mut self.reign else { return };
        let now = Instant::now();
        let by_ms = now.saturating_duration_since(reign.counted_at).as_millis() as u64;
        reign.counted_at = now;
        let from_ms = self.handle.read(muster_protocol::region::Region::clock_ms);
        let command = Command::ClockAdvanced { epoch, from_ms, to_ms: from_ms + by_ms };
        let reply = self.handle.submit(command, None).await;
        self.heed(reply);
    }

    /// A writer whose registration is gone can't land anything any more: its
    /// place in the state can be forgotten.
    async fn look_for_lost_agents(&mut self, epoch: Epoch) {
        if let Some(reign) = &mut self.reign {
            reign.agents_at = Instant::now();
        }
        let known: Vec<Writer> = self.handle.read(|region| region.writers().keys().copied().collect());
        if known.len() < 2 {
            return;
        }
        let registered = match self.log.registrations().await {
            Ok(registered) => registered,
            Err(error) => return debug!(%error, "list the region's agents"),
        };
        let lost = known.into_iter().filter(|writer| registered.iter().all(|agent| agent.writer != *writer));
        for writer in lost.collect::<Vec<_>>() {
            info!(%writer, "an agent of the region is gone");
            let reply = self.handle.submit(Command::AgentLost { epoch, writer }, None).await;
            self.heed(reply);
        }
    }

    async fn snapshot(&mut self, epoch: Epoch) {
        let index = self.handle.read(muster_protocol::region::Region::index);
        if index < self.snapshot_index + self.snapshot_every {
            return;
        }
        let (snapshot, seqs) = self.handle.replica(muster_protocol::replica::Replica::snapshot);
        let index = snapshot.region.index();
        // Encoding a large state takes a while, and blocks nobody's wait.
        let Ok(bytes) = tokio::task::spawn_blocking(move || snapshot.encode()).await else { return };
        match self.log.install_snapshot(epoch, index, &bytes, &seqs).await {
            Ok(Installed::Yes) => debug!(index, bytes = bytes.len(), "a snapshot took the place of the log's prefix"),
            Ok(Installed::No) => debug!(index, "another leader or a newer snapshot is in place"),
            Err(error) => return warn!(error = %muster_telemetry::chain(&error), "install a snapshot"),
        }
        self.snapshot_index = index;
    }

    /// A refusal for its epoch tells a leader that it is one no longer.
    fn heed(&mut self, reply: Result<Reply, crate::driver::NoAnswer>) {
        if let Ok(Reply::Refused(Refusal::OldEpoch { .. })) = reply {
            metrics::fencing_rejections().increment(1);
            self.step_down();
        }
    }
}
