//! Sessions.

use muster_protocol::fact::{Closed, Fact};
use muster_protocol::generation::GenerationId;
use muster_protocol::region::{Command, Region};
use serde_json::{Value, json};

use super::*;

const G: &str = "/v1/barriers/etl/map/generations/1";

fn works(who: &[&str]) -> Value {
    who.iter().map(|who| json!({ "barrier": "etl/map", "generation": "1", "id": who })).collect()
}

async fn opened(agent: &Agent, who: &[&str]) -> (String, Value) {
    let (status, body) = agent.call("POST", "/v1/sessions", json!({ "participants": works(who) })).await;
    assert_eq!(status, 201, "{body}");
    (body["session"].as_str().unwrap().to_owned(), body)
}

async fn heartbeat(agent: &Agent, session: &str, body: Value) -> Answer {
    agent.call("PUT", &format!("/v1/sessions/{session}/heartbeat"), body).await
}

async fn participant(agent: &Agent, id: &str) -> Value {
    agent.get(&format!("{G}/arrivals/{id}")).await.1
}

fn sessions(region: &Region) -> usize {
    region.sessions().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_gives_the_attempt_and_tells_how_its_work_goes() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.open(1, watched("[1-3]")).await;
    let (session, body) = opened(&agent, &["1", "2"]).await;
    assert_eq!((&body["ttlSeconds"], &body["heartbeatSeconds"]), (&json!(3.0), &json!(1.0)), "{body}");
    let work = json!({"barrier": "etl/map", "generation": "1", "n": 1, "id": "2", "attempt": 1, "done": false});
    assert_eq!(body["participants"][1], work);

    let taken = heartbeat(&agent, &session, json!({ "progress": "half" })).await;
    assert_eq!(taken, (200, json!({ "session": session, "ttlSeconds": 3.0 })));
    let one = participant(&agent, "1").await;
    assert_eq!(
        (&one["state"], &one["session"], &one["progress"]),
        (&json!("working"), &json!(session), &json!("half"))
    );
    assert!(one["lastSeenSeconds"].as_f64().unwrap() < 3.0, "{one}");
    assert_eq!(participant(&agent, "3").await["state"], "missing");
    let listed = agent.get(&format!("{G}/participants?state=working")).await.1;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);

    // Failed, it tries again under a new session, which has the next attempt.
    let failed =
        agent.call("PUT", &format!("{G}/arrivals/1"), json!({ "session": session, "outcome": "failed" })).await;
    assert_eq!((failed.0, &failed.1["attempt"]), (201, &json!(1)));
    let (second, body) = opened(&agent, &["1", "2"]).await;
    assert_eq!((&body["participants"][0]["attempt"], &body["participants"][1]["attempt"]), (&json!(2), &json!(2)));
    let ok = agent.call("PUT", &format!("{G}/arrivals/1"), json!({ "session": second })).await;
    assert_eq!((ok.0, &ok.1["attempt"], &ok.1["first"]), (201, &json!(2), &json!(true)));

    // A session that lost all whom it worked for is over.
    let (third, _) = opened(&agent, &["2"]).await;
    let (last, _) = opened(&agent, &["2"]).await;
    assert_eq!(code(&heartbeat(&agent, &third, Value::Null).await), (409, "fenced"));
    let zombie = agent.call("PUT", &format!("{G}/arrivals/2"), json!({ "session": session })).await;
    assert_eq!(code(&zombie), (409, "fenced"));
    for changed in [true, false] {
        let closed = agent.call("DELETE", &format!("/v1/sessions/{last}"), Value::Null).await;
        assert_eq!(closed, (200, json!({ "session": last, "changed": changed })));
    }
    assert_eq!(code(&heartbeat(&agent, &last, Value::Null).await), (410, "session-lost"));
    assert_eq!(participant(&agent, "2").await["state"], "missing", "who leaves is not lost");
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_falls_silent_is_lost_and_told_so() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.open(1, watched("[1-3]")).await;
    let (silent, _) = opened(&agent, &["1"]).await;
    let (lively, _) = opened(&agent, &["2"]).await;
    let stay = async {
        loop {
            assert_eq!(heartbeat(&agent, &lively, Value::Null).await.0, 200);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        () = agent.until(|region| sessions(region) == 1) => {}
        () = stay => {}
    }
    let lost = participant(&agent, "1").await;
    assert_eq!((&lost["state"], &lost["lastSeenSeconds"]), (&json!("lost"), &Value::Null));
    assert!(lost["rejoinSeconds"].as_f64().unwrap() > 3_000.0, "{lost}");
    assert_eq!(participant(&agent, "2").await["state"], "working");
    assert_eq!(code(&heartbeat(&agent, &silent, Value::Null).await), (410, "session-lost"));
    let late = agent.call("PUT", &format!("{G}/arrivals/1"), json!({ "session": silent })).await;
    assert_eq!(code(&late), (410, "session-lost"));
    let status = agent.get(G).await.1;
    assert_eq!((&status["regions"][0]["working"], &status["regions"][0]["lost"]), (&json!(1), &json!(1)), "{status}");
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_agent_takes_a_heartbeat_and_a_session_survives_its_agent() {
    let world = World::new().await;
    let (one, two) = (world.agent("a").await, world.agent("b").await);
    one.open(1, watched("[1-3]")).await;
    let (session, _) = opened(&one, &["1"]).await;
    let id = session.parse().unwrap();
    let attach = |region: &Region| region.session(id).map(|session| session.attach);
    assert_eq!(heartbeat(&two, &session, Value::Null).await.0, 200, "attached where it is heard");
    two.until(|region| attach(region) == Some(2)).await;
    one.stopped().await;
    // The arrival finds its attempt wherever it comes to.
    assert_eq!(heartbeat(&two, &session, Value::Null).await.0, 200);
    let three = world.agent("c").await;
    two.stopped().await;
    assert_eq!(heartbeat(&three, &session, Value::Null).await.0, 200, "nothing expires by a stop");
    let arrived = three.call("PUT", &format!("{G}/arrivals/1"), json!({ "session": session })).await;
    assert_eq!(arrived.0, 201, "{}", arrived.1);
    three.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_lost_its_lease_takes_its_sessions_again() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.open(1, watched("[1-3]")).await;
    let (session, _) = opened(&agent, &["1"]).await;
    agent.expel(&world).await;
    let taken = async {
        // Until it is registered anew it can't stand for anything.
        loop {
            match heartbeat(&agent, &session, Value::Null).await {
                (200, _) => return,
                other => assert_eq!(code(&other).0, 503, "{other:?}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, taken).await.unwrap();
    let id = session.parse().unwrap();
    assert_eq!(agent.service.handle.read(|region| region.session(id).unwrap().attach), 2);
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_a_session_is_refused_with_what_helps() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.open(1, slice("[1-3]")).await;
    let open = |body: Value| agent.call("POST", "/v1/sessions", body);
    let cases = [
        (json!({ "participants": [] }), (400, "bad-request")),
        (json!({ "participants": works(&["1"; 1_001]) }), (400, "bad-request")),
        (json!({ "participants": works(&["1"]), "ttl": "1s" }), (400, "bad-request")),
        (json!({ "participants": works(&["1"]), "ttl": "25h" }), (400, "bad-request")),
        (json!({ "participants": works(&["1", "7"]) }), (422, "not-expected")),
        (json!({ "participants": works(&["1"]), "region": "eu-west" }), (422, "wrong-region")),
    ];
    for (body, expected) in cases {
        let answer = open(body.clone()).await;
        assert_eq!(code(&answer), expected, "{body}: {}", answer.1);
    }
    assert!(open(json!({ "participants": works(&["1", "7"]) })).await.1["detail"].as_str().unwrap().contains("/7 "));
    let (status, body) = open(json!({ "participants": works(&["1"]) })).await;
    assert_eq!((status, &body["ttlSeconds"]), (201, &json!(30.0)), "nobody says how long");
    let id = "07".repeat(16);
    let again = json!({ "participants": works(&["2"]), "id": id, "ttl": "9s" });
    assert_eq!(open(again.clone()).await, open(again).await, "a repeat opens nothing twice");
    assert_eq!(code(&heartbeat(&agent, "x", Value::Null).await), (422, "invalid-name"));
    let long = json!({ "progress": "x".repeat(1_025) });
    assert_eq!(code(&heartbeat(&agent, &id, long).await), (413, "too-large"));
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_what_is_forgotten_is_told() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.open(1, slice("1")).await;
    let generation = GenerationId { barrier: "etl/map".parse().unwrap(), n: 1, key: None, round: 0 };
    let waiting = agent.get(&format!("{G}/wait?wait=20s"));
    let forgetting = async {
        let waits = || agent.service.handle.waiters().count(&generation.barrier, 1) == 1;
        let until = async {
            while !waits() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(DEADLINE, until).await.expect("the call waits");
        agent.submit(Command::Fact(Fact::Closed(Closed { generation, regions: vec![region()], kept: vec![] }))).await;
    };
    let (told, ()) = tokio::join!(waiting, forgetting);
    assert_eq!(code(&told), (410, "expired"));
    // A first word after that is the coordinator's: 1 may be a key by now.
    for (method, path, expected) in [
        ("PUT", "/arrivals/1?wait=0s", (503, "cannot-open")),
        ("DELETE", "/arrivals/1", (503, "unavailable")),
        ("GET", "/wait?wait=0s", (408, "not-open-yet")),
    ] {
        assert_eq!(code(&agent.call(method, &format!("{G}{path}"), Value::Null).await), expected, "{path}");
    }
    agent.stopped().await;
}
