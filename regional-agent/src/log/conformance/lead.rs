//! Election of the leader.

use futures::future::join_all;

use super::{Harness, Member};

/// Of several candidates one leads, and hears the same epoch again.
pub async fn one_of_several_leads(harness: &dyn Harness) {
    let members = join_all((0..4).map(|_| Member::join(harness))).await;
    let stand = || join_all(members.iter().map(|member| member.log.campaign(member.writer())));
    let first: Vec<_> = stand().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(first.iter().flatten().count(), 1, "{first:?}");
    let again: Vec<_> = stand().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(first, again);
}

/// A leader that steps down is followed at once, by a greater epoch; an old
/// epoch can't depose the new one.
pub async fn resigning_hands_over(harness: &dyn Harness) {
    let (one, two) = (Member::join(harness).await, Member::join(harness).await);
    let first = one.log.campaign(one.writer()).await.unwrap().unwrap();
    assert_eq!(two.log.campaign(two.writer()).await.unwrap(), None);
    one.log.resign(one.writer(), first).await.unwrap();
    let second = two.log.campaign(two.writer()).await.unwrap().unwrap();
    assert!(second > first);
    one.log.resign(one.writer(), first).await.unwrap();
    assert_eq!(one.log.campaign(one.writer()).await.unwrap(), None);
    assert_eq!(two.log.campaign(two.writer()).await.unwrap(), Some(second));
}

/// Leadership ends with the registration, and who is not registered can't win.
pub async fn a_lost_leader_is_followed(harness: &dyn Harness) {
    let (one, two) = (Member::join(harness).await, Member::join(harness).await);
    let first = one.log.campaign(one.writer()).await.unwrap().unwrap();
    harness.expel(one.writer()).await;
    assert_eq!(one.log.campaign(one.writer()).await.unwrap(), None);
    let second = two.log.campaign(two.writer()).await.unwrap().unwrap();
    assert!(second > first);
    two.registered.release().await;
    assert_eq!(two.log.campaign(two.writer()).await.unwrap(), None);
}
