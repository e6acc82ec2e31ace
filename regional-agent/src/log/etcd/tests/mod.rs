//! The conformance suite on a real etcd (`MUSTER_TEST_ETCD`), and what only
//! etcd does: requests counted, compaction, members that fail, keys changed by
//! hand.

mod link;
mod trouble;

use etcd_client::{Client, GetOptions};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use self::link::until;
use super::requests::Purpose;
use super::snapshot::Manifest;
use super::*;
use crate::log::conformance::{Harness, Member, follow_to, new_registration};

/// A region below a prefix of its own in the etcd that tests are given.
struct Region {
    options: EtcdOptions,
    raw: Client,
    keys: Keys,
    _turn: Turn,
}

/// Compaction is etcd's, not a prefix's, so a test that compacts runs alone.
static TURNS: RwLock<()> = RwLock::const_new(());

enum Turn {
    Beside(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

impl Region {
    async fn new() -> Self {
        Self::with(Turn::Beside(TURNS.read().await)).await
    }

    /// While no other test of this process uses etcd.
    async fn alone() -> Self {
        Self::with(Turn::Alone(TURNS.write().await)).await
    }

    async fn with(turn: Turn) -> Self {
        let urls = std::env::var("MUSTER_TEST_ETCD").expect("MUSTER_TEST_ETCD names an etcd: run `make test`");
        let url = urls.split(',').next().unwrap().to_owned();
        let prefix = format!("/muster-test/{:016x}", rand::random::<u64>());
        let keys = Keys::new(&prefix, &region(), 0);
        let raw = Client::connect([&url], None).await.unwrap();
        Self { options: EtcdOptions { endpoints: vec![url], prefix, ..EtcdOptions::default() }, raw, keys, _turn: turn }
    }

    fn url(&self) -> String {
        self.options.endpoints[0].clone()
    }

    async fn etcd(&self) -> Arc<Etcd> {
        self.etcd_with(|_| {}).await
    }

    async fn etcd_with(&self, change: impl FnOnce(&mut EtcdOptions)) -> Arc<Etcd> {
        let mut options = self.options.clone();
        change(&mut options);
        Arc::new(Etcd::open(options, &region()).await.unwrap())
    }

    /// A member with options of its own.
    async fn member_of(&self, log: &Arc<Etcd>) -> Member {
        Member::join(&Opened(Arc::clone(log))).await
    }

    /// Everything a later revision has, compacted away below it.
    async fn compact(&self) {
        let answer = self.raw.kv_client().get(self.keys.head(), None).await.unwrap();
        let revision = answer.header().unwrap().revision();
        self.raw.kv_client().compact(revision, None).await.unwrap();
    }

    async fn count(&self, (from, to): (String, String)) -> i64 {
        let options = GetOptions::new().with_range(to).with_count_only();
        self.raw.kv_client().get(from, Some(options)).await.unwrap().count()
    }
}

fn region() -> RegionName {
    "us-east".parse().unwrap()
}

#[async_trait]
impl Harness for Region {
    async fn open(&self) -> Arc<dyn RegionLog> {
        self.etcd().await
    }

    async fn expel(&self, writer: Writer) {
        let options = GetOptions::new().with_prefix();
        let agents = self.raw.kv_client().get(self.keys.agents(), Some(options)).await.unwrap();
        let agent = agents.kvs().iter().find(|agent| agent.create_revision() == i64::try_from(writer.0).unwrap());
        self.raw.lease_client().revoke(agent.unwrap().lease()).await.unwrap();
    }

    async fn lose_head(&self) {
        self.raw.kv_client().delete(self.keys.head(), None).await.unwrap();
    }

    async fn entries_kept(&self) -> u64 {
        self.count(self.keys.entries()).await.unsigned_abs()
    }
}

/// One handle that was opened already.
struct Opened(Arc<Etcd>);

#[async_trait]
impl Harness for Opened {
    async fn open(&self) -> Arc<dyn RegionLog> {
        self.0.clone()
    }

    async fn expel(&self, writer: Writer) {
        unreachable!("expel {writer} through the region");
    }

    async fn lose_head(&self) {
        unreachable!("through the region");
    }

    async fn entries_kept(&self) -> u64 {
        unreachable!("through the region");
    }
}

mod conforms {
    use super::*;

    crate::region_log_conformance!(Region::new().await);
}

#[tokio::test]
async fn following_a_crossing_costs_appends_and_read_indices_alone() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    let position = log.catch_up(0).await.unwrap().position;
    let mut follow = log.follow(position).await.unwrap();
    let before = log.requests();
    for index in 1..=20 {
        member.append(b"arrivals").await;
        assert_eq!(log.head().await.unwrap(), index);
        assert_eq!(follow_to(&mut follow, index).await.len(), 1);
    }
    let after = Requests { append: before.append + 20, read_index: before.read_index + 20, ..before };
    // A keep-alive may fall into it; it reads no key.
    assert_eq!(Requests { lease: before.lease, ..log.requests() }, after);
}

#[tokio::test]
async fn a_snapshot_deletes_what_it_covers_and_older_chunks() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    member.append_many(10).await;
    let epoch = log.campaign(member.writer()).await.unwrap().unwrap();
    for (index, left) in [(4, 6), (10, 0)] {
        let seqs = [(member.writer(), index)];
        log.install_snapshot(epoch, index, &vec![1; 600 * 1024], &seqs).await.unwrap();
        assert_eq!(region.count(region.keys.entries()).await, left);
        assert_eq!(region.count(region.keys.chunks(index)).await, 2);
        assert_eq!(region.count(region.keys.chunks_before(index)).await, 0);
    }
}

