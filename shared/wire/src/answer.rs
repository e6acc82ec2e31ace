//! Bodies of answers. Durations end in `Seconds`, instants in `At`.

use std::collections::BTreeMap;

use muster_protocol::generation::State;
use muster_protocol::name::{BarrierName, ParticipantId};
use muster_protocol::region::ArrivalOutcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::problem::Problem;

mod service;
mod session;
mod status;

pub use self::service::{Agent, AuditRow, Check, Drained, Ready, Region, Version};
pub use self::session::{HeartbeatTaken, Session, SessionWork};
pub use self::status::{
    Action, BrokenStatus, Explanation, ForcedBy, NextEvent, RegionState, RegionStatus, ReleaseStatus, Status,
    ZoneStatus,
};

/// A list of rows, a page at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Hand it back for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A barrier as it is defined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Barrier {
    /// Its name.
    pub name: BarrierName,
    /// Counts its changes, from 1; the ETag.
    pub revision: u64,
    /// What was applied.
    pub spec: Value,
    /// The same with every default filled in.
    pub effective: Value,
    /// How many generations are gathering.
    pub gathering: u32,
}

/// The answer to an apply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    /// The barrier as it is now defined, or would be.
    #[serde(flatten)]
    pub barrier: Barrier,
    /// Whether it was defined by this call.
    pub created: bool,
    /// Whether anything changed.
    pub changed: bool,
    /// Whether this only says what would happen.
    pub dry_run: bool,
}

/// The answer to a deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// The barrier.
    pub name: BarrierName,
    /// Whether it was there.
    pub changed: bool,
    /// Generations that were broken with it.
    pub broken: Vec<String>,
}

/// A generation that is open, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opened {
    /// The barrier.
    pub barrier: BarrierName,
    /// Its key and round, else its number.
    pub generation: String,
    /// Its number.
    pub n: u64,
    /// 0, or which retry it is.
    pub round: u32,
    /// Whether this call opened it.
    pub created: bool,
    /// How far it has come.
    pub state: State,
}

/// The answer to an arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Arrived {
    /// The barrier.
    pub barrier: BarrierName,
    /// Its key and round, else its number.
    pub generation: String,
    /// Its number.
    pub n: u64,
    /// In full, `region/id`.
    pub participant: String,
    /// The attempt that counts.
    pub attempt: u32,
    /// How it went.
    pub outcome: ArrivalOutcome,
    /// Whether this call was the one that counted.
    pub first: bool,
    /// Whether the generation had been released before.
    pub late: bool,
    /// How far the generation has come, as this region knows.
    pub state: State,
    /// How many arrived ok in this region.
    pub arrived: u32,
    /// How many are expected in this region.
    pub expected: u32,
    /// Where this was true; hand it to a blocking read.
    pub index: String,
    /// Where to go next.
    pub links: BTreeMap<String, String>,
}

/// The answer to a batch of arrivals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchArrived {
    /// One for each, in the order they were sent.
    pub arrivals: Vec<BatchItem>,
}

/// One answer of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchItem {
    /// Who.
    pub participant: ParticipantId,
    /// The HTTP status it would have had alone.
    pub status: u16,
    /// When it arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<Arrived>,
    /// When it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

/// The answer to a wait: only ever sent when the generation is released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// The barrier.
    pub barrier: BarrierName,
    /// Its key and round, else its number.
    pub generation: String,
    /// Its number.
    pub n: u64,
    /// 0, or which retry it is.
    pub round: u32,
    /// `released`, or `releasing` where others are still applying it.
    pub state: State,
    /// Whether nobody failed, was waived or left out, and it was not forced.
    pub whole: bool,
    /// When it was decided.
    pub decided_at: String,
    /// What participants left, by `region/id`.
    pub outputs: BTreeMap<String, String>,
    /// The digest of the outcome: equal for everybody who passed.
    pub digest: String,
}

/// One participant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Participant {
    /// In full, `region/id`.
    pub participant: String,
    /// How far it has come.
    pub state: ParticipantState,
    /// The attempt that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When it arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived_at: Option<String>,
    /// What it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The highest attempt it withdrew, or used in a round before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<u32>,
    /// The session that works for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// How long ago its session was last heard, by the agent that hears it;
    /// absent when nobody can know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_seconds: Option<f64>,
    /// How long a lost one has to come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_seconds: Option<f64>,
    /// How far it says its work has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

/// How far a participant has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ParticipantState {
    /// Not heard of.
    Missing,
    /// Failed, may try again.
    Retrying,
    /// Arrived ok.
    Arrived,
    /// Failed for good.
    Failed,
    /// Missing, with a session that lives.
    Working,
    /// Missing, and its session fell silent.
    Lost,
    /// Lost, and no longer expected.
    Excluded,
    /// Waived before it arrived.
    Waived,
}

/// The closed list of reasons why a generation is where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// Nobody has come, and no time runs.
    Idle,
    /// Participants are missing.
    WaitingForParticipants,
    /// Participants are missing in a region that does not answer, or a region
    /// has not opened it yet.
    WaitingForRegions,
    /// A region that is not complete does not answer.
    RegionSilent,
    /// Everybody has arrived; the decision is on its way.
    Deciding,
    /// Decided; some regions have not applied it.
    ReleasePropagating,
    /// Released everywhere.
    Released,
    /// A participant failed and none may.
    ParticipantFailed,
    /// A participant's session was lost.
    ParticipantLost,
    /// More participants failed than may.
    MaxFailuresExceeded,
    /// Time was up.
    DeadlineExceeded,
    /// Somebody ended it.
    Aborted,
    /// Its barrier was deleted.
    Deleted,
    /// A region holds the name for a barrier of its own.
    NameTaken,
    /// The generation that it comes after broke.
    PredecessorBroken,
    /// Somebody released it before it was complete.
    Forced,
    /// The coordinator's database may have lost commits, and a region has not
    /// spoken since.
    RegionBehind,
}

/// Whether a region can be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// It was heard within the last seconds.
    Up,
    /// It was heard, but not lately.
    Silent,
    /// It was never heard.
    Never,
    /// Whoever answers cannot know.
    Unknown,
}

/// One row of the list of generations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerationRow {
    /// The barrier.
    pub barrier: BarrierName,
    /// Its key and round, else its number.
    pub generation: String,
    /// Its number.
    pub n: u64,
    /// How far it has come.
    pub state: State,
    /// Why it is there.
    pub reason: Reason,
    /// How many arrived ok.
    pub arrived: u64,
    /// How many are expected.
    pub expected: u64,
    /// When it was opened.
    pub opened_at: String,
    /// When it breaks.
    pub deadline_at: Option<String>,
    /// When it was decided.
    pub decided_at: Option<String>,
}

/// The answer to an override: abort, release, waive, retry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overruled {
    /// The generation as it is now, or would be; of a retry, the next round.
    pub status: Status,
    /// Whether this call changed anything, or would.
    pub changed: bool,
    /// Whether this only says what would happen.
    #[serde(default)]
    pub dry_run: bool,
}
