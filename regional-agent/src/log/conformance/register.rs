//! Registrations.

use std::time::Duration;

use super::{Harness, Member, new_registration};
use crate::log::{Appended, Registration};

/// Who is registered, with what it said of itself, seen by every process.
pub async fn registrations_are_listed(harness: &dyn Harness) {
    let log = harness.open().await;
    assert_eq!(log.registrations().await.unwrap(), []);
    let (one, mut two) = (new_registration("one"), new_registration("two"));
    two.address = "http://10.0.0.2:7171".to_owned();
    two.machine_version = 7;
    let mut kept = Vec::new();
    let mut expected = Vec::new();
    for new in [one, two] {
        let registered = log.register(new.clone()).await.unwrap();
        expected.push(Registration {
            writer: registered.writer(),
            agent: new.agent,
            address: new.address,
            machine_version: new.machine_version,
        });
        kept.push(registered);
    }
    assert!(kept[0].writer() < kept[1].writer(), "writers grow");
    let mut listed = harness.open().await.registrations().await.unwrap();
    listed.sort_by_key(|registration| registration.writer);
    assert_eq!(listed, expected);
}

/// A living instance can't be registered over: its writer would become the
/// predecessor of a process that is not its successor.
pub async fn an_instance_registers_once(harness: &dyn Harness) {
    let log = harness.open().await;
    let new = new_registration("agent");
    let first = log.register(new.clone()).await.unwrap();
    let refused = log.register(new.clone()).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("registered already")));
    let listed = log.registrations().await.unwrap();
    assert_eq!(listed.iter().map(|one| one.writer).collect::<Vec<_>>(), [first.writer()]);
}

/// Ended from outside: it is told, its lease proves nothing, and nothing of it
/// lands, be it new or there already.
pub async fn an_expelled_writer_lands_nothing_more(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    assert!(member.registered.proven_for() > Duration::ZERO);
    member.append(b"one").await;
    harness.expel(member.writer()).await;
    member.registered.lost().await;
    assert_eq!(member.registered.proven_for(), Duration::ZERO);
    lands_nothing_more(harness, &member).await;
}

/// Given up by itself, which is at once.
pub async fn a_released_writer_lands_nothing_more(harness: &dyn Harness) {
    let mut member = Member::join(harness).await;
    member.append(b"one").await;
    member.registered.release().await;
    member.registered.lost().await;
    assert_eq!(member.registered.proven_for(), Duration::ZERO);
    lands_nothing_more(harness, &member).await;
}

async fn lands_nothing_more(harness: &dyn Harness, gone: &Member) {
    for seq in [gone.seq(), gone.seq() + 1] {
        let refused = gone.log.append(gone.writer(), seq, b"late").await;
        assert!(matches!(refused, Appended::WriterGone), "{seq}: {refused:?}");
    }
    assert_eq!(gone.log.head().await.unwrap(), 1);
    assert_eq!(gone.log.registrations().await.unwrap(), []);
    let mut successor = Member::join(harness).await;
    assert!(successor.writer() > gone.writer(), "no writer comes twice");
    assert_eq!(successor.append(b"two").await.index, 2);
}
