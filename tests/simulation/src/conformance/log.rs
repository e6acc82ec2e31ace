//! The simulated log, as an adapter of the region log, in the suite that those
//! of etcd and SQLite pass.
//!
//! Left out is what it does not have: a limit of an entry's size (the suite's
//! `an_entry_over_the_limit_is_refused`; the machines keep to it), names of
//! agents that could be taken twice (`an_instance_registers_once`), and a head
//! that is lost rather than set back (`a_log_without_head_takes_no_writes` and
//! `recovery`): `Log::restore` sets it back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use muster_protocol::identity::{Epoch, History, Writer};
use muster_protocol::replica::{self, Logged};
use muster_regional_agent::log::conformance::Harness;
use muster_regional_agent::log::{
    Appended, CatchUp, Follow, Identity, Installed, LogError, NewRegistration, Position, RawEntry, Rebirth, RegionLog,
    Registered, Registration, Salvage,
};
use muster_regional_agent::region_log_conformance;
use tokio::sync::watch;

use crate::log::{LEASE_TTL, Log, cut};

region_log_conformance! { @each Region::default();
    append::{
        indices_are_dense_under_concurrent_writers, an_entry_lands_once, the_head_is_never_below_what_was_acknowledged,
        a_truncated_entry_may_land_again,
    }
    read::{
        a_log_is_created_once, catching_up_gives_what_followers_saw, following_misses_nothing,
        a_follower_that_waits_is_woken, a_follower_goes_on_over_a_snapshot, every_process_sees_the_same,
        large_entries_are_read_whole,
    }
    register::{registrations_are_listed, an_expelled_writer_lands_nothing_more, a_released_writer_lands_nothing_more}
    lead::{one_of_several_leads, resigning_hands_over, a_lost_leader_is_followed}
    snapshot::{
        a_snapshot_replaces_what_it_covers, a_large_snapshot_is_read_whole, the_index_only_grows,
        only_the_leader_replaces, an_entry_behind_the_snapshot_stays,
    }
    replay::{replicas_come_to_the_same_state_byte_for_byte}
}

/// The log, its time, and what agents said of themselves, which it does not keep.
#[derive(Default)]
struct Inside {
    log: Log,
    now: Duration,
    agents: BTreeMap<Writer, (NewRegistration, watch::Sender<bool>)>,
}

impl Inside {
    /// Time passes in which all but one keep their leases alive.
    fn expel(&mut self, writer: Writer) {
        self.now += LEASE_TTL;
        for (other, _) in self.log.registrations().into_iter().filter(|(other, _)| *other != writer) {
            self.log.keep_alive(other, self.now);
        }
        self.log.expire(self.now);
        self.agents.get(&writer).map(|(_, lost)| lost.send_replace(true));
    }
}

/// A region's log, as several processes see it.
#[derive(Clone, Default)]
struct Region {
    inside: Arc<Mutex<Inside>>,
    changed: watch::Sender<()>,
}

impl Region {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }
}

#[async_trait]
impl Harness for Region {
    async fn open(&self) -> Arc<dyn RegionLog> {
        Arc::new(Process { region: self.clone(), seen: AtomicU64::new(0) })
    }

    async fn expel(&self, writer: Writer) {
        self.lock().expel(writer);
    }

    async fn lose_head(&self) {
        unreachable!("it is set back, never lost");
    }

    async fn entries_kept(&self) -> u64 {
        self.lock().log.entries_after(0).len() as u64
    }
}

/// One process, with the highest index it has seen.
struct Process {
    region: Region,
    seen: AtomicU64,
}

fn damaged(what: String) -> LogError {
    LogError::Damaged { what }
}

fn raw(Logged { index, writer, seq, bytes }: Logged) -> RawEntry {
    RawEntry { index, writer, seq, bytes }
}

#[async_trait]
impl RegionLog for Process {
    async fn identity(&self) -> Result<Identity, LogError> {
        Ok(Identity { history: History([1; 16]), shard: 0 })
    }

    async fn register(&self, registration: NewRegistration) -> Result<Box<dyn Registered>, LogError> {
        let mut inside = self.region.lock();
        let now = inside.now;
        let writer = inside.log.register(now, registration.machine_version);
        let (lost, told) = watch::channel(false);
        inside.agents.insert(writer, (registration, lost));
        Ok(Box::new(Lease { region: self.region.clone(), writer, lost: told }))
    }

