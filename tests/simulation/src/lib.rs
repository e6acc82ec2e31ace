//! Whole regions and coordinators on a simulated log, bus and store, driven by
//! one seed: the product's own machines from `muster-protocol`, and around them
//! plain structures in memory, a network that loses, doubles and delays,
//! crashes between any two outputs, pauses beyond leases, cuts one way or both.
//!
//! After every step every promise that has a predicate is checked, against the
//! truth (each region's log replayed once as it became durable) and against
//! what clients were told. Then faults stop, and everything must finish.
//!
//! ```text
//! workload ─▶ world ─▶ agent × n ─▶ log × regions      network: every message
//!              │        coordinator × 2 ─▶ store         scene: time, chance, story
//!              │        participants, operator           truth, told: what is checked
//! ```
//!
//! One seed is one run, on every machine. A failure prints the command that
//! replays it with its story.

mod agent;
mod chance;
#[cfg(test)]
mod conformance;
mod coordinator;
mod event;
mod log;
#[cfg(feature = "mutants")]
pub mod mutants;
mod network;
mod operator;
mod participant;
mod regional;
mod run;
mod scene;
mod sessions;
mod sightings;
mod store;
#[cfg(test)]
mod tests;
mod told;
mod truth;
mod workload;
mod world;

pub use run::{Ran, explain, run};
pub use scene::Violation;
pub use sightings::Sightings;
pub use workload::Restored;
