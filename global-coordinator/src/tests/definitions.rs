//! Definitions and regions over HTTP.

use super::world::World;

const MAP: &str = "/v1/barriers/etl/map";
const BODY: &str = r#"{"regions": ["us-east"], "participants": 2, "deadline": "1h"}"#;
const WIDER: &str = r#"{"regions": ["us-east"], "participants": 3, "deadline": "1h"}"#;

#[tokio::test]
async fn an_equal_definition_changes_nothing_and_another_is_a_conflict() {
    let world = World::start(&["us-east"]).await;
    let (status, first) = world.call("PUT", MAP, BODY).await;
    assert_eq!((status, &first["created"], &first["revision"]), (201, &true.into(), &1.into()));
    let yaml = "participants: 2\nregions: [us-east]\ndeadline: 60m\n";
    let (status, same) = world.call("PUT", MAP, yaml).await;
    assert_eq!((status, &same["changed"], &same["gathering"]), (200, &false.into(), &1.into()));
    let conflict = world.refused("PUT", MAP, WIDER).await;
    assert_eq!(conflict.code.as_str(), "conflict");
    assert_eq!(conflict.more["diff"][0]["field"], "regions.us-east.participants");
    assert!(conflict.detail.contains("regions.us-east.participants"), "{}", conflict.detail);
    let (status, changed) = world.call("PUT", &format!("{MAP}?replace=true"), WIDER).await;
    assert_eq!((status, &changed["changed"], &changed["revision"]), (200, &true.into(), &2.into()));
    world.stop().await;
}

