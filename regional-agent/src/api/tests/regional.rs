//! Barriers of scope regional, while bus and coordinator are away.

use muster_protocol::fact::Closed;
use muster_protocol::region::Region;
use serde_json::{Value, json};

use super::*;

const B: &str = "/v1/barriers/local/step";

fn definition(change: Value) -> Value {
    let mut definition = json!({
        "scope": "regional", "regions": ["us-east"], "participants": "[1-2]", "generations": "keyed", "deadline": "1h"
    });
    for (field, value) in change.as_object().unwrap() {
        definition[field] = value.clone();
    }
    definition
}

async fn region_with(change: Value) -> (World, Agent) {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let (status, body) = agent.call("PUT", B, definition(change)).await;
    assert_eq!((status, &body["created"]), (201, &json!(true)), "{body}");
    (world, agent)
}

async fn arrive(agent: &Agent, generation: &str, who: &str, body: Value) -> Answer {
    agent.call("PUT", &format!("{B}/generations/{generation}/arrivals/{who}"), body).await
}

async fn state(agent: &Agent, generation: &str) -> Value {
    agent.get(&format!("{B}/generations/{generation}")).await.1["state"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_opens_fills_and_releases_in_its_region_alone() {
    let (_world, agent) = region_with(json!({})).await;
    let waiting = agent.get(&format!("{B}/generations/k/wait?wait=20s"));
    let crossing = async {
        assert_eq!(
            code(&arrive(&agent, "k", "7", Value::Null).await),
            (422, "not-expected"),
            "a stranger opens nothing"
        );
        agent.until(|region| region.barrier(&"local/step".parse().unwrap()).is_none()).await;
        let first = arrive(&agent, "k", "1", json!({ "output": "part-1" })).await;
        assert_eq!((first.0, &first.1["n"], &first.1["state"]), (201, &json!(1), &json!("gathering")), "{}", first.1);
        let status = agent.get(&format!("{B}/generations/k")).await.1;
        assert_eq!(status["message"], "1 of 2 participants missing: 2", "{status}");
        assert_eq!((&status["regions"][0]["missing"], &status["next"]["what"]), (&json!("2"), &json!("break")));
        let explained = agent.get(&format!("{B}/generations/k/explain")).await.1;
        assert_eq!(explained["participants"][0]["participant"], "us-east/2", "{explained}");
        assert!(explained["lines"][1].as_str().unwrap().starts_with("It breaks in "), "{explained}");
        assert_eq!(code(&agent.get(&format!("{B}/generations/k/outputs")).await), (408, "still-gathering"));
        assert_eq!(arrive(&agent, "k", "2", Value::Null).await.0, 201);
    };
    let ((status, released), ()) = tokio::join!(waiting, crossing);
    assert_eq!((status, &released["whole"], &released["state"]), (200, &json!(true), &json!("released")), "{released}");
    assert_eq!(released["outputs"], json!({ "us-east/1": "part-1" }));
    let outputs = agent.get(&format!("{B}/generations/k/outputs")).await;
    assert_eq!((outputs.0, &outputs.1["outputs"]["us-east/1"]), (200, &json!("part-1")));
    let opened = agent.call("POST", &format!("{B}/generations"), json!({ "key": "k" })).await;
    assert_eq!((opened.0, &opened.1["state"]), (200, &json!("released")));
    let ahead = agent.call("POST", &format!("{B}/generations"), json!({ "key": "next" })).await;
    assert_eq!((ahead.0, &ahead.1["n"], &ahead.1["created"]), (201, &json!(2), &json!(true)));
    let history = agent.get(&format!("{B}/generations")).await.1;
    let rows: Vec<&Value> = history["items"].as_array().unwrap().iter().map(|row| &row["generation"]).collect();
    assert_eq!(rows, ["next", "k"]);
    for list in
        ["generations?limit=0", "generations/k/participants?limit=0", "generations/k/participants?limit=9999999"]
    {
        assert_eq!(code(&agent.get(&format!("{B}/{list}")).await), (400, "bad-request"), "{list}");
    }
    let page = agent.get(&format!("{B}/generations?limit=1")).await.1;
    assert_eq!(page["cursor"], "2");
    assert_eq!(agent.get(&format!("{B}/generations?cursor=2&state=released")).await.1["items"][0]["generation"], "k");
    let open = agent.get("/v1/generations?scope=regional").await.1;
    assert_eq!(open["items"].as_array().unwrap().len(), 1, "{open}");
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_looks_like_a_forgotten_number_is_a_key() {
    let (_world, agent) = region_with(json!({})).await;
    assert_eq!(arrive(&agent, "k", "1", Value::Null).await.0, 201);
    assert_eq!(code(&agent.get(&format!("{B}/generations/0/wait?wait=0s")).await), (408, "not-open-yet"));
    assert_eq!(arrive(&agent, "0", "1", Value::Null).await.1["generation"], "0", "all up to 0 is forgotten");

    agent.open(1, slice("[1-2]")).await;
    let generation = GenerationId { barrier: "etl/map".parse().unwrap(), n: 7, key: None, round: 0 };
    let closed = Closed { generation, regions: vec![region()], kept: Vec::new() };
    assert_eq!(agent.submit(Command::Fact(Fact::Closed(closed))).await, Reply::Done { changed: true });
    let seven = agent.call("PUT", "/v1/barriers/etl/map/generations/7/arrivals/1", Value::Null).await;
    assert_eq!(code(&seven), (503, "cannot-open"), "only the coordinator knows whether it is one: {}", seven.1);
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_applied_as_the_coordinator_would() {
    let (_world, agent) = region_with(json!({})).await;
    let put = |query: &'static str, body: Value| agent.call("PUT", query, body);
    let equal = put(B, definition(json!({}))).await;
    assert_eq!((equal.0, &equal.1["changed"], &equal.1["revision"]), (200, &json!(false), &json!(1)));
    let conflict = put(B, definition(json!({ "owner": "ops" }))).await;
    assert_eq!(code(&conflict), (409, "conflict"));
    assert_eq!(conflict.1["diff"][0]["field"], "owner", "{}", conflict.1);
    const TRY: &str = "/v1/barriers/local/step?dryRun=true&replace=true";
    let tried = put(TRY, definition(json!({ "owner": "ops" }))).await;
    assert_eq!((tried.0, &tried.1["changed"], &tried.1["dryRun"]), (200, &json!(true), &json!(true)), "{}", tried.1);
    assert_eq!(agent.get(B).await.1["revision"], 1, "it only said what would happen");
    const REPLACE: &str = "/v1/barriers/local/step?replace=true";
    assert_eq!(put(REPLACE, definition(json!({ "owner": "ops" }))).await.1["revision"], 2);
    let read = agent.get(B).await.1;
    assert_eq!((&read["spec"]["scope"], &read["effective"]["owner"]), (&json!("regional"), &json!("ops")), "{read}");
    assert_eq!(agent.get("/v1/barriers?scope=regional").await.1["items"][0]["name"], "local/step");

    for (tag, expected) in [("\"1\"", 412), ("\"2\"", 200), ("*", 200), ("2", 400)] {
        let request = agent.client.put(format!("http://{}{B}", agent.service.addr)).header("if-match", tag);
        let response = request.body(definition(json!({ "owner": "ops" })).to_string()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), expected, "{tag}");
        if expected == 200 {
            assert_eq!(response.headers()["etag"], "\"2\"");
        }
    }
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_comes_after_what_can_come_before_it() {
    let (_world, agent) = region_with(json!({ "after": "local/before" })).await;
    agent.open(1, slice("1")).await;
    for (name, after, generations, said) in [
        ("before", "local/step", "keyed", "comes after local/before itself"),
        ("loop", "local/step", "cyclic", "have keys"),
        ("loop", "etl/map", "cyclic", "of the other scope"),
    ] {
        let body = definition(json!({ "after": after, "generations": generations }));
        let refused = agent.call("PUT", &format!("/v1/barriers/local/{name}"), body).await;
        assert_eq!(code(&refused), (422, "invalid-definition"), "{after}");
        let said_so = refused.1["errors"][0]["message"].as_str().unwrap().contains(said);
        assert!(said_so, "{said}: {}", refused.1);
    }
    let first = definition(json!({ "generations": "keyed" }));
    assert_eq!(agent.call("PUT", "/v1/barriers/local/before", first).await.0, 201);
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_has_one_scope() {
    let (_world, agent) = region_with(json!({})).await;
    let global = json!({ "regions": ["us-east"], "participants": 2, "deadline": "none" });
    let taken = agent.call("PUT", B, global.clone()).await;
    assert_eq!(code(&taken), (409, "conflict"));
    assert!(taken.1["detail"].as_str().unwrap().contains("scope regional in us-east"), "{}", taken.1);
    assert_eq!(code(&agent.call("PUT", "/v1/barriers/local/other", global).await), (503, "unavailable"), "handed on");
    let elsewhere = agent.call("PUT", "/v1/barriers/local/far", definition(json!({ "regions": ["eu-west"] }))).await;
    assert_eq!(code(&elsewhere), (422, "wrong-region"));
    agent.open(1, slice("1")).await;
    let of_the_world = agent.call("PUT", "/v1/barriers/etl/map", definition(json!({}))).await;
    assert_eq!(code(&of_the_world), (409, "conflict"));
    assert!(of_the_world.1["detail"].as_str().unwrap().contains("scope global"), "{}", of_the_world.1);
    assert_eq!(code(&agent.call("PUT", B, json!({ "scope": "regional" })).await), (422, "invalid-definition"));
    assert_eq!(code(&agent.get("/v1/barriers/local/none").await), (503, "unavailable"));
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_can_be_tried_said_again_and_are_audited() {
    let (_world, agent) = region_with(json!({})).await;
    let over = |what: &str, body: Value| agent.call("POST", &format!("{B}/generations/{what}"), body);
    arrive(&agent, "k", "1", Value::Null).await;
    assert_eq!(code(&over("k/abort", json!({ "reason": " " })).await), (400, "bad-request"));
    assert_eq!(code(&over("k/release", json!({ "reason": "x" })).await), (400, "bad-request"));
    assert_eq!(code(&over("k/retry", json!({ "reason": "x" })).await), (409, "not-broken"));
    assert_eq!(code(&over("none/abort", json!({ "reason": "x" })).await), (404, "no-such-generation"));
    let required = agent.call("POST", &format!("{B}/abort"), json!({ "reason": "x" })).await;
    assert_eq!(code(&required), (400, "generation-required"));

    let tried = over("k/abort?dryRun=true", json!({ "reason": "x" })).await;
    assert_eq!((tried.0, &tried.1["changed"], &tried.1["status"]["state"]), (200, &json!(true), &json!("broken")));
    assert_eq!(state(&agent, "k").await, "gathering", "it only said what would happen");
    for changed in [true, false] {
        let aborted = over("k/abort", json!({ "reason": "bad input" })).await;
        assert_eq!((aborted.0, &aborted.1["changed"]), (200, &json!(changed)));
        assert_eq!(aborted.1["status"]["message"], "aborted: bad input");
    }
    assert_eq!(code(&arrive(&agent, "k", "2", Value::Null).await), (409, "broken"));

    let retried = over("k/retry", json!({ "reason": "fixed" })).await;
    assert_eq!((retried.0, &retried.1["status"]["generation"]), (201, &json!("k~1")), "{}", retried.1);
    assert_eq!(retried.1["status"]["arrived"], 1, "what is done stays done");
    let again = over("k/retry", json!({ "reason": "fixed" })).await;
    assert_eq!((again.0, &again.1["changed"], &again.1["status"]["round"]), (200, &json!(false), &json!(1)));

    let stranger = over("k/waive", json!({ "region": "us-east", "participants": "7", "reason": "x" })).await;
    assert_eq!(code(&stranger), (422, "not-expected"));
    let waived = over("k/waive", json!({ "region": "us-east", "participants": "2", "reason": "broken disk" })).await;
    assert_eq!((waived.0, &waived.1["status"]["state"]), (200, &json!("released")), "{}", waived.1);
    assert_eq!(waived.1["status"]["message"], "released, not whole: 2 of us-east waived");
    assert_eq!(agent.get(&format!("{B}/generations/k/arrivals/2")).await.1["state"], "waived");

    arrive(&agent, "forced", "1", Value::Null).await;
    let forced = over("forced/release", json!({ "force": true, "reason": "enough" })).await;
    assert_eq!((forced.0, &forced.1["status"]["reason"]), (200, &json!("forced")));
    let audit = agent.get("/v1/audit?scope=regional").await.1;
    let actions: Vec<&Value> = audit["items"].as_array().unwrap().iter().map(|row| &row["action"]).collect();
    assert_eq!(actions, ["release", "waive", "retry", "abort"]);
    assert_eq!(audit["items"][1]["object"], "us-east/2", "{audit}");
    assert_eq!(code(&agent.get("/v1/audit").await), (503, "unavailable"), "the world's is the coordinator's");
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_barrier_needs_no_generation_and_a_deleted_one_breaks() {
    let (_world, agent) = region_with(json!({ "generations": "single", "deadline": "none" })).await;
    let status = agent.get(&format!("{B}/generations/latest")).await.1;
    assert_eq!((&status["reason"], &status["deadlineAt"]), (&json!("idle"), &Value::Null), "{status}");
    assert_eq!(agent.call("PUT", &format!("{B}/arrivals/1"), Value::Null).await.0, 201);
    assert_eq!(code(&agent.get(&format!("{B}/generations/2/wait?wait=10s")).await), (409, "wrong-generation"));
    let waiting = agent.get(&format!("{B}/wait?wait=20s"));
    let deleting = async {
        let open = agent.call("DELETE", B, Value::Null).await;
        assert_eq!((code(&open), &open.1["open"]), ((409, "conflict"), &json!(["1"])));
        assert_eq!(code(&agent.call("DELETE", &format!("{B}?force=true"), Value::Null).await), (400, "bad-request"));
        let gone = agent.call("DELETE", &format!("{B}?force=true&reason=over"), Value::Null).await;
        assert_eq!((gone.0, &gone.1["broken"]), (200, &json!(["1"])), "{}", gone.1);
    };
    let (waited, ()) = tokio::join!(waiting, deleting);
    assert_eq!((code(&waited), &waited.1["reason"]), ((409, "broken"), &json!("deleted")));
    assert_eq!(code(&agent.get(B).await), (404, "not-defined"));
    assert_eq!(code(&agent.get(&format!("{B}/generations/9")).await), (410, "deleted"));
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cyclic_barrier_goes_on_and_a_read_blocks_until_something_is_new() {
    let (_world, agent) = region_with(json!({ "generations": "cyclic" })).await;
    let before = agent.get(&format!("{B}/generations/latest")).await.1;
    let index = before["index"].as_str().unwrap();
    // What happens elsewhere is no news of this one.
    agent.open(1, slice("[1-3]")).await;
    let blocked = agent.get(&format!("{B}/generations/latest?index={index}&wait=20s"));
    let ((_, after), first) = tokio::join!(blocked, arrive(&agent, "1", "1", Value::Null));
    assert_eq!((first.0, &after["arrived"], &after["n"]), (201, &json!(1), &json!(1)), "{after}");
    let quiet = agent.get(&format!("{B}/generations/1?index={}&wait=50ms", after["index"].as_str().unwrap())).await.1;
    assert_eq!(quiet["index"], after["index"], "time is up, and nothing is new");
    arrive(&agent, "1", "2", Value::Null).await;
    assert_eq!((state(&agent, "1").await, state(&agent, "2").await), (json!("released"), json!("gathering")));
    let over = agent.call("POST", &format!("{B}/generations/1/retry"), json!({ "reason": "x" })).await;
    assert_eq!(code(&over), (409, "already-decided"));
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_deadline_passes_on_the_region_clock() {
    let (_world, agent) = region_with(json!({ "deadline": "2s" })).await;
    let session = json!({ "participants": [{ "barrier": "local/step", "generation": "k", "id": "1" }] });
    let (status, body) = agent.call("POST", "/v1/sessions", session).await;
    assert_eq!((status, &body["participants"][0]["n"]), (201, &json!(1)), "a session opens a key, too: {body}");
    let waited = agent.get(&format!("{B}/generations/k/wait?wait=25s")).await;
    assert_eq!((code(&waited), &waited.1["reason"]), ((409, "broken"), &json!("deadline-exceeded")), "{}", waited.1);
    agent.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_agent_defined_is_known_here() {
    let (world, one) = region_with(json!({ "generations": "single" })).await;
    let two = world.agent("b").await;
    assert_eq!(two.get(B).await.0, 200);
    assert_eq!(two.call("PUT", &format!("{B}/arrivals/1"), Value::Null).await.0, 201);
    assert_eq!(one.call("PUT", &format!("{B}/arrivals/2?wait=20s"), Value::Null).await.0, 200);
    let barriers = |region: &Region| region.regional_barriers().count();
    assert_eq!(two.service.handle.read(barriers), 1);
    one.stopped().await;
    two.stopped().await;
}