#[tokio::test]
async fn a_leader_that_was_paused_within_its_snapshot_changes_nothing() {
    let region = Region::new().await;
    let (log, other) = (region.etcd().await, region.etcd().await);
    let mut member = region.member_of(&log).await;
    member.append_many(6).await;
    let old = log.campaign(member.writer()).await.unwrap().unwrap();
    // Paused behind its listing, where no snapshot was in place.
    log.resign(member.writer(), old).await.unwrap();
    let successor = region.member_of(&other).await;
    let new = other.campaign(successor.writer()).await.unwrap().unwrap();
    other.install_snapshot(new, 5, b"by the new one", &[]).await.unwrap();
    assert!(!log.shared.put_chunks(old, 5, b"by the old one").await.unwrap());
    let read = log.shared.list(Purpose::Snapshot, true).await.ok().unwrap().manifest_modified;
    assert!(!log.shared.put_manifest(&Manifest::of(6, 1).by(old), read).await.unwrap());
    // Nor does the same leader put an older one over a newer, by what it read.
    assert!(!log.shared.put_manifest(&Manifest::of(3, 1).by(new), 0).await.unwrap());
    assert_eq!(log.catch_up(0).await.unwrap().snapshot.as_deref(), Some(b"by the new one".as_slice()));
}

#[tokio::test]
async fn what_a_leader_did_not_get_to_delete_goes_with_the_next_snapshot() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    let entries = member.append_many(6).await;
    let epoch = log.campaign(member.writer()).await.unwrap().unwrap();
    // A leader that dies behind the manifest leaves all that it covers.
    let listing = log.shared.list(Purpose::Snapshot, true).await.ok().unwrap();
    let covered = listing.found.iter().map(|found| found.revision).nth(3).unwrap();
    let manifest = Manifest::of(4, covered);
    region.raw.kv_client().put(region.keys.manifest(), serde_json::to_vec(&manifest).unwrap(), None).await.unwrap();
    assert_eq!(log.catch_up(4).await.unwrap().entries, entries[4..]);
    log.install_snapshot(epoch, 5, b"at 5", &[(member.writer(), 5)]).await.unwrap();
    assert_eq!(region.count(region.keys.entries()).await, 1);
    assert_eq!(log.catch_up(0).await.unwrap().entries, entries[5..]);
}

#[tokio::test]
async fn compaction_ends_a_follower_that_is_behind_and_not_catching_up() {
    let region = Region::alone().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    let start = log.catch_up(0).await.unwrap().position;
    let entries = member.append_many(30).await;
    region.compact().await;
    let mut follow = log.follow(start).await.unwrap();
    let error = follow.next().await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("compacted"), "{cause}");
    let caught_up = log.catch_up(0).await.unwrap();
    assert_eq!(caught_up.entries, entries);
    let mut follow = log.follow(caught_up.position).await.unwrap();
    let entry = member.append(b"next").await;
    assert_eq!(follow_to(&mut follow, 31).await, [entry]);
}

#[tokio::test]
async fn catching_up_starts_over_when_what_it_reads_is_compacted() {
    let region = Region::alone().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    let entries = member.append_many(400).await;
    let before = log.requests().catch_up;
    log.catch_up(0).await.unwrap();
    let undisturbed = log.requests().catch_up - before;
    until("a compaction comes between its pages", async || {
        let before = log.requests().catch_up;
        let compact = async {
            while log.requests().catch_up < before + 2 {
                tokio::task::yield_now().await;
            }
            region.raw.kv_client().put(region.keys.meta() + "-newer", "", None).await.unwrap();
            region.compact().await;
        };
        let (caught_up, ()) = tokio::join!(log.catch_up(0), compact);
        assert_eq!(caught_up.unwrap().entries, entries);
        log.requests().catch_up - before > undisturbed
    })
    .await;
}

#[tokio::test]
async fn a_deleted_entry_is_found_instead_of_renumbered() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    member.append_many(9).await;
    region.raw.kv_client().delete(region.keys.entry(member.writer(), 4), None).await.unwrap();
    let error = log.catch_up(0).await.unwrap_err();
    assert!(error.to_string().contains("8 entries lie between index 0 and its head 9"), "{error}");
    let epoch = log.campaign(member.writer()).await.unwrap().unwrap();
    assert!(log.install_snapshot(epoch, 5, b"at 5", &[]).await.is_err(), "nor is a snapshot placed by it");
}

