//! This machine's clock, for people to read; nothing is decided by it.

use muster_protocol::identity::Timestamp;

/// Now, as people read it.
pub(crate) fn wall_clock() -> Timestamp {
    Timestamp(muster_telemetry::wall_clock_ms())
}
