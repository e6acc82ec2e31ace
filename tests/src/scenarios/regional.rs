//! Barriers of one region, decided there alone.

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::{Apply, Client};
use muster_protocol::generation::State;
use muster_wire::answer::{Applied, ParticipantState, Reason};
use muster_wire::code::Code;
use muster_wire::request::{Arrival, Keep, OpenSession, Waive};
use serde_json::{Value, json};

use super::{Outcome, on_every_cluster, own_cluster, refused};
use crate::cluster::{Part, Shape, regions};
use crate::until::until;
use crate::worker::Worker;
use crate::world::World;

on_every_cluster!(a_region_crosses_alone, a_region_overrules_alone, a_lost_one_is_waited_for, a_name_is_of_one_scope,);
own_cluster!(
    regional_barriers_need_no_coordinator: Shape { regions: regions(["us-east", "eu-west"]), ..Shape::default() },
);

/// Defines a barrier of the first region.
async fn define(client: &Client, world: &World<'_>, name: &str, more: Value) -> anyhow::Result<Applied> {
    let mut definition = world.definition(name, json!({"scope": "regional", "regions": [world.region(0)]}));
    if let (Some(definition), Value::Object(more)) = (definition.as_object_mut(), more) {
        definition.extend(more);
    }
    Ok(client.apply(&world.barrier(name), definition.to_string(), Apply::default()).await?)
}

fn two(world: &World<'_>) -> [Worker; 2] {
    [world.worker(0, "1"), world.worker(0, "2")]
}

/// Keys opened by their first arrival, and cycles.
async fn crosses(world: &World<'_>, keyed: &str, cyclic: &str) -> Outcome {
    let workers = two(world);
    for key in ["a", "b"] {
        let target = world.target(keyed, key);
        let released = world.cross(&target, &workers).await?;
        ensure!(released.whole && released.state == State::Released, "{released:?}");
        let status = workers[0].client.status(&target, None).await?;
        ensure!((status.state, status.arrived) == (State::Released, 2), "{status:?}");
    }
    for n in 1..=3 {
        ensure!(world.cross(&world.target(cyclic, n), &workers).await?.n == n);
    }
    Ok(())
}

/// One that breaks by its deadline, told to whoever waits.
async fn breaks_in_time(world: &World<'_>, name: &str) -> Outcome {
    let (target, [one, two]) = (world.target(name, "late"), two(world));
    one.arrive(&target).await?;
    let problem = refused(&two.wait(&target).await, Code::Broken)?;
    ensure!(problem.more.get("reason") == Some(&json!("deadline-exceeded")), "{problem:?}");
    Ok(())
}

async fn a_region_crosses_alone(world: &World<'_>) -> Outcome {
    let (agents, coordinator) = (world.agents(world.region(0)), world.coordinator());
    let two = json!(["1", "2"]);
    let keyed = json!({"generations": "keyed", "participants": two});
    ensure!(define(&agents, world, "keyed", keyed.clone()).await?.created);
    ensure!(!define(&coordinator, world, "keyed", keyed).await?.changed, "the same through the coordinator");
    ensure!(define(&coordinator, world, "step", json!({"generations": "cyclic", "participants": two})).await?.created);
    let brief = json!({"generations": "keyed", "participants": two, "deadline": "1s"});
    define(&coordinator, world, "brief", brief).await?;
    crosses(world, "keyed", "step").await?;
    breaks_in_time(world, "brief").await?;
    // The coordinator hands on what names the region, and knows nothing itself.
    let path = format!("/v1/barriers/{}/generations/a", world.barrier("keyed"));
    let region = world.region(0);
    let handed_on = world.raw("GET", &format!("{path}/wait?region={region}")).send().await?;
    ensure!(handed_on.status == 200 && handed_on.json()["whole"] == json!(true), "{handed_on:?}");
    let _ = world.raw("GET", &path).send().await?.problem(Code::NotDefined);
    // Another region has no part in it.
    let elsewhere = world.worker(1, "1").arrive(&world.target("keyed", "a")).await;
    ensure!(elsewhere.as_ref().is_err_and(|error| error.is(Code::NotDefined)), "{elsewhere:?}");
    let wrong = define(&world.agents(world.region(1)), world, "other", json!({})).await;
    ensure!(wrong.is_err_and(|error| format!("{error:#}").contains("send it to an agent of")), "not there");
    // It is deleted where it is.
    refused(&agents.delete(&world.barrier("step"), None).await, Code::Conflict)?;
    let deleted = agents.delete(&world.barrier("step"), Some("the job is gone")).await?;
    ensure!(deleted.broken == ["4"], "{deleted:?}");
    Ok(())
}

