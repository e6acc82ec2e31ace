//! The port to the coordinator's store: one call per decision, not rows and
//! locks. Adapters lock, load, call the pure machine of
//! `muster_protocol::global`, write what it says and commit.
//!
//! The rules every adapter keeps, and the suite in `conformance` checks:
//!
//! 1. The barrier rows of a batch are locked first, in the order of their
//!    names; whatever decides, opens, defines or deletes takes that lock.
//! 2. What the machine reads is read in statements that begin after the lock
//!    is held: two deciders can't each miss what the other wrote.
//! 3. An outcome is written only where there is none; a report replaces none
//!    with a higher index of the same history.
//! 4. A step is returned only after its changes are durable.

mod adopt;
mod audit;
mod backend;
#[cfg(test)]
mod conformance;
mod drain;
pub mod embedded;
mod error;
mod load;
mod page;
pub mod postgres;
mod query;
mod read;
mod record;
mod regions;
mod retention;
mod sql;
mod successors;
mod transact;
mod unanswered;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use muster_bus::{Place, Poison};
use muster_protocol::fact::{Fact, Heartbeat, Hello, Welcome};
use muster_protocol::generation::{GenerationId, State};
use muster_protocol::global::{Barrier, Command, Declared, Generation, Step};
use muster_protocol::identity::{Era, History, Timestamp};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Override;
use muster_protocol::spec::Spec;
use muster_wire::reference::Reference;

/// Whether a batch is to be written, or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Write it.
    Commit,
    /// Answer what it would do, and write nothing.
    DryRun,
}

/// Why the store did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It does not answer; nothing was written.
    #[error("the store does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It answers, but all that it may do at once is being done; nothing was
    /// written.
    #[error("the store has more to do than it can at once")]
    Busy(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A transaction lost against another and would win when repeated; nothing
    /// was written.
    #[error("the store asks to repeat the transaction")]
    Contended(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke while committing: written or not.
    #[error("the store's answer was lost")]
    Unknown(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It has no room; nothing was written.
    #[error("the store is full")]
    Full(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Its schema is not this build's.
    #[error("the store's schema is at version {found}, this build needs {needed}: run `muster migrate`")]
    Schema {
        /// The version found; 0 for an empty database.
        found: i64,
        /// The version this build needs.
        needed: i64,
    },
    /// A defect: a statement or a stored value this build does not understand.
    #[error("the store refused a statement")]
    Defect(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A declared region, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRow {
    /// Its name.
    pub name: RegionName,
    /// The current life of its log, once an agent greeted.
    pub history: Option<History>,
    /// The highest log index it reported.
    pub index: u64,
    /// Since when it was not heard, on the database's clock.
    pub silence: Option<Duration>,
    /// When it was last heard.
    pub heard_at: Option<Timestamp>,
    /// Agents heard within the last minute.
    pub agents: Vec<AgentRow>,
    /// The life of the database in which it told all that it had to tell.
    pub era: Option<Era>,
    /// A planned absence, while it lasts.
    pub drained: Option<Drained>,
    /// Lives of its log that greeted and do not count.
    pub unknown_histories: Vec<History>,
}

impl RegionRow {
    /// The region as decisions see it.
    #[must_use]
    pub fn declared(&self) -> Declared {
        let drained = self.drained.as_ref().map(|drained| drained.by.clone());
        Declared { history: self.history, era: self.era.clone(), drained }
    }
}

/// A planned absence of a region: generations that open go on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// When it ends by itself, on the database's clock.
    pub until: Timestamp,
    /// Who asked, and why.
    pub by: Override,
}

/// When a planned absence ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// At an instant.
    At(Timestamp),
    /// So long from now, on the database's clock.
    In(Duration),
}

/// What became of what somebody decided about a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overruled {
    /// It is as it was asked for; whether this call changed it.
    Done {
        /// Whether it did.
        changed: bool,
    },
    /// Nobody declared the region.
    Undeclared,
    /// The absence would have ended before it began.
    Past,
    /// Nobody greeted with that life of its log. Holds those that did.
    NeverGreeted(Vec<History>),
}

/// Which entries of the audit log a list holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only of this actor.
    pub actor: Option<String>,
    /// Only of this barrier.
    pub barrier: Option<BarrierName>,
    /// Only from this instant on.
    pub since: Option<Timestamp>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// When, on the database's clock.
    pub at: Timestamp,
    /// What was done, as it is written.
    pub action: String,
    /// The barrier, when one was meant.
    pub barrier: Option<BarrierName>,
    /// The generation as people write it, when one was meant.
    pub generation: Option<String>,
    /// Who, and why.
    pub by: Override,
    /// To which region or participants.
    pub object: String,
}

/// An agent, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRow {
    /// Its configured name.
    pub name: String,
    /// Random for each life of its process.
    pub instance: String,
    /// Where it can be reached.
    pub address: String,
    /// When it was last heard, on the database's clock.
    pub heard_at: Timestamp,
    /// Since when it was not heard.
    pub silence: Duration,
}

