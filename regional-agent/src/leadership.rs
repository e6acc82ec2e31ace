//! Carries out one agent's part in leading its region, as
//! [`muster_protocol::leadership`] says: stands for election, appends what a
//! leader has to say, lists the registered agents, puts snapshots in place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_protocol::identity::{Epoch, Writer};
use muster_protocol::leadership::{CAMPAIGN_INTERVAL, Elected, Leadership as Machine};
use muster_protocol::region::{Command, Region};
use muster_protocol::replica::Replica;
use muster_telemetry::metrics;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::clock::wall_clock;
use crate::driver::Handle;
use crate::log::{Installed, RegionLog};

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
    machine: Machine,
    /// Whether the last snapshot could not be put in place.
    snapshot_failed: bool,
    /// The zero of the machine's instants.
    started: Instant,
}

impl Leadership {
    /// Stands for election with this replica. Once in `snapshot_every` entries
    /// it puts a snapshot in place of them.
    #[must_use]
    pub(crate) fn new(handle: Handle, log: Arc<dyn RegionLog>, leading: Leading, snapshot_every: u64) -> Self {
        let machine = Machine::new(snapshot_every);
        Self { handle, log, leading, machine, snapshot_failed: false, started: Instant::now() }
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
        if let Some((writer, epoch)) = self.machine.mandate()
            && let Err(error) = self.log.resign(writer, epoch).await
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
        match (self.machine.elected(epoch.map(|(_, epoch)| epoch)), epoch) {
            (Elected::TakesOver(command), Some((writer, epoch))) => {
                self.leading.set(None);
                self.take_over(writer, epoch, command).await;
            }
            (Elected::Another(led), _) => self.stepped_down(led),
            (Elected::Acts | Elected::TakesOver(_), _) => {}
        }
        self.lead().await;
    }

    fn stepped_down(&self, led: Option<Epoch>) {
        self.leading.set(None);
        if let Some(epoch) = led {
            info!(%epoch, "no longer leads the region");
        }
    }

    async fn take_over(&mut self, writer: Writer, epoch: Epoch, command: Command) {
        let Ok(reply) = self.handle.submit(command, None).await else { return };
        if self.machine.took_over(writer, epoch, &reply, self.started.elapsed()) {
            info!(%epoch, "leads the region");
            self.leading.set(Some(epoch));
        }
    }

    async fn lead(&mut self) {
        let now = self.started.elapsed();
        let at = wall_clock();
        if let Some(command) = self.handle.read(|region| self.machine.count_time(region, now, at)) {
            self.submit(command).await;
        }
        let now = self.started.elapsed();
        if self.handle.read(|region| self.machine.looks_for_agents(region, now)) {
            self.look_at_agents().await;
        }
        if let Some(epoch) = self.handle.read(|region| self.machine.snapshot_due(region)) {
            self.snapshot(epoch).await;
        }
    }

    /// Says which agents are gone, and raises the machine's version once all
    /// that are here can run it.
    async fn look_at_agents(&mut self) {
        let known: Vec<Writer> = self.handle.read(|region| region.writers().keys().copied().collect());
        let agents = match self.log.registrations().await {
            Ok(agents) => agents,
            Err(error) => return debug!(%error, "list the region's agents"),
        };
        let registered: Vec<Writer> = agents.iter().map(|agent| agent.writer).collect();
        for command in self.machine.lost_agents(&known, &registered) {
            info!(?command, "an agent of the region is gone");
            self.submit(command).await;
        }
        let announced = agents.iter().map(|agent| agent.machine_version);
        if let Some(command) = self.handle.read(|region| self.machine.raises_version(region, announced)) {
            info!(?command, "every agent of the region runs a higher version of its machine");
            self.submit(command).await;
        }
    }

    async fn snapshot(&mut self, epoch: Epoch) {
        let (snapshot, seqs) = self.handle.replica(Replica::snapshot);
        let index = Region::index(&snapshot.region);
        // Encoding a large state takes a while, and blocks nobody's wait.
        let Ok(bytes) = tokio::task::spawn_blocking(move || snapshot.encode()).await else { return };
        match self.log.install_snapshot(epoch, index, &bytes, &seqs).await {
            Ok(Installed::Yes) => debug!(index, bytes = bytes.len(), "a snapshot took the place of the log's prefix"),
            Ok(Installed::No) => debug!(index, "another leader or a newer snapshot is in place"),
            Err(error) => {
                // Said once: it is tried again at every turn.
                if !std::mem::replace(&mut self.snapshot_failed, true) {
                    warn!(error = %muster_telemetry::chain(&error), "install a snapshot; trying again");
                }
                return;
            }
        }
        self.snapshot_failed = false;
        self.machine.snapshot_done(index);
    }

    /// A refusal for its epoch tells a leader that it is one no longer.
    async fn submit(&mut self, command: Command) {
        let Ok(reply) = self.handle.submit(command, None).await else { return };
        if let Some(epoch) = self.machine.heed(&reply) {
            metrics::fencing_rejections().increment(1);
            self.stepped_down(Some(epoch));
        }
    }
}
