//! Appending.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::join_all;
use muster_protocol::caps::ENTRY_BYTES_MAX;

use super::{Harness, Member};
use crate::log::{Appended, LogError};

/// Five writers at once: no gap, no duplicate, and what was acknowledged is
/// what is there.
pub async fn indices_are_dense_under_concurrent_writers(harness: &dyn Harness) {
    let members = join_all((0..5).map(|_| Member::join(harness))).await;
    let appends = members.into_iter().map(|mut member| {
        tokio::spawn(async move {
            let entries = member.append_many(60).await;
            (member, entries)
        })
    });
    let done: Vec<_> = join_all(appends).await.into_iter().map(Result::unwrap).collect();
    let mut entries: Vec<_> = done.iter().flat_map(|(_, entries)| entries.clone()).collect();
    entries.sort_by_key(|entry| entry.index);
    assert!(entries.iter().map(|entry| entry.index).eq(1..=300), "dense from 1");
    let caught_up = done[0].0.log.catch_up(0).await.unwrap();
    assert_eq!(caught_up.entries, entries);
    assert_eq!((caught_up.head, caught_up.snapshot), (300, None));
}

/// The same (writer, seq) again changes nothing, whatever its bytes.
pub async fn an_entry_lands_once(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let entry = member.append(b"one").await;
    for bytes in [b"one".as_slice(), b"another"] {
        let again = member.log.append(entry.writer, entry.seq, bytes).await;
        assert!(matches!(again, Appended::AlreadyThere), "{again:?}");
    }
    let caught_up = member.log.catch_up(0).await.unwrap();
    assert_eq!((caught_up.head, caught_up.entries), (1, vec![entry]));
    assert_eq!(member.append(b"two").await.index, 2);
}

/// The limit holds at the port, so that no page of the log is larger than
/// readers are ready for.
pub async fn an_entry_over_the_limit_is_refused(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let refused = member.log.append(member.writer(), 1, &vec![7; ENTRY_BYTES_MAX + 1]).await;
    assert!(matches!(refused, Appended::Refused(LogError::Damaged { .. })), "{refused:?}");
    assert_eq!(member.log.head().await.unwrap(), 0);
    assert_eq!(member.append(&vec![7; ENTRY_BYTES_MAX]).await.index, 1);
}

/// A read index covers every append that was acknowledged before it began, by
/// whichever process.
pub async fn the_head_is_never_below_what_was_acknowledged(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let (acknowledged, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writing = tokio::spawn({
        let (acknowledged, over) = (acknowledged.clone(), over.clone());
        async move {
            for _ in 0..100 {
                let entry = member.append(b"x").await;
                acknowledged.store(entry.index, Ordering::SeqCst);
            }
            over.store(true, Ordering::SeqCst);
        }
    });
    let reader = harness.open().await;
    let mut last = 0;
    while !over.load(Ordering::SeqCst) {
        let before = acknowledged.load(Ordering::SeqCst).max(last);
        last = reader.head().await.unwrap();
        assert!(last >= before, "head {last} after {before}");
    }
    writing.await.unwrap();
    assert_eq!(reader.head().await.unwrap(), 100);
}

/// Without its head a log can number nothing: it refuses instead of starting
/// anew, and says so to readers too.
pub async fn a_log_without_head_takes_no_writes(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let entry = member.append(b"one").await;
    harness.lose_head().await;
    for seq in [entry.seq, entry.seq + 1] {
        let refused = member.log.append(entry.writer, seq, b"two").await;
        assert!(matches!(refused, Appended::HeadGone), "{refused:?}");
    }
    let errors = [member.log.head().await.unwrap_err(), member.log.catch_up(0).await.unwrap_err()];
    for error in errors {
        assert!(matches!(&error, LogError::Damaged { what } if what.contains("head is gone")), "{error:?}");
    }
}

/// Once a snapshot covers an entry the log no longer knows its (writer, seq),
/// so a late try of the same append lands a second time, behind everything.
/// Replicas ignore it by the last seq of its writer in their state; that it has
/// a place of its own, and an index like any other, is all that the log does.
pub async fn a_truncated_entry_may_land_again(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let entries = member.append_many(5).await;
    let epoch = member.log.campaign(member.writer()).await.unwrap().unwrap();
    member.log.install_snapshot(epoch, 5, b"state", &[(member.writer(), 5)]).await.unwrap();
    let again = member.log.append(member.writer(), 3, &entries[2].bytes).await;
    assert!(matches!(again, Appended::Landed { index: 6 }), "{again:?}");
    let caught_up = member.log.catch_up(0).await.unwrap();
    let places: BTreeSet<_> = caught_up.entries.iter().map(|entry| (entry.index, entry.seq)).collect();
    assert_eq!(places, BTreeSet::from([(6, 3)]));
}
