//! What comes up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_wire::record::Upward;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::down::headers;
use super::samples::{region, report, upward_of_every_kind};
use super::{DEADLINE, Subject, in_time};
use crate::{Bus, BusError, Headers, Received, Up};

const REGIONS: [&str; 3] = ["us-east", "eu-west", "ap-south"];

/// How long a sender waits before it says again what has not been heard.
const REPEAT_AFTER: Duration = Duration::from_millis(500);

/// A region may speak before anybody listens, as long as it repeats itself.
pub async fn reports_arrive_however_early_they_are_sent(subject: &dyn Subject) {
    let bus = prepared(subject).await;
    let early: Vec<Upward> = REGIONS.iter().map(|region| report(region, "etl/map", 1)).collect();
    for message in &early {
        bus.send_up(message, Headers::new()).await.expect("sent with nobody there");
    }
    let mut member = join(&bus).await;
    let late: Vec<Upward> = REGIONS.iter().map(|region| report(region, "etl/map", 2)).collect();
    for message in [early, late].concat() {
        heard(&bus, &mut *member, &message, &Headers::new()).await;
    }
}

/// Every kind of record comes as it was sent, with what travels with it.
pub async fn upward_kinds_and_headers_arrive(subject: &dyn Subject) {
    let bus = prepared(subject).await;
    let mut member = join(&bus).await;
    for (number, sent) in upward_of_every_kind("eu-west").into_iter().enumerate() {
        let received = heard(&bus, &mut *member, &sent, &headers(number)).await;
        assert_eq!(received.headers, headers(number));
        assert!(received.place.topic.ends_with(".region.eu-west"), "{:?}", received.place);
    }
}

/// Bytes that nobody can read come out as such, and block nothing.
pub async fn upward_poison_is_set_aside(subject: &dyn Subject) {
    let bus = prepared(subject).await;
    let mut member = join(&bus).await;
    for bytes in [&b"\xff\x00"[..], b"", br#"{"v":2,"kind":"report","body":{}}"#] {
        let received = repeat(
            async || subject.put_up(&region("eu-west"), bytes).await,
            &mut *member,
            |one| one.content.as_ref().is_err_and(|poison| poison.bytes == bytes),
        )
        .await;
        assert!(received.place.topic.ends_with(".region.eu-west"), "{:?}", received.place);
        assert!(received.content.is_err_and(|poison| !poison.error.is_empty()));
    }
    heard(&bus, &mut *member, &report("eu-west", "etl/map", 1), &Headers::new()).await;
}

/// Two members share the work, and what the regions say of one barrier meets
/// in one of them. While members come and go it need not: so rounds are sent
/// until one is whole.
pub async fn members_share_by_barrier(subject: &dyn Subject) {
    let bus = prepared(subject).await;
    let (sink, mut heard) = mpsc::channel(1024);
    let mut tasks = Vec::new();
    for name in 0..2 {
        let mut member = join(&subject.bus().await).await;
        let sink = sink.clone();
        tasks.push(tokio::spawn(async move {
            while let Ok(batch) = member.next_batch(16).await {
                for one in batch {
                    let _ = sink.send((name, one.content.expect("readable"))).await;
                }
                member.commit();
            }
        }));
    }
    let deadline = Instant::now() + DEADLINE;
    for round in 1.. {
        if round_is_shared(&bus, &mut heard, round).await {
            break;
        }
        assert!(Instant::now() < deadline, "no round of reports was shared by barrier between the two members");
    }
    for task in tasks {
        assert!(!task.is_finished(), "a member failed");
        task.abort();
    }
}

