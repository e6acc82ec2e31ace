//! What goes down.

use std::collections::BTreeMap;

use muster_protocol::fact::Fact;
use muster_wire::record::Downward;

use super::samples::{closed, downward_of_every_kind, region};
use super::{Subject, in_time};
use crate::{Down, Headers, Received};

const BARRIERS: [&str; 5] = ["etl/map", "etl/shuffle", "etl/reduce", "ml/step", "ops/deploy"];

/// Every follower sees all that is sent after following began, in the order
/// sent for each barrier, and nothing that was sent before.
pub async fn every_follower_sees_what_is_sent_from_then_on(subject: &dyn Subject) {
    const LAST: u64 = 40;
    let (sender, other) = (subject.bus().await, subject.bus().await);
    sender.prepare(&[]).await.expect("prepare");
    // Nobody follows yet: these are gone for good.
    sender.send_down(BARRIERS.map(|barrier| plain(closed(barrier, 1))).to_vec()).await.expect("sent before");
    let mut followers = Vec::new();
    for bus in [&sender, &other, &other] {
        followers.push(bus.follow_down().await.expect("follow"));
    }
    for first in (2..=LAST).step_by(3) {
        let numbers = first..=LAST.min(first + 2);
        let batch = numbers.flat_map(|n| BARRIERS.map(|barrier| plain(closed(barrier, n)))).collect();
        sender.send_down(batch).await.expect("sent after");
    }
    for follower in &mut followers {
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
        while seen.len() < BARRIERS.len() || seen.values().any(|&n| n < LAST) {
            let (barrier, n) =
                number(&in_time("a fact sent after following began", follower.next()).await.expect("next"));
            let last = seen.insert(barrier.clone(), n);
            assert_eq!(n, last.map_or(2, |last| last + 1), "{barrier} after {last:?}");
        }
    }
}

/// Following again is following from now, wherever an earlier follower was.
pub async fn following_again_starts_at_the_end(subject: &dyn Subject) {
    let bus = subject.bus().await;
    bus.prepare(&[]).await.expect("prepare");
    let follower = bus.follow_down().await.expect("follow");
    bus.send_down(vec![plain(closed("etl/map", 1))]).await.expect("sent to the first");
    drop(follower);
    let mut follower = bus.follow_down().await.expect("follow again");
    bus.send_down(vec![plain(closed("etl/map", 2))]).await.expect("sent to the second");
    assert_eq!(number(&next(&mut *follower).await), ("etl/map".to_owned(), 2));
}

/// Every kind of record comes as it was sent, with what travels with it.
pub async fn downward_kinds_and_headers_arrive(subject: &dyn Subject) {
    let bus = subject.bus().await;
    bus.prepare(&[]).await.expect("prepare");
    let mut follower = bus.follow_down().await.expect("follow");
    for (number, sent) in downward_of_every_kind("us-east").into_iter().enumerate() {
        let headers = headers(number);
        bus.send_down(vec![(sent.clone(), headers.clone())]).await.expect("send");
        let received = next(&mut *follower).await;
        assert_eq!(received.headers, headers);
        assert!(received.place.topic.ends_with(".global") && received.place.offset >= 0, "{:?}", received.place);
        assert_eq!(received.content.expect("readable"), sent);
    }
    bus.send_down(Vec::new()).await.expect("nothing to send is sent");
}

/// Bytes that nobody can read come out as such, and block nothing.
pub async fn downward_poison_is_set_aside(subject: &dyn Subject) {
    let bus = subject.bus().await;
    bus.prepare(&[region("us-east")]).await.expect("prepare");
    let mut follower = bus.follow_down().await.expect("follow");
    for bytes in [&b"\xff\x00"[..], b"", br#"{"v":2,"kind":"fact","body":{}}"#] {
        subject.put_down(bytes).await;
        let received = next(&mut *follower).await;
        let poison = received.content.expect_err("nobody can read that");
        assert_eq!(poison.bytes, bytes);
        assert!(!poison.error.is_empty() && received.place.topic.ends_with(".global"));
    }
    bus.send_down(vec![plain(closed("etl/map", 1))]).await.expect("send");
    assert_eq!(number(&next(&mut *follower).await), ("etl/map".to_owned(), 1));
}

/// Two headers that differ from record to record.
pub(super) fn headers(number: usize) -> Headers {
    let traceparent = format!("00-0af7651916cd43dd8448eb211c80319c-{number:016x}-01");
    Headers::from([("traceparent".to_owned(), traceparent), ("tracestate".to_owned(), String::new())])
}

async fn next(follower: &mut dyn Down) -> Received<Downward> {
    in_time("what was sent down", follower.next()).await.expect("next")
}

fn plain(message: Downward) -> (Downward, Headers) {
    (message, Headers::new())
}

fn number(received: &Received<Downward>) -> (String, u64) {
    match &received.content {
        Ok(Downward::Fact(Fact::Closed(closed))) => (closed.generation.barrier.to_string(), closed.generation.n),
        other => panic!("not what was sent: {other:?}"),
    }
}
