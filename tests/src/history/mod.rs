//! What every client called and was answered, and the rules that all of it
//! together must obey, whatever happened in between.
//!
//! The rules are judged by what clients saw, not by what services say of
//! themselves: a call that was answered with an acknowledgement took effect
//! between its start and its end, one without an answer may have or not.

mod check;
mod linear;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use muster_protocol::region::ArrivalOutcome;
use muster_wire::code::Code;

pub use check::{Violation, check};

/// One call of one client, from its first try to its last answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// The generation, as `namespace/name@id`.
    pub generation: String,
    /// Who called, or who was asked about: `region/id`.
    pub participant: String,
    /// What was called.
    pub what: What,
    /// Before the first byte was sent.
    pub start: Instant,
    /// After the last byte was read.
    pub end: Instant,
    /// What came of it.
    pub answer: Answer,
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An arrival.
    Arrive {
        /// Which attempt.
        attempt: u32,
        /// How it went.
        outcome: ArrivalOutcome,
    },
    /// A wait.
    Wait,
    /// A withdrawal of all attempts up to this one.
    Withdraw {
        /// Which attempt.
        attempt: u32,
    },
    /// Reading how far the participant has come.
    Look,
    /// Falling silent, where arrivals do not outlive their session.
    FallSilent,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The arrival stands.
    Arrived {
        /// The attempt that counts.
        attempt: u32,
        /// Its outcome.
        outcome: ArrivalOutcome,
    },
    /// The wait ended with a release.
    Released {
        /// The outcome's digest.
        digest: String,
        /// Whether nobody is said to be lacking.
        whole: bool,
    },
    /// The withdrawal stands.
    Withdrawn,
    /// The generation broke.
    Broken,
    /// The participant as it is reported: the attempt that counts, if it is
    /// reported to have arrived at all.
    Seen {
        /// Attempt and outcome.
        arrived: Option<(u32, ArrivalOutcome)>,
    },
    /// It was refused, and nothing was done.
    Refused(Code),
    /// Time was up.
    TimedOut,
    /// Nobody answered, or the answer was lost.
    Unknown(String),
}

/// All calls, in the order of their ends. Cheap to clone; clones record into
/// the same history.
#[derive(Clone, Debug, Default)]
pub struct History {
    calls: Arc<Mutex<Vec<Call>>>,
}

impl History {
    /// Adds a call.
    pub fn record(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// The calls so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a scenario knows that the history alone does not tell.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// Who must have arrived before anybody is released, by generation.
    pub required: BTreeMap<String, Required>,
    /// Who must have arrived before anybody is told of a whole release, by
    /// generation; those required above, where this is silent.
    pub everybody: BTreeMap<String, BTreeSet<String>>,
    /// The round whose arrivals count in another, by that other.
    pub carried: BTreeMap<String, String>,
    /// Generations that may be past their retention: of these a look may say
    /// nothing.
    pub forgotten: BTreeSet<String>,
}

/// Who must have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Required {
    /// Exactly these, as `region/id`.
    These(BTreeSet<String>),
    /// So many of each region, whoever they are.
    Count(BTreeMap<String, usize>),
    /// All of at least one of these sets, as a rule that can do without some
    /// allows it.
    AnyOf(Vec<BTreeSet<String>>),
}
