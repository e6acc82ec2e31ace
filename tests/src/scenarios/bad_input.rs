//! What nobody should send: each gets its problem document, and changes
//! nothing.

use anyhow::{Context, ensure};
use muster_wire::code::Code;
use serde_json::{Value, json};

use super::{Outcome, on_every_cluster};
use crate::raw::Request;
use crate::until::until;
use crate::world::World;

on_every_cluster!(bad_arrivals, bad_definitions, bad_requests_at_the_coordinator, foreign_pages_are_refused);

/// What is true of this corner of the world, without what moves by itself.
async fn state(world: &World<'_>) -> anyhow::Result<Value> {
    let mut state = Vec::new();
    let coordinator = world.coordinator();
    for barrier in coordinator.barriers().await? {
        if !barrier.name.to_string().starts_with(world.barrier("x").namespace()) {
            continue;
        }
        let history = coordinator.history(&barrier.name).await?;
        for row in &history {
            let target = format!("{}@{}", barrier.name, row.generation).parse().ok().context("a target")?;
            state.push(json!(coordinator.status(&target, None).await?));
            for region in world.regions() {
                let listed = world.agents(region).participants(&target, None, None).await;
                state.push(listed.map_or_else(|error| json!(error.to_string()), |listed| json!(listed)));
            }
        }
        state.push(json!([barrier, history]));
    }
    let mut state = Value::Array(state);
    forget(&mut state, &["index", "waiting", "asOfSeconds", "link", "next", "message", "reason"]);
    Ok(state)
}

fn forget(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !names.contains(&name.as_str()));
            fields.values_mut().for_each(|value| forget(value, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| forget(value, names)),
        _ => {}
    }
}

/// Sends all of it, and compares the world before and after.
async fn change_nothing(world: &World<'_>, bad: Vec<(String, Request, Code)>) -> Outcome {
    let before = until("every region has heard of everything", || async {
        let state = state(world).await.map_err(|error| format!("{error:#}"))?;
        if state.to_string().contains("unopened") { Err(format!("{state:#}")) } else { Ok(state) }
    })
    .await?;
    for (what, request, code) in bad {
        let answer = request.send().await.with_context(|| what.clone())?;
        eprintln!("{what}: {} {}", answer.status, answer.body.chars().take(200).collect::<String>());
        let problem = answer.problem(code);
        ensure!(problem.detail.len() > 10, "{what}: {problem:?}");
    }
    let after = state(world).await?;
    ensure!(before == after, "something changed\nbefore: {before:#}\nafter: {after:#}");
    Ok(())
}

