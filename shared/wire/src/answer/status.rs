//! How a generation stands, and why.

use std::collections::BTreeMap;

use muster_protocol::generation::State;
use muster_protocol::name::{BarrierName, RegionName, ZoneName};
use serde::{Deserialize, Serialize};

use super::{Link, Participant, Reason};

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
