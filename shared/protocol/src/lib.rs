//! Muster's pure core: the state machines of a region, of the world and of a
//! replica, and the words they share.
//!
//! Nothing here can touch a clock, a socket or a random number: the crate is
//! `no_std`, so decisions are functions of (state, event) by construction.
//! Time and identity arrive as values inside events.
//!
//! ```text
//! name, participants, rule, spec    what is defined
//! generation, outcome, fact, report what the two levels tell each other
//! region                            one region's machine: apply(state, command)
//! global                            one barrier's machine at the coordinator
//! entry, replica                    the log a region's agents replay, and the machine that follows it
//! reporting, listening, leadership  an agent's other parts: tell the coordinator, hear it, lead the region
//! heartbeats                        which sessions fell silent, and what an agent may acknowledge
//! repeats                           what the coordinator says again, and when
//! invariant                         the numbered promises, as predicates
//! mutant                            known bugs, built in only to be caught
//! ```
#![no_std]
#![cfg_attr(test, allow(clippy::unwrap_used))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod caps;
pub mod entry;
pub mod fact;
pub mod generation;
pub mod global;
pub mod heartbeats;
pub mod identity;
pub mod invariant;
pub mod leadership;
pub mod lease;
pub mod listening;
pub mod mutant;
pub mod name;
pub mod outcome;
pub mod participants;
pub mod region;
pub mod repeats;
pub mod replica;
pub mod report;
pub mod reporting;
pub mod rule;
#[cfg(test)]
mod scenario_tests;
pub mod spec;
