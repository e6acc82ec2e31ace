//! The machine of one region. Every agent of the region replays the same log
//! through [`Region::apply`] and comes to the same state, byte for byte.
//!
//! ```text
//!            Opened                 Decided
//!  (unknown) ───────▶ gathering ─────────────▶ ended (released | broken) ──Closed──▶ bare verdict
//!                        │  ▲
//!          last arrival  ▼  │ (never: completion is a promise)
//!                     complete
//! ```
//!
//! Inputs are [`Command`]s, outputs are one [`Reply`] per command and
//! [`Effect`]s, which only say what is worth telling: dropping every effect
//! costs time, never correctness, because state is re-read.

mod apply;
mod arrive;
mod command;
mod facts;
mod read;
#[cfg(test)]
pub(crate) mod tests;

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

pub use command::{Arrive, Arrived, Command, Effect, Refusal, Reply, Withdraw};
pub use read::Heard;

use crate::generation::GenerationId;
use crate::identity::{Digest, Epoch, History, SessionId, Timestamp, Writer};
use crate::name::{BarrierName, Key, ParticipantId, RegionName};
use crate::outcome::Outcome;
use crate::spec::Slice;

/// The version of the machine this build runs. A build that meets a higher
/// one in its log stops, because skipping an entry would let replicas differ.
pub const MACHINE_VERSION: u16 = 1;

/// The state of one shard of one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    name: RegionName,
    history: History,
    shard: u16,
    index: u64,
    /// The region clock: milliseconds that leaders have counted, moved only by
    /// [`Command::ClockAdvanced`]. It never runs fast, and stands still while
    /// nobody leads.
    clock_ms: u64,
    epoch: Epoch,
    machine_version: u16,
    /// The last sequence number of each living writer: what makes an entry
    /// take effect at most once.
    writers: BTreeMap<Writer, u64>,
    barriers: BTreeMap<BarrierName, Barrier>,
}

/// What a region knows of one barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    generations: BTreeMap<u64, Generation>,
    /// Which generation a key's round is.
    rounds: BTreeMap<(Key, u32), u64>,
    /// The slices that generations refer to.
    slices: BTreeMap<Digest, Slice>,
}

/// What a region knows of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    id: GenerationId,
    /// `None` when the end was heard before the opening.
    spec: Option<Digest>,
    opened_at: Timestamp,
    /// The region clock when it was opened here.
    opened_clock_ms: u64,
    arrivals: BTreeMap<ParticipantId, Arrival>,
    /// The highest attempt each participant has withdrawn.
    withdrawn: BTreeMap<ParticipantId, u32>,
    counts: Counts,
    outputs_bytes: u32,
    first_arrival_at: Option<Timestamp>,
    last_arrival_at: Option<Timestamp>,
    /// The index at which the region completed: the promise.
    completed: Option<Completed>,
    ended: Option<Ended>,
    /// Whether details are gone and only the verdict is left.
    closed: bool,
}

/// When a region completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// The log index of the completing arrival.
    pub index: u64,
    /// That arrival's stamp; for people.
    pub at: Timestamp,
}

/// The end of a generation as this region applied it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The outcome.
    pub outcome: Outcome,
    /// Its digest.
    pub digest: Digest,
    /// The log index at which it was applied.
    pub index: u64,
}

/// How many arrivals there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Arrived ok.
    pub ok: u32,
    /// Failed for good.
    pub failed: u32,
    /// Failed, and may try again.
    pub retrying: u32,
}

/// One participant's arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Which incarnation of the participant.
    pub attempt: u32,
    /// How its work went.
    pub outcome: ArrivalOutcome,
    /// What it says about that.
    pub note: Option<String>,
    /// What it leaves for those who pass.
    pub output: Option<String>,
    /// The session it arrived under.
    pub session: Option<SessionId>,
    /// When, on the agent's clock; for people.
    pub at: Timestamp,
}

/// How a participant's work went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ArrivalOutcome {
    /// Done.
    #[default]
    Ok,
    /// Not done.
    Failed,
}

impl Region {
    /// The state before the first entry of a history.
    #[must_use]
    pub fn new(name: RegionName, history: History, shard: u16) -> Self {
        Self {
            name,
            history,
            shard,
            index: 0,
            clock_ms: 0,
            epoch: Epoch(0),
            machine_version: MACHINE_VERSION,
            writers: BTreeMap::new(),
            barriers: BTreeMap::new(),
        }
    }
}
