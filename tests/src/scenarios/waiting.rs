//! Waiting, and everything that may happen to a call that is held.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use muster_client::Error;
use muster_protocol::generation::State;
use muster_wire::code::Code;
use serde_json::json;

use super::{Outcome, on_every_cluster, own_cluster, refused};
use crate::cluster::Part;
use crate::until::{DEADLINE, until};
use crate::world::World;

on_every_cluster!(
    a_wait_that_times_out_changes_nothing,
    a_blocking_status_wakes_on_change,
    waits_at_the_coordinator_and_for_several,
    why_names_who_is_missing,
);
own_cluster!(a_graceful_stop_ends_long_polls);

async fn a_wait_that_times_out_changes_nothing(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let target = world.target("map", 1);
    let worker = world.worker(0, "1");
    worker.arrive(&target).await?;
    let before = world.until_status(&target, "one has arrived", |status| status.arrived == 1).await?;
    let waited = worker.wait_for(&target, Duration::from_millis(300)).await;
    let Err(Error::TimedOut { last: Some(problem) }) = &waited else { anyhow::bail!("{waited:?}") };
    ensure!(problem.code == Code::StillGathering && problem.detail.contains('2'), "{problem:?}");
    let path = format!("/v1/barriers/{}/generations/1", world.barrier("map"));
    let bare = world.raw_agent(0, "GET", &format!("{path}/wait?wait=1ms")).send().await?;
    let _ = bare.problem(Code::StillGathering);
    let other = world.raw_agent(0, "GET", &format!("{path}/wait?wait=1ms&pending=425")).send().await?;
    ensure!(other.status == 425, "{other:?}");
    // Arriving and waiting in one call: the arrival stands.
    let both = world.raw_agent(1, "PUT", &format!("{path}/arrivals/1?wait=1ms")).send().await?;
    let problem = both.problem(Code::StillGathering);
    ensure!(problem.more.get("arrived") == Some(&json!(true)), "{problem:?}");
    let after = world.until_status(&target, "two have arrived", |status| status.arrived == 2).await?;
    ensure!(after.state == before.state && after.expected == before.expected);
    world.cross(&target, &world.workers(&["1", "2"])).await?;
    Ok(())
}

