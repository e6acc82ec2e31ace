//! This machine's clock, for people to read; nothing is decided by it.

use std::time::{SystemTime, UNIX_EPOCH};

use muster_protocol::identity::Timestamp;

/// Now, as people read it.
pub(crate) fn wall_clock() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64))
}
