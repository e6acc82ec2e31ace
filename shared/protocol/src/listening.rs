//! How an agent hears the coordinator: it greets until it is answered, acts on
//! nothing before that, and leaves a fact to others for a moment unless it is
//! its turn to put it on the region's log.
//!
//! ```text
//!            Welcome: current       not lower than what was seen
//!  greeting ───────────────▶ compare ─────────────────────────▶ listening
//!     ▲  │ every 0.5 s doubling to 30 s   │ lower                  │ a Welcome that refuses
//!     └──┴────────────────────────────────┴────────────────────────┘
//! ```
//!
//! Instants are what the caller reads off a clock that never steps back, since
//! its zero.

use alloc::string::String;
use core::time::Duration;

use crate::fact::{AgentId, Fact, Hello, Standing, Welcome};
use crate::identity::Era;
use crate::mutant;
use crate::name::RegionName;
use crate::region::{Heard, MACHINE_VERSION, Region};

/// The first pause between greetings that nobody answered.
pub const GREET_MIN: Duration = Duration::from_millis(500);
/// The longest pause between greetings that nobody answered.
pub const GREET_MAX: Duration = Duration::from_secs(30);
/// How long an agent that neither leads nor has a waiter leaves a fact to
/// others.
pub const LEAVE_TO_OTHERS: Duration = Duration::from_millis(200);

/// One agent's ear.
#[derive(Clone, Debug)]
pub struct Listening {
    agent: AgentId,
    address: String,
    greeted: bool,
    era: Option<Era>,
    pause: Duration,
    next_greeting: Duration,
}

/// What a word of welcome is to this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Welcomed {
    /// It is for somebody else.
    NotForUs,
    /// It is about another life of the region's log than the one that is
    /// followed.
    OtherHistory,
    /// The coordinator does not take this region's log.
    Refused(Refused),
    /// Read the log's head anew and say [`Listening::compared`]: the
    /// coordinator has seen the log up to here.
    Compare {
        /// The highest index it has seen.
        seen: u64,
    },
}

/// Why nothing the coordinator says is acted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The region has another log than this one.
    #[error(
        "region {0} has another log than the one the coordinator knows; bring back the etcd data the region had, or `muster region adopt {0}`"
    )]
    Unknown(RegionName),
    /// Another log took the place of this one.
    #[error("region {0} was given another log; this one is out of use")]
    Superseded(RegionName),
    /// Nobody declared the region.
    #[error("region {0} is not declared: muster region declare {0}")]
    Undeclared(RegionName),
    /// The log ends before what the coordinator has seen of it: it was
    /// restored from a backup, and acting on it could take back what was
    /// promised.
    #[error(
        "the region's log ends at {index}, but the coordinator has seen {seen}: it was set back; stop the region's agents, then bring back the etcd data it had, or `muster region recover`"
    )]
    SetBack {
        /// Where it ends.
        index: u64,
        /// What was seen.
        seen: u64,
    },
}

/// What to do with a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hear {
    /// It is for others, known, or too early to be acted on.
    Nothing,
    /// It was applied here, and who sent it has not heard that: report the
    /// generation again.
    TellAgain,
    /// Another outcome was applied here, which stays (against I2).
    Alarm,
    /// Put it on the region's log now.
    Append,
    /// Put it there after [`LEAVE_TO_OTHERS`], if [`still_new`].
    AppendLater,
}

/// Whether a fact that was left to others is still not on the log.
#[must_use]
pub fn still_new(fact: &Fact, region: &Region) -> bool {
    region.heard(fact) == Heard::New
}

impl Listening {
    /// An ear that has heard nothing yet, of an agent that can be reached at
    /// `address`.
    #[must_use]
    pub fn new(agent: AgentId, address: String) -> Self {
        Self { agent, address, greeted: false, era: None, pause: GREET_MIN, next_greeting: Duration::ZERO }
    }

    /// The place on the bus is new: what was said before may have been missed,
    /// so greet, and act on nothing until that is answered.
    pub fn followed(&mut self, now: Duration) {
        self.greeted = false;
        self.pause = GREET_MIN;
        self.next_greeting = now;
    }

    /// The life of the coordinator's database that the agent was last welcomed
    /// by.
    #[must_use]
    pub fn era(&self) -> Option<&Era> {
        self.era.as_ref()
    }

    /// Whether what the coordinator says is acted on.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// When the next greeting is due; `None` while none is.
    #[must_use]
    pub fn next_greeting(&self) -> Option<Duration> {
        (!self.greeted).then_some(self.next_greeting)
    }

    /// The greeting that is due, if one is.
    pub fn greet(&mut self, region: &Region, now: Duration) -> Option<Hello> {
        self.next_greeting().filter(|at| now >= *at)?;
        self.next_greeting = now + self.pause;
        self.pause = GREET_MAX.min(self.pause * 2);
        let stamp = region.stamp();
        Some(Hello {
            region: region.name().clone(),
            agent: self.agent.clone(),
            history: stamp.history,
            shard: stamp.shard,
            head: stamp.index,
            machine_version: MACHINE_VERSION,
            address: self.address.clone(),
            era: self.era.clone(),
        })
    }

    /// The coordinator answered somebody's greeting.
    pub fn welcomed(&mut self, welcome: &Welcome, region: &Region) -> Welcomed {
        if welcome.agent != self.agent {
            return Welcomed::NotForUs;
        }
        self.greeted = false;
        if welcome.region != *region.name() || welcome.history != region.history() {
            return Welcomed::OtherHistory;
        }
        let name = region.name().clone();
        self.era = welcome.era.clone();
        match welcome.standing {
            Standing::Current => Welcomed::Compare { seen: welcome.index },
            Standing::Unknown => Welcomed::Refused(Refused::Unknown(name)),
            Standing::Superseded => Welcomed::Refused(Refused::Superseded(name)),
            Standing::Undeclared => Welcomed::Refused(Refused::Undeclared(name)),
        }
    }

    /// The state is now not older than the log's head was after the welcome:
    /// from here on facts are acted on, unless the log was set back.
    ///
    /// # Errors
    /// [`Refused::SetBack`].
    pub fn compared(&mut self, seen: u64, region: &Region) -> Result<(), Refused> {
        let index = region.index();
        if index < seen {
            return Err(Refused::SetBack { index, seen });
        }
        self.greeted = true;
        Ok(())
    }

    /// What to do with a fact that was heard. `waits` says whether anybody
    /// waits here for its generation.
    #[must_use]
    pub fn fact(&self, fact: &Fact, region: &Region, leading: bool, waits: bool) -> Hear {
        if !self.greeted && !mutant!(ActsUnwelcomed) || !fact.concerns(region.name()) {
            return Hear::Nothing;
        }
        match region.heard(fact) {
            Heard::Known if leading => Hear::TellAgain,
            Heard::Known => Hear::Nothing,
            Heard::Different => Hear::Alarm,
            Heard::New if leading || waits => Hear::Append,
            Heard::New => Hear::AppendLater,
        }
    }
}

#[cfg(test)]
#[path = "listening_tests.rs"]
mod tests;
