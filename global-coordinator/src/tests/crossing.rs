//! From a definition to a release, a break, and everything that is lost on
//! the way.

use muster_protocol::fact::{Fact, Standing};
use muster_protocol::outcome::Failure;
use muster_protocol::report::RegionReport;

use super::world::{FakeRegion, World, soon};

const REGIONS: [&str; 2] = ["us-east", "eu-west"];
const MAP: &str = "/v1/barriers/etl/map/generations/1";

/// Looks at a path until a member of the answer is as wanted.
async fn until(world: &World, path: &str, member: &str, wanted: &str) -> serde_json::Value {
    soon(&format!("{path} with {member} {wanted}"), async {
        loop {
            let (status, body) = world.get(path).await;
            if status == 200 && body[member] == wanted {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test]
async fn all_arrive_and_all_are_released() {
    let world = World::start(&REGIONS).await;
    let (mut us, mut eu) = (world.region("us-east").await, world.region("eu-west").await);
    world.define("etl/map", &REGIONS, r#", "deadline": "1h", "generations": "single""#).await;
    let (opened, same) = (us.opened("etl/map").await, eu.opened("etl/map").await);
    assert_eq!(opened, same);
    us.reports(&opened, 2).await;
    eu.reports(&opened, 1).await;
    let (_, status) = world.get(&format!("{MAP}?index=none")).await;
    assert_eq!(status["state"], "gathering");
    eu.reports(&opened, 2).await;
    let digest = us.decided("etl/map").await;
    assert_eq!(eu.decided("etl/map").await, digest);
    let releasing = until(&world, MAP, "state", "releasing").await;
    assert_eq!(releasing["reason"], "release-propagating");
    assert_eq!(releasing["release"]["digest"], digest.to_string());
    us.applies(&opened, digest).await;
    eu.applies(&opened, digest).await;
    let released = until(&world, MAP, "state", "released").await;
    assert_eq!((&released["arrived"], &released["expected"]), (&4.into(), &4.into()));
    world.stop().await;
}

#[tokio::test]
async fn a_failed_participant_breaks_it_everywhere() {
    let world = World::start(&REGIONS).await;
    let (mut us, mut eu) = (world.region("us-east").await, world.region("eu-west").await);
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    let failure = Failure {
        region: us.name.clone(),
        participant: "1".parse().unwrap(),
        attempt: 1,
        note: Some("signal 9".to_owned()),
    };
    let failed = RegionReport { failed: 1, over_failures: true, failures: vec![failure], ..us.report(&opened, 1) };
    us.tell(failed).await;
    eu.decided("etl/map").await;
    let broken = until(&world, MAP, "state", "broken").await;
    assert_eq!(broken["reason"], "participant-failed");
    assert_eq!(broken["broken"]["failed"][0], "us-east/1");
    assert!(broken["message"].as_str().unwrap().contains("signal 9"), "{broken}");
    world.stop().await;
}

#[tokio::test]
async fn a_deadline_breaks_it_by_itself() {
    let world = World::start(&REGIONS).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &REGIONS, r#", "deadline": "200ms""#).await;
    us.decided("etl/map").await;
    let broken = until(&world, MAP, "state", "broken").await;
    assert_eq!(broken["reason"], "deadline-exceeded");
    assert!(broken["decidedAt"].as_str().unwrap() >= broken["deadlineAt"].as_str().unwrap(), "never early");
    world.stop().await;
}

#[tokio::test]
async fn the_end_of_a_cyclic_generation_opens_the_next() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "none", "generations": "cyclic""#).await;
    let first = us.opened("etl/map").await;
    us.reports(&first, 2).await;
    us.decided("etl/map").await;
    let (_, status) = world.get("/v1/barriers/etl/map/generations/latest").await;
    assert_eq!((&status["n"], &status["state"]), (&2.into(), &"gathering".into()));
    world.stop().await;
}

#[tokio::test]
async fn an_abort_is_heard_and_stays() {
    let world = World::start(&REGIONS).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    let abort = format!("{MAP}/abort");
    let (_, before) = world.get(MAP).await;
    let (code, tried) = world.call("POST", &format!("{abort}?dryRun=true"), r#"{"reason": "no"}"#).await;
    assert_eq!((code, &tried["changed"], &tried["status"]["state"]), (200, &true.into(), &"broken".into()));
    assert_eq!(world.get(MAP).await.1["index"], before["index"], "a dry run writes nothing");
    assert_eq!(world.refused("POST", &abort, "").await.code.as_str(), "bad-request");
    assert_eq!(world.refused("POST", &abort, r#"{"reason": " "}"#).await.code.as_str(), "bad-request");
    let (code, ended) = world.call("POST", &abort, r#"{"reason": "wrong input"}"#).await;
    assert_eq!((code, &ended["changed"], &ended["status"]["reason"]), (200, &true.into(), &"aborted".into()));
    us.decided("etl/map").await;
    let (code, again) = world.call("POST", &abort, r#"{"reason": "again"}"#).await;
    assert_eq!((code, &again["changed"]), (200, &false.into()));
    assert!(again["status"]["message"].as_str().unwrap().contains("wrong input"));
    world.stop().await;
}

#[tokio::test]
async fn what_is_unanswered_is_said_again_at_once_to_who_greets() {
    let world = World::start(&REGIONS).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    us.opened("etl/map").await;
    // Another one that was not there: its greeting brings what it lacks.
    let mut eu = FakeRegion::new(&world.bus, "eu-west", "http://127.0.0.1:1").await;
    assert_eq!(eu.greet().await.standing, Standing::Current);
    let opened = eu.opened("etl/map").await;
    // Nobody answers: repeated without a greeting, slice and all.
    let slice = us
        .fact("a repeat", |fact| match fact {
            Fact::Opened(again) if again.generation == opened => Some(again.slice.is_some()),
            _ => None,
        })
        .await;
    assert!(slice, "a repeat carries all that is needed");
    world.stop().await;
}

#[tokio::test]
async fn another_life_of_a_region_decides_nothing() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    let mut impostor = FakeRegion::new(&world.bus, "us-east", "http://127.0.0.1:1").await;
    assert_eq!(impostor.greet().await.standing, Standing::Unknown);
    impostor.reports(&opened, 2).await;
    // The region's own word after it shows that the other one was read.
    us.reports(&opened, 1).await;
    let status = until(&world, MAP, "reason", "waiting-for-participants").await;
    assert_eq!(status["arrived"], 1);
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_holds_nothing_up() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    for bytes in [&b"\xff\xfe"[..], br#"{"v":7}"#, br#"{"v":1,"kind":"report","body":{"region":"us-east"}}"#] {
        world.bus.inject_up(&us.name, bytes.to_vec()).await.unwrap();
    }
    us.reports(&opened, 2).await;
    us.decided("etl/map").await;
    world.stop().await;
}

#[tokio::test]
async fn two_coordinators_decide_once_and_both_wake() {
    let world = World::start(&REGIONS).await;
    let (mut us, mut eu) = (world.region("us-east").await, world.region("eu-west").await);
    let other = World::on(world.bus.clone(), world.store.clone(), &REGIONS).await;
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    let path = format!("{MAP}/wait?wait=20s");
    let waits = async { tokio::join!(world.get(&path), other.get(&path)) };
    let arrivals = async {
        us.reports(&opened, 2).await;
        eu.reports(&opened, 2).await;
        let digest = us.decided("etl/map").await;
        assert_eq!(eu.decided("etl/map").await, digest);
        digest
    };
    let ((one, two), digest) = tokio::join!(waits, arrivals);
    for (status, body) in [one, two] {
        assert_eq!((status, &body["digest"]), (200, &digest.to_string().into()), "{body}");
    }
    world.stop().await;
    other.stop().await;
}
