//! Catching up and following.

use std::time::Duration;

use futures::future::join_all;
use muster_protocol::caps::ENTRY_BYTES_MAX;

use super::{Harness, Member, follow_to};

/// Several processes find an empty keyspace at once: all get the same log.
pub async fn a_log_is_created_once(harness: &dyn Harness) {
    let logs = join_all((0..6).map(|_| harness.open())).await;
    let identities = join_all(logs.iter().map(|log| log.identity())).await;
    let first = *identities[0].as_ref().unwrap();
    for identity in identities {
        assert_eq!(identity.unwrap(), first);
    }
    assert_eq!(logs[0].identity().await.unwrap(), first);
    assert_eq!(logs[1].head().await.unwrap(), 0);
    let caught_up = logs[2].catch_up(0).await.unwrap();
    assert_eq!((caught_up.snapshot, caught_up.entries, caught_up.head), (None, vec![], 0));
}

/// From the start, from the middle, from the end, after a snapshot.
pub async fn catching_up_gives_what_followers_saw(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let start = member.log.catch_up(0).await.unwrap();
    let mut follow = member.log.follow(start.position).await.unwrap();
    member.append_many(20).await;
    let seen = follow_to(&mut follow, 20).await;
    assert!(seen.iter().map(|entry| entry.index).eq(1..=20));
    for applied in [0, 1, 7, 19, 20] {
        let caught_up = member.log.catch_up(applied).await.unwrap();
        let after = usize::try_from(applied).unwrap();
        assert_eq!(caught_up.entries, seen[after..], "after {applied}");
        assert_eq!((caught_up.head, caught_up.snapshot), (20, None));
    }
    let epoch = member.log.campaign(member.writer()).await.unwrap().unwrap();
    member.log.install_snapshot(epoch, 8, b"state", &[(member.writer(), 8)]).await.unwrap();
    for (applied, snapshot, after) in [(0, true, 8), (7, true, 8), (8, false, 8), (15, false, 15), (20, false, 20)] {
        let caught_up = member.log.catch_up(applied).await.unwrap();
        assert_eq!(caught_up.entries, seen[after..], "after {applied}");
        assert_eq!(caught_up.snapshot, snapshot.then(|| b"state".to_vec()), "after {applied}");
        assert_eq!(caught_up.head, 20);
    }
}

/// Followers that begin while others append: what they caught up with and what
/// they then follow is everything, once, in order.
pub async fn following_misses_nothing(harness: &dyn Harness) {
    let members = join_all((0..3).map(|_| Member::join(harness))).await;
    let logs: Vec<_> = members.iter().map(|member| member.log.clone()).collect();
    let writing: Vec<_> = members
        .into_iter()
        .map(|mut member| {
            tokio::spawn(async move {
                let entries = member.append_many(80).await;
                (member, entries)
            })
        })
        .collect();
    let followers = logs.into_iter().cycle().take(9).enumerate().map(|(nth, log)| {
        tokio::spawn(async move {
            // Begin at different places of the run.
            while log.head().await.unwrap() < u64::try_from(nth).unwrap() * 20 {}
            let caught_up = log.catch_up(0).await.unwrap();
            let mut follow = log.follow(caught_up.position).await.unwrap();
            let mut seen = caught_up.entries;
            if caught_up.head < 240 {
                seen.extend(follow_to(&mut follow, 240).await);
            }
            seen
        })
    });
    let seen = join_all(followers).await;
    let done = join_all(writing).await;
    let mut entries: Vec<_> = done.into_iter().flat_map(|done| done.unwrap().1).collect();
    entries.sort_by_key(|entry| entry.index);
    assert_eq!(entries.len(), 240);
    for seen in seen {
        assert_eq!(seen.unwrap(), entries);
    }
}

/// A follower that has everything sleeps, and an append wakes it.
pub async fn a_follower_that_waits_is_woken(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let position = member.log.catch_up(0).await.unwrap().position;
    let mut follow = harness.open().await.follow(position).await.unwrap();
    for _ in 0..3 {
        let mut next = follow.next();
        // Long enough for it to find nothing and wait.
        let early = tokio::time::timeout(Duration::from_millis(100), next.as_mut()).await;
        assert!(early.is_err(), "nothing was appended: {early:?}");
        let entry = member.append(b"wake").await;
        assert_eq!(next.await.unwrap(), [entry]);
    }
}

/// Truncation is no event for who follows.
pub async fn a_follower_goes_on_over_a_snapshot(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let position = member.log.catch_up(0).await.unwrap().position;
    let mut follow = member.log.follow(position).await.unwrap();
    let mut entries = member.append_many(10).await;
    let mut seen = follow_to(&mut follow, 10).await;
    let epoch = member.log.campaign(member.writer()).await.unwrap().unwrap();
    member.log.install_snapshot(epoch, 10, b"state", &[(member.writer(), 10)]).await.unwrap();
    entries.extend(member.append_many(5).await);
    seen.extend(follow_to(&mut follow, 15).await);
    assert_eq!(seen, entries);
}

/// A process that comes later, with a snapshot between, reads the same bytes.
pub async fn every_process_sees_the_same(harness: &dyn Harness) {
    let mut first = Member::join(harness).await;
    first.append_many(12).await;
    let epoch = first.log.campaign(first.writer()).await.unwrap().unwrap();
    first.log.install_snapshot(epoch, 9, b"state at 9", &[(first.writer(), 9)]).await.unwrap();
    let mut second = Member::join(harness).await;
    second.append_many(4).await;
    first.append_many(4).await;
    assert_eq!(first.log.identity().await.unwrap(), second.log.identity().await.unwrap());
    let (here, there) = (first.log.catch_up(0).await.unwrap(), second.log.catch_up(0).await.unwrap());
    assert_eq!((here.snapshot, here.entries, here.head), (there.snapshot, there.entries.clone(), there.head));
    assert!(there.entries.iter().map(|entry| entry.index).eq(10..=20));
}

/// More than one message of the store holds, both listed and followed.
pub async fn large_entries_are_read_whole(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let position = member.log.catch_up(0).await.unwrap().position;
    let mut entries = Vec::new();
    for fill in 0..70 {
        entries.push(member.append(&vec![fill; ENTRY_BYTES_MAX]).await);
    }
    let caught_up = member.log.catch_up(0).await.unwrap();
    assert!(caught_up.entries == entries, "all that was appended is listed");
    let mut follow = member.log.follow(position).await.unwrap();
    assert!(follow_to(&mut follow, 70).await == entries, "all that was appended is followed");
}
