//! Waits and blocking reads.

use std::time::Duration;

use super::world::{World, soon};

const MAP: &str = "/v1/barriers/etl/map/generations/1";

async fn waiting(world: &World, calls: u64) {
    soon("the calls to wait", async {
        while world.get(MAP).await.1["waiting"] != calls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_wait_says_yes_only_when_it_is_decided() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    let early = world.refused("GET", &format!("{MAP}/wait?wait=10ms"), "").await;
    assert_eq!((early.code.as_str(), early.status), ("still-gathering", 408));
    assert_eq!((&early.more["expected"], &early.more["missing"]["us-east"]["count"]), (&2.into(), &2.into()));
    let polled = world.refused("GET", &format!("{MAP}/wait?wait=0s&pending=425"), "").await;
    assert_eq!(polled.status, 425);
    let path = format!("{MAP}/wait?wait=20s");
    let wait = world.get(&path);
    let arrive = async {
        waiting(&world, 1).await;
        us.reports(&opened, 2).await;
    };
    let ((status, released), ()) = tokio::join!(wait, arrive);
    assert_eq!((status, &released["whole"]), (200, &true.into()));
    let (status, _) = world.get(&format!("{MAP}/wait?wait=0s&whole=true")).await;
    assert_eq!(status, 200, "a release stays one");
    let (status, outputs) = world.get(&format!("{MAP}/outputs")).await;
    assert_eq!((status, outputs["outputs"].is_object()), (200, true));
    world.stop().await;
}

#[tokio::test]
async fn a_break_ends_every_wait_with_its_reason() {
    let world = World::start(&["us-east"]).await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    let path = format!("{MAP}/wait?wait=20s&pending=404");
    let wait = world.refused("GET", &path, "");
    let several = world.refused("GET", "/v1/wait?all=etl/map@1&wait=20s", "");
    let abort = async {
        waiting(&world, 2).await;
        world.call("POST", &format!("{MAP}/abort"), r#"{"reason": "wrong input"}"#).await
    };
    let (one, two, _) = tokio::join!(wait, several, abort);
    for problem in [one, two] {
        assert_eq!((problem.code.as_str(), problem.status), ("broken", 409));
        assert_eq!(problem.more["reason"], "aborted");
        assert!(problem.detail.contains("wrong input"), "{}", problem.detail);
    }
    let outputs = world.refused("GET", &format!("{MAP}/outputs"), "").await;
    assert_eq!(outputs.code.as_str(), "broken");
    world.stop().await;
}

#[tokio::test]
async fn one_of_several_is_enough_for_any() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    world.define("etl/reduce", &["us-east"], r#", "deadline": "1h""#).await;
    world.call("POST", &format!("{MAP}/abort"), r#"{"reason": "x"}"#).await;
    let both = "etl/map@1,etl/reduce@1";
    let pending = world.refused("GET", &format!("/v1/wait?any={both}&wait=20ms"), "").await;
    assert_eq!(pending.code.as_str(), "still-gathering", "one may still release");
    let opened = us.opened("etl/reduce").await;
    us.reports(&opened, 2).await;
    let (status, any) = world.get(&format!("/v1/wait?any={both}&wait=20s")).await;
    assert_eq!((status, &any["released"][0]["barrier"]), (200, &"etl/reduce".into()));
    assert_eq!(world.refused("GET", &format!("/v1/wait?all={both}&wait=20s"), "").await.code.as_str(), "broken");
    for (query, code) in [
        ("", "bad-request"),
        ("all=", "bad-request"),
        ("all=a/b@1&any=a/b@1", "bad-request"),
        ("all=etl/map", "generation-required"),
        ("any=etl/nothing@1", "not-defined"),
    ] {
        assert_eq!(world.refused("GET", &format!("/v1/wait?{query}"), "").await.code.as_str(), code, "{query}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_wait_begins_before_its_key_is_open() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h", "generations": "keyed""#).await;
    let path = "/v1/barriers/etl/map/generations/2026-10-07/wait";
    let early = world.refused("GET", &format!("{path}?wait=10ms"), "").await;
    assert_eq!((early.code.as_str(), early.status), ("not-open-yet", 408));
    let long = format!("{path}?wait=20s");
    let wait = world.get(&long);
    let cross = async {
        world.call("POST", "/v1/barriers/etl/map/generations", r#"{"key": "2026-10-07"}"#).await;
        let opened = us.opened("etl/map").await;
        us.reports(&opened, 2).await;
    };
    let ((status, released), ()) = tokio::join!(wait, cross);
    assert_eq!((status, &released["generation"]), (200, &"2026-10-07".into()));
    for (path, code) in [
        ("/v1/barriers/etl/map/generations/latest/wait", "generation-required"),
        ("/v1/barriers/etl/none/generations/1/wait", "not-defined"),
        ("/v1/barriers/etl/map/generations/2026-10-07~3/wait", "no-such-generation"),
        ("/v1/barriers/etl/map/generations/2026-10-07/wait?wait=11m", "bad-request"),
    ] {
        assert_eq!(world.refused("GET", path, "").await.code.as_str(), code, "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_blocking_read_returns_with_news() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h", "generations": "cyclic""#).await;
    let opened = us.opened("etl/map").await;
    us.reports(&opened, 0).await;
    let seen = soon("the opening to be known", async {
        loop {
            let (_, status) = world.get(MAP).await;
            if status["regions"][0]["state"] == "gathering" {
                return status["index"].as_str().unwrap().to_owned();
            }
        }
    })
    .await;
    let (_, same) = world.get(&format!("{MAP}?index={seen}&wait=20ms")).await;
    assert_eq!(same["index"], seen.as_str(), "time is up: the same, never nothing");
    let path = format!("{MAP}?index={seen}&wait=20s");
    let read = world.get(&path);
    let arrive = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        us.reports(&opened, 1).await;
    };
    let ((_, news), ()) = tokio::join!(read, arrive);
    assert_eq!(news["arrived"], 1);
    let index = news["index"].as_str().unwrap();
    let latest = format!("/v1/barriers/etl/map/generations/latest?index={index}&wait=20s");
    let read = async {
        let (_, status) = world.get(&latest).await;
        status
    };
    let cross = async { us.reports(&opened, 2).await };
    let (moved, ()) = tokio::join!(read, cross);
    assert!(moved["n"] == 2 || moved["state"] == "releasing", "{moved}");
    let (_, current) = world.get(&format!("{MAP}?atLeast={index}&consistent=true")).await;
    assert_ne!(current["index"], index);
    world.stop().await;
}

#[tokio::test]
async fn a_stop_ends_waits() {
    let world = World::start(&["us-east"]).await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    let path = format!("{MAP}/wait?wait=60s");
    let wait = world.refused("GET", &path, "");
    let stop = async {
        waiting(&world, 1).await;
        world.shutdown.cancel();
    };
    let (problem, ()) = tokio::join!(wait, stop);
    assert_eq!((problem.code.as_str(), problem.status), ("draining", 503));
    world.stop().await;
}