    async fn append(&self, writer: Writer, seq: u64, bytes: &[u8]) -> Appended {
        let appended = self.region.lock().log.append(writer, seq, bytes, self.seen.load(Ordering::SeqCst));
        match appended {
            replica::Appended::Landed { index } => {
                self.seen.fetch_max(index, Ordering::SeqCst);
                self.region.changed.send_replace(());
                Appended::Landed { index }
            }
            replica::Appended::AlreadyThere => Appended::AlreadyThere,
            replica::Appended::WriterGone => Appended::WriterGone,
            replica::Appended::HeadGone => Appended::HeadGone,
            other => Appended::Refused(damaged(format!("{other:?}"))),
        }
    }

    async fn head(&self) -> Result<u64, LogError> {
        Ok(self.region.lock().log.read_head())
    }

    async fn catch_up(&self, applied: u64) -> Result<CatchUp, LogError> {
        let read = self.region.lock().log.catch_up(applied).map_err(damaged)?;
        let entries = read.entries.into_iter().map(raw).collect();
        Ok(CatchUp { snapshot: read.snapshot, entries, head: read.head, position: Position(read.head + 1) })
    }

    async fn follow(&self, position: Position) -> Result<Box<dyn Follow>, LogError> {
        let (region, changed) = (self.region.clone(), self.region.changed.subscribe());
        Ok(Box::new(Stream { region, last: position.0 - 1, changed }))
    }

    async fn campaign(&self, writer: Writer) -> Result<Option<Epoch>, LogError> {
        Ok(self.region.lock().log.campaign(writer))
    }

    /// Nobody steps down in the simulator and lives on.
    async fn resign(&self, writer: Writer, epoch: Epoch) -> Result<(), LogError> {
        let mut inside = self.region.lock();
        if inside.log.registrations().iter().any(|(known, _)| *known == writer)
            && inside.log.campaign(writer) == Some(epoch)
        {
            inside.expel(writer);
        }
        Ok(())
    }

    async fn registrations(&self) -> Result<Vec<Registration>, LogError> {
        let inside = self.region.lock();
        let registered = inside.log.registrations().into_iter();
        let said = registered.filter_map(|(writer, machine_version)| {
            let (said, _) = inside.agents.get(&writer)?;
            let (agent, address) = (said.agent.clone(), said.address.clone());
            Some(Registration { writer, agent, address, machine_version })
        });
        Ok(said.collect())
    }

    async fn install_snapshot(
        &self,
        epoch: Epoch,
        index: u64,
        bytes: &[u8],
        _seqs: &[(Writer, u64)],
    ) -> Result<Installed, LogError> {
        let log = &mut self.region.lock().log;
        let listed = log.list(index);
        if index <= listed.floor {
            return Ok(Installed::No);
        }
        if index > log.head {
            return Err(damaged(format!("a snapshot at index {index} lies behind its head {}", log.head)));
        }
        let mut chunks = cut(bytes).into_iter().enumerate();
        let put = chunks.all(|(number, chunk)| log.put_chunk(epoch, index, number, &chunk))
            && log.put_manifest(epoch, index, listed, bytes.len());
        if !put {
            return Ok(Installed::No);
        }
        log.truncate(index, listed.covered);
        Ok(Installed::Yes)
    }

    async fn salvage(&self) -> Result<Salvage, LogError> {
        unreachable!("it is set back, never lost");
    }

    async fn begin_anew(&self, _rebirth: &Rebirth) -> Result<(), LogError> {
        unreachable!("it is set back, never lost");
    }
}

/// A registration.
struct Lease {
    region: Region,
    writer: Writer,
    lost: watch::Receiver<bool>,
}

#[async_trait]
impl Registered for Lease {
    fn writer(&self) -> Writer {
        self.writer
    }

    fn proven_for(&self) -> Duration {
        if *self.lost.borrow() { Duration::ZERO } else { LEASE_TTL }
    }

    async fn lost(&self) {
        let _ = self.lost.clone().wait_for(|lost| *lost).await;
    }

    async fn release(&self) {
        self.region.lock().expel(self.writer);
    }
}

/// The log from an index on.
struct Stream {
    region: Region,
    last: u64,
    changed: watch::Receiver<()>,
}

#[async_trait]
impl Follow for Stream {
    async fn next(&mut self) -> Result<Vec<RawEntry>, LogError> {
        loop {
            self.changed.borrow_and_update();
            let entries = self.region.lock().log.entries_after(self.last);
            if let Some(first) = entries.first() {
                if first.index != self.last + 1 {
                    return Err(damaged(format!("index {} is truncated", self.last + 1)));
                }
                self.last += entries.len() as u64;
                return Ok(entries.into_iter().map(raw).collect());
            }
            self.changed.changed().await.map_err(|_| damaged("the region is gone".to_owned()))?;
        }
    }
}
