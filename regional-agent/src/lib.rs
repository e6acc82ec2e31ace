//! The agent of a region: drives the region's machine over a replicated log,
//! and speaks HTTP with the participants of its datacenter.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod log;
