//! The region's log in this process: a SQLite file, or one in memory that keeps
//! nothing. Several replicas of the process share it by cloning the handle; a
//! second process is refused.
//!
//! Registrations and the leader live in memory, since they end with the
//! process: whoever opens the file anew finds nobody registered. No lease runs
//! out here, so tests take registrations away with [`Embedded::expel`].
//!
//! Everything goes through one connection under one lock, which makes each call
//! atomic, the checks of registrations and leadership included. What changes
//! the log runs in a task of its own: a caller that goes away leaves no
//! transaction half done.

mod follow;
mod registered;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use muster_protocol::caps::ENTRY_BYTES_MAX;
use muster_protocol::identity::{Epoch, History, Writer};
use muster_protocol::mutant;
use muster_protocol::name::RegionName;
use muster_telemetry::metrics;
use sqlx::SqliteConnection;
use tokio::sync::{Mutex, watch};

use self::follow::EmbeddedFollow;
use self::registered::{Agent, EmbeddedRegistration};
use self::tables::failed;
use super::{
    Appended, CatchUp, Follow, Identity, Installed, LogError, NewRegistration, Position, Rebirth, RegionLog,
    Registered, Registration, Salvage,
};

/// A region's log in this process.
#[derive(Clone)]
pub struct Embedded {
    core: Arc<Core>,
}

struct Core {
    region: String,
    /// Another life of the log has another one.
    history: std::sync::Mutex<History>,
    store: Mutex<Store>,
    /// The newest index, as a hint for followers.
    newest: watch::Sender<u64>,
}

/// What the lock guards.
struct Store {
    db: SqliteConnection,
    agents: BTreeMap<Writer, Agent>,
    leader: Option<(Writer, Epoch)>,
}

impl Store {
    /// Ends a registration, and with it what stood on it.
    fn remove(&mut self, writer: Writer) -> bool {
        self.leader = self.leader.filter(|(leader, _)| *leader != writer);
        self.agents.remove(&writer).map(Agent::lose).is_some()
    }
}

impl Embedded {
    /// Opens the log in a file, and makes it if there is none.
    pub async fn open(region: &RegionName, path: &Path) -> Result<Self, LogError> {
        Self::over(region, tables::open(Some(path)).await?).await
    }

    /// A new log that is gone with its last handle.
    pub async fn in_memory(region: &RegionName) -> Result<Self, LogError> {
        Self::over(region, tables::open(None).await?).await
    }

    async fn over(region: &RegionName, mut db: SqliteConnection) -> Result<Self, LogError> {
        let unusable = failed("open the log");
        let history = tables::origin(&mut db).await.map_err(&unusable)?;
        let newest = tables::head(&mut db).await.map_err(&unusable)?.unwrap_or_default();
        let store = Mutex::new(Store { db, agents: BTreeMap::new(), leader: None });
        let (region, newest) = (region.to_string(), watch::Sender::new(newest));
        Ok(Self { core: Arc::new(Core { region, history: history.into(), store, newest }) })
    }

    /// Takes a registration away, as etcd does when a lease runs out; `false`
    /// if there is none.
    pub async fn expel(&self, writer: Writer) -> bool {
        self.core.store.lock().await.remove(writer)
    }

    /// Runs to its end, whatever becomes of the caller.
    async fn to_the_end<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        if mutant!(LosesItsTask) {
            return work.await;
        }
        match tokio::spawn(work).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down and polls nobody any more.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

impl Core {
    async fn append(&self, writer: Writer, seq: u64, bytes: &[u8]) -> Appended {
        if bytes.len() > ENTRY_BYTES_MAX {
            let what = format!("entry {seq} of {} bytes is over {ENTRY_BYTES_MAX} bytes", bytes.len());
            return Appended::Refused(LogError::Damaged { what });
        }
        let mut store = self.store.lock().await;
        if !store.agents.contains_key(&writer) && !mutant!(NoRegistration) {
            return Appended::WriterGone;
        }
        fail::fail_point!("log.append.before");
        let started = Instant::now();
        let appended = tables::append(&mut store.db, writer, seq, bytes).await;
        if let Appended::Landed { index } = appended {
            metrics::log_append(self.region.clone()).record(started.elapsed().as_secs_f64());
            metrics::log_appends(self.region.clone()).increment(1);
            self.newest.send_replace(index);
        }
        fail::fail_point!("log.append.after");
        appended
    }

    async fn catch_up(&self, applied: u64) -> Result<CatchUp, LogError> {
        let mut store = self.store.lock().await;
        let unread = failed("read the log");
        metrics::range_requests(self.region.clone(), "catch_up").increment(1);
        let head = head_of(&mut store.db).await?;
        let floor = tables::snapshot_index(&mut store.db).await.map_err(&unread)?;
        let snapshot = match floor > applied {
            true => tables::snapshot(&mut store.db).await.map_err(&unread)?,
            false => None,
        };
        let from = applied.max(floor);
        let entries = tables::entries_after(&mut store.db, from, u32::MAX).await.map_err(&unread)?;
        let indices = entries.iter().map(|entry| entry.index);
        if head >= from && !indices.eq(from + 1..=head) && !mutant!(GapUnnoticed) {
            let what = format!("{} entries lie between index {from} and its head {head}", entries.len());
            return Err(LogError::Damaged { what });
        }
        Ok(CatchUp { snapshot, entries, head, position: Position(head + 1) })
    }

