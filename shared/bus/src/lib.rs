//! The port to the bus between regions and coordinator, and its adapters.
//!
//! ```text
//! muster.region.<r>   states, up: reports, greetings, signs of life of one region
//! muster.global       facts, down: openings and outcomes, for every region
//! ```
//!
//! The bus holds no unique state. Whatever it loses is said again, so an
//! adapter may drop, repeat and reorder; it may not invent. Sending is done
//! when the bus has the record, and a failure means only "not known to be
//! sent": the caller's own repeats are what makes it certain.
//!
//! Adapters: [`kafka`] (feature `kafka`) and [`embedded`] (bounded channels in
//! one process, nothing stored). Both pass [`conformance`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod conformance;
pub mod embedded;
#[cfg(feature = "kafka")]
pub mod kafka;
mod record;
mod topic;

use std::collections::BTreeMap;

use async_trait::async_trait;
use muster_protocol::name::RegionName;
use muster_wire::record::{Downward, Upward};

/// Headers that travel with a record: trace context.
pub type Headers = BTreeMap<String, String>;

/// Where a record was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
}

/// One record as it was read.
#[derive(Debug)]
pub struct Received<T> {
    /// Where it was.
    pub place: Place,
    /// What travelled with it.
    pub headers: Headers,
    /// What it says, or why it can't be read.
    pub content: Result<T, Poison>,
}

/// A record that can't be read: set aside with its bytes, blocking nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// The record's bytes.
    pub bytes: Vec<u8>,
    /// Why it can't be read, as a sentence.
    pub error: String,
}

/// Why the bus did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BusError {
    /// It does not answer, or not in time; it may or may not have been done.
    #[error("the bus does not answer: {what}")]
    Unavailable {
        /// What was tried, and what came of it.
        what: String,
    },
    /// It is set up in a way that Muster can't work with.
    #[error("the bus is set up wrong: {what}")]
    Misconfigured {
        /// What is wrong, and how to set it right.
        what: String,
    },
}

/// The bus, as both services see it.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Makes sure that the topics of these regions and the global one exist
    /// with the settings the design needs; refuses others with a sentence.
    async fn prepare(&self, regions: &[RegionName]) -> Result<(), BusError>;

    /// Sends a region's word up.
    async fn send_up(&self, message: &Upward, headers: Headers) -> Result<(), BusError>;

    /// Sends facts down, in order; done when the bus has all of them.
    async fn send_down(&self, messages: Vec<(Downward, Headers)>) -> Result<(), BusError>;

    /// Reads what comes down from here on: everything sent after this call
    /// returned is seen. No group, no stored offset.
    async fn follow_down(&self) -> Result<Box<dyn Down>, BusError>;

    /// Takes part in reading what comes up from these regions. Members of the
    /// group share the work so that one barrier's reports from all regions
    /// meet in one member.
    async fn join_up(&self, regions: &[RegionName]) -> Result<Box<dyn Up>, BusError>;

    /// Whether the bus answers now.
    async fn check(&self) -> Result<(), BusError>;
}

/// What comes down.
#[async_trait]
pub trait Down: Send {
    /// The next record. After an error the caller follows anew.
    async fn next(&mut self) -> Result<Received<Downward>, BusError>;
}

/// What comes up, for one member of the group.
#[async_trait]
pub trait Up: Send {
    /// Waits for the next record, then takes what else is there, up to `max`.
    async fn next_batch(&mut self, max: usize) -> Result<Vec<Received<Upward>>, BusError>;

    /// Says that everything handed out so far has had its effect. Offsets
    /// carry no meaning: losing one costs a repeat.
    fn commit(&mut self);
}
