//! What the coordinator hands on to an agent of the region.

use axum::Router;
use axum::extract::Request;
use axum::routing::any;
use tokio::net::TcpListener;

use super::world::{FakeRegion, World};

const MAP: &str = "/v1/barriers/etl/map/generations/1";

/// An agent that answers with what it was asked.
async fn agent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let echo = |request: Request| async move {
        let asked = format!("{} {}", request.method(), request.uri());
        (axum::http::StatusCode::CREATED, axum::Json(serde_json::json!({ "asked": asked })))
    };
    let router = Router::new().fallback(any(echo));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test]
async fn arrivals_go_to_an_agent_of_their_region() {
    let world = World::start(&["us-east", "eu-west"]).await;
    let mut us = FakeRegion::new(&world.bus, "us-east", &agent().await).await;
    us.greet().await;
    world.define("etl/map", &["us-east", "eu-west"], r#", "deadline": "1h""#).await;
    let (status, answer) = world.call("PUT", &format!("{MAP}/arrivals/0"), r#"{"region": "us-east"}"#).await;
    assert_eq!((status, &answer["asked"]), (201, &format!("PUT {MAP}/arrivals/0").into()));
    for (method, path) in [
        ("PUT", "/arrivals/0?region=us-east&wait=1s"),
        ("GET", "/arrivals/0?region=us-east"),
        ("DELETE", "/arrivals/0?region=us-east&attempt=1"),
        ("POST", "/arrivals?region=us-east"),
        ("GET", "/participants?region=us-east&state=missing"),
    ] {
        let (status, answer) = world.call(method, &format!("{MAP}{path}"), "").await;
        assert_eq!((status, &answer["asked"]), (201, &format!("{method} {MAP}{path}").into()));
    }
    world.stop().await;
}

#[tokio::test]
async fn a_region_that_does_not_fit_is_told() {
    let world = World::start(&["us-east", "eu-west", "ap-south"]).await;
    world.region("us-east").await;
    world.define("etl/map", &["us-east", "eu-west"], r#", "deadline": "1h""#).await;
    let arrive = format!("{MAP}/arrivals/0");
    for (query, body, code) in [
        ("", "", "bad-request"),
        ("?region=us-eats", "", "unknown-region"),
        ("?region=US", "", "invalid-name"),
        ("?region=ap-south", "", "wrong-region"),
        ("?region=us-east", r#"{"region": "eu-west"}"#, "bad-request"),
        ("?region=us-east", r#"{"outcom": "ok"}"#, "bad-request"),
        // Declared, but no agent of it was ever heard.
        ("?region=eu-west", "", "unavailable"),
        // Heard, but nobody listens at its address.
        ("?region=us-east", "", "unavailable"),
    ] {
        let problem = world.refused("PUT", &format!("{arrive}{query}"), body).await;
        assert_eq!(problem.code.as_str(), code, "{query} {body}: {problem}");
    }
    let unavailable = world.refused("PUT", &format!("{arrive}?region=eu-west"), "").await;
    assert!(unavailable.detail.contains("region eu-west"), "{}", unavailable.detail);
    let none = world.refused("GET", &format!("{MAP}/participants"), "").await;
    assert!(none.detail.contains("eu-west, us-east"), "{}", none.detail);
    let twice = world.request("PUT", &format!("{arrive}?region=us-east")).header("muster-forwarded", "1");
    assert_eq!(twice.send().await.unwrap().status(), 503);
    world.stop().await;
}

#[tokio::test]
async fn sessions_and_what_only_a_region_knows_go_there() {
    let world = World::start(&["us-east", "eu-west"]).await;
    let mut us = FakeRegion::new(&world.bus, "us-east", &agent().await).await;
    us.greet().await;
    world.define("etl/map", &["us-east", "eu-west"], r#", "deadline": "1h""#).await;
    let session = "/v1/sessions/000102030405060708090a0b0c0d0e0f";
    let asked = async |method: &str, path: &str, body: &str| {
        let (status, answer) = world.call(method, path, body.to_owned()).await;
        assert_eq!(status, 201, "{method} {path}: {answer}");
        answer["asked"].as_str().unwrap().to_owned()
    };
    let open = r#"{"participants": [{"barrier": "etl/map", "id": "1"}], "region": "us-east"}"#;
    assert_eq!(asked("POST", "/v1/sessions", open).await, "POST /v1/sessions");
    let beat = format!("{session}/heartbeat");
    assert_eq!(asked("PUT", &format!("{beat}?region=us-east"), "").await, format!("PUT {beat}"));
    assert_eq!(asked("DELETE", &format!("{session}?region=us-east"), "").await, format!("DELETE {session}"));
    for (method, path, body, code) in [
        ("POST", "/v1/sessions".to_owned(), r#"{"participants": []}"#, "bad-request"),
        ("POST", "/v1/sessions?region=eu-west".to_owned(), open, "bad-request"),
        ("PUT", beat.clone(), "", "bad-request"),
        ("PUT", format!("{beat}?region=mars"), "", "unknown-region"),
        ("PUT", format!("{beat}?region=eu-west"), "", "unavailable"),
    ] {
        assert_eq!(world.refused(method, &path, body).await.code.as_str(), code, "{method} {path}");
    }
    // A barrier that is not known here may be one of the region's own.
    let own = "/v1/barriers/etl/own";
    let regional = r#"{"scope": "regional", "regions": ["us-east"], "participants": 2, "deadline": "1h"}"#;
    let put = format!("{own}?dryRun=true");
    assert_eq!(asked("PUT", &format!("{put}&region=us-east"), regional).await, format!("PUT {put}"));
    assert_eq!(asked("PUT", &put, regional).await, format!("PUT {put}"));
    let taken = world.refused("PUT", "/v1/barriers/etl/map", regional).await;
    assert!(taken.code.as_str() == "conflict" && taken.detail.contains("scope global"), "{taken}");
    for (method, path) in [
        ("GET", String::new()),
        ("DELETE", "?force=true".to_owned()),
        ("GET", "/generations/1/wait?wait=1s".to_owned()),
        ("PUT", "/generations/1/arrivals/0".to_owned()),
        ("POST", "/generations/1/abort".to_owned()),
    ] {
        let with = if path.contains('?') { "&region=us-east" } else { "?region=us-east" };
        assert_eq!(asked(method, &format!("{own}{path}{with}"), "").await, format!("{method} {own}{path}"));
    }
    let none = world.refused("GET", own, "").await;
    assert!(none.code.as_str() == "not-defined" && none.hint.unwrap().contains("?region="));
    world.stop().await;
}