async fn bad_arrivals(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    world.define("once", json!({"participants": ["1", "2"]})).await?;
    world.define("step", json!({"generations": "cyclic", "participants": 1})).await?;
    world.define("keyed", json!({"generations": "keyed", "maxOpen": 1})).await?;
    // Nobody came yet: what is refused must not open a key.
    world.define("fresh", json!({"generations": "keyed", "maxOpen": 16, "participants": ["1", "2"]})).await?;
    world.define("two", json!({"regions": [regions[0].clone(), regions[1].clone()]})).await?;
    world.worker(0, "1").arrive(&world.target("step", 1)).await?;
    world.worker(0, "1").arrive(&world.target("keyed", "k")).await?;
    let (step, keyed) = (world.target("step", 1), world.target("keyed", "k"));
    world.until_status(&step, "one arrived", |status| status.arrived == 1).await?;
    world.until_status(&keyed, "one arrived", |status| status.arrived == 1).await?;

    let namespace = world.barrier("x").namespace().to_owned();
    let arrivals = |name: &str, id: &str| format!("/v1/barriers/{namespace}/{name}/generations/{id}/arrivals");
    let put = |region, path: String| world.raw_agent(region, "PUT", &path);
    let work = |name: &str, key: &str, who: &str, ttl: &str| {
        let barrier = world.barrier(name);
        json!({"ttl": ttl, "participants": [{"barrier": barrier, "generation": key, "id": who}]})
    };
    let large = "x".repeat(100_000);
    let rows = [
        ("unknown barrier", put(0, arrivals("nobody", "1") + "/1"), Code::NotDefined),
        ("unknown barrier, keyed", put(0, arrivals("nobody", "a-key") + "/1"), Code::NotDefined),
        ("wrong region", put(2, arrivals("two", "1") + "/1"), Code::WrongRegion),
        ("another region's, in the query", put(0, arrivals("once", "1") + "/1?region=eu-west"), Code::WrongRegion),
        ("wrong generation", put(0, arrivals("once", "7") + "/1"), Code::WrongGeneration),
        ("a key where there are numbers", put(0, arrivals("once", "k") + "/1"), Code::NoSuchGeneration),
        ("no such round", put(0, arrivals("keyed", "k~3") + "/1"), Code::NoSuchGeneration),
        ("`latest` of a cycle", put(0, arrivals("step", "latest") + "/1"), Code::GenerationRequired),
        ("`latest` of keys", put(0, arrivals("keyed", "latest") + "/1"), Code::GenerationRequired),
        (
            "no generation of a cycle",
            put(0, format!("/v1/barriers/{namespace}/step/arrivals/1")),
            Code::GenerationRequired,
        ),
        (
            "no generation of keys",
            put(0, format!("/v1/barriers/{namespace}/keyed/arrivals/1")),
            Code::GenerationRequired,
        ),
        ("one key more than may", put(0, arrivals("keyed", "another") + "/1"), Code::TooManyOpen),
        ("a stranger", put(0, arrivals("once", "1") + "/3"), Code::NotExpected),
        ("one too many", put(0, arrivals("step", "1") + "/2"), Code::Full),
        ("a participant outside the grammar", put(0, arrivals("once", "1") + "/-1"), Code::InvalidName),
        ("a participant with a slash", put(0, arrivals("once", "1") + "/a%2Fb"), Code::InvalidName),
        ("a key outside the grammar", put(0, arrivals("keyed", "a%20b") + "/1"), Code::InvalidName),
        (
            "a name outside the grammar",
            put(0, "/v1/barriers/Etl/map/generations/1/arrivals/1".to_owned()),
            Code::InvalidName,
        ),
        ("an unknown parameter", put(0, arrivals("once", "1") + "/1?wiat=5s"), Code::BadRequest),
        ("a wait that is no duration", put(0, arrivals("once", "1") + "/1?wait=5"), Code::BadRequest),
        ("attempt 0", put(0, arrivals("once", "1") + "/1").json(&json!({"attempt": 0})), Code::BadRequest),
        ("an attempt below 0", put(0, arrivals("once", "1") + "/1").json(&json!({"attempt": -1})), Code::BadRequest),
        (
            "a body that is not JSON",
            put(0, arrivals("once", "1") + "/1").body("application/json", "{outcome: ok"),
            Code::BadRequest,
        ),
        ("a body that is no object", put(0, arrivals("once", "1") + "/1").json(&json!(["ok"])), Code::BadRequest),
        ("an empty array", put(0, arrivals("once", "1") + "/1").json(&json!([])), Code::BadRequest),
        ("fields without names", put(0, arrivals("once", "1") + "/1").json(&json!([7, "failed"])), Code::BadRequest),
        (
            "two regions",
            put(0, arrivals("once", "1") + "/1?region=us-east").json(&json!({"region": "eu-west"})),
            Code::WrongRegion,
        ),
        ("an unknown field", put(0, arrivals("once", "1") + "/1").json(&json!({"outcom": "ok"})), Code::BadRequest),
        (
            "an unknown outcome",
            put(0, arrivals("once", "1") + "/1").json(&json!({"outcome": "fine"})),
            Code::BadRequest,
        ),
        (
            "a body that is too large",
            put(0, arrivals("once", "1") + "/1").json(&json!({"output": large})),
            Code::TooLarge,
        ),
        (
            "an output that is too large",
            put(0, arrivals("once", "1") + "/1").json(&json!({"output": large[..5_000]})),
            Code::TooLarge,
        ),
        (
            "a note that is too large",
            put(0, arrivals("once", "1") + "/1").json(&json!({"note": large[..1_100]})),
            Code::TooLarge,
        ),
        ("a stranger at a fresh key", put(0, arrivals("fresh", "a") + "/3"), Code::NotExpected),
        (
            "attempt 0 at a fresh key",
            put(0, arrivals("fresh", "b") + "/1").json(&json!({"attempt": 0})),
            Code::BadRequest,
        ),
        (
            "a note that is too large at a fresh key",
            put(0, arrivals("fresh", "c") + "/1").json(&json!({"note": large[..1_100]})),
            Code::TooLarge,
        ),
        (
            "half a session at a fresh key",
            put(0, arrivals("fresh", "d") + "/1").json(&json!({"session": "00".repeat(15)})),
            Code::BadRequest,
        ),
        (
            "a session that never was",
            put(0, arrivals("once", "1") + "/1").json(&json!({"session": "00".repeat(16)})),
            Code::SessionLost,
        ),
        ("no session", world.raw_agent(0, "POST", "/v1/sessions").json(&json!({"participants": []})), Code::BadRequest),
        (
            "a session of a stranger at a fresh key",
            world.raw_agent(0, "POST", "/v1/sessions").json(&work("fresh", "g", "3", "30s")),
            Code::NotExpected,
        ),
        (
            "a session that may hardly be silent at a fresh key",
            world.raw_agent(0, "POST", "/v1/sessions").json(&work("fresh", "h", "1", "1s")),
            Code::BadRequest,
        ),
        (
            "a heartbeat of nobody",
            world.raw_agent(0, "PUT", &format!("/v1/sessions/{}/heartbeat", "00".repeat(16))),
            Code::SessionLost,
        ),
        (
            "a batch of strangers at a fresh key",
            world.raw_agent(0, "POST", &arrivals("fresh", "e")).json(&json!({"arrivals": [{"participant": "7"}]})),
            Code::NotExpected,
        ),
        (
            "a batch that would wait, all of it bad, at a fresh key",
            world
                .raw_agent(0, "POST", &(arrivals("fresh", "f") + "?wait=1s"))
                .json(&json!({"arrivals": [{"participant": "1", "attempt": 0}]})),
            Code::BadRequest,
        ),
        (
            "an empty batch",
            world.raw_agent(0, "POST", &arrivals("once", "1")).json(&json!({"arrivals": []})),
            Code::BadRequest,
        ),
        (
            "a batch that is no batch",
            world.raw_agent(0, "POST", &arrivals("once", "1")).json(&json!({})),
            Code::BadRequest,
        ),
        (
            "a batch of too many",
            world
                .raw_agent(0, "POST", &arrivals("once", "1"))
                .json(&json!({"arrivals": vec![json!({"participant": "1"}); 1_001]})),
            Code::BadRequest,
        ),
        (
            "a withdrawal of a stranger",
            world.raw_agent(0, "DELETE", &(arrivals("once", "1") + "/3")),
            Code::NotExpected,
        ),
        ("a method that is none", world.raw_agent(0, "PATCH", &(arrivals("once", "1") + "/1")), Code::MethodNotAllowed),
        ("a path that is none", world.raw_agent(0, "GET", "/v1/barrier"), Code::NotFound),
    ];
    change_nothing(world, rows.into_iter().map(|(what, request, code)| (what.to_owned(), request, code)).collect())
        .await
}

