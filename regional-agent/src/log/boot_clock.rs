//! The clock that leases are measured on: it never steps, and it counts the
//! time the machine sleeps, which `Instant` does not.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` stops while Linux sleeps; elsewhere it is the one that counts.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// The time since the machine started.
#[must_use]
pub fn now() -> Duration {
    // Neither part is negative: the clock counts from the machine's start.
    Duration::try_from(clock_gettime(CLOCK)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_moves_and_never_back() {
        let start = now();
        assert!(start > Duration::ZERO);
        let mut last = start;
        while last == start {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }
}
