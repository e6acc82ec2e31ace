//! What somebody decides that participants had not.

use muster_protocol::fact::Fact;
use muster_protocol::report::{Apart, RegionReport};
use serde_json::Value;

use super::world::{World, soon};

const REGIONS: [&str; 2] = ["us-east", "eu-west"];
const MAP: &str = "/v1/barriers/etl/map/generations/1";
const KEYS: &str = "/v1/barriers/etl/keys/generations";

async fn post(world: &World, path: &str, body: &str) -> (u16, Value) {
    world.call("POST", path, body.to_owned()).await
}

#[tokio::test]
async fn a_forced_release_lets_everybody_pass_and_says_so() {
    let world = World::start(&REGIONS).await;
    let (mut us, mut eu) = (world.region("us-east").await, world.region("eu-west").await);
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    us.reports(&opened, 1).await;
    let release = format!("{MAP}/release");
    for body in ["", r#"{"reason": "x"}"#, r#"{"force": true}"#, r#"{"force": true, "reason": " "}"#] {
        assert_eq!(world.refused("POST", &release, body).await.code.as_str(), "bad-request", "{body}");
    }
    let body = r#"{"force": true, "reason": "the night is over"}"#;
    let (code, tried) = post(&world, &format!("{release}?dryRun=true"), body).await;
    assert_eq!((code, &tried["changed"], &tried["dryRun"]), (200, &true.into(), &true.into()));
    assert_eq!(tried["status"]["state"], "releasing", "as it would be");
    assert_eq!(world.get(MAP).await.1["state"], "gathering", "and is not");
    let (code, done) = post(&world, &release, body).await;
    assert_eq!((code, &done["changed"], &done["status"]["release"]["whole"]), (200, &true.into(), &false.into()));
    assert_eq!(done["status"]["release"]["forced"]["reason"], "the night is over");
    assert_eq!(post(&world, &release, body).await.1["changed"], false);
    let abort = world.refused("POST", &format!("{MAP}/abort"), r#"{"reason": "x"}"#).await;
    assert_eq!(abort.code.as_str(), "already-decided");
    let digest = us.decided("etl/map").await;
    us.applies(&opened, digest).await;
    eu.applies(&opened, digest).await;
    soon("the release to be everywhere", async { while world.get(MAP).await.1["reason"] != "forced" {} }).await;
    let (_, waited) = world.get(&format!("{MAP}/wait?wait=0s")).await;
    assert_eq!(waited["whole"], false);
    world.stop().await;
}

#[tokio::test]
async fn participants_and_regions_are_waived() {
    let world = World::start(&REGIONS).await;
    let (mut us, mut eu) = (world.region("us-east").await, world.region("eu-west").await);
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    us.reports(&opened, 1).await;
    eu.reports(&opened, 1).await;
    let waive = format!("{MAP}/waive");
    for (body, code) in [
        (r#"{"region": "us-east"}"#, "bad-request"),
        (r#"{"region": "us-east", "participants": "[1", "reason": "x"}"#, "bad-request"),
        (r#"{"region": "us-east", "participants": "7", "reason": "x"}"#, "not-expected"),
        (r#"{"region": "mars", "reason": "x"}"#, "unknown-region"),
    ] {
        assert_eq!(world.refused("POST", &waive, body).await.code.as_str(), code, "{body}");
    }
    let one = r#"{"region": "us-east", "participants": "1", "reason": "its disk is gone"}"#;
    let (_, done) = post(&world, &waive, one).await;
    assert_eq!((&done["changed"], &done["status"]["state"]), (&true.into(), &"gathering".into()));
    assert_eq!(post(&world, &waive, one).await.1["changed"], false);
    let waived = us.fact("the waiver", |fact| match fact {
        Fact::Waived(waived) => Some((waived.revision, waived.participants.to_string())),
        _ => None,
    });
    assert_eq!(waived.await, (1, "1".to_owned()));
    let (_, why) = world.get(&format!("{MAP}/explain")).await;
    let lines = why["lines"].to_string();
    assert!(lines.contains("1 of us-east waived: its disk is gone."), "{lines}");
    let apart = Apart { waiver: 1, waived: 1, ..Apart::default() };
    let report = RegionReport { apart, complete: true, ..us.report(&opened, 1) };
    us.tell(report).await;

    let region = r#"{"region": "eu-west", "reason": "it is dark"}"#;
    let (_, tried) = post(&world, &format!("{waive}?dryRun=true"), region).await;
    let state = |status: &Value| status["regions"][0]["state"].clone();
    assert_eq!((&tried["changed"], state(&tried["status"])), (&true.into(), "waived".into()));
    soon("the region to be complete", async { while world.get(MAP).await.1["regions"][1]["state"] != "complete" {} })
        .await;
    let (_, done) = post(&world, &waive, region).await;
    assert_eq!((&done["status"]["state"], state(&done["status"])), (&"releasing".into(), "waived".into()));
    let waived = serde_json::json!({"eu-west": "", "us-east": "1"});
    assert_eq!(done["status"]["release"]["waived"], waived);
    assert_eq!(world.refused("POST", &waive, region).await.code.as_str(), "already-decided");
    world.stop().await;
}

#[tokio::test]
async fn a_broken_key_is_retried_once_and_what_goes_on_by_itself_never() {
    let world = World::start(&REGIONS).await;
    let mut us = world.region("us-east").await;
    world.define("etl/keys", &REGIONS, r#", "deadline": "1h", "generations": "keyed""#).await;
    world.define("etl/loop", &REGIONS, r#", "deadline": "1h", "generations": "cyclic""#).await;
    post(&world, KEYS, r#"{"key": "k"}"#).await;
    us.opened("etl/keys").await;
    let (retry, body) = (format!("{KEYS}/k/retry"), r#"{"reason": "the disk is mended"}"#);
    assert_eq!(world.refused("POST", &retry, body).await.code.as_str(), "not-broken");
    post(&world, &format!("{KEYS}/k/abort"), r#"{"reason": "x"}"#).await;
    let (_, why) = world.get(&format!("{KEYS}/k/explain")).await;
    assert_eq!(why["actions"][0]["command"], "muster retry etl/keys@k --reason …");
    assert_eq!(world.refused("POST", &retry, r#"{"keep": "all", "reason": "x"}"#).await.code.as_str(), "bad-request");
    let (code, tried) = post(&world, &format!("{retry}?dryRun=true"), body).await;
    assert_eq!(
        (code, &tried["status"]["generation"], &tried["status"]["state"]),
        (200, &"k~1".into(), &"gathering".into())
    );
    assert_eq!(world.get(&format!("{KEYS}/latest")).await.1["state"], "broken", "it was only tried");
    let (code, done) = post(&world, &retry, body).await;
    assert_eq!((code, &done["changed"], &done["status"]["generation"]), (201, &true.into(), &"k~1".into()));
    let carry = us.fact("the next round", |fact| match fact {
        Fact::Opened(opened) if opened.generation.round == 1 => Some(opened.carry),
        _ => None,
    });
    assert_eq!(carry.await, Some(1));
    for path in [&retry, &format!("{KEYS}/k~0/retry")] {
        let (code, again) = post(&world, path, body).await;
        assert_eq!((code, &again["changed"], &again["status"]["generation"]), (200, &false.into(), &"k~1".into()));
    }
    assert_eq!(world.refused("POST", &format!("{KEYS}/k~1/retry"), body).await.code.as_str(), "not-broken");

    let cyclic = "/v1/barriers/etl/loop/generations/1";
    post(&world, &format!("{cyclic}/abort"), r#"{"reason": "x"}"#).await;
    let goes_on = world.refused("POST", &format!("{cyclic}/retry"), body).await;
    assert_eq!((goes_on.code.as_str(), &goes_on.more["generation"]), ("already-decided", &"2".into()));
    let (_, audit) = world.get("/v1/audit?barrier=etl/keys").await;
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["retry", "abort"]);
    assert_eq!(audit["items"][0]["reason"], "the disk is mended");
    world.stop().await;
}

#[tokio::test]
async fn what_is_replaced_and_deleted_is_audited() {
    let world = World::start(&REGIONS).await;
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    let body = r#"{"regions": ["us-east"], "participants": 2, "deadline": "1h"}"#;
    for _ in 0..2 {
        world.call("PUT", "/v1/barriers/etl/map?replace=true", body).await;
    }
    world.call("DELETE", "/v1/barriers/etl/map?force=true&reason=old", "").await;
    let (_, audit) = world.get("/v1/audit?since=1h&limit=1").await;
    assert_eq!((&audit["items"][0]["action"], &audit["items"][0]["reason"]), (&"delete".into(), &"old".into()));
    let cursor = audit["cursor"].as_str().unwrap();
    let (_, rest) = world.get(&format!("/v1/audit?cursor={cursor}")).await;
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["items"][0]["action"]), (1, &"replace".into()));
    assert_eq!(world.get("/v1/audit?actor=ada").await.1["items"].as_array().unwrap().len(), 0);
    for (query, code) in [("since=soon", "bad-request"), ("barrier=map", "invalid-name"), ("who=me", "bad-request")] {
        assert_eq!(world.refused("GET", &format!("/v1/audit?{query}"), "").await.code.as_str(), code, "{query}");
    }
    world.stop().await;
}

#[tokio::test]
async fn one_abort_ends_a_whole_job() {
    let world = World::start(&REGIONS).await;
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    world.define("etl/shuffle", &REGIONS, r#", "deadline": "1h", "after": "etl/map""#).await;
    world.define("etl/reduce", &REGIONS, r#", "deadline": "1h", "after": "etl/shuffle""#).await;
    let (_, why) = world.get("/v1/barriers/etl/reduce/generations/1/explain").await;
    assert!(why["lines"].to_string().contains("breaks if that breaks (etl/shuffle@1)"), "{why}");
    post(&world, &format!("{MAP}/abort"), r#"{"reason": "wrong input"}"#).await;
    let broken = world.refused("GET", "/v1/barriers/etl/reduce/generations/1/wait?wait=20s", "").await;
    assert_eq!((broken.code.as_str(), &broken.more["reason"]), ("broken", &"predecessor-broken".into()));
    assert!(broken.detail.contains("etl/shuffle@1"), "{}", broken.detail);
    world.stop().await;
}

#[tokio::test]
async fn what_is_past_its_retention_goes_and_regions_are_told() {
    let world = World::start(&REGIONS).await;
    let mut us = world.region("us-east").await;
    let more = r#", "deadline": "1h", "generations": "keyed", "retention": "1s""#;
    world.define("etl/keys", &REGIONS, more).await;
    post(&world, KEYS, r#"{"key": "k"}"#).await;
    let opened = us.opened("etl/keys").await;
    post(&world, &format!("{KEYS}/k/abort"), r#"{"reason": "x"}"#).await;
    soon("the verdict to go", async {
        // Each definition is a reason to look.
        for at in 0.. {
            if world.store.generation(&opened.barrier, &"k".parse().unwrap()).await.unwrap().is_none() {
                break;
            }
            world
                .call(
                    "PUT",
                    &format!("/v1/barriers/poke/p{at}"),
                    r#"{"regions": ["us-east"], "participants": 1, "deadline": "1h"}"#,
                )
                .await;
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    })
    .await;
    // The first word of it may have been missed: a report is answered again.
    for _ in 0..2 {
        us.reports(&opened, 1).await;
        let closed = us.fact("that it is forgotten", |fact| match fact {
            Fact::Closed(closed) => Some(closed.generation.n),
            _ => None,
        });
        assert_eq!(closed.await, 1);
    }
    world.stop().await;
}
