//! What a barrier is, once its definition has been checked.
//!
//! A [`Spec`] holds every field that will ever shape a decision, so that no
//! record changes form when a value that is refused today is taken tomorrow.

use alloc::collections::BTreeMap;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::caps;
use crate::identity::Digest;
use crate::name::{BarrierName, RegionName};
use crate::participants::Participants;
pub use crate::rule::{Leaf, Rule};

/// A barrier's definition, valid and with its defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// The barrier's name.
    pub name: BarrierName,
    /// A sentence for people.
    pub description: String,
    /// Who is asked when it does not move.
    pub owner: String,
    /// What people select by.
    pub labels: BTreeMap<String, String>,
    /// Where it is decided.
    pub scope: Scope,
    /// What each region must bring.
    pub regions: BTreeMap<RegionName, Slice>,
    /// How its generations follow each other.
    pub generations: Generations,
    /// Milliseconds a generation may gather; `None` is for ever.
    pub deadline_ms: Option<u64>,
    /// What must be complete for a release.
    pub release_when: Rule,
    /// Milliseconds that a finished generation's details are kept.
    pub retention_ms: u64,
    /// How many finished generations keep their details.
    #[serde(default = "Spec::retention_generations_max")]
    pub retention_generations: u32,
    /// How many may fail in all regions together and it still releases.
    #[serde(default)]
    pub failures_max: u32,
    /// The barrier whose generation of the same key, or number, takes this
    /// one's down when it breaks.
    #[serde(default)]
    pub after: Option<BarrierName>,
}

impl Spec {
    fn retention_generations_max() -> u32 {
        caps::RETENTION_GENERATIONS_MAX
    }

    /// Whether one failure too many breaks at once.
    #[must_use]
    pub fn fail_fast(&self) -> bool {
        self.regions.values().all(|slice| slice.fail_fast)
    }

    /// How many participants are expected, in all regions.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.regions.values().map(|slice| u64::from(slice.participants.expected())).sum()
    }
}

/// What one region must know of a spec to do its part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slice {
    /// Who is expected.
    pub participants: Participants,
    /// The attempt whose failure is the participant's.
    pub attempts: u32,
    /// How many may fail and the region is still complete.
    pub failures_max: u32,
    /// Whether one failure too many is reported at once.
    pub fail_fast: bool,
    /// Whether an arrival outlives its session.
    pub keep_arrivals: bool,
    /// Who is watched, and how; `None` watches nobody.
    pub liveness: Option<Liveness>,
    /// Bytes that the region's outputs of one generation may take.
    pub outputs_bytes_max: u32,
    /// Milliseconds on the region's own clock after which it breaks by itself;
    /// only regional barriers have one.
    pub deadline_ms: Option<u64>,
    /// Milliseconds on the region's clock that a finished generation's details
    /// are kept.
    pub retention_ms: u64,
}

impl Slice {
    /// The slice's identity.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self)
    }

    /// Bytes of outputs that each of `regions` regions may bring.
    #[must_use]
    pub fn outputs_share(regions: usize) -> u32 {
        u32::try_from(caps::OUTPUTS_PER_GENERATION_BYTES_MAX / regions.max(1)).unwrap_or(u32::MAX)
    }
}

/// Where a barrier is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// By the coordinator, over all of its regions.
    Global,
    /// By one region's log alone.
    Regional,
}

/// How the generations of a barrier follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Generations {
    /// One crossing.
    Single,
    /// 1, 2, 3 …: the next opens when this one ends.
    Cyclic,
    /// One per key that callers choose.
    Keyed {
        /// How many may gather at once.
        max_open: u32,
    },
}

impl Generations {
    /// Whether people call them by key, not by number.
    #[must_use]
    pub fn are_keyed(&self) -> bool {
        matches!(self, Self::Keyed { .. })
    }
}

/// How participants' sessions are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Liveness {
    /// Milliseconds of silence after which a session is lost.
    pub ttl_ms: u64,
    /// Milliseconds a lost participant has to come back.
    pub rejoin_ms: u64,
    /// What happens when it does not.
    pub on_lost: OnLost,
}

/// What the loss of a participant means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnLost {
    /// It has failed.
    Fail,
    /// It is no longer expected.
    Exclude,
    /// It is waited for.
    Wait,
}
