//! How a generation ends. An outcome is written once, is the same bytes
//! everywhere, and is known by its digest.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::generation::GenerationId;
use crate::identity::{Digest, Timestamp};
use crate::name::{ParticipantId, RegionName};

/// The end of one generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Which generation ended.
    pub generation: GenerationId,
    /// How.
    pub verdict: Verdict,
    /// When it was decided, on the decider's clock; for people.
    pub decided_at: Timestamp,
}

impl Outcome {
    /// The outcome's identity: two outcomes are the same if and only if their
    /// digests are.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self)
    }
}

/// Released or broken; never both, never again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Everybody passes.
    Released(Release),
    /// Nobody passes.
    Broken(Break),
}

impl Verdict {
    /// Whether everybody passes.
    #[must_use]
    pub fn is_released(&self) -> bool {
        matches!(self, Self::Released(_))
    }

    /// Whether nobody passes, for this reason.
    #[must_use]
    pub fn is_broken_for(&self, reason: BreakReason) -> bool {
        matches!(self, Self::Broken(broken) if broken.reason == reason)
    }
}

/// What everybody who passes is handed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Whether nobody failed, was waived or left out, and it was not forced.
    pub whole: bool,
    /// How many failed and it released nevertheless.
    pub failed: u32,
    /// How many were lost and no longer expected.
    pub excluded: u32,
    /// Regions that the rule could do without and that had not promised.
    pub left_out: Vec<RegionName>,
    /// Participants that were waived, as ranges by region; an empty text is the
    /// whole region.
    pub waived: BTreeMap<RegionName, String>,
    /// Who released it before it was complete.
    pub forced: Option<Override>,
    /// What participants left, by region.
    pub outputs: BTreeMap<RegionName, BTreeMap<ParticipantId, String>>,
}

/// Somebody decided what participants had not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// Who.
    pub actor: Option<String>,
    /// Why.
    pub reason: String,
}

/// Why nobody passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Break {
    /// The cause, from the documented list.
    pub reason: BreakReason,
    /// The region it began in, when it began in one.
    pub region: Option<RegionName>,
    /// Participants whose failure was the cause, the first few.
    pub failed: Vec<Failure>,
    /// Who asked, when somebody did.
    pub actor: Option<String>,
    /// What they said, or what happened, as one sentence.
    pub message: String,
}

/// The closed list of causes of a break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BreakReason {
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
    /// A region holds the name for a barrier of the other scope.
    NameTaken,
    /// The generation that it comes after broke.
    PredecessorBroken,
}

impl BreakReason {
    /// The reason as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ParticipantFailed => "participant-failed",
            Self::ParticipantLost => "participant-lost",
            Self::MaxFailuresExceeded => "max-failures-exceeded",
            Self::DeadlineExceeded => "deadline-exceeded",
            Self::Aborted => "aborted",
            Self::Deleted => "deleted",
            Self::NameTaken => "name-taken",
            Self::PredecessorBroken => "predecessor-broken",
        }
    }
}

/// A participant that failed for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Its region.
    pub region: RegionName,
    /// Who.
    pub participant: ParticipantId,
    /// The attempt that failed.
    pub attempt: u32,
    /// What it said.
    pub note: Option<String>,
}
