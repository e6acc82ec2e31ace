//! What every adapter of the region log has to do, as tests that each of them
//! passes: `muster_regional_agent::region_log_conformance!(harness().await)` in
//! a test module makes one test of each.
//!
//! What is *not* promised is said here too, by
//! [`a_truncated_entry_may_land_again`](append::a_truncated_entry_may_land_again):
//! the log forgets which (writer, seq) it had once a snapshot covers them, so
//! "takes effect once" also needs the table of writers in the region's state.
#![allow(clippy::unwrap_used)]

pub mod append;
pub mod lead;
pub mod read;
pub mod recovery;
pub mod register;
pub mod replay;
pub mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use muster_protocol::fact::AgentId;
use muster_protocol::identity::Writer;

use super::{Appended, Follow, NewRegistration, RawEntry, RegionLog, Registered};

/// How long any check may take before it has failed.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a follower may take to what is there.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(20);

/// A log that nothing else uses, and the means to hurt it.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The log as one more process sees it.
    async fn open(&self) -> Arc<dyn RegionLog>;

    /// Ends a registration from outside, as a lease that runs out does.
    async fn expel(&self, writer: Writer);

    /// Deletes the head, as an operator's mistake does.
    async fn lose_head(&self);

    /// How many entries the store holds, those included that nobody reads any
    /// more.
    async fn entries_kept(&self) -> u64;
}

/// One test of each check, each on its own harness.
#[macro_export]
macro_rules! region_log_conformance {
    ($harness:expr) => {
        $crate::region_log_conformance! { @each $harness;
            append::{
                indices_are_dense_under_concurrent_writers, an_entry_lands_once, an_entry_over_the_limit_is_refused,
                the_head_is_never_below_what_was_acknowledged, a_log_without_head_takes_no_writes,
                a_truncated_entry_may_land_again,
            }
            read::{
                a_log_is_created_once, catching_up_gives_what_followers_saw, following_misses_nothing, a_follower_that_waits_is_woken,
                a_follower_goes_on_over_a_snapshot, every_process_sees_the_same, large_entries_are_read_whole,
            }
            register::{
                registrations_are_listed, an_instance_registers_once, an_expelled_writer_lands_nothing_more,
                a_released_writer_lands_nothing_more,
            }
            lead::{one_of_several_leads, resigning_hands_over, a_lost_leader_is_followed}
            snapshot::{
                a_snapshot_replaces_what_it_covers, a_large_snapshot_is_read_whole, the_index_only_grows,
                only_the_leader_replaces, an_entry_behind_the_snapshot_stays,
            }
            recovery::{
                what_is_left_is_read_without_the_head, another_life_begins_where_it_is_told,
                a_recovered_log_is_recovered_again,
            }
            replay::{replicas_come_to_the_same_state_byte_for_byte}
        }
    };
    (@each $harness:expr; $($module:ident :: { $($check:ident),* $(,)? })*) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                use $crate::log::conformance::{self, CHECK_TIMEOUT};
                let harness = $harness;
                let check = conformance::$module::$check(&harness);
                tokio::time::timeout(CHECK_TIMEOUT, check).await.expect("the check ends in time");
            }
        )*)*
    };
}

/// An agent of the region, with a log handle of its own.
pub struct Member {
    /// Its handle.
    pub log: Arc<dyn RegionLog>,
    /// Its registration.
    pub registered: Box<dyn Registered>,
    seq: u64,
}

impl Member {
    /// Registers a new agent.
    pub async fn join(harness: &dyn Harness) -> Self {
        let log = harness.open().await;
        let registered = log.register(new_registration("agent")).await.unwrap();
        Self { log, registered, seq: 0 }
    }

    /// Its writer.
    #[must_use]
    pub fn writer(&self) -> Writer {
        self.registered.writer()
    }

    /// Appends the next entry, and gives it with its index.
    pub async fn append(&mut self, bytes: &[u8]) -> RawEntry {
        self.seq += 1;
        match self.log.append(self.writer(), self.seq, bytes).await {
            Appended::Landed { index } => {
                RawEntry { index, writer: self.writer(), seq: self.seq, bytes: bytes.to_vec() }
            }
            other => panic!("entry {} did not land: {other:?}", self.seq),
        }
    }

    /// Appends so many entries, each with other bytes.
    pub async fn append_many(&mut self, count: u64) -> Vec<RawEntry> {
        let mut entries = Vec::new();
        for _ in 0..count {
            let bytes = format!("{}/{}", self.writer(), self.seq + 1);
            entries.push(self.append(bytes.as_bytes()).await);
        }
        entries
    }

    /// The last sequence number it used.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

/// A new instance of an agent.
#[must_use]
pub fn new_registration(name: &str) -> NewRegistration {
    NewRegistration {
        agent: AgentId { name: name.to_owned(), instance: format!("{:016x}", rand::random::<u64>()) },
        address: "http://127.0.0.1:7171".to_owned(),
        machine_version: 1,
        lease_ttl: Duration::from_secs(10),
    }
}

/// What a follower gives, up to and with an index.
pub async fn follow_to(follow: &mut Box<dyn Follow>, index: u64) -> Vec<RawEntry> {
    let mut entries: Vec<RawEntry> = Vec::new();
    let followed = async {
        while entries.last().is_none_or(|last| last.index < index) {
            entries.extend(follow.next().await.unwrap());
        }
    };
    let in_time = tokio::time::timeout(FOLLOW_TIMEOUT, followed).await.is_ok();
    assert!(in_time, "index {index} is not followed, only {:?}", entries.last().map(|last| last.index));
    entries
}
