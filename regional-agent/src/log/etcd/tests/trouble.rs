//! Members that are down, hang or come back, and leases that run out.

use std::cell::Cell;
use std::time::Instant;

use muster_protocol::lease::LeaseClock;

use super::link::{Link, until};
use super::*;

/// Nobody listens there.
const DOWN: &str = "http://127.0.0.1:1";

#[tokio::test]
async fn with_members_down_nothing_is_seen_of_it() {
    let region = Region::new().await;
    let url = region.url();
    let log = region.etcd_with(|options| options.endpoints = vec![DOWN.to_owned(), url, DOWN.to_owned()]).await;
    let mut member = region.member_of(&log).await;
    member.append_many(20).await;
    assert_eq!(log.head().await.unwrap(), 20);
    assert_eq!(log.catch_up(0).await.unwrap().entries.len(), 20);
}

#[tokio::test]
async fn a_member_that_dies_or_hangs_is_left_for_another() {
    let region = Region::new().await;
    for trouble in [Link::cut, Link::hang] {
        let (first, second) = (Link::to(&region.url()).await, Link::to(&region.url()).await);
        let endpoints = vec![first.url.clone(), second.url.clone()];
        let log = region
            .etcd_with(|options| {
                options.endpoints = endpoints;
                options.request_timeout_ms = 500;
            })
            .await;
        let mut member = region.member_of(&log).await;
        let head = member.append(b"by the first").await.index;
        trouble(&first);
        // Sent to both: the first may have carried it out, the second says so.
        let appended = log.append(member.writer(), 2, b"by the second").await;
        assert!(matches!(appended, Appended::Landed { .. } | Appended::AlreadyThere), "{appended:?}");
        assert_eq!(log.head().await.unwrap(), head + 1);
        first.open();
        trouble(&second);
        assert_eq!(log.head().await.unwrap(), head + 1);
    }
}

#[tokio::test]
async fn an_append_without_an_answer_is_unknown_and_lands_once() {
    let region = Region::new().await;
    let link = Link::to(&region.url()).await;
    let endpoint = link.url.clone();
    let log = region
        .etcd_with(|options| {
            options.endpoints = vec![endpoint];
            options.request_timeout_ms = 300;
        })
        .await;
    let mut member = region.member_of(&log).await;
    member.append(b"one").await;
    link.hang();
    let unknown = log.append(member.writer(), 2, b"two").await;
    assert!(matches!(unknown, Appended::Unknown(_)), "{unknown:?}");
    // Cut, so that what hangs does not arrive behind the next try.
    link.cut();
    link.open();
    until("the append lands", async || {
        let appended = log.append(member.writer(), 2, b"two").await;
        matches!(appended, Appended::Landed { index: 2 } | Appended::AlreadyThere)
    })
    .await;
    assert_eq!(log.head().await.unwrap(), 2);
}

#[tokio::test]
async fn a_connection_that_the_network_lost_is_replaced() {
    let region = Region::new().await;
    let link = Link::to(&region.url()).await;
    let endpoint = link.url.clone();
    let log = region
        .etcd_with(|options| {
            options.endpoints = vec![endpoint];
            options.request_timeout_ms = 500;
        })
        .await;
    let registered = register(&log, 9).await;
    assert!(matches!(log.append(registered.writer(), 1, b"one").await, Appended::Landed { .. }));
    link.lose();
    assert!(matches!(log.append(registered.writer(), 2, b"two").await, Appended::Unknown(_)));
    until("requests get through", async || log.head().await.is_ok()).await;
    acknowledged(&*registered).await;
    assert_eq!(log.registrations().await.unwrap().len(), 1, "it never ran out");
    assert!(!matches!(log.append(registered.writer(), 2, b"two").await, Appended::Unknown(_)));
}

#[tokio::test]
async fn a_watch_that_hangs_ends_and_one_that_is_idle_does_not() {
    let region = Region::new().await;
    let link = Link::to(&region.url()).await;
    let endpoint = link.url.clone();
    let log = region
        .etcd_with(|options| {
            options.endpoints = vec![endpoint];
            (options.watch_idle_ms, options.watch_answer_ms) = (200, 2_000);
        })
        .await;
    let mut member = region.member_of(&log).await;
    let caught_up = log.catch_up(0).await.unwrap();
    let mut follow = log.follow(caught_up.position).await.unwrap();
    // Questioned several times, hence answered, and then as good as new.
    let before = log.requests().watch;
    tokio::select! {
        ended = follow.next() => panic!("an idle watch gave {ended:?}"),
        () = until("it is questioned", async || log.requests().watch >= before + 4) => {}
    }
    let entry = member.append(b"one").await;
    assert_eq!(follow_to(&mut follow, 1).await, [entry]);
    link.hang();
    let ended = tokio::time::timeout(Duration::from_secs(20), follow.next()).await;
    let error = ended.expect("a hanging watch ends").unwrap_err();
    // By its own question, long before a ping finds out.
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("did not answer within 2s"), "{cause}");
}

#[tokio::test]
async fn a_watch_that_is_cut_ends() {
    let region = Region::new().await;
    let link = Link::to(&region.url()).await;
    let endpoint = link.url.clone();
    let log = region.etcd_with(|options| options.endpoints = vec![endpoint]).await;
    let position = log.catch_up(0).await.unwrap().position;
    let mut follow = log.follow(position).await.unwrap();
    link.cut();
    let ended = tokio::time::timeout(Duration::from_secs(20), follow.next()).await;
    assert!(ended.expect("a cut watch ends").is_err());
}