/// Sends one round of reports; whether both members took part in it and no
/// barrier was split between them.
async fn round_is_shared(bus: &Arc<dyn Bus>, heard: &mut mpsc::Receiver<(i32, Upward)>, round: u64) -> bool {
    let barriers: Vec<String> = (0..24).map(|number| format!("etl/barrier-{number}")).collect();
    for region in REGIONS {
        for barrier in &barriers {
            bus.send_up(&report(region, barrier, round), Headers::new()).await.expect("send");
        }
    }
    let mut by_barrier: BTreeMap<String, (BTreeSet<i32>, BTreeSet<String>)> = BTreeMap::new();
    while by_barrier.len() < barriers.len() || by_barrier.values().any(|(_, regions)| regions.len() < REGIONS.len()) {
        let Ok(Some((member, Upward::Report(report)))) = timeout(REPEAT_AFTER * 4, heard.recv()).await else {
            return false;
        };
        if report.generation.n == round {
            let (members, regions) = by_barrier.entry(report.generation.barrier.to_string()).or_default();
            members.insert(member);
            regions.insert(report.region.to_string());
        }
    }
    let members: BTreeSet<i32> = by_barrier.values().flat_map(|(members, _)| members).copied().collect();
    members.len() == 2 && by_barrier.values().all(|(members, _)| members.len() == 1)
}

/// A member that leaves, having committed or not, is followed by one that
/// hears what is said from then on.
pub async fn progress_goes_on_after_joining_again(subject: &dyn Subject) {
    let bus = prepared(subject).await;
    for (n, commits) in [(1, true), (2, false), (3, true)] {
        let mut member = join(&bus).await;
        heard(&bus, &mut *member, &report("us-east", "etl/map", n), &Headers::new()).await;
        if commits {
            member.commit();
            // With nothing new.
            member.commit();
        }
    }
}

/// A batch is never larger than asked for, and never empty.
pub async fn batches_are_bounded(subject: &dyn Subject) {
    const COUNT: u64 = 20;
    let bus = prepared(subject).await;
    let mut member = join(&bus).await;
    let mut seen = BTreeSet::new();
    let sender = tokio::spawn(async move {
        loop {
            for n in 1..=COUNT {
                // A full queue is said again like anything else.
                let _ = bus.send_up(&report("us-east", "etl/map", n), Headers::new()).await;
            }
            tokio::time::sleep(REPEAT_AFTER).await;
        }
    });
    while seen.len() < COUNT as usize {
        let batch = in_time("a batch", member.next_batch(3)).await.expect("next batch");
        assert!((1..=3).contains(&batch.len()), "{} records", batch.len());
        for one in batch {
            let Upward::Report(report) = one.content.expect("readable") else { panic!("only reports were sent") };
            seen.insert(report.generation.n);
        }
    }
    sender.abort();
}

async fn prepared(subject: &dyn Subject) -> Arc<dyn Bus> {
    let bus = subject.bus().await;
    bus.prepare(&REGIONS.map(region)).await.expect("prepare");
    bus
}

async fn join(bus: &Arc<dyn Bus>) -> Box<dyn Up> {
    bus.join_up(&REGIONS.map(region)).await.expect("join")
}

/// Says it until it is heard, as a region does.
async fn heard(bus: &Arc<dyn Bus>, member: &mut dyn Up, message: &Upward, with: &Headers) -> Received<Upward> {
    let say = async || bus.send_up(message, with.clone()).await.expect("send");
    repeat(say, member, |one| one.content.as_ref().is_ok_and(|content| content == message)).await
}

async fn repeat(
    say: impl AsyncFn(),
    member: &mut dyn Up,
    mut is_it: impl FnMut(&Received<Upward>) -> bool,
) -> Received<Upward> {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        say().await;
        let again = Instant::now() + REPEAT_AFTER;
        while let Ok(batch) = tokio::time::timeout_at(again, member.next_batch(16)).await {
            let batch: Result<Vec<_>, BusError> = batch;
            if let Some(found) = batch.expect("next batch").into_iter().find(&mut is_it) {
                return found;
            }
        }
    }
    panic!("what was said again and again was not heard within {} s", DEADLINE.as_secs());
}
