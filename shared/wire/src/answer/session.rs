//! What is said of sessions.

use muster_protocol::name::{BarrierName, ParticipantId};
use serde::{Deserialize, Serialize};

/// A session that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its name: what heartbeats and arrivals give.
    pub session: String,
    /// How long it may be silent. A client that was not answered for so long,
    /// counted from when it sent what was last answered, has lost it.
    pub ttl_seconds: f64,
    /// How often to send a heartbeat.
    pub heartbeat_seconds: f64,
    /// Whom it works for, in the order they were given.
    pub participants: Vec<SessionWork>,
}

/// A participant that a session works for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionWork {
    /// The barrier.
    pub barrier: BarrierName,
    /// Its key and round, else its number.
    pub generation: String,
    /// Its number.
    pub n: u64,
    /// The participant.
    pub id: ParticipantId,
    /// The attempt to arrive with.
    pub attempt: u32,
    /// Whether it has arrived ok: there is nothing to do.
    pub done: bool,
}

/// A heartbeat was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatTaken {
    /// The session.
    pub session: String,
    /// How long it may be silent from when the heartbeat was sent.
    pub ttl_seconds: f64,
}
