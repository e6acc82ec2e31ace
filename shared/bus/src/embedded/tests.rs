//! The suite, and what only this adapter does.

use super::*;
use crate::conformance::{Subject, closed, region, report};

#[async_trait]
impl Subject for Embedded {
    async fn bus(&self) -> Arc<dyn Bus> {
        Arc::new(self.clone())
    }

    async fn put_up(&self, region: &RegionName, bytes: &[u8]) {
        self.inject_up(region, bytes.to_vec()).await.unwrap();
    }

    async fn put_down(&self, bytes: &[u8]) {
        self.inject_down(bytes.to_vec());
    }
}

mod suite {
    crate::conformance_suite!(crate::embedded::Embedded::new(1024));
}

async fn numbers(follower: &mut dyn Down, count: usize) -> Vec<i64> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(follower.next().await.unwrap().place.offset);
    }
    numbers
}

async fn send(bus: &Embedded, count: usize) {
    for _ in 0..count {
        bus.send_down(vec![(closed("etl/map", 1), Headers::new())]).await.unwrap();
    }
}

#[tokio::test]
async fn a_follower_that_lags_is_told_to_follow_anew() {
    let bus = Embedded::new(4);
    let mut follower = bus.follow_down().await.unwrap();
    send(&bus, 10).await;
    let error = follower.next().await.unwrap_err();
    assert!(matches!(error, BusError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("too slow"), "{error}");
}

#[tokio::test]
async fn a_follower_hears_that_the_bus_has_ended() {
    let bus = Embedded::new(4);
    let mut follower = bus.follow_down().await.unwrap();
    drop(bus);
    assert!(matches!(follower.next().await, Err(BusError::Unavailable { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_holds_the_sender_back_then_refuses() {
    let bus = Embedded::new(1);
    let mut member = bus.join_up(&[region("us-east")]).await.unwrap();
    let (first, second) = (report("us-east", "etl/map", 1), report("us-east", "etl/map", 2));
    bus.send_up(&first, Headers::new()).await.unwrap();
    let error = bus.send_up(&second, Headers::new()).await.unwrap_err();
    assert!(error.to_string().contains("muster.region.us-east has had no room"), "{error}");
    // Room that comes in time is taken.
    let (sent, batch) = tokio::join!(bus.send_up(&second, Headers::new()), member.next_batch(1));
    sent.unwrap();
    assert_eq!(batch.unwrap()[0].content, Ok(first));
    assert_eq!(member.next_batch(1).await.unwrap()[0].content, Ok(second));
}

#[tokio::test]
async fn a_sender_that_waits_for_a_member_that_leaves_is_freed() {
    let bus = Embedded::new(1);
    let member = bus.join_up(&[region("us-east")]).await.unwrap();
    bus.send_up(&report("us-east", "etl/map", 1), Headers::new()).await.unwrap();
    let sender = bus.clone();
    let waiting = tokio::spawn(async move { sender.send_up(&report("us-east", "etl/map", 2), Headers::new()).await });
    tokio::task::yield_now().await;
    drop(member);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn faults_do_what_they_are_told() {
    let bus = Embedded::new(64);
    for (faults, expected) in [
        (Faults { drop_every: 3, ..Faults::default() }, vec![0, 1, 3, 4]),
        (Faults { duplicate_every: 2, ..Faults::default() }, vec![6, 7, 7, 8, 9, 9, 10, 11, 11]),
        (Faults { reorder_every: 3, ..Faults::default() }, vec![12, 13, 15, 14, 16]),
        // The one that was held back comes after all.
        (Faults::default(), vec![18, 17, 19, 20, 21, 22, 23]),
    ] {
        bus.set_faults(faults);
        let mut follower = bus.follow_down().await.unwrap();
        send(&bus, 6).await;
        assert_eq!(numbers(&mut *follower, expected.len()).await, expected, "{faults:?}");
    }
}
