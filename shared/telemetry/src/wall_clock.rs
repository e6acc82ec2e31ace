//! The clock on the wall, for people to read: it may jump, so nothing is
//! decided by it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in milliseconds since the Unix epoch.
#[must_use]
pub fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    fail::fail_point!("clock.wall", |by| now.saturating_add_signed(by.and_then(|by| by.parse().ok()).unwrap_or(0)));
    now
}
