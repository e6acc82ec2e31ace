//! The machine of one region. Every agent of the region replays the same log
//! through [`Region::apply`] and comes to the same state, byte for byte.
//!
//! ```text
//!            Opened                 Decided
//!  (unknown) ───────▶ gathering ─────────────▶ ended (released | broken) ─▶ bare verdict ─▶ forgotten
//!                        │  ▲                                    retention            Closed
//!          last arrival  ▼  │ (never: completion is a promise)
//!                     complete
//!
//!  participant:  missing ⇄ working ──▶ arrived | failed
//!                   ▲         │ its session falls silent
//!                   └─ lost ◀─┘ ── rejoin passes ──▶ failed | excluded
//! ```
//!
//! Inputs are [`Command`]s, outputs are one [`Reply`] per command and
//! [`Effect`]s, which only say what is worth telling: dropping every effect
//! costs time, never correctness, because state is re-read.
//!
//! Barriers of regional scope run the coordinator's own machine
//! ([`crate::global`]) inside the region's log.

mod anew;
mod apply;
mod arrive;
mod command;
mod count;
mod facts;
#[cfg(test)]
mod liveness_tests;
mod read;
mod regional;
#[cfg(test)]
mod regional_tests;
mod session;
#[cfg(test)]
pub(crate) mod tests;
mod timer;
pub(crate) mod v1;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

pub use command::{
    Arrive, Arrived, Attempt, Command, Effect, OpenSession, Refusal, Regional, Reply, SessionOpened, Withdraw, Work,
};
pub use count::{Completed, Counts, Zone};
pub use read::Heard;
pub use session::{Absence, Lost, Session, Worker};
pub use timer::Timer;

use crate::generation::GenerationId;
use crate::global;
use crate::identity::{Digest, Epoch, History, SessionId, Timestamp, Writer};
use crate::name::{BarrierName, Key, ParticipantId, RegionName, ZoneName};
use crate::outcome::Outcome;
use crate::spec::Slice;

/// The version of the machine this build runs. A build that meets a higher
/// one in its log stops, because skipping an entry would let replicas differ.
pub const MACHINE_VERSION: u16 = 2;

/// The version that every log begins with: the leader raises it once every
/// living agent of the region runs a higher one.
pub const MACHINE_VERSION_FIRST: u16 = 1;

/// The state of one shard of one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    name: RegionName,
    history: History,
    shard: u16,
    index: u64,
    /// The region clock: milliseconds that leaders have counted. It never runs
    /// fast, and stands still while nobody leads.
    clock_ms: u64,
    epoch: Epoch,
    machine_version: u16,
    /// The last sequence number of each living writer: what makes an entry
    /// take effect at most once.
    writers: BTreeMap<Writer, u64>,
    barriers: BTreeMap<BarrierName, Barrier>,
    sessions: BTreeMap<SessionId, Session>,
    /// The deciders of the barriers of regional scope.
    regional: BTreeMap<BarrierName, global::Barrier>,
    /// Generations of the coordinator under names that are regional here, with
    /// the digest of their end.
    taken: BTreeMap<(BarrierName, u64), (GenerationId, Option<Digest>)>,
    /// What the region clock will do, and when.
    timers: BTreeSet<(u64, Timer)>,
    /// What it will do so many milliseconds after it has moved twice. It was
    /// last moved some time ago, nobody here knows how long, and the move that
    /// comes next may be on its way already, with the time until it set out:
    /// counted from either a timer would be early by that.
    armed: Vec<(u64, Timer)>,
    /// How many of these, the first, have seen it move once.
    ripe: u32,
    /// When details of finished generations go.
    retentions: BTreeSet<(u64, BarrierName, u64)>,
    /// Overrides of regional barriers, the latest ones.
    audit: VecDeque<global::Audit>,
}

/// What a region knows of one barrier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    generations: BTreeMap<u64, Generation>,
    /// Which generation a key's round is.
    rounds: BTreeMap<(Key, u32), u64>,
    /// The slices that generations refer to.
    slices: BTreeMap<Digest, Slice>,
    /// The newest generation that is forgotten; 0 for none.
    forgotten: u64,
    /// Generations before it that are not.
    kept: BTreeSet<u64>,
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
    /// The highest attempt each participant has withdrawn, or used in a round
    /// before this one.
    withdrawn: BTreeMap<ParticipantId, u32>,
    counts: Counts,
    /// Empty too while the region's machine is of version 1, which knew none.
    zones: BTreeMap<ZoneName, Zone>,
    outputs_bytes: u32,
    first_arrival_at: Option<Timestamp>,
    last_arrival_at: Option<Timestamp>,
    /// When the region completed: the promise.
    completed: Option<Completed>,
    /// Those who are not expected any more.
    absent: BTreeMap<ParticipantId, Absence>,
    /// The last waiver that was applied.
    waiver: u32,
    /// Those whom a session works for.
    workers: BTreeMap<ParticipantId, Worker>,
    ended: Option<Ended>,
    /// The region clock when it ended here.
    ended_clock_ms: u64,
    /// Whether details are gone and only the verdict is left.
    closed: bool,
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
    /// Whether it never came, and failed by the loss of its session.
    pub lost: bool,
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
            machine_version: MACHINE_VERSION_FIRST,
            writers: BTreeMap::new(),
            barriers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            regional: BTreeMap::new(),
            taken: BTreeMap::new(),
            timers: BTreeSet::new(),
            armed: Vec::new(),
            ripe: 0,
            retentions: BTreeSet::new(),
            audit: VecDeque::new(),
        }
    }
}
