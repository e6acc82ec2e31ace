//! The global coordinator: aggregates what the regions report, decides once,
//! and broadcasts the outcome.
//!
//! ```text
//!          reports ─▶ aggregation ─┐                 ┌─▶ publication ─▶ facts, down
//!   calls ─▶ api ─────────────────┼─▶ coordinator ──┤
//!          deadlines, collection ──┘    one store    ├─▶ hub: wakes waits
//!          repeats: what no region has answered ─────┘
//! ```
//!
//! All of it may run any number of times: row locks of the store decide races,
//! facts are immutable, and every loop re-reads what is true.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod aggregation;
mod api;
mod backoff;
mod collection;
mod coordinator;
mod deadlines;
mod following;
mod gauges;
mod hub;
pub mod options;
mod repeats;
mod service;
mod status;
pub mod store;
#[cfg(test)]
mod tests;

pub use options::Options;
pub use service::{Handle, Service, StartError};