#[tokio::test]
async fn a_lease_is_kept_alive_over_the_death_of_members() {
    let region = Region::new().await;
    let (first, second) = (Link::to(&region.url()).await, Link::to(&region.url()).await);
    let endpoints = vec![first.url.clone(), second.url.clone()];
    let log = region.etcd_with(|options| options.endpoints = endpoints).await;
    let registered = register(&log, 9).await;
    for (down, up) in [(&first, &second), (&second, &first)] {
        up.open();
        down.cut();
        acknowledged(&*registered).await;
    }
    assert_eq!(log.registrations().await.unwrap().len(), 1, "it never ran out");
}

#[tokio::test]
async fn a_lease_that_can_not_be_kept_alive_stops_being_proven_before_it_runs_out() {
    let region = Region::new().await;
    let link = Link::to(&region.url()).await;
    let endpoint = link.url.clone();
    let log = region
        .etcd_with(|options| {
            options.endpoints = vec![endpoint];
            options.request_timeout_ms = 500;
        })
        .await;
    let registered = register(&log, 4).await;
    assert!(registered.proven_for() <= Duration::from_secs(4) - LeaseClock::MARGIN);
    let beside = region.etcd().await;
    link.hang();
    until("the lease is not proven", async || registered.proven_for().is_zero()).await;
    assert_eq!(beside.registrations().await.unwrap().len(), 1, "the margin comes first");
    until("the lease runs out", async || beside.registrations().await.unwrap().is_empty()).await;
    link.cut();
    link.open();
    registered.lost().await;
}

/// An answer that took long proves little: the lease counts from the question.
#[tokio::test]
async fn a_lease_is_proven_from_when_its_keep_alive_was_sent() {
    let region = Region::new().await;
    let link = Link::to(&region.url()).await;
    let endpoint = link.url.clone();
    let log = region.etcd_with(|options| options.endpoints = vec![endpoint]).await;
    let ttl = Duration::from_secs(9);
    let registered = register(&log, ttl.as_secs()).await;
    link.hang();
    let sent = log.requests().lease;
    until("a keep-alive is on its way", async || log.requests().lease > sent).await;
    let late = Instant::now();
    // Of the second and a half that it waits for the answer.
    until("the answer is late", async || late.elapsed() > Duration::from_millis(500)).await;
    let before = registered.proven_for();
    link.open();
    until("it is answered", async || registered.proven_for() > before).await;
    let (proven, late) = (registered.proven_for(), late.elapsed());
    assert!(proven + late <= ttl - LeaseClock::MARGIN, "{proven:?} is proven {late:?} after it was sent");
}

#[tokio::test]
async fn a_dropped_registration_runs_out() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let registered = register(&log, 2).await;
    let writer = registered.writer();
    drop(registered);
    until("it runs out", async || log.registrations().await.unwrap().is_empty()).await;
    assert!(matches!(log.append(writer, 1, b"late").await, Appended::WriterGone));
}

#[tokio::test]
async fn a_deleted_agent_key_is_a_loss_once_it_is_found() {
    let region = Region::new().await;
    let log = region.etcd().await;
    let member = region.member_of(&log).await;
    let agents = GetOptions::new().with_prefix();
    let key = region.raw.kv_client().get(region.keys.agents(), Some(agents)).await.unwrap().kvs()[0].key().to_vec();
    region.raw.kv_client().delete(key, None).await.unwrap();
    assert_eq!(log.campaign(member.writer()).await.unwrap(), None, "nor can it lead, although its lease lives");
    assert!(matches!(log.append(member.writer(), 1, b"one").await, Appended::WriterGone));
    member.registered.lost().await;
    assert_eq!(member.registered.proven_for(), Duration::ZERO);
}

#[tokio::test]
async fn a_writer_of_another_process_is_refused() {
    let region = Region::new().await;
    let (log, other) = (region.etcd().await, region.etcd().await);
    let member = region.member_of(&log).await;
    let refused = other.append(member.writer(), 1, b"one").await;
    assert!(matches!(refused, Appended::Refused(_)), "{refused:?}");
    assert_eq!(other.campaign(member.writer()).await.unwrap(), None);
}

#[tokio::test]
async fn an_etcd_that_is_down_is_named() {
    let region = Region::new().await;
    let log = region.etcd_with(|options| options.endpoints = vec![DOWN.to_owned()]).await;
    let error = log.identity().await.unwrap_err();
    assert_eq!(error.to_string(), "the region's log does not answer: read who the log is");
    let cause = std::error::Error::source(&error).unwrap();
    assert_eq!(cause.to_string(), format!("etcd at {DOWN} gave an error"));
}

/// Waits for one more answer to a keep-alive: the proof grows by nothing else.
async fn acknowledged(registered: &dyn Registered) {
    let last = Cell::new(registered.proven_for());
    until("a keep-alive is answered", async || {
        let now = registered.proven_for();
        assert!(!now.is_zero(), "in time, while it is proven by the last one");
        now > last.replace(now)
    })
    .await;
}

async fn register(log: &Etcd, ttl_seconds: u64) -> Box<dyn Registered> {
    let lease_ttl = Duration::from_secs(ttl_seconds);
    log.register(NewRegistration { lease_ttl, ..new_registration("agent") }).await.unwrap()
}