#[tokio::test]
async fn an_etag_guards_a_change() {
    let world = World::start(&["us-east"]).await;
    let missing = world.request("PUT", MAP).header("if-match", "\"1\"").body(BODY).send().await.unwrap();
    assert_eq!(missing.status(), 412);
    let defined = world.request("PUT", MAP).body(BODY).send().await.unwrap();
    assert_eq!(defined.headers()["etag"], "\"1\"");
    for (tag, status) in [("\"7\"", 412), ("7", 400), ("\"1\"", 200), ("\"1\"", 412), ("*", 200)] {
        let answer = world.request("PUT", MAP).header("if-match", tag).body(WIDER).send().await.unwrap();
        assert_eq!(answer.status(), status, "{tag}: {}", answer.text().await.unwrap());
    }
    let read = world.request("GET", MAP).send().await.unwrap();
    assert_eq!(read.headers()["etag"], "\"2\"");
    world.stop().await;
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let world = World::start(&["us-east"]).await;
    let (status, tried) = world.call("PUT", &format!("{MAP}?dryRun=true"), BODY).await;
    assert_eq!((status, &tried["created"], &tried["dryRun"]), (200, &true.into(), &true.into()));
    assert_eq!(world.refused("GET", MAP, "").await.code.as_str(), "not-defined");
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_and_changes_nothing() {
    let world = World::start(&["us-east"]).await;
    for (body, code) in [
        ("{", "invalid-definition"),
        (r#"{"regions": ["us-eats"], "participants": 2, "deadline": "1h"}"#, "unknown-region"),
        (r#"{"regions": ["us-east"], "participants": 2}"#, "invalid-definition"),
    ] {
        let problem = world.refused("PUT", MAP, body).await;
        assert_eq!(problem.code.as_str(), code, "{body}: {problem}");
    }
    let near = world.refused("PUT", MAP, r#"{"regions": ["us-eats"], "participants": 2, "deadline": "1h"}"#).await;
    assert_eq!(near.hint.as_deref(), Some("did you mean us-east?"));
    for (path, code) in [
        ("/v1/barriers/Etl/map", "invalid-name"),
        ("/v1/barriers/etl/map?dryrun=true", "bad-request"),
        ("/v1/barriers/etl/map?replace=yes", "bad-request"),
    ] {
        assert_eq!(world.refused("PUT", path, BODY).await.code.as_str(), code, "{path}");
    }
    assert_eq!(world.refused("GET", MAP, "").await.code.as_str(), "not-defined");
    world.stop().await;
}

#[tokio::test]
async fn a_barrier_comes_after_what_can_come_before_it() {
    let world = World::start(&["us-east"]).await;
    let body = |generations: &str, after: &str| {
        let after = if after.is_empty() { String::new() } else { format!(r#", "after": "etl/{after}""#) };
        format!(
            r#"{{"regions": ["us-east"], "participants": 2, "deadline": "1h", "generations": "{generations}"{after}}}"#
        )
    };
    for (name, body, said) in [
        ("reduce", body("keyed", "map"), ""),
        ("map", body("keyed", "extract"), ""),
        ("extract", body("cyclic", ""), ""),
        ("ls", body("keyed", "extract"), "are numbered, and these have keys"),
        ("loop", body("cyclic", "reduce"), "have keys, and these are numbered"),
        ("extract", body("keyed", "reduce"), "comes after etl/extract itself"),
    ] {
        let (status, answer) = world.call("PUT", &format!("/v1/barriers/etl/{name}"), body).await;
        let expected = if said.is_empty() { 201 } else { 422 };
        assert_eq!(status, expected, "{name}: {answer}");
        assert!(answer["errors"][0]["message"].as_str().unwrap_or_default().contains(said), "{name}: {answer}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_deletion_lists_what_is_open_and_breaks_it_by_force() {
    let world = World::start(&["us-east"]).await;
    assert_eq!(world.refused("DELETE", MAP, "").await.code.as_str(), "not-defined");
    let (_, _) = world.call("PUT", MAP, BODY).await;
    let refused = world.refused("DELETE", MAP, "").await;
    assert_eq!((refused.code.as_str(), &refused.more["open"][0]), ("conflict", &"1".into()));
    assert_eq!(world.refused("DELETE", &format!("{MAP}?force=true"), "").await.code.as_str(), "bad-request");
    let (status, deleted) = world.call("DELETE", &format!("{MAP}?force=true&reason=old"), "").await;
    assert_eq!((status, &deleted["broken"][0], &deleted["changed"]), (200, &"1".into(), &true.into()));
    let (_, again) = world.call("DELETE", MAP, "").await;
    assert_eq!(again["changed"], false);
    let (_, broken) = world.get(&format!("{MAP}/generations/1")).await;
    assert_eq!(broken["reason"], "deleted");
    // Numbers go on under the same name.
    let (_, _) = world.call("PUT", MAP, BODY).await;
    let (_, latest) = world.get(&format!("{MAP}/generations/latest")).await;
    assert_eq!(latest["n"], 2);
    world.stop().await;
}

#[tokio::test]
async fn keys_are_opened_ahead_and_once() {
    let world = World::start(&["us-east"]).await;
    let body = BODY.replace("\"deadline\"", "\"generations\": \"keyed\", \"maxOpen\": 2, \"deadline\"");
    let (_, _) = world.call("PUT", MAP, body).await;
    let open = format!("{MAP}/generations");
    let (status, first) = world.call("POST", &open, r#"{"key": "2026-10-07"}"#).await;
    assert_eq!((status, &first["created"], &first["generation"]), (201, &true.into(), &"2026-10-07".into()));
    let (status, same) = world.call("POST", &open, r#"{"key": "2026-10-07"}"#).await;
    assert_eq!((status, &same["created"], &same["n"]), (200, &false.into(), &first["n"]));
    assert_eq!(world.refused("POST", &open, "").await.code.as_str(), "bad-request");
    assert_eq!(world.refused("POST", &open, r#"{"key": "a b"}"#).await.code.as_str(), "bad-request");
    let (_, _) = world.call("POST", &open, r#"{"key": "2026-10-08"}"#).await;
    assert_eq!(world.refused("POST", &open, r#"{"key": "2026-10-09"}"#).await.code.as_str(), "too-many-open");
    let (_, list) = world.get("/v1/generations?prefix=etl/&limit=1").await;
    assert_eq!(list["items"][0]["generation"], "2026-10-08");
    let cursor = list["cursor"].as_str().unwrap();
    let (_, rest) = world.get(&format!("/v1/generations?prefix=etl/&limit=1&cursor={cursor}")).await;
    assert_eq!(rest["items"][0]["generation"], "2026-10-07");
    for query in ["state=open", "limit=0", "limit=501", "label=x", "attention=true", "stat=gathering"] {
        let problem = world.refused("GET", &format!("/v1/generations?{query}"), "").await;
        assert_eq!(problem.code.as_str(), "bad-request", "{query}");
    }
    let abort = format!("{MAP}/generations/latest/abort");
    let required = world.refused("POST", &abort, r#"{"reason": "x"}"#).await;
    assert_eq!((required.code.as_str(), &required.more["open"][1]), ("generation-required", &"2026-10-07".into()));
    world.stop().await;
}

#[tokio::test]
async fn regions_are_declared_and_told_apart() {
    let world = World::start(&["us-east"]).await;
    assert_eq!(world.refused("GET", "/v1/regions/eu-west", "").await.code.as_str(), "unknown-region");
    let (status, region) = world.call("PUT", "/v1/regions/eu-west", "").await;
    assert_eq!((status, &region["link"]), (201, &"never".into()));
    let (status, _) = world.call("PUT", "/v1/regions/eu-west", "").await;
    assert_eq!(status, 200);
    // It is listened to at once.
    world.region("eu-west").await.beat().await;
    let (_, list) = world.get("/v1/regions").await;
    let links: Vec<&str> = list["items"].as_array().unwrap().iter().map(|r| r["link"].as_str().unwrap()).collect();
    assert_eq!(links, ["up", "never"]);
    assert_eq!(world.refused("PUT", "/v1/regions/EU", "").await.code.as_str(), "invalid-name");
    let (status, ready) = world.get("/readyz?verbose&need=global").await;
    assert_eq!((status, ready["checks"].as_array().unwrap().len()), (200, 4));
    world.stop().await;
}
