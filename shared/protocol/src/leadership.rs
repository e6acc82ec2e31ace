//! One agent's part in leading its region: it takes over before it acts,
//! counts the region's time, sees which agents are gone, and says when a
//! snapshot should take the place of the log's prefix.
//!
//! ```text
//!            elected       its TookOver is applied
//!  follows ─────────▶ takes over ─────────────────▶ acts
//!     ▲                   │                           │ not elected · refused for its epoch
//!     └───────────────────┴───────────────────────────┘
//! ```
//!
//! Leadership is a hint. What makes it safe is the epoch that every command of
//! a leader carries, and that `apply` refuses an older one (I7).
//!
//! Instants are what the caller reads off a clock that never steps back, since
//! its zero.

use alloc::vec::Vec;
use core::time::Duration;

use crate::identity::{Epoch, Timestamp, Writer};
use crate::region::{Command, MACHINE_VERSION, Refusal, Region, Reply};

/// Time between two looks at who leads.
pub const CAMPAIGN_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two looks at which agents are gone.
pub const AGENTS_INTERVAL: Duration = Duration::from_secs(10);
/// How often the region's time is counted while only retention waits for it.
pub const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// How often it is counted while a session, a loss or a deadline waits for it:
/// what a leader counted and did not say is lost with it.
pub const TIMER_INTERVAL: Duration = Duration::from_secs(5);

/// One agent's part in leading.
#[derive(Clone, Debug)]
pub struct Leadership {
    reign: Option<Reign>,
    snapshot_index: u64,
    snapshot_every: u64,
}

/// What a leader that acts remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reign {
    writer: Writer,
    epoch: Epoch,
    /// Up to when the region's time was counted.
    counted_at: Duration,
    /// When the agents were last listed.
    agents_at: Option<Duration>,
}

/// What an election came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elected {
    /// Another leads. Holds the epoch that this agent led in until now.
    Another(Option<Epoch>),
    /// This agent leads and acts.
    Acts,
    /// This agent leads from now on: append this, and say
    /// [`Leadership::took_over`] once its reply is here.
    TakesOver(Command),
}

impl Leadership {
    /// A part for an agent that does not lead yet. Once in `snapshot_every`
    /// entries it puts a snapshot in place of them.
    #[must_use]
    pub fn new(snapshot_every: u64) -> Self {
        Self { reign: None, snapshot_index: 0, snapshot_every: snapshot_every.max(1) }
    }

    /// The epoch it acts in.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.reign.map(|reign| reign.epoch)
    }

    /// The writer it was elected as, and its epoch: what to resign.
    #[must_use]
    pub fn mandate(&self) -> Option<(Writer, Epoch)> {
        self.reign.map(|reign| (reign.writer, reign.epoch))
    }

    /// It stood for election: the epoch if it leads.
    pub fn elected(&mut self, epoch: Option<Epoch>) -> Elected {
        match epoch {
            None => Elected::Another(self.step_down()),
            Some(epoch) if self.epoch() == Some(epoch) => Elected::Acts,
            Some(epoch) => Elected::TakesOver(Command::TookOver { epoch }),
        }
    }

    /// It is no longer sure to lead. Returns the epoch that it led in.
    pub fn step_down(&mut self) -> Option<Epoch> {
        self.reign.take().map(|reign| reign.epoch)
    }

    /// The reply to its own word. It acts only after that was applied: from
    /// there on every older leader is powerless. True if it acts now.
    pub fn took_over(&mut self, writer: Writer, epoch: Epoch, reply: &Reply, now: Duration) -> bool {
        let Reply::Done { .. } = reply else { return false };
        self.reign = Some(Reign { writer, epoch, counted_at: now, agents_at: None });
        true
    }

    /// The time that has passed since it was last counted, if it is time to.
    /// `at` is the same instant for people.
    pub fn count_time(&mut self, region: &Region, now: Duration, at: Timestamp) -> Option<Command> {
        let reign = self.reign.as_mut()?;
        let (by, from_ms) = (now.saturating_sub(reign.counted_at), region.clock_ms());
        let interval = region
            .due_ms()
            .map_or(CLOCK_INTERVAL, |due_ms| TIMER_INTERVAL.min(Duration::from_millis(due_ms.saturating_sub(from_ms))));
        if by < interval || by.is_zero() {
            return None;
        }
        reign.counted_at = now;
        let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let (epoch, to_ms) = (reign.epoch, from_ms.saturating_add(by_ms));
        Some(match region.machine_version() {
            0 | 1 => Command::ClockAdvanced { epoch, from_ms, to_ms },
            _ => Command::Ticked { epoch, from_ms, to_ms, at },
        })
    }

    /// Whether to list the agents that are registered, for
    /// [`Leadership::lost_agents`].
    pub fn looks_for_agents(&mut self, region: &Region, now: Duration) -> bool {
        let Some(reign) = self.reign.as_mut() else { return false };
        if reign.agents_at.is_some_and(|at| now.saturating_sub(at) < AGENTS_INTERVAL) {
            return false;
        }
        reign.agents_at = Some(now);
        region.writers().len() > 1 || region.machine_version() < MACHINE_VERSION
    }

    /// The version that every registered agent can run, if the region runs a
    /// lower one. `announced` are the versions of those that are registered.
    #[must_use]
    pub fn raises_version(&self, region: &Region, announced: impl Iterator<Item = u16>) -> Option<Command> {
        let version = announced.min()?.min(MACHINE_VERSION);
        let epoch = self.epoch()?;
        (version > region.machine_version()).then_some(Command::VersionRaised { epoch, version })
    }

    /// A writer whose registration is gone can't land anything any more: its
    /// place in the state can be forgotten. `known` were the region's writers
    /// *before* the registrations were listed: one that came meanwhile is not
    /// lost for not being in the list.
    #[must_use]
    pub fn lost_agents(&self, known: &[Writer], registered: &[Writer]) -> Vec<Command> {
        let Some(epoch) = self.epoch() else { return Vec::new() };
        let lost = known.iter().filter(|writer| !registered.contains(writer));
        lost.map(|writer| Command::AgentLost { epoch, writer: *writer }).collect()
    }

    /// The epoch to put a snapshot in place with, if the log has grown enough.
    #[must_use]
    pub fn snapshot_due(&self, region: &Region) -> Option<Epoch> {
        self.epoch().filter(|_| region.index() >= self.snapshot_index + self.snapshot_every)
    }

    /// A snapshot at this index is in place, or another is.
    pub fn snapshot_done(&mut self, index: u64) {
        self.snapshot_index = index;
    }

    /// A refusal for its epoch tells a leader that it is one no longer: it
    /// steps down, and the epoch that it led in is returned.
    pub fn heed(&mut self, reply: &Reply) -> Option<Epoch> {
        match reply {
            Reply::Refused(Refusal::OldEpoch { .. }) => self.step_down(),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "leadership_tests.rs"]
mod tests;