    async fn install(&self, epoch: Epoch, index: u64, bytes: &[u8]) -> Result<Installed, LogError> {
        let mut store = self.store.lock().await;
        let leads = store.leader.is_some_and(|(_, leading)| leading == epoch) || mutant!(ManifestWithoutEpoch);
        if index == 0 || !leads {
            return Ok(Installed::No);
        }
        let head = head_of(&mut store.db).await?;
        if index > head && !mutant!(SnapshotBeyondHead) {
            let what = format!("a snapshot at index {index} lies behind its head {head}");
            return Err(LogError::Damaged { what });
        }
        tables::install(&mut store.db, index, bytes).await.map_err(failed("put a snapshot in place"))
    }
}

async fn head_of(db: &mut SqliteConnection) -> Result<u64, LogError> {
    let head = tables::head(db).await.map_err(failed("read the log's head"))?;
    head.ok_or_else(|| LogError::Damaged { what: "its head is gone, so nothing more can be numbered".to_owned() })
}

#[async_trait]
impl RegionLog for Embedded {
    async fn identity(&self) -> Result<Identity, LogError> {
        let history = *self.core.history.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Identity { history, shard: 0 })
    }

    async fn register(&self, new: NewRegistration) -> Result<Box<dyn Registered>, LogError> {
        let core = Arc::clone(&self.core);
        self.to_the_end(async move {
            fail::fail_point!("log.register.before");
            let registered = EmbeddedRegistration::enter(core, new).await?;
            fail::fail_point!("log.register.after");
            Ok(Box::new(registered) as Box<dyn Registered>)
        })
        .await
    }

    #[tracing::instrument(skip_all, fields(region = %self.core.region, %writer, seq))]
    async fn append(&self, writer: Writer, seq: u64, bytes: &[u8]) -> Appended {
        let (core, bytes) = (Arc::clone(&self.core), bytes.to_vec());
        self.to_the_end(async move { core.append(writer, seq, &bytes).await }).await
    }

    async fn head(&self) -> Result<u64, LogError> {
        metrics::range_requests(self.core.region.clone(), "read_index").increment(1);
        head_of(&mut self.core.store.lock().await.db).await
    }

    async fn catch_up(&self, applied: u64) -> Result<CatchUp, LogError> {
        self.core.catch_up(applied).await
    }

    async fn follow(&self, position: Position) -> Result<Box<dyn Follow>, LogError> {
        Ok(Box::new(EmbeddedFollow::new(Arc::clone(&self.core), position)))
    }

    async fn campaign(&self, writer: Writer) -> Result<Option<Epoch>, LogError> {
        let core = Arc::clone(&self.core);
        self.to_the_end(async move {
            let mut store = core.store.lock().await;
            match store.leader {
                _ if !store.agents.contains_key(&writer) && !mutant!(LeadsUnregistered) => Ok(None),
                Some((leader, epoch)) if !mutant!(LeadsOver) => Ok((leader == writer).then_some(epoch)),
                _ => {
                    let epoch = tables::next_number(&mut store.db).await.map_err(failed("stand for election"))?;
                    store.leader = Some((writer, Epoch(epoch)));
                    Ok(Some(Epoch(epoch)))
                }
            }
        })
        .await
    }

    async fn resign(&self, _writer: Writer, epoch: Epoch) -> Result<(), LogError> {
        let mut store = self.core.store.lock().await;
        store.leader = store.leader.filter(|(_, leading)| *leading != epoch && !mutant!(ResignsForOthers));
        Ok(())
    }

    async fn registrations(&self) -> Result<Vec<Registration>, LogError> {
        let store = self.core.store.lock().await;
        Ok(store.agents.values().map(|agent| agent.registration.clone()).collect())
    }

    async fn install_snapshot(
        &self,
        epoch: Epoch,
        index: u64,
        bytes: &[u8],
        // Entries lie in the order of their indices here: the index says it all.
        _seqs: &[(Writer, u64)],
    ) -> Result<Installed, LogError> {
        let (core, bytes) = (Arc::clone(&self.core), bytes.to_vec());
        self.to_the_end(async move { core.install(epoch, index, &bytes).await }).await
    }

    async fn salvage(&self) -> Result<Salvage, LogError> {
        let history = self.identity().await?.history;
        let mut store = self.core.store.lock().await;
        let unread = failed("read what is left of the log");
        let snapshot = tables::snapshot(&mut store.db).await.map_err(&unread)?;
        let floor = tables::snapshot_index(&mut store.db).await.map_err(&unread)?;
        let mut entries = tables::entries_after(&mut store.db, floor, u32::MAX).await.map_err(&unread)?;
        // What lies behind a gap says nothing without what is missing.
        let dense = entries.iter().zip(floor + 1..).take_while(|(entry, index)| entry.index == *index).count();
        entries.truncate(dense);
        Ok(Salvage { history: Some(history), snapshot, entries })
    }

    async fn begin_anew(&self, rebirth: &Rebirth) -> Result<(), LogError> {
        let (core, rebirth) = (Arc::clone(&self.core), rebirth.clone());
        self.to_the_end(async move {
            let mut store = core.store.lock().await;
            let put = tables::begin_anew(&mut store.db, &rebirth).await;
            put.map_err(failed("begin another life of the log"))?;
            for writer in store.agents.keys().copied().collect::<Vec<Writer>>() {
                store.remove(writer);
            }
            *core.history.lock().unwrap_or_else(PoisonError::into_inner) = rebirth.history;
            core.newest.send_replace(rebirth.base);
            Ok(())
        })
        .await
    }
}
