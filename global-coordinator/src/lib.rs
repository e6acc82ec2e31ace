//! The global coordinator: aggregates what the regions report, decides once,
//! and broadcasts the outcome.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod store;
