//! What the adapter asks etcd for, counted by purpose: a crossing is to cost
//! appends and read indices, and nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use muster_telemetry::metrics;

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Origin,
    Append,
    ReadIndex,
    CatchUp,
    Snapshot,
    Lease,
    Leader,
    Registrations,
    Watch,
}

impl Purpose {
    /// How the metric of range requests calls it, if it is one.
    fn range_kind(self) -> Option<&'static str> {
        match self {
            Self::ReadIndex => Some("read_index"),
            Self::CatchUp => Some("catch_up"),
            Self::Snapshot => Some("snapshot"),
            _ => None,
        }
    }
}

/// How many requests were sent, tries that failed included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Reads and creations of the log's identity.
    pub origin: u64,
    /// Transactions that append.
    pub append: u64,
    /// Reads of the head.
    pub read_index: u64,
    /// Reads to catch up: pages of the log and of a snapshot.
    pub catch_up: u64,
    /// Reads and writes to install a snapshot.
    pub snapshot: u64,
    /// Grants, keep-alives and revocations of leases, and registrations.
    pub lease: u64,
    /// Elections and resignations.
    pub leader: u64,
    /// Lists of the registered agents.
    pub registrations: u64,
    /// Watches opened, and idle ones questioned.
    pub watch: u64,
}

#[derive(Debug)]
pub(super) struct Counters {
    region: String,
    sent: [AtomicU64; 9],
}

impl Counters {
    pub(super) fn new(region: String) -> Self {
        Self { region, sent: [const { AtomicU64::new(0) }; 9] }
    }

    pub(super) fn count(&self, purpose: Purpose) {
        self.sent[purpose as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(kind) = purpose.range_kind() {
            metrics::range_requests(self.region.clone(), kind).increment(1);
        }
    }

    pub(super) fn read(&self) -> Requests {
        let of = |purpose: Purpose| self.sent[purpose as usize].load(Ordering::Relaxed);
        Requests {
            origin: of(Purpose::Origin),
            append: of(Purpose::Append),
            read_index: of(Purpose::ReadIndex),
            catch_up: of(Purpose::CatchUp),
            snapshot: of(Purpose::Snapshot),
            lease: of(Purpose::Lease),
            leader: of(Purpose::Leader),
            registrations: of(Purpose::Registrations),
            watch: of(Purpose::Watch),
        }
    }
}