#[tokio::test]
async fn a_lost_chunk_is_found() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    member.append_many(2).await;
    let epoch = log.campaign(member.writer()).await.unwrap().unwrap();
    log.install_snapshot(epoch, 2, &vec![1; 1024 * 1024], &[]).await.unwrap();
    region.raw.kv_client().delete(region.keys.chunk(2, 0), None).await.unwrap();
    let error = log.catch_up(0).await.unwrap_err();
    assert!(error.to_string().contains("has 524288 bytes of 1048576"), "{error}");
}

#[tokio::test]
async fn a_head_lower_than_it_was_seen_refuses_everything() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    member.append_many(3).await;
    // As if the etcd under it had been restored from a backup.
    log.shared.seen.note(5);
    let refused = log.append(member.writer(), 4, b"four").await;
    assert!(matches!(refused, Appended::HeadGone), "{refused:?}");
    for error in [log.head().await.unwrap_err(), log.catch_up(0).await.unwrap_err()] {
        assert!(error.to_string().contains("at 3 and was seen at 5"), "{error}");
    }
    assert_eq!(region.etcd().await.head().await.unwrap(), 3, "nothing was written");
}

#[tokio::test]
async fn a_head_of_another_birth_refuses_everything() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let mut member = region.member_of(&log).await;
    member.append(b"one").await;
    region.lose_head().await;
    // As high as the one that was lost, so only its birth tells them apart.
    for _ in 0..3 {
        region.raw.kv_client().put(region.keys.head(), "", None).await.unwrap();
    }
    assert!(matches!(log.append(member.writer(), 2, b"two").await, Appended::HeadGone));
    let error = region.etcd().await.identity().await.unwrap_err();
    assert!(error.to_string().contains("another one is in its place"), "{error}");
}

#[tokio::test]
async fn shards_are_logs_of_their_own() {
    let region = Region::new().await;
    let zero = region.etcd_with(|options| options.shards = 2).await;
    let one = region.etcd_with(|options| (options.shard, options.shards) = (1, 2)).await;
    region.member_of(&zero).await.append_many(3).await;
    let entry = region.member_of(&one).await.append(b"in shard one").await;
    assert_eq!((entry.index, zero.head().await.unwrap()), (1, 3));
    assert_eq!(one.catch_up(0).await.unwrap().entries, [entry]);
    let identities = (zero.identity().await.unwrap(), one.identity().await.unwrap());
    assert_eq!((identities.0.history, identities.0.shard), (identities.1.history, 0));
    assert_eq!(identities.1.shard, 1);
    let three = region.etcd_with(|options| (options.shard, options.shards) = (2, 3)).await;
    let error = three.identity().await.unwrap_err();
    assert!(error.to_string().contains("it has 2 shards, and no shard 2"), "{error}");
}

#[tokio::test]
async fn options_that_can_not_work_are_refused_with_what_to_write() {
    for (change, expected) in [
        ((|options| options.endpoints.clear()) as fn(&mut EtcdOptions), "name at least one"),
        (|options| options.endpoints = vec!["http://[".to_owned()], "write it like http://127.0.0.1:2379"),
        (|options| options.prefix = "muster".to_owned(), "has to begin with /"),
        (|options| options.prefix = "/muster/".to_owned(), "not to end with one"),
        (|options| options.shard = 1, "shard 1 is not one of 1"),
    ] {
        let mut options = EtcdOptions::default();
        change(&mut options);
        let error = Etcd::open(options, &region()).await.err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_recovery_that_did_not_end_is_no_empty_keyspace_and_goes_on() {
    let region = Region::new().await;
    let mut member = Member::join(&region).await;
    member.append_many(3).await;
    let rebirth =
        Rebirth { history: muster_protocol::identity::History([9; 16]), base: 50, snapshot: b"state".to_vec() };
    region.etcd().await.shared.clear_only(&rebirth).await.unwrap();
    let error = region.etcd().await.identity().await.unwrap_err().to_string();
    assert!(error.contains("a recovery did not end") && error.contains("muster region recover"), "{error}");
    let left = region.etcd().await.salvage().await.unwrap();
    assert_eq!(
        left,
        Salvage { history: Some(rebirth.history), snapshot: Some(b"state".to_vec()), entries: Vec::new() }
    );
    let again = Rebirth { history: muster_protocol::identity::History([8; 16]), ..rebirth };
    region.etcd().await.begin_anew(&again).await.unwrap();
    assert_eq!(region.etcd().await.identity().await.unwrap().history, again.history);
    assert_eq!(region.count((region.keys.recovery(), region.keys.recovery() + "\0")).await, 0);
}
