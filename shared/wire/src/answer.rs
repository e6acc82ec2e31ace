//! Bodies of answers. Durations end in `Seconds`, instants in `At`.

use std::collections::BTreeMap;

use muster_protocol::generation::State;
use muster_protocol::name::{BarrierName, ParticipantId, RegionName, ZoneName};
use muster_protocol::region::ArrivalOutcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::problem::Problem;

mod service;
mod session;

pub use self::service::{Agent, AuditRow, Check, Drained, Ready, Region, Version};
pub use self::session::{HeartbeatTaken, Session, SessionWork};

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

/// The status document of one generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The barrier.
    pub barrier: BarrierName,
    /// Its key and round, else its number.
    pub generation: String,
    /// Its number.
    pub n: u64,
    /// 0, or which retry it is.
    pub round: u32,
    /// How far it has come.
    pub state: State,
    /// Why it is there.
    pub reason: Reason,
    /// The same as one sentence with names and numbers.
    pub message: String,
    /// How many are expected, in all regions.
    pub expected: u64,
    /// How many arrived ok.
    pub arrived: u64,
    /// How many failed for good.
    pub failed: u64,
    /// How many calls wait for it at whoever answers.
    pub waiting: u64,
    /// When it was opened.
    pub opened_at: String,
    /// When it breaks.
    pub deadline_at: Option<String>,
    /// When it was decided.
    pub decided_at: Option<String>,
    /// Hand it to a blocking read.
    pub index: String,
    /// Who is asked when it does not move.
    pub owner: String,
    /// What happens next by itself.
    pub next: Option<NextEvent>,
    /// Every region.
    pub regions: Vec<RegionStatus>,
    /// How it was released.
    pub release: Option<ReleaseStatus>,
    /// How it broke.
    pub broken: Option<BrokenStatus>,
    /// Seconds from the first arrival to the last, over all regions, once all
    /// have arrived. Agents' clocks: as good as they agree.
    pub skew_seconds: Option<f64>,
    /// Where to go next.
    pub links: BTreeMap<String, String>,
}

/// What happens next by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextEvent {
    /// When.
    pub at: String,
    /// What.
    pub what: String,
    /// Why.
    pub reason: Reason,
}

/// One region's part of a generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionStatus {
    /// The region.
    pub name: RegionName,
    /// `unopened`, `gathering`, `complete` or `failed`.
    pub state: RegionState,
    /// How many arrived ok.
    pub arrived: u32,
    /// How many are expected.
    pub expected: u32,
    /// How many failed for good.
    pub failed: u32,
    /// The missing as ranges, the first of them; empty when they have no names.
    #[serde(default)]
    pub missing: String,
    /// How many are missing.
    #[serde(default)]
    pub missing_count: u32,
    /// How many failed and may try again.
    #[serde(default)]
    pub retrying: u32,
    /// Of the missing, how many have a session that lives.
    #[serde(default)]
    pub working: u32,
    /// Of the missing, how many have a session that fell silent.
    #[serde(default)]
    pub lost: u32,
    /// How many were lost and are no longer expected.
    #[serde(default)]
    pub excluded: u32,
    /// How many were waived before they arrived.
    #[serde(default)]
    pub waived: u32,
    /// Its zones, when the definition has any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub zones: BTreeMap<ZoneName, ZoneStatus>,
    /// When it completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<String>,
    /// Whether it has applied the end.
    pub applied: bool,
    /// Whether it can be heard.
    pub link: Link,
    /// How old this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of_seconds: Option<f64>,
}

/// How far a region has come with a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RegionState {
    /// It has not said that it knows the generation.
    Unopened,
    /// Participants are arriving.
    Gathering,
    /// It has promised.
    Complete,
    /// More failed than may.
    Failed,
    /// It is not waited for.
    Waived,
    /// Whoever answers cannot know.
    Unknown,
}

/// One zone's part of a region's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneStatus {
    /// How many arrived ok.
    pub arrived: u32,
    /// How many are expected.
    pub expected: u32,
    /// How many failed for good.
    pub failed: u32,
    /// Whether it has promised.
    pub complete: bool,
}

/// How a generation was released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStatus {
    /// Whether nobody failed, was waived or left out, and it was not forced.
    pub whole: bool,
    /// How many failed and it released nevertheless.
    #[serde(default)]
    pub failed: u32,
    /// How many were lost and no longer expected.
    #[serde(default)]
    pub excluded: u32,
    /// Regions that it did without.
    #[serde(default)]
    pub left_out: Vec<RegionName>,
    /// Who was waived, as ranges by region; an empty text is the whole region.
    #[serde(default)]
    pub waived: BTreeMap<RegionName, String>,
    /// Who released it before it was complete, and why.
    #[serde(default)]
    pub forced: Option<ForcedBy>,
    /// The digest of the outcome.
    pub digest: String,
}

/// Who released a generation before it was complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForcedBy {
    /// Who, if it is known.
    pub actor: Option<String>,
    /// Why.
    pub reason: String,
}

/// How a generation broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokenStatus {
    /// The cause.
    pub reason: Reason,
    /// The region it began in.
    pub region: Option<RegionName>,
    /// Who failed, in full, the first few.
    pub failed: Vec<String>,
    /// Who asked.
    pub actor: Option<String>,
    /// What they said, or what happened.
    pub message: String,
    /// The digest of the outcome.
    pub digest: String,
}

/// Why a generation is not released yet, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The status it explains.
    pub status: Status,
    /// One line each: what is so.
    pub lines: Vec<String>,
    /// Those missing or failed, the first of them.
    pub participants: Vec<Participant>,
    /// What can be done: a command, and what it means.
    pub actions: Vec<Action>,
}

/// Something that can be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The command.
    pub command: String,
    /// What it means.
    pub effect: String,
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