async fn a_region_overrules_alone(world: &World<'_>) -> Outcome {
    let client = world.agents(world.region(0));
    define(&client, world, "map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
    let [one, two] = two(world);
    let [waived, forced, first] = ["waived", "forced", "k~0"].map(|id| world.target("map", id));
    for key in ["waived", "forced", "k"] {
        client.open(&world.barrier("map"), Some(&key.parse()?)).await?;
    }
    for target in [&waived, &forced, &first] {
        one.arrive(target).await?;
        world.everybody(target, &[one.clone(), two.clone()]);
    }
    world.require(&waived, std::slice::from_ref(&one));
    let waive = Waive { region: one.region.clone(), participants: Some("2".to_owned()), reason: "gone".to_owned() };
    let tried = client.waive(&waived, &waive, true).await?;
    ensure!(tried.changed && tried.dry_run && tried.status.state == State::Released, "{tried:?}");
    ensure!(client.status(&waived, None).await?.state == State::Gathering, "it was only tried");
    ensure!(client.waive(&waived, &waive, false).await?.changed);
    ensure!(!one.wait(&waived).await?.whole);
    refused(&client.waive(&waived, &waive, false).await, Code::AlreadyDecided)?;

    refused(&client.release(&forced, "", false).await, Code::BadRequest)?;
    for changed in [true, false] {
        ensure!(client.release(&forced, "the night is over", false).await?.changed == changed);
    }
    ensure!(!two.wait(&forced).await?.whole);

    for changed in [true, false] {
        ensure!(client.abort(&first, "wrong input", false).await?.changed == changed);
    }
    refused(&two.wait(&first).await, Code::Broken)?;
    let second = world.target("map", "k~1");
    for changed in [true, false] {
        let retried = client.retry(&world.target("map", "k"), Keep::Ok, "right input", false).await?;
        ensure!(retried.changed == changed && retried.status.generation == "k~1", "{retried:?}");
    }
    world.require(&second, &[one.clone(), two.clone()]);
    world.carries(&second, &first);
    ensure!(two.cross(&second).await?.whole, "what was done is done");
    let path = format!("/v1/audit?scope=regional&barrier={}", world.barrier("map"));
    let audit = world.raw_agent(0, "GET", &path).send().await?.json();
    let rows: Vec<(&str, &str)> = audit["items"]
        .as_array()
        .context("no rows")?
        .iter()
        .filter_map(|row| Some((row["action"].as_str()?, row["reason"].as_str()?)))
        .collect();
    let expected =
        [("retry", "right input"), ("abort", "wrong input"), ("release", "the night is over"), ("waive", "gone")];
    ensure!(rows == expected, "{rows:?}");
    Ok(())
}

/// Only a region alone may wait for somebody it can't hear.
async fn a_lost_one_is_waited_for(world: &World<'_>) -> Outcome {
    let client = world.agents(world.region(0));
    let liveness = json!({"ttl": "3s", "rejoin": "0s", "onLost": "wait"});
    define(&client, world, "map", json!({"participants": ["1", "2"], "liveness": liveness})).await?;
    let (target, [one, two]) = (world.target("map", 1), two(world));
    world.require(&target, &[one.clone(), two.clone()]);
    one.client.open_session(&OpenSession { ..one.opening(&target, None) }).await?;
    two.arrive(&target).await?;
    until("it is lost", || async {
        match one.client.arrival(&target, &one.id, None).await {
            Ok(seen) if seen.state == ParticipantState::Lost => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let status = client.status(&target, None).await?;
    ensure!((status.state, status.regions[0].lost) == (State::Gathering, 1), "{status:?}");
    let back = one.session(&target, None).await?;
    let attempt = back.participants()[0].attempt;
    one.arrive_as(&target, Arrival { session: Some(back.id()), attempt: Some(attempt), ..Arrival::default() }).await?;
    ensure!(one.wait(&target).await?.whole);
    Ok(())
}

async fn a_name_is_of_one_scope(world: &World<'_>) -> Outcome {
    let (agents, coordinator) = (world.agents(world.region(0)), world.coordinator());
    // Global first: neither there nor here.
    world.define("global", json!({})).await?;
    let target = world.target("global", 1);
    world.worker(0, "1").arrive(&target).await?;
    for client in [&agents, &coordinator] {
        let taken = define(client, world, "global", json!({})).await;
        let conflict = taken.as_ref().is_err_and(|error| {
            error.downcast_ref::<muster_client::Error>().is_some_and(|error| error.is(Code::Conflict))
        });
        ensure!(conflict, "{taken:?}");
    }
    // Regional first: its agents refuse, and what opens elsewhere breaks by it.
    define(&agents, world, "regional", json!({"participants": ["1", "2"]})).await?;
    let mine = world.target("regional", 1);
    let workers = two(world);
    workers[0].arrive(&mine).await?;
    let definition = world.definition("regional", json!({})).to_string();
    let at_agent = agents.apply(&world.barrier("regional"), definition, Apply::default()).await;
    refused(&at_agent, Code::Conflict)?;
    world.define("regional", json!({})).await?;
    let broken = world.until_state(&mine, State::Broken).await?;
    ensure!(broken.reason == Reason::NameTaken, "{broken:?}");
    ensure!(broken.broken.is_some_and(|broken| broken.region.as_ref() == Some(world.region(0))));
    // The region's own goes on untouched.
    workers[1].arrive(&mine).await?;
    let released = try_join_all(workers.iter().map(|worker| worker.wait(&mine))).await?;
    ensure!(released.iter().all(|released| released.whole));
    Ok(())
}

async fn regional_barriers_need_no_coordinator(world: &World<'_>) -> Outcome {
    let client = world.agents(world.region(0));
    let two = json!(["1", "2"]);
    define(&client, world, "before", json!({"generations": "cyclic", "participants": two})).await?;
    world.cluster.stop(&Part::Coordinator(0)).await?;
    let keyed = json!({"generations": "keyed", "participants": two});
    ensure!(define(&client, world, "during", keyed.clone()).await?.created);
    let brief = json!({"generations": "keyed", "participants": two, "deadline": "1s"});
    define(&client, world, "brief", brief).await?;
    crosses(world, "during", "before").await?;
    breaks_in_time(world, "brief").await?;
    let late = world.target("brief", "late");
    let retried = client.retry(&late, Keep::Ok, "once more", false).await?;
    ensure!(retried.changed, "{retried:?}");
    // Its agents may restart meanwhile.
    let agent = Part::Agent(world.region(0).clone(), 0);
    world.cluster.kill(&agent).await?;
    world.cluster.start(&agent).await?;
    crosses_again(world).await?;
    world.cluster.start(&Part::Coordinator(0)).await?;
    world.cluster.ready().await?;
    world.define("map", json!({"participants": two})).await?;
    world.cross(&world.target("map", 1), &world.workers(&["1", "2"])).await?;
    Ok(())
}

async fn crosses_again(world: &World<'_>) -> Outcome {
    let workers = two(world);
    world.cross(&world.target("during", "again"), &workers).await?;
    world.cross(&world.target("before", 4), &workers).await?;
    Ok(())
}
