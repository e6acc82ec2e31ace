//! Another life of a log whose head was lost.

use muster_protocol::identity::History;

use super::{Harness, Member, follow_to};
use crate::log::{Appended, LogError, Rebirth, Salvage};

fn rebirth(base: u64) -> Rebirth {
    Rebirth { history: History([9; 16]), base, snapshot: vec![7; 1_300_000] }
}

/// The head is not asked: what is there is given, numbered as it was.
pub async fn what_is_left_is_read_without_the_head(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    let history = Some(member.log.identity().await.unwrap().history);
    let nothing = member.log.salvage().await.unwrap();
    assert_eq!(nothing, Salvage { history, snapshot: None, entries: Vec::new() });
    let mut entries = member.append_many(6).await;
    assert_eq!(member.log.salvage().await.unwrap().entries, entries);
    let epoch = member.log.campaign(member.writer()).await.unwrap().unwrap();
    member.log.install_snapshot(epoch, 4, b"at 4", &[(member.writer(), 4)]).await.unwrap();
    harness.lose_head().await;
    let left = Salvage { history, snapshot: Some(b"at 4".to_vec()), entries: entries.split_off(4) };
    assert_eq!(harness.open().await.salvage().await.unwrap(), left);
}

/// Nothing of the old life is read or can land; the first entry follows the
/// base, so that no index comes twice.
pub async fn another_life_begins_where_it_is_told(harness: &dyn Harness) {
    let mut old = Member::join(harness).await;
    let entries = old.append_many(6).await;
    harness.lose_head().await;
    let log = harness.open().await;
    log.begin_anew(&rebirth(100)).await.unwrap();

    let log = harness.open().await;
    assert_eq!(log.identity().await.unwrap().history, History([9; 16]));
    let caught_up = log.catch_up(0).await.unwrap();
    assert_eq!((caught_up.head, caught_up.entries.len()), (100, 0));
    assert_eq!(caught_up.snapshot, Some(rebirth(100).snapshot));
    for seq in [entries[5].seq, entries[5].seq + 1] {
        let refused = old.log.append(old.writer(), seq, b"late").await;
        assert!(matches!(refused, Appended::HeadGone | Appended::WriterGone), "{refused:?}");
    }

    let mut new = Member::join(harness).await;
    let mut follow = log.follow(caught_up.position).await.unwrap();
    let landed = new.append_many(3).await;
    assert_eq!(landed[0].index, 101);
    assert_eq!(follow_to(&mut follow, 103).await, landed);
    let epoch = new.log.campaign(new.writer()).await.unwrap().unwrap();
    new.log.install_snapshot(epoch, 102, b"at 102", &[(new.writer(), 2)]).await.unwrap();
    let caught_up = harness.open().await.catch_up(0).await.unwrap();
    assert_eq!((caught_up.snapshot, caught_up.entries), (Some(b"at 102".to_vec()), landed[2..].to_vec()));
}

/// A log that was recovered can be recovered again.
pub async fn a_recovered_log_is_recovered_again(harness: &dyn Harness) {
    let log = harness.open().await;
    log.identity().await.unwrap();
    log.begin_anew(&rebirth(100)).await.unwrap();
    let mut member = Member::join(harness).await;
    let entry = member.append(b"one").await;
    harness.lose_head().await;
    let left = harness.open().await.salvage().await.unwrap();
    assert_eq!((left.history, left.entries), (Some(History([9; 16])), vec![entry]));
    let again = Rebirth { history: History([8; 16]), ..rebirth(101) };
    harness.open().await.begin_anew(&again).await.unwrap();
    let log = harness.open().await;
    assert_eq!((log.identity().await.unwrap().history, log.head().await.unwrap()), (again.history, 101));
    let mut member = Member::join(harness).await;
    assert_eq!(member.append(b"two").await.index, 102);
    let gone: Result<_, LogError> = log.catch_up(101).await;
    assert_eq!(gone.unwrap().entries.len(), 1);
}
