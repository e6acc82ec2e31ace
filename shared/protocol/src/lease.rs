//! How long a lease is proven to live, by the holder's own clock.
//!
//! A holder can't see its lease expire; it can only know that the server had
//! not expired it when an acknowledged keep-alive arrived there, which was not
//! before that keep-alive was *sent* (Gray and Cheriton, "Leases", 1989). So
//! the proof runs from the send time and ends a margin early, and a reply that
//! took long proves little.
//!
//! ```text
//!              acknowledged            acknowledged
//!  granted ─▶ proven ──────▶ proven ───────▶ ...
//!                │ sent + ttl - margin passes      │ lost
//!                ▼                                 ▼
//!            unproven ──acknowledged──▶ proven    lost, for ever
//! ```
//!
//! Instants are what the caller reads off a clock that never steps back and
//! counts the time the machine sleeps (`CLOCK_BOOTTIME`), since its zero.

use core::time::Duration;

/// The proof that one lease lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseClock {
    margin: Duration,
    /// Until when, unless the lease is lost.
    proven_until: Option<Duration>,
}

impl LeaseClock {
    /// The time the proof ends before the lease could: what clocks drift apart
    /// and a holder takes to act on an expiry.
    pub const MARGIN: Duration = Duration::from_secs(2);

    /// A lease that a request sent at `sent_at` was granted, for `ttl`.
    #[must_use]
    pub fn granted(sent_at: Duration, ttl: Duration, margin: Duration) -> Self {
        let mut clock = Self { margin, proven_until: Some(Duration::ZERO) };
        clock.acknowledged(sent_at, ttl);
        clock
    }

    /// The server answered the keep-alive that was sent at `sent_at`: the lease
    /// lives for `ttl` from then. Answers may come in any order.
    pub fn acknowledged(&mut self, sent_at: Duration, ttl: Duration) {
        let until = sent_at.saturating_add(ttl.saturating_sub(self.margin));
        self.proven_until = self.proven_until.map(|known| known.max(until));
    }

    /// The lease is gone. No late answer brings it back.
    pub fn lost(&mut self) {
        self.proven_until = None;
    }

    /// Whether the lease is known to be gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.proven_until.is_none()
    }

    /// For how long from `now` the lease is proven to live.
    #[must_use]
    pub fn proven_for(&self, now: Duration) -> Duration {
        self.proven_until.unwrap_or_default().saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn granted_at_100() -> LeaseClock {
        LeaseClock::granted(s(100), s(10), s(2))
    }

    #[test]
    fn the_proof_runs_from_the_send_time_and_ends_a_margin_early() {
        let clock = granted_at_100();
        assert_eq!(clock.proven_for(s(100)), s(8));
        assert_eq!(clock.proven_for(s(107)), s(1));
        assert_eq!(clock.proven_for(s(108)), s(0));
        assert_eq!(clock.proven_for(s(500)), s(0));
        assert!(!clock.is_lost());
    }

    #[test]
    fn a_reply_that_took_long_proves_little() {
        let mut clock = granted_at_100();
        clock.acknowledged(s(103), s(10));
        assert_eq!(clock.proven_for(s(110)), s(1));
    }

    #[test]
    fn an_older_answer_takes_nothing_back() {
        let mut clock = granted_at_100();
        clock.acknowledged(s(106), s(10));
        clock.acknowledged(s(103), s(10));
        assert_eq!(clock.proven_for(s(106)), s(8));
    }

    #[test]
    fn an_unproven_lease_is_proven_again_by_an_answer() {
        let mut clock = granted_at_100();
        assert_eq!(clock.proven_for(s(120)), s(0));
        clock.acknowledged(s(120), s(10));
        assert_eq!(clock.proven_for(s(121)), s(7));
    }

    #[test]
    fn a_lost_lease_stays_lost() {
        let mut clock = granted_at_100();
        clock.lost();
        clock.acknowledged(s(101), s(10));
        assert!(clock.is_lost());
        assert_eq!(clock.proven_for(s(101)), s(0));
    }

    #[test]
    fn a_ttl_within_the_margin_proves_nothing() {
        let clock = LeaseClock::granted(s(100), s(1), s(2));
        assert_eq!(clock.proven_for(s(100)), s(0));
    }
}
