//! The region's log on etcd, as the architecture has it: one key for each
//! entry, and a head whose version numbers them.
//!
//! ```text
//! keys       where things are           endpoints  members, failover, time limits
//! origin     who the log is, its head   verdict    what an error says of a request
//! append     one transaction            requests   how many of each were sent
//! read       listing at one revision    lease      registration, kept alive
//! follow     the watch (pairing)        leader     election
//! snapshot   replacing a prefix
//! recovery   another life of the log
//! ```

mod append;
mod endpoints;
mod follow;
mod keys;
mod leader;
mod lease;
mod origin;
mod pairing;
mod read;
mod recovery;
mod requests;
mod snapshot;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use muster_protocol::identity::{Epoch, Writer};
use muster_protocol::name::RegionName;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

pub use self::requests::Requests;

use self::endpoints::Endpoints;
use self::keys::Keys;
use self::lease::Lease;
use self::origin::{Origin, Seen};
use super::{
    Appended, CatchUp, Follow, Identity, Installed, LogError, NewRegistration, Position, Rebirth, RegionLog,
    Registered, Registration, Salvage,
};

/// Writers of this process that are remembered after their leases are gone.
const WRITERS_KEPT: usize = 64;

/// Where a region's log is, and how patiently it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdOptions {
    /// The members' client URLs; one that answers is enough.
    pub endpoints: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// Which shard of the region, from 0.
    pub shard: u16,
    /// How many shards a region has that is created now.
    pub shards: u16,
    /// Milliseconds that one request to one member may take.
    pub request_timeout_ms: u64,
    /// Milliseconds that a watch may be silent before it is questioned.
    pub watch_idle_ms: u64,
    /// Milliseconds that it may then take to answer.
    pub watch_answer_ms: u64,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".to_owned()],
            prefix: "/muster/v1".to_owned(),
            shard: 0,
            shards: 1,
            request_timeout_ms: 3_000,
            watch_idle_ms: 5_000,
            watch_answer_ms: 3_000,
        }
    }
}

/// Options that no log can be opened with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// No member.
    #[error("no endpoint of etcd is given; name at least one, like http://127.0.0.1:2379")]
    NoEndpoint,
    /// A URL that can't be used.
    #[error("the endpoint {url:?} of etcd can't be used; write it like http://127.0.0.1:2379")]
    Endpoint {
        /// The URL.
        url: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A prefix that would mix keys with another's.
    #[error("the prefix {prefix:?} has to begin with / and not to end with one")]
    Prefix {
        /// The prefix.
        prefix: String,
    },
    /// A shard beyond the last, or none.
    #[error("shard {shard} is not one of {shards}")]
    Shard {
        /// Which one.
        shard: u16,
        /// How many there are.
        shards: u16,
    },
}

/// A region's log on etcd.
pub struct Etcd {
    shared: Arc<Shared>,
}

/// What the log shares with its followers and lease keepers.
struct Shared {
    region: String,
    options: EtcdOptions,
    keys: Keys,
    endpoints: Endpoints,
    origin: OnceCell<Origin>,
    seen: Seen,
    leases: Mutex<BTreeMap<Writer, Arc<Lease>>>,
}

impl Etcd {
    /// Prepares to use a log; connects with the first request.
    pub async fn open(options: EtcdOptions, region: &RegionName) -> Result<Self, InvalidOptions> {
        let prefix = options.prefix.clone();
        if !prefix.starts_with('/') || prefix.ends_with('/') {
            return Err(InvalidOptions::Prefix { prefix });
        }
        if options.shard >= options.shards {
            return Err(InvalidOptions::Shard { shard: options.shard, shards: options.shards });
        }
        let timeout = Duration::from_millis(options.request_timeout_ms);
        let keys = Keys::new(&prefix, region, options.shard);
        let region = region.to_string();
        let endpoints = Endpoints::open(&options.endpoints, timeout, region.clone()).await?;
        let (origin, seen, leases) = (OnceCell::new(), Seen::default(), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { region, options, keys, endpoints, origin, seen, leases }) })
    }

    /// How many requests were sent so far.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.shared.endpoints.counters().read()
    }
}

impl Shared {
    /// The lease of a writer that this process registered, lost or not.
    fn lease_of(&self, writer: Writer) -> Option<Arc<Lease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).get(&writer).map(Arc::clone)
    }

    fn keep_lease(&self, lease: &Arc<Lease>) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.insert(lease.writer, Arc::clone(lease));
        if leases.len() > WRITERS_KEPT {
            leases.pop_first();
        }
    }
}

#[async_trait]
impl RegionLog for Etcd {
    async fn identity(&self) -> Result<Identity, LogError> {
        let history = self.shared.origin().await?.history;
        Ok(Identity { history, shard: self.shared.options.shard })
    }

    async fn register(&self, registration: NewRegistration) -> Result<Box<dyn Registered>, LogError> {
        self.shared.register_agent(registration).await
    }

    #[tracing::instrument(skip_all, fields(region = %self.shared.region, %writer, seq))]
    async fn append(&self, writer: Writer, seq: u64, bytes: &[u8]) -> Appended {
        self.shared.append_entry(writer, seq, bytes).await
    }

    async fn head(&self) -> Result<u64, LogError> {
        self.shared.read_head().await
    }

    async fn catch_up(&self, applied: u64) -> Result<CatchUp, LogError> {
        self.shared.read_since(applied).await
    }

    async fn follow(&self, position: Position) -> Result<Box<dyn Follow>, LogError> {
        Ok(Box::new(self.shared.watch_from(position).await?))
    }

    async fn campaign(&self, writer: Writer) -> Result<Option<Epoch>, LogError> {
        self.shared.stand(writer).await
    }

    async fn resign(&self, _writer: Writer, epoch: Epoch) -> Result<(), LogError> {
        self.shared.step_down(epoch).await
    }

    async fn registrations(&self) -> Result<Vec<Registration>, LogError> {
        self.shared.list_agents().await
    }

    async fn install_snapshot(
        &self,
        epoch: Epoch,
        index: u64,
        bytes: &[u8],
        seqs: &[(Writer, u64)],
    ) -> Result<Installed, LogError> {
        self.shared.install(epoch, index, bytes, seqs).await
    }

    async fn salvage(&self) -> Result<Salvage, LogError> {
        self.shared.salvage().await
    }

    async fn begin_anew(&self, rebirth: &Rebirth) -> Result<(), LogError> {
        self.shared.begin_anew(rebirth).await
    }
}
