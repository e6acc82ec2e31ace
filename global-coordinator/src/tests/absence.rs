//! Regions that are drained, given another log, or of another life of the
//! store.

use muster_protocol::fact::Standing;
use muster_protocol::identity::Era;

use super::world::{FakeRegion, World, soon};

const REGIONS: [&str; 2] = ["us-east", "eu-west"];
const KEYS: &str = "/v1/barriers/etl/keys/generations";

#[tokio::test]
async fn what_opens_goes_on_without_a_drained_region() {
    let world = World::start(&REGIONS).await;
    world.define("etl/keys", &REGIONS, r#", "deadline": "1h", "generations": "keyed""#).await;
    world.call("POST", KEYS, r#"{"key": "before"}"#).await;
    let drain = "/v1/regions/us-east/drain";
    for (body, code) in [
        (r#"{"until": "2h"}"#, "bad-request"),
        (r#"{"until": "tomorrow", "reason": "x"}"#, "bad-request"),
        (r#"{"until": "2020-01-01T00:00:00Z", "reason": "x"}"#, "bad-request"),
        (r#"{"until": "2h", "open": "break", "reason": "x"}"#, "bad-request"),
    ] {
        assert_eq!(world.refused("POST", drain, body).await.code.as_str(), code, "{body}");
    }
    let unknown = world.refused("POST", "/v1/regions/us-eats/drain", r#"{"until": "2h", "reason": "x"}"#).await;
    assert_eq!((unknown.code.as_str(), unknown.hint.as_deref()), ("unknown-region", Some("did you mean us-east?")));
    let (code, region) = world.call("POST", drain, r#"{"until": "2h", "reason": "new switches"}"#).await;
    assert_eq!((code, &region["drained"]["reason"]), (200, &"new switches".into()));
    assert_eq!(world.get("/v1/regions/us-east").await.1["drained"], region["drained"]);
    world.call("POST", KEYS, r#"{"key": "during"}"#).await;
    let state = async |key: &str| {
        let (_, status) = world.get(&format!("{KEYS}/{key}")).await;
        status["regions"][1]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!((state("before").await, state("during").await), ("unopened".to_owned(), "waived".to_owned()));
    let (_, why) = world.get(&format!("{KEYS}/before/explain")).await;
    assert!(why["lines"].to_string().contains("us-east is drained until"), "{why}");

    world.call("POST", drain, r#"{"until": "3h", "open": "waive", "reason": "new switches"}"#).await;
    assert_eq!(state("before").await, "waived");
    assert_eq!(world.refused("POST", "/v1/regions/us-east/resume", "").await.code.as_str(), "bad-request");
    let (_, region) = world.call("POST", "/v1/regions/us-east/resume", r#"{"reason": "they are in"}"#).await;
    assert_eq!(region["drained"], serde_json::Value::Null);
    world.call("POST", KEYS, r#"{"key": "after"}"#).await;
    assert_eq!(state("after").await, "unopened");
    let (_, audit) = world.get("/v1/audit").await;
    let actions: Vec<&str> =
        audit["items"].as_array().unwrap().iter().map(|row| row["action"].as_str().unwrap()).collect();
    assert_eq!(actions[..1], ["resume"]);
    assert_eq!(actions.iter().filter(|action| **action == "drain").count(), 2);
    assert_eq!(actions.iter().filter(|action| **action == "waive").count(), 1);
    world.stop().await;
}

#[tokio::test]
async fn another_log_is_adopted_by_its_history() {
    let world = World::start(&REGIONS).await;
    let mut former = world.region("us-east").await;
    world.define("etl/map", &REGIONS, r#", "deadline": "1h""#).await;
    let opened = former.opened("etl/map").await;
    former.reports(&opened, 2).await;
    let mut present = FakeRegion::new(&world.bus, "us-east", "http://127.0.0.1:1").await;
    let body = format!(r#"{{"history": "{}", "reason": "new disks"}}"#, present.history);
    let adopt = "/v1/regions/us-east/adopt";
    let never = world.refused("POST", adopt, &body).await;
    assert_eq!((never.code.as_str(), &never.more["histories"][0]), ("conflict", &former.history.to_string().into()));
    assert_eq!(present.greet().await.standing, Standing::Unknown);
    let (_, region) = world.get("/v1/regions/us-east").await;
    assert_eq!(region["unknownHistories"][0], present.history.to_string());
    let (code, region) = world.call("POST", adopt, body).await;
    assert_eq!((code, &region["history"]), (200, &present.history.to_string().into()));
    assert_eq!(present.greet().await.standing, Standing::Current);
    assert_eq!(present.opened("etl/map").await, opened, "it is told what it lacks");
    assert_eq!(former.greet().await.standing, Standing::Superseded);
    world.stop().await;
}

#[tokio::test]
async fn agents_of_another_life_of_the_store_are_welcomed_anew() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    let era = us.era.clone().expect("a welcome names the life");
    us.era = Some(Era::new("before"));
    us.beat().await;
    let welcome = soon("a welcome", us.welcome()).await;
    assert_eq!((welcome.era, welcome.standing, welcome.tell_ends), (Some(era), Standing::Current, false));
    world.stop().await;
}
