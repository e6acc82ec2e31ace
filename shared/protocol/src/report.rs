//! What a region tells the coordinator: its whole state of one generation.
//! Reports are states, not events: the one with the highest index counts, and
//! losing any other costs nothing.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::generation::GenerationId;
use crate::identity::{Digest, Era, Stamp, Timestamp};
use crate::name::{ParticipantId, RegionName, ZoneName};
use crate::outcome::{Failure, Outcome};

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
    /// The slice that the generation was opened with here.
    #[serde(default)]
    pub spec: Option<Digest>,
    /// The life of the coordinator's database that the agent was last welcomed
    /// by.
    #[serde(default)]
    pub era: Option<Era>,
    /// The end itself, where the coordinator may have lost it.
    #[serde(default)]
    pub outcome: Option<Box<Outcome>>,
    /// Those who are counted otherwise than as arrived, failed or missing.
    #[serde(default)]
    pub apart: Apart,
    /// The region's zones, when the definition has any.
    #[serde(default)]
    pub zones: BTreeMap<ZoneName, ZoneReport>,
}

/// Participants that are counted otherwise than as arrived, failed or missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Apart {
    /// Lost, and no longer expected.
    pub excluded: u32,
    /// Waived before they arrived.
    pub waived: u32,
    /// Missing, with a session that lives.
    pub working: u32,
    /// Missing, with a session that fell silent.
    pub lost: u32,
    /// Of those that failed for good, how many by the loss of their session.
    pub lost_for_good: u32,
    /// The last waiver that the region has applied, 0 for none.
    pub waiver: u32,
}

/// One zone's part of a region's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneReport {
    /// How many participants are expected.
    pub expected: u32,
    /// How many arrived ok.
    pub arrived: u32,
    /// How many failed for good.
    pub failed: u32,
    /// Whether the zone has promised.
    pub complete: bool,
}

impl RegionReport {
    /// The same, as known where `later` was said, and with its word on whether
    /// the end was applied.
    #[must_use]
    pub fn confirmed_by(&self, later: &Self) -> Self {
        Self { stamp: later.stamp, era: later.era.clone(), applied: later.applied, ..self.clone() }
    }

    /// What a region says of a generation that nobody came to.
    #[must_use]
    pub fn empty(region: &RegionName, stamp: Stamp, generation: &GenerationId) -> Self {
        Self {
            region: region.clone(),
            stamp,
            generation: generation.clone(),
            expected: 0,
            arrived: 0,
            failed: 0,
            retrying: 0,
            complete: false,
            over_failures: false,
            missing: Missing::default(),
            failures: Vec::new(),
            outputs: BTreeMap::new(),
            first_arrival_at: None,
            last_arrival_at: None,
            applied: None,
            name_taken: false,
            spec: None,
            era: None,
            outcome: None,
            apart: Apart::default(),
            zones: BTreeMap::new(),
        }
    }

    /// Whether it says that the generation has ended here, and not how.
    #[must_use]
    pub fn lacks_end(&self) -> bool {
        // Of a name that is taken a region knows only that it heard of the end.
        self.applied.is_some() && self.outcome.is_none() && !self.name_taken
    }

    /// Whether everybody has arrived or failed for good.
    #[must_use]
    pub fn everybody_spoke(&self) -> bool {
        self.missing.count == 0 && self.retrying == 0
    }
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
