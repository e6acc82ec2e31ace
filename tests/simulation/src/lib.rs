//! Whole regions and coordinators on simulated log, bus and store.
