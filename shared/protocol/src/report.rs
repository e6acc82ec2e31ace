//! What a region tells the coordinator: its whole state of one generation.
//! Reports are states, not events: the one with the highest index counts, and
//! losing any other costs nothing.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::generation::GenerationId;
use crate::identity::{Digest, Stamp, Timestamp};
use crate::name::{ParticipantId, RegionName};
use crate::outcome::Failure;

/// Everything a region knows of one generation at one index of its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionReport {
    /// The region.
    pub region: RegionName,
    /// Where in its log this was true.
    pub stamp: Stamp,
    /// The generation.
    pub generation: GenerationId,
    /// How many participants are expected.
    pub expected: u32,
    /// How many arrived ok.
    pub arrived: u32,
    /// How many failed for good.
    pub failed: u32,
    /// How many failed and may try again.
    pub retrying: u32,
    /// Whether the region has promised: nothing un-completes from here on.
    pub complete: bool,
    /// Whether more failed than may.
    pub over_failures: bool,
    /// Who has not arrived.
    pub missing: Missing,
    /// The first few that failed for good.
    pub failures: Vec<Failure>,
    /// What participants left; only in a complete region's report.
    pub outputs: BTreeMap<ParticipantId, String>,
    /// When the first arrived, on that agent's clock; for people.
    pub first_arrival_at: Option<Timestamp>,
    /// When the last arrived, on that agent's clock; for people.
    pub last_arrival_at: Option<Timestamp>,
    /// The digest of the outcome the region has applied.
    pub applied: Option<Digest>,
    /// Whether the region holds the name for a barrier of the other scope.
    pub name_taken: bool,
}

/// Who is missing: how many, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// How many.
    pub count: u32,
    /// The first of them as ranges; empty when they have no names.
    pub names: String,
}
