//! Snapshots.

use muster_protocol::identity::Epoch;

use super::{Harness, Member};
use crate::log::{Appended, Installed};

async fn lead(member: &Member) -> Epoch {
    member.log.campaign(member.writer()).await.unwrap().unwrap()
}

async fn install(member: &Member, epoch: Epoch, index: u64, bytes: &[u8]) -> Installed {
    // All entries of these checks are one writer's, so its seq is the index.
    member.log.install_snapshot(epoch, index, bytes, &[(member.writer(), index)]).await.unwrap()
}

/// State and entries after it, again and again, with several writers.
pub async fn a_snapshot_replaces_what_it_covers(harness: &dyn Harness) {
    let (mut one, mut two) = (Member::join(harness).await, Member::join(harness).await);
    let epoch = lead(&one).await;
    for round in 1..=4_u64 {
        one.append_many(3).await;
        two.append_many(3).await;
        let tail = one.append_many(2).await;
        let (index, bytes) = (round * 8 - 2, format!("state {round}"));
        let seqs = [(one.writer(), one.seq() - 2), (two.writer(), two.seq())];
        let installed = one.log.install_snapshot(epoch, index, bytes.as_bytes(), &seqs).await.unwrap();
        assert_eq!(installed, Installed::Yes);
        let caught_up = two.log.catch_up(0).await.unwrap();
        assert_eq!(caught_up.snapshot, Some(bytes.into_bytes()));
        assert_eq!((caught_up.entries, caught_up.head), (tail, round * 8));
    }
}

/// Larger than one request of the store, and than one message.
pub async fn a_large_snapshot_is_read_whole(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    member.append_many(2).await;
    let epoch = lead(&member).await;
    let large: Vec<u8> = (0..9_500_123_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    for (index, bytes) in [(1, large.as_slice()), (2, &large[..600_000])] {
        assert_eq!(install(&member, epoch, index, bytes).await, Installed::Yes);
        let caught_up = member.log.catch_up(0).await.unwrap();
        assert!(caught_up.snapshot.as_deref() == Some(bytes), "snapshot {index} is what was installed");
    }
    member.append_many(1).await;
    assert_eq!(install(&member, epoch, 3, b"").await, Installed::Yes);
    assert_eq!(member.log.catch_up(0).await.unwrap().snapshot, Some(Vec::new()));
}

/// A snapshot never takes the place of a newer one, nor of what is not there.
pub async fn the_index_only_grows(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    member.append_many(12).await;
    let epoch = lead(&member).await;
    assert_eq!(install(&member, epoch, 0, b"nothing").await, Installed::No);
    assert_eq!(install(&member, epoch, 10, b"at 10").await, Installed::Yes);
    for index in [10, 5, 1] {
        assert_eq!(install(&member, epoch, index, b"older").await, Installed::No, "{index}");
    }
    let beyond = member.log.install_snapshot(epoch, 13, b"at 13", &[]).await;
    assert!(beyond.is_err_and(|error| error.to_string().contains("lies behind its head 12")));
    let caught_up = member.log.catch_up(0).await.unwrap();
    assert_eq!(caught_up.snapshot.as_deref(), Some(b"at 10".as_slice()));
    assert!(caught_up.entries.iter().map(|entry| entry.index).eq([11, 12]));
    assert_eq!(install(&member, epoch, 12, b"at 12").await, Installed::Yes);
}

/// A leader that was paused, and whose successor acts, replaces nothing.
pub async fn only_the_leader_replaces(harness: &dyn Harness) {
    let (mut one, two) = (Member::join(harness).await, Member::join(harness).await);
    one.append_many(12).await;
    let old = lead(&one).await;
    one.log.resign(one.writer(), old).await.unwrap();
    assert_eq!(install(&one, old, 8, b"by nobody").await, Installed::No);
    let new = lead(&two).await;
    assert_eq!(install(&one, old, 10, b"by the old one").await, Installed::No);
    let seqs = [(one.writer(), 10)];
    assert_eq!(two.log.install_snapshot(new, 10, b"by the new one", &seqs).await.unwrap(), Installed::Yes);
    assert_eq!(install(&one, old, 12, b"by the old one").await, Installed::No);
    let caught_up = one.log.catch_up(0).await.unwrap();
    assert_eq!(caught_up.snapshot.as_deref(), Some(b"by the new one".as_slice()));
    assert!(caught_up.entries.iter().map(|entry| entry.index).eq([11, 12]));
}

/// A late try of a truncated append landed again, behind the index of the next
/// snapshot but below the last seq that it covers: it must stay, or the log
/// has a hole.
pub async fn an_entry_behind_the_snapshot_stays(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    member.append_many(10).await;
    let epoch = lead(&member).await;
    assert_eq!(install(&member, epoch, 5, b"at 5").await, Installed::Yes);
    let again = member.log.append(member.writer(), 3, b"late").await;
    assert!(matches!(again, Appended::Landed { index: 11 }), "{again:?}");
    assert_eq!(install(&member, epoch, 10, b"at 10").await, Installed::Yes);
    let caught_up = member.log.catch_up(0).await.unwrap();
    assert_eq!(caught_up.snapshot.as_deref(), Some(b"at 10".as_slice()));
    let entry = &caught_up.entries[0];
    assert_eq!((caught_up.head, entry.index, entry.seq), (11, 11, 3));
    // The next one covers it, and what that left.
    let seqs = [(member.writer(), 10)];
    assert_eq!(member.log.install_snapshot(epoch, 11, b"at 11", &seqs).await.unwrap(), Installed::Yes);
    assert_eq!(member.log.catch_up(0).await.unwrap().entries, []);
}