async fn bad_definitions(world: &World<'_>) -> Outcome {
    world.define("map", json!({})).await?;
    let barrier = world.barrier("new");
    let path = format!("/v1/barriers/{barrier}");
    let define = |more: Value| world.raw("PUT", &path).json(&world.definition("new", more));
    let regions = world.regions().to_vec();
    let rows = [
        ("no regions", define(json!({"regions": []})), Code::InvalidDefinition),
        ("an undeclared region", define(json!({"regions": ["us-eats"]})), Code::UnknownRegion),
        (
            "a region twice",
            define(json!({"regions": [regions[0].clone(), regions[0].clone()]})),
            Code::InvalidDefinition,
        ),
        ("nobody expected", define(json!({"participants": 0})), Code::InvalidDefinition),
        ("an empty set", define(json!({"participants": []})), Code::InvalidDefinition),
        ("a range that runs backwards", define(json!({"participants": "[9-1]"})), Code::InvalidDefinition),
        ("a quoted number", define(json!({"participants": "17"})), Code::InvalidDefinition),
        ("a participant twice", define(json!({"participants": ["1", "1"]})), Code::InvalidDefinition),
        ("over a million", define(json!({"participants": 1_000_001})), Code::InvalidDefinition),
        ("no deadline", define(json!({"deadline": null})), Code::InvalidDefinition),
        ("a deadline without a unit", define(json!({"deadline": 30})), Code::InvalidDefinition),
        ("a deadline of nothing", define(json!({"deadline": "0s"})), Code::InvalidDefinition),
        ("a deadline of a year", define(json!({"deadline": "365d"})), Code::InvalidDefinition),
        ("an unknown field", define(json!({"particpants": 3})), Code::InvalidDefinition),
        ("unknown generations", define(json!({"generations": "many"})), Code::InvalidDefinition),
        ("maxOpen without keys", define(json!({"maxOpen": 3})), Code::InvalidDefinition),
        (
            "a rule that can't hold",
            define(json!({"releaseWhen": {"atLeast": 9, "of": regions}})),
            Code::InvalidDefinition,
        ),
        ("a rule of nobody", define(json!({"releaseWhen": {"all": ["us-eats"]}})), Code::InvalidDefinition),
        ("a regional barrier of many regions", define(json!({"scope": "regional"})), Code::InvalidDefinition),
        ("more failures than all", define(json!({"maxFailures": "101%"})), Code::InvalidDefinition),
        ("no attempt", define(json!({"attempts": 0})), Code::InvalidDefinition),
        ("silence that nobody can break", define(json!({"liveness": {"ttl": "1s"}})), Code::InvalidDefinition),
        (
            "waiting for the lost across regions",
            define(json!({"liveness": {"ttl": "3s", "onLost": "wait"}})),
            Code::InvalidDefinition,
        ),
        (
            "arrivals that go with sessions nobody watches",
            define(json!({"keepArrivals": false})),
            Code::InvalidDefinition,
        ),
        ("after itself", define(json!({"after": barrier})), Code::InvalidDefinition),
        ("kept for a year", define(json!({"retention": "365d"})), Code::InvalidDefinition),
        ("another name than the path's", define(json!({"name": "etl/other"})), Code::InvalidDefinition),
        ("another kind", define(json!({"kind": "Lock"})), Code::InvalidDefinition),
        ("not a map", world.raw("PUT", &path).json(&json!([1])), Code::InvalidDefinition),
        (
            "not YAML",
            world.raw("PUT", &path).body("application/yaml", "regions: [a, b\nname: }"),
            Code::InvalidDefinition,
        ),
        ("a name outside the grammar", world.raw("PUT", "/v1/barriers/etl/Map!").json(&json!({})), Code::InvalidName),
        ("one path part less", world.raw("PUT", "/v1/barriers/etl").json(&json!({})), Code::NotFound),
        ("too large", world.raw("PUT", &path).body("application/yaml", "#".repeat(1_100_000)), Code::TooLarge),
        (
            "through an agent",
            world.raw_agent(1, "PUT", &path).json(&world.definition("new", json!({"regions": []}))),
            Code::InvalidDefinition,
        ),
    ];
    let bad = rows.into_iter().map(|(what, request, code)| (what.to_owned(), request, code)).collect();
    change_nothing(world, bad).await?;
    // Everything that is wrong is told at once.
    let many = json!({"regions": [], "participants": 0, "deadline": null, "owner": 7});
    let problem = define(many).send().await?.problem(Code::InvalidDefinition);
    ensure!(
        problem.more.get("errors").and_then(Value::as_array).is_some_and(|errors| errors.len() >= 3),
        "{problem:?}"
    );
    let near = define(json!({"regions": ["us-eats"]})).send().await?.problem(Code::UnknownRegion);
    ensure!(format!("{near:?}").contains("us-east"), "{near:?}");
    Ok(())
}

