//! The agent of a region: drives the region's machine over a replicated log,
//! and speaks HTTP with the participants of its datacenter.
//!
//! ```text
//!   participants ──▶ api ──▶ driver::Handle ──▶ driver ──▶ log (etcd | embedded)
//!                     ▲                           │ effects
//!                     ├──────── waiters ◀─────────┤
//!                     └─ sessions (who is heard)  │
//!                                                 ▼
//!   coordinator ◀── bus ◀── reporter ◀── News ── driver
//!   coordinator ──▶ bus ──▶ downlink ──▶ driver::Handle
//! ```
//!
//! Invariant: nothing here decides. The replica and the region's machine in
//! `muster-protocol` do; this crate carries out and answers.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api;
mod clock;
mod coordinator;
mod downlink;
pub mod driver;
mod leadership;
pub mod log;
mod options;
pub mod recover;
mod reporter;
mod service;
mod sessions;
mod startup;
mod waiters;

pub use options::Options;
pub use service::{Service, StartError};
pub use waiters::{Waiter, Waiters};
