//! Bodies of requests. Unknown fields are refused: a field that is misspelt
//! and ignored is an accident waiting.

use std::collections::BTreeMap;

use muster_protocol::identity::SessionId;
use muster_protocol::name::{Key, ParticipantId, RegionName};
use muster_protocol::region::ArrivalOutcome;
use serde::{Deserialize, Serialize};

/// Body of an arrival. All of it may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Arrival {
    /// Which incarnation of the participant; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How its work went; ok when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ArrivalOutcome>,
    /// What it says about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What it leaves for those who pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Its region; implied at an agent, required at a coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
}

/// Body of a batch of arrivals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// At most [`BATCH_ARRIVALS_MAX`](muster_protocol::caps::BATCH_ARRIVALS_MAX).
    pub arrivals: Vec<BatchArrival>,
}

/// One arrival of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BatchArrival {
    /// Who.
    pub participant: ParticipantId,
    /// Which incarnation; 1 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How its work went; ok when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ArrivalOutcome>,
    /// What it says about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What it leaves for those who pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
}

impl BatchArrival {
    /// The participant, and the arrival as it would have come alone.
    #[must_use]
    pub fn split(self) -> (ParticipantId, Arrival) {
        let Self { participant, attempt, outcome, note, output, session } = self;
        (participant, Arrival { attempt, outcome, note, output, session, region: None })
    }
}

/// Body of opening a generation ahead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// The key, for a keyed barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
}

/// Body of an override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Why; required.
    pub reason: String,
}

/// Body of declaring a region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// What people select by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}