async fn a_blocking_status_wakes_on_change(world: &World<'_>) -> Outcome {
    world.define("map", json!({})).await?;
    let target = world.target("map", 1);
    let coordinator = world.coordinator();
    // An index that nobody issued answers at once.
    let quick = Instant::now();
    coordinator.status(&target, Some(("nobody:1", DEADLINE))).await?;
    ensure!(quick.elapsed() < DEADLINE);
    let mut seen = coordinator.status(&target, None).await?;
    let workers = world.workers(&["1"]);
    for worker in &workers {
        let index = seen.index.clone();
        let blocked = coordinator.status(&target, Some((&index, DEADLINE)));
        let (woken, arrived) = futures::join!(blocked, worker.arrive(&target));
        arrived?;
        seen = woken?;
        ensure!(seen.index != index, "it woke without a change: {seen:?}");
    }
    // It follows to the very end, one change after another.
    until("released by following the index", || async {
        let index = seen.index.clone();
        match coordinator.status(&target, Some((&index, Duration::from_secs(5)))).await {
            Ok(status) if status.state == State::Released => Ok(()),
            Ok(status) => Err(format!("{status:?}")),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    // Time that is up without a change answers with the same.
    let last = coordinator.status(&target, None).await?;
    let same = coordinator.status(&target, Some((&last.index, Duration::from_millis(200)))).await?;
    ensure!(same.index == last.index);
    Ok(())
}

async fn waits_at_the_coordinator_and_for_several(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed"})).await?;
    let workers = world.workers(&["1"]);
    let (a, b, never) = (world.target("map", "a"), world.target("map", "b"), world.target("map", "never"));
    let until = Some((Instant::now() + DEADLINE).into());
    let coordinator = world.coordinator();
    // Waits for a key that nobody has opened are only early.
    let agent = world.agents(world.region(2));
    let early = raw_early(world, &a).await?;
    ensure!(early == (Code::NotOpenYet, Code::NotOpenYet), "{early:?}");
    let waits = async { futures::join!(coordinator.wait(&a, until), agent.wait(&a, until)) };
    let (waited, crossed) = futures::join!(waits, world.cross(&a, &workers));
    let digest = crossed?.digest;
    ensure!(waited.0?.digest == digest && waited.1?.digest == digest);
    world.cross(&b, &workers).await?;
    for (kind, list, status) in
        [("all", format!("{a},{b}"), 200), ("any", format!("{never},{b}"), 200), ("all", format!("{a},{never}"), 408)]
    {
        let answer = world.raw_agent(0, "GET", &format!("/v1/wait?{kind}={list}&wait=300ms")).send().await?;
        ensure!(answer.status == status, "{kind}={list}: {answer:?}");
    }
    Ok(())
}

/// What agent and coordinator say of a wait for what is not open.
async fn raw_early(world: &World<'_>, target: &muster_client::Target) -> anyhow::Result<(Code, Code)> {
    let id = target.generation.as_ref().context("a generation")?;
    let path = format!("/v1/barriers/{}/generations/{id}/wait?wait=100ms", target.barrier);
    let code = |answer: crate::raw::Answer| {
        serde_json::from_value(answer.json()["code"].clone()).with_context(|| format!("{answer:?}"))
    };
    let agent = code(world.raw_agent(1, "GET", &path).send().await?)?;
    Ok((agent, code(world.raw("GET", &path).send().await?)?))
}

async fn why_names_who_is_missing(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": "[0-9]"})).await?;
    let target = world.target("map", 1);
    for id in ["0", "1", "3", "7"] {
        world.worker(1, id).arrive(&target).await?;
    }
    let region = world.region(1).clone();
    let counted = |status: &muster_wire::answer::Status| {
        status.regions.iter().any(|part| part.name == region && part.arrived == 4)
    };
    let status = world.until_status(&target, "four have arrived", counted).await?;
    let part = status.regions.iter().find(|part| part.name == region).context("no region")?;
    ensure!(part.missing == "[2,4-6,8-9]" && part.missing_count == 6, "{part:?}");
    for client in [world.coordinator(), world.agents(world.region(0))] {
        let told = client.explain(&target).await?;
        let text = told.lines.join("\n");
        ensure!(text.contains(region.as_str()) && !told.actions.is_empty(), "{told:?}");
    }
    let listed = world.agents(&region).participants(&target, Some("missing"), None).await?;
    ensure!(listed.len() == 6, "{listed:?}");
    Ok(())
}

/// An agent that is told to stop ends the calls it holds at once, with an
/// answer that clients follow to another agent or to its next life.
async fn a_graceful_stop_ends_long_polls(world: &World<'_>) -> Outcome {
    world.define("map", json!({})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1"]);
    world.require(&target, &workers);
    let agent = Part::Agent(world.region(0).clone(), 0);
    let path = format!("/v1/barriers/{}/generations/1", world.barrier("map"));
    let arriving = world.raw_agent(0, "PUT", &format!("{path}/arrivals/1?wait=10m"));
    let held = tokio::spawn(arriving.send());
    let coordinator = tokio::spawn(world.raw("GET", &format!("{path}/wait?wait=10m")).send());
    // What counts was taken, so the calls are held; the stop must end them,
    // not outwait them.
    world.until_status(&target, "both calls are held", |status| status.arrived == 1 && status.waiting >= 1).await?;
    world.cluster.stop(&agent).await?;
    let told = held.await??.problem(Code::Draining);
    ensure!(told.more.get("arrived") == Some(&json!(true)), "{told:?}");
    world.cluster.stop(&Part::Coordinator(0)).await?;
    let _ = coordinator.await??.problem(Code::Draining);
    // A client with patience does not even notice.
    let crossing = world.cross(&target, &workers);
    let back = async {
        world.cluster.start(&Part::Coordinator(0)).await?;
        world.cluster.start(&agent).await
    };
    let (crossed, back) = futures::join!(crossing, back);
    back?;
    crossed?;
    refused(&workers[0].withdraw(&target, 1).await, Code::AlreadyDecided)?;
    Ok(())
}
