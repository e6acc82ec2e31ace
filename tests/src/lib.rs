//! Scenarios over one [`cluster::Cluster`] interface: in one process on
//! embedded adapters, and on real processes with etcd, Kafka and Postgres.
//!
//! ```text
//! cluster/    starts, hurts and ends the parts           in process | processes
//! world       a scenario's own barriers and clients on a cluster
//! worker      a participant whose every call is recorded
//! etcd        of one region, in the hands of its operator; so is kafka
//! links       between parts, services and clients: proxies that cut them
//! history     what was recorded, and the rules it must obey
//! scenarios/  what must hold, told once, run on both clusters
//! ```
//!
//! A test that needs a real service fails without it; nothing skips.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cluster;
pub mod database;
pub mod etcd;
pub mod history;
pub mod kafka;
pub mod links;
pub mod otlp;
pub mod ports;
pub mod proxy;
pub mod raw;
pub mod replay;
#[cfg(test)]
mod scenarios;
pub mod services;
pub mod spawner;
pub mod until;
pub mod worker;
pub mod world;
