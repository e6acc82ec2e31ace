//! Bodies of requests. Unknown fields are refused: a field that is misspelt
//! and ignored is an accident waiting.

use std::collections::BTreeMap;

use muster_protocol::identity::{History, SessionId};
use muster_protocol::name::{BarrierName, Key, ParticipantId, RegionName};
use muster_protocol::region::ArrivalOutcome;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::reference::{LATEST, NOT_A_KEY};

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
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "nameable")]
    pub key: Option<Key>,
}

/// A key that a path can name.
fn nameable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Key>, D::Error> {
    match Option::<Key>::deserialize(deserializer)? {
        Some(key) if key.as_str() == LATEST => Err(D::Error::custom(NOT_A_KEY)),
        key => Ok(key),
    }
}

/// Body of an override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Why; required.
    pub reason: String,
}

/// Body of a release before a generation is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Must be said: it lets everybody pass.
    #[serde(default)]
    pub force: bool,
    /// Why; required.
    pub reason: String,
}

/// Body of a waiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waive {
    /// The region.
    pub region: RegionName,
    /// The participants, as ids and ranges; the whole region when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participants: Option<String>,
    /// Why; required.
    pub reason: String,
}

/// Body of a retry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// What is taken over from the round that broke; `ok` when left out.
    #[serde(default)]
    pub keep: Keep,
    /// Why; required.
    pub reason: String,
}

/// What a retry takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Those that arrived ok have arrived.
    #[default]
    Ok,
    /// Nothing.
    None,
}

/// Body of opening a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct OpenSession {
    /// Its name, chosen by the client so that a repeat opens nothing twice;
    /// random when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<SessionId>,
    /// How long it may be silent, such as `30s`; the shortest `ttl` of its
    /// barriers when left out or longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// Whom it works for.
    pub participants: Vec<SessionParticipant>,
    /// Its region; implied at an agent, required at a coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
}

/// A participant that a session works for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionParticipant {
    /// The barrier.
    pub barrier: BarrierName,
    /// Its generation, as in a path; the only one of a single barrier when left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// The participant.
    pub id: ParticipantId,
}

/// Body of a heartbeat. All of it may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// How far the work has come, as text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
}

/// Body of draining a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// When it ends by itself: an instant (RFC 3339) or a time from now, such
    /// as `2h`.
    pub until: String,
    /// What becomes of generations that gather now.
    #[serde(default)]
    pub open: DrainOpen,
    /// Why; required.
    pub reason: String,
}

/// What becomes of generations that gather when a region is drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainOpen {
    /// They keep the region.
    #[default]
    Keep,
    /// The region is waived in them.
    Waive,
}

/// Body of taking another log for a region's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    /// The log's history.
    pub history: History,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_no_path_can_name_is_not_opened() {
        let error = serde_json::from_str::<Open>(r#"{"key":"latest"}"#).unwrap_err().to_string();
        assert!(error.contains("choose another"), "{error}");
        for (body, key) in [(r#"{"key":"latest-2"}"#, Some("latest-2")), (r#"{"key":null}"#, None), ("{}", None)] {
            let open: Open = serde_json::from_str(body).unwrap();
            assert_eq!(open.key.as_ref().map(Key::as_str), key, "{body}");
        }
    }
}
