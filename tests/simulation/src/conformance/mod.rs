//! What the simulator runs instead of etcd and a database, held against what
//! the product runs: otherwise it proves something of a log and a store that
//! nobody has.
#![allow(clippy::unwrap_used)]

mod commands;
mod log;
mod store;