/// A generation with what is needed to speak about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationRow {
    /// The generation, with the latest report of every region.
    pub generation: Generation,
    /// The spec it was opened with.
    pub spec: Spec,
    /// Grows with every change of the generation.
    pub version: u64,
    /// How old each region's report is, on the database's clock.
    pub report_ages: std::collections::BTreeMap<RegionName, Duration>,
}

/// Which generations a list holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenerationFilter {
    /// Only of this barrier.
    pub barrier: Option<BarrierName>,
    /// Only of barriers whose full name begins with this.
    pub prefix: Option<String>,
    /// Only in these states; empty is every state.
    pub states: Vec<State>,
    /// Only with this label in the spec they were opened with.
    pub label: Option<(String, String)>,
    /// Only with this region in the spec they were opened with.
    pub region: Option<RegionName>,
}

/// A page of rows, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Opaque; `None` on the last page.
    pub next: Option<String>,
}

/// A cursor that this store did not write is treated as the beginning. A page
/// has at least one row and at most 1,024, whatever the limit asked for.
pub type Cursor = Option<String>;

/// The coordinator's store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The same store as calls use it. However many come, together they leave
    /// room for what the coordinator has to do by itself.
    fn for_calls(&self) -> Arc<dyn Store>;

    /// Applies a batch of commands, each to its barrier, in one transaction.
    /// Returns one step per command, in the order of the batch.
    async fn transact(&self, batch: Vec<(BarrierName, Command)>, mode: Mode) -> Result<Vec<Step>, StoreError>;

    /// Declares a region; false if it was.
    async fn declare(&self, region: &RegionName) -> Result<bool, StoreError>;

    /// Takes a greeting: the first history of a region becomes its current
    /// one. Counts as a sign of life if it is current. The answer says which
    /// life of the database answers, and whether the region must tell its ends
    /// too because it has not done so in this life.
    async fn hello(&self, hello: &Hello) -> Result<Welcome, StoreError>;

    /// Takes signs of life. Those of undeclared regions and of histories that
    /// are not current change nothing. One that carries the present life of the
    /// database says that its region has told everything in it; agents that
    /// carry another, and those whose log does not count, are to be welcomed
    /// anew.
    async fn heartbeats(&self, heartbeats: &[Heartbeat]) -> Result<Vec<Welcome>, StoreError>;

    /// Drains a region until then, or ends its drain. Everything that opens
    /// after this returns has heard of it.
    async fn drain(&self, region: &RegionName, until: Option<Until>, by: &Override) -> Result<Overruled, StoreError>;

    /// Takes another life of a region's log for the one that counts. What the
    /// former one said of generations that are not settled is forgotten, so
    /// that everything is said again.
    async fn adopt(&self, region: &RegionName, history: History, by: &Override) -> Result<Overruled, StoreError>;

    /// What somebody decided that participants had not, the latest first.
    async fn audit(&self, filter: &AuditFilter, cursor: Cursor, limit: u32) -> Result<Page<AuditRow>, StoreError>;

    /// Barriers of which something is past its retention.
    async fn collectable(&self, limit: u32) -> Result<Vec<BarrierName>, StoreError>;

    /// Keeps records that can't be read, with their place and bytes.
    async fn set_aside(&self, poison: &[(Place, Poison)]) -> Result<(), StoreError>;

    /// The declared regions, by name.
    async fn regions(&self) -> Result<Vec<RegionRow>, StoreError>;

    /// A barrier without its generations; deleted ones too, never undefined.
    async fn barrier(&self, name: &BarrierName) -> Result<Option<Barrier>, StoreError>;

    /// Defined barriers, by namespace and name.
    async fn barriers(&self, prefix: Option<&str>, cursor: Cursor, limit: u32) -> Result<Page<Barrier>, StoreError>;

    /// One generation. On a keyed barrier a number is read as a key.
    async fn generation(&self, barrier: &BarrierName, id: &Reference) -> Result<Option<GenerationRow>, StoreError>;

    /// Generations, the newest first.
    async fn generations(
        &self,
        filter: &GenerationFilter,
        cursor: Cursor,
        limit: u32,
    ) -> Result<Page<GenerationRow>, StoreError>;

    /// Facts that regions have not answered, the oldest generation's first, for
    /// one region or for all.
    async fn unanswered(
        &self,
        region: Option<&RegionName>,
        cursor: Cursor,
        limit: u32,
    ) -> Result<Page<(RegionName, Fact)>, StoreError>;

    /// Gathering generations whose time is up, how long until the next one's
    /// is, on the database's clock, and those whose predecessor broke.
    async fn due(&self, limit: u32) -> Result<Due, StoreError>;

    /// Whether the store answers and its schema is this build's; its era.
    async fn check(&self) -> Result<Era, StoreError>;
}

/// What the clock demands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Generations whose time is up.
    pub generations: Vec<(BarrierName, u64)>,
    /// How long until the next one's is.
    pub next_in: Option<Duration>,
    /// Gathering generations whose predecessor is broken, with it.
    pub orphaned: Vec<(BarrierName, u64, GenerationId)>,
}
