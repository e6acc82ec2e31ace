//! What an agent knows of the heartbeats it took, and which sessions fell
//! silent.
//!
//! A client counts from the moment it *sent* the last heartbeat that was
//! acknowledged, and gives up after the session's time to live; its agent
//! counts from when that heartbeat *arrived*, and a margin more. So a client
//! knows of its loss before the region acts on it. That holds only while the
//! agent is who hears the session, which it must prove before it acknowledges
//! anything: its own lease lives, and its replica is not older than the margin,
//! so that it would know of another agent that took the session over.
//!
//! ```text
//!          the lease is proven, the state is fresh      silent for ttl + margin
//!  unsure ────────────────────────────────────────▶ sure ────────────────▶ expires that session
//!     ▲      every session has its whole time again   │
//!     └── not proven · not fresh · nobody looked ─────┘
//! ```
//!
//! An agent that was unsure heard nobody, through no fault of theirs: whatever
//! takes the leases of a whole region away costs its clients the time to attach
//! again, not their places.
//!
//! Once the agent has said that a session is silent, its word may land at any
//! time, so it acknowledges nothing of that session any more: whoever comes
//! back before it lands attaches at another agent, which refutes it.
//!
//! Which sessions are its own is read off the region's state. Instants are what
//! the caller reads off a clock that never steps back and counts the time the
//! machine sleeps (`CLOCK_BOOTTIME`), since its zero.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::identity::{SessionId, Writer};
use crate::lease::LeaseClock;
use crate::mutant;
use crate::region::{Command, Region, Session};

/// Time between two looks at who fell silent.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How old the state may be on which a heartbeat is acknowledged, and how long
/// the looks may pause, before the agent is no longer sure.
pub const FRESH: Duration = LeaseClock::MARGIN;
/// Sessions that expire at one look, so that a look stays short.
pub const EXPIRED_AT_ONCE_MAX: usize = 4_096;

/// The heartbeats of one agent's sessions.
#[derive(Clone, Debug, Default)]
pub struct Heartbeats {
    heard: BTreeMap<SessionId, Heard>,
    /// The state is not older than this.
    fresh_at: Option<Duration>,
    /// The last look at which the agent was sure.
    sure_at: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    /// The session's owner, by count, while this agent is that.
    attach: u32,
    at: Duration,
    /// The agent has said so.
    silent: bool,
}

/// How this agent stands in its region at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footing {
    /// The writer it is, while it is registered.
    pub writer: Option<Writer>,
    /// For how long its lease is proven to live.
    pub proven_for: Duration,
    /// When.
    pub now: Duration,
}

/// What became of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// It counts. The session may be silent for so many milliseconds.
    Acknowledged {
        /// Milliseconds.
        ttl_ms: u64,
    },
    /// Another agent hears the session, or nobody does: attach it here first.
    Attach,
    /// This agent can't tell whether it is still the one that hears.
    Unsure,
    /// The state knows no such session. That may be for its age: read anew
    /// before it is said.
    Unknown,
}

impl Heartbeats {
    /// The state that is read from here on is not older than this instant:
    /// everything that was acknowledged before it is in it.
    pub fn read_at(&mut self, began: Duration) {
        self.fresh_at = self.fresh_at.max(Some(began));
    }

    /// Whether any session is this agent's own.
    #[must_use]
    pub fn has_any(&self) -> bool {
        !self.heard.is_empty()
    }

    /// When a session was last heard here.
    #[must_use]
    pub fn last_heard(&self, id: SessionId) -> Option<Duration> {
        self.heard.get(&id).map(|heard| heard.at)
    }

    /// A client says that it lives.
    pub fn heartbeat(&mut self, id: SessionId, region: &Region, footing: Footing) -> Took {
        let Some(session) = region.session(id) else { return Took::Unknown };
        if footing.writer.is_none() || !self.is_sure(footing) && !mutant!(HeartbeatWithoutProof) {
            return Took::Unsure;
        }
        if session.owner != footing.writer {
            return Took::Attach;
        }
        let new = Heard { attach: session.attach, at: footing.now, silent: false };
        let heard = self.heard.entry(id).or_insert(new);
        let same = heard.attach == session.attach;
        if same && heard.silent && !mutant!(HeardAfterSilence) {
            return Took::Unsure;
        }
        *heard = Heard { at: heard.at.max(footing.now), ..new };
        Took::Acknowledged { ttl_ms: session.ttl_ms }
    }

    /// Looks, once each [`LOOK_INTERVAL`], who fell silent: what to append.
    pub fn look(&mut self, region: &Region, footing: Footing) -> Vec<Command> {
        let Some(writer) = footing.writer.filter(|_| self.is_sure(footing)) else {
            self.sure_at = None;
            return Vec::new();
        };
        let was_sure = self.sure_at.is_some_and(|at| footing.now.saturating_sub(at) <= FRESH);
        self.sure_at = Some(footing.now);
        self.take_stock(region, writer, footing.now);
        if !was_sure {
            self.heard.values_mut().for_each(|heard| heard.at = footing.now);
            return Vec::new();
        }
        let silent = self.heard.iter_mut().filter(|(id, heard)| {
            let silence = footing.now.saturating_sub(heard.at);
            heard.silent || region.session(**id).is_some_and(|session| silence >= limit(session))
        });
        let expire = |(session, heard): (&SessionId, &mut Heard)| {
            heard.silent = true;
            Command::ExpireSession { session: *session, attach: heard.attach }
        };
        silent.take(EXPIRED_AT_ONCE_MAX).map(expire).collect()
    }

    fn is_sure(&self, footing: Footing) -> bool {
        let fresh = self.fresh_at.is_some_and(|at| footing.now.saturating_sub(at) <= FRESH);
        fresh && !footing.proven_for.is_zero()
    }

    /// Keeps what is this agent's own. What it owns and has not heard yet, such
    /// as a session whose opening was answered by nobody, counts from now on.
    fn take_stock(&mut self, region: &Region, writer: Writer, now: Duration) {
        let owned = |session: &&Session| session.owner == Some(writer);
        self.heard.retain(|id, heard| {
            region.session(*id).as_ref().filter(|session| owned(session)).is_some_and(|s| s.attach == heard.attach)
        });
        for (id, session) in region.sessions().filter(|(_, session)| owned(session)) {
            self.heard.entry(*id).or_insert(Heard { attach: session.attach, at: now, silent: false });
        }
    }
}

/// How long a session may be silent before its agent says that it is lost.
fn limit(session: &Session) -> Duration {
    Duration::from_millis(session.ttl_ms).saturating_add(LeaseClock::MARGIN)
}

#[cfg(test)]
#[path = "heartbeats_tests.rs"]
mod tests;
