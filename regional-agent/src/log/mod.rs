//! The port to a region's log: one small replicated log per shard, on which
//! every agent of the region appends batches of commands and which every agent
//! replays.
//!
//! The rules every adapter keeps, and the suite in `conformance` checks:
//!
//! 1. Indices are dense from 1 in one history. An entry is at (writer, seq)
//!    and lands at most once while its writer is registered; once the writer's
//!    registration is gone it can never land.
//! 2. An append of several agents at once needs no agreement among them.
//! 3. [`RegionLog::catch_up`] returns a state and everything after it, read at
//!    one revision; [`RegionLog::follow`] from there misses nothing or ends.
//! 4. Only the present leader replaces a prefix of the log by a snapshot, and
//!    the snapshot's index only grows.
//! 5. A head that is lower than one that was seen, or gone, refuses writes,
//!    until somebody begins another life of the log.

pub mod boot_clock;
pub mod conformance;
pub mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;

use std::time::Duration;

use async_trait::async_trait;
use muster_protocol::fact::AgentId;
use muster_protocol::identity::{Epoch, History, Writer};

/// An entry's bytes at their place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEntry {
    /// The log index.
    pub index: u64,
    /// Who wrote it.
    pub writer: Writer,
    /// The writer's count.
    pub seq: u64,
    /// What `muster_protocol::entry::Body` encodes.
    pub bytes: Vec<u8>,
}

/// Who this log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its life.
    pub history: History,
    /// Which shard of the region.
    pub shard: u16,
}

/// What an append came to.
#[derive(Debug)]
pub enum Appended {
    /// It is durable at this index.
    Landed {
        /// The log index.
        index: u64,
    },
    /// An entry is at (writer, seq) already: an earlier try landed.
    AlreadyThere,
    /// The writer's registration is gone; nothing of it can land any more.
    WriterGone,
    /// The head is gone or another one: this log takes no writes.
    HeadGone,
    /// Refused by the store for want of room; not written.
    Full,
    /// Refused for another reason; not written.
    Refused(LogError),
    /// Not known: written or not. Retry under the same (writer, seq).
    Unknown(LogError),
}

/// Why the log did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// It does not answer.
    #[error("the region's log does not answer: {what}")]
    Unavailable {
        /// What was tried.
        what: &'static str,
        /// What came of it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What it holds is not a log this build can read, or is damaged.
    #[error("the region's log can't be used: {what}")]
    Damaged {
        /// What is wrong.
        what: String,
    },
}

/// A state and everything after it, read at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUp {
    /// The bytes of the newest snapshot, if it is newer than what was asked
    /// for: what `muster_protocol::entry::Snapshot` encodes.
    pub snapshot: Option<Vec<u8>>,
    /// Every entry after the snapshot, or after the index asked for.
    pub entries: Vec<RawEntry>,
    /// The log's head at that revision.
    pub head: u64,
    /// Where to follow from.
    pub position: Position,
}

/// A place in the log to follow from; opaque outside its adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub u64);

/// A registered agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its writer.
    pub writer: Writer,
    /// Its name and instance.
    pub agent: AgentId,
    /// Where it can be reached.
    pub address: String,
    /// The version of the region's machine it can run.
    pub machine_version: u16,
}

/// What a snapshot came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is in place, and the entries it covers are gone or going.
    Yes,
    /// Another agent leads, or a newer snapshot is in place.
    No,
}

/// What can still be read of a log whose head may be lost or set back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvage {
    /// Which life of it that was.
    pub history: Option<History>,
    /// The bytes of the newest snapshot that is there.
    pub snapshot: Option<Vec<u8>>,
    /// The entries after it, in order, numbered from its index.
    pub entries: Vec<RawEntry>,
}

/// How a log begins another life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebirth {
    /// The new life.
    pub history: History,
    /// The index that its first entry follows.
    pub base: u64,
    /// The state at that index: what `muster_protocol::entry::Snapshot` encodes.
    pub snapshot: Vec<u8>,
}

/// One region's log.
#[async_trait]
pub trait RegionLog: Send + Sync + 'static {
    /// Who the log is; creates it in an empty keyspace.
    async fn identity(&self) -> Result<Identity, LogError>;

    /// Registers this process under a new instance and keeps its lease alive
    /// until it is lost, released, or the registration is dropped.
    async fn register(&self, registration: NewRegistration) -> Result<Box<dyn Registered>, LogError>;

    /// Appends one entry. One append of a writer is in flight at a time.
    async fn append(&self, writer: Writer, seq: u64, bytes: &[u8]) -> Appended;

    /// The head, read so that everything acknowledged before is below it.
    async fn head(&self) -> Result<u64, LogError>;

    /// Everything after `applied`: the entries, or a snapshot and the entries
    /// after it when the log no longer reaches back that far.
    async fn catch_up(&self, applied: u64) -> Result<CatchUp, LogError>;

    /// Follows the log from a position. One follower serves a process.
    async fn follow(&self, position: Position) -> Result<Box<dyn Follow>, LogError>;

    /// Stands for election: the epoch if this writer leads now.
    async fn campaign(&self, writer: Writer) -> Result<Option<Epoch>, LogError>;

    /// Steps down, so that another need not wait for the lease to run out.
    async fn resign(&self, writer: Writer, epoch: Epoch) -> Result<(), LogError>;

    /// The agents that are registered now.
    async fn registrations(&self) -> Result<Vec<Registration>, LogError>;

    /// Replaces the log up to `index` by a snapshot, if `epoch` leads.
    /// `seqs` are the last sequence numbers the snapshot covers, by writer.
    async fn install_snapshot(
        &self,
        epoch: Epoch,
        index: u64,
        bytes: &[u8],
        seqs: &[(Writer, u64)],
    ) -> Result<Installed, LogError>;

    /// What can still be read, without asking the head. The region's agents
    /// are stopped.
    async fn salvage(&self) -> Result<Salvage, LogError>;

    /// Begins another life of the log, in place of whatever there is. Until
    /// it has ended nobody creates or reads the log; done twice it is the
    /// same as once. Handles that were opened before see the old life.
    async fn begin_anew(&self, rebirth: &Rebirth) -> Result<(), LogError>;
}

/// What an agent registers itself with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRegistration {
    /// Its name and a fresh random instance.
    pub agent: AgentId,
    /// Where it can be reached.
    pub address: String,
    /// The version of the region's machine it can run.
    pub machine_version: u16,
    /// How long its lease lives without being kept alive.
    pub lease_ttl: Duration,
}

/// A registration, kept alive in the background.
#[async_trait]
pub trait Registered: Send + Sync {
    /// The writer this process is.
    fn writer(&self) -> Writer;

    /// For how long from now the lease is proven to live, by the send time of
    /// its last acknowledged keep-alive; zero once it is lost.
    fn proven_for(&self) -> Duration;

    /// Returns when the registration is lost.
    async fn lost(&self);

    /// Gives the registration up at once.
    async fn release(&self);
}

/// The log from a position on.
#[async_trait]
pub trait Follow: Send {
    /// The next entries, in order. An error means only that this follower is
    /// over: catch up, and follow anew.
    async fn next(&mut self) -> Result<Vec<RawEntry>, LogError>;
}