async fn bad_requests_at_the_coordinator(world: &World<'_>) -> Outcome {
    world.define("map", json!({})).await?;
    world.define("keyed", json!({"generations": "keyed"})).await?;
    let namespace = world.barrier("x").namespace().to_owned();
    let path = |rest: &str| format!("/v1/barriers/{namespace}/{rest}");
    let post = |what: &str, body: Value| world.raw("POST", &path(&format!("map/generations/1/{what}"))).json(&body);
    let rows = [
        ("an arrival without a region", world.raw("PUT", &path("map/generations/1/arrivals/1")), Code::BadRequest),
        (
            "an undeclared region",
            world.raw("PUT", &path("map/generations/1/arrivals/1?region=mars")),
            Code::UnknownRegion,
        ),
        (
            "two regions",
            world.raw("PUT", &path("map/generations/1/arrivals/1?region=us-east")).json(&json!({"region": "eu-west"})),
            Code::BadRequest,
        ),
        ("a status of nothing", world.raw("GET", &path("nobody/generations/1")), Code::NotDefined),
        ("a status of no generation", world.raw("GET", &path("map/generations/2")), Code::NoSuchGeneration),
        ("a wait for no generation", world.raw("GET", &path("map/generations/2/wait")), Code::NoSuchGeneration),
        ("a wait without a key", world.raw("GET", &path("keyed/generations/latest/wait")), Code::GenerationRequired),
        (
            "opening as a trial",
            world.raw("POST", &path("keyed/generations?dryRun=true")).json(&json!({"key": "trial"})),
            Code::BadRequest,
        ),
        ("opening without a key", world.raw("POST", &path("keyed/generations")), Code::BadRequest),
        (
            "opening with a key where there are numbers",
            world.raw("POST", &path("map/generations")).json(&json!({"key": "k"})),
            Code::BadRequest,
        ),
        (
            "an abort without a reason",
            world.raw("POST", &path("map/generations/1/abort")).json(&json!({"reason": " "})),
            Code::BadRequest,
        ),
        (
            "an abort with half a body",
            world.raw("POST", &path("map/generations/1/abort")).json(&json!({})),
            Code::BadRequest,
        ),
        (
            "an abort of what is not open",
            world.raw("POST", &path("keyed/generations/k/abort")).json(&json!({"reason": "x"})),
            Code::NoSuchGeneration,
        ),
        ("a release without force", post("release", json!({"reason": "x"})), Code::BadRequest),
        ("a release without a reason", post("release", json!({"force": true, "reason": ""})), Code::BadRequest),
        ("a waiver without a reason", post("waive", json!({"region": "us-east"})), Code::BadRequest),
        (
            "a waiver of a stranger",
            post("waive", json!({"region": "us-east", "participants": "7", "reason": "x"})),
            Code::NotExpected,
        ),
        ("a waiver of no region", post("waive", json!({"region": "mars", "reason": "x"})), Code::UnknownRegion),
        ("a retry of what gathers", post("retry", json!({"reason": "x"})), Code::NotBroken),
        ("a retry without a reason", post("retry", json!({})), Code::BadRequest),
        (
            "a drain without a time",
            world.raw("POST", "/v1/regions/us-east/drain").json(&json!({"reason": "x"})),
            Code::BadRequest,
        ),
        (
            "a drain into the past",
            world
                .raw("POST", "/v1/regions/us-east/drain")
                .json(&json!({"until": "2020-01-01T00:00:00Z", "reason": "x"})),
            Code::BadRequest,
        ),
        (
            "a history that never was",
            world.raw("POST", "/v1/regions/us-east/adopt").json(&json!({"history": "00".repeat(16), "reason": "x"})),
            Code::Conflict,
        ),
        ("a deletion of what gathers", world.raw("DELETE", &path("map")), Code::Conflict),
        ("a deletion by force without a reason", world.raw("DELETE", &path("map?force=true")), Code::BadRequest),
        ("an unknown state to list", world.raw("GET", "/v1/generations?state=open"), Code::BadRequest),
        ("a region outside the grammar", world.raw("PUT", "/v1/regions/US_EAST"), Code::InvalidName),
        ("nothing to wait for", world.raw("GET", "/v1/wait?all="), Code::BadRequest),
        ("a path that is none", world.raw("GET", "/v2/barriers"), Code::NotFound),
    ];
    change_nothing(world, rows.into_iter().map(|(what, request, code)| (what.to_owned(), request, code)).collect())
        .await
}

/// Without access control, a page in a browser must reach nothing.
async fn foreign_pages_are_refused(world: &World<'_>) -> Outcome {
    world.define("map", json!({})).await?;
    let path = format!("/v1/barriers/{}/generations/1", world.barrier("map"));
    let arrival = format!("{path}/arrivals/1");
    let rows = [
        ("a foreign host", world.raw_agent(0, "PUT", &arrival).header("host", "evil.example"), Code::Forbidden),
        (
            "a foreign origin",
            world.raw_agent(0, "PUT", &arrival).header("origin", "https://evil.example"),
            Code::Forbidden,
        ),
        ("another site", world.raw("GET", &path).header("sec-fetch-site", "cross-site"), Code::Forbidden),
    ];
    change_nothing(world, rows.into_iter().map(|(what, request, code)| (what.to_owned(), request, code)).collect())
        .await
}
