//! What is past its retention: details go first, then the verdict; numbers go
//! on.

use anyhow::ensure;
use muster_client::{Apply, Target};
use muster_protocol::generation::State;
use muster_wire::code::Code;
use muster_wire::request::Arrival;
use serde_json::json;

use super::{Outcome, on_every_cluster, own_cluster, refused};
use crate::cluster::{Part, Shape, regions};
use crate::until::{DEADLINE, until};
use crate::worker::Worker;
use crate::world::World;

on_every_cluster!(details_go_and_the_verdict_stays, generations_are_forgotten_and_numbers_go_on);
own_cluster!(
    a_region_that_was_away_learns_what_is_forgotten: Shape { regions: regions(["us-east", "eu-west"]), ..Shape::default() },
);

/// Waits until an arrival is refused since the details are gone.
async fn until_expired(worker: &Worker, target: &Target) -> Outcome {
    until(&format!("{target} is past its retention in {}", worker.region), || async {
        let arrived = worker.client.arrive(target, &worker.id, &Arrival::default()).await;
        refused(&arrived, Code::Expired).map(drop).map_err(|error| error.to_string())
    })
    .await
}

async fn until_forgotten(world: &World<'_>, target: &Target) -> Outcome {
    until(&format!("{target} is forgotten"), || async {
        refused(&world.status(target).await, Code::Expired).map(drop).map_err(|error| error.to_string())
    })
    .await
}

async fn details_go_and_the_verdict_stays(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed", "retention": "5s"})).await?;
    let (target, workers) = (world.target("map", "k"), world.workers(&["1"]));
    let released = world.cross(&target, &workers).await?;
    // Retention is in no hurry: a region looks once a minute, unless something
    // else waits for its clock.
    for (number, worker) in workers.iter().enumerate() {
        let (name, barrier) = (format!("wait-{number}"), world.barrier(&format!("wait-{number}")));
        let waits = json!({"scope": "regional", "regions": [worker.region.clone()], "deadline": "40s"});
        let definition = world.definition(&name, waits).to_string();
        worker.client.apply(&barrier, definition, Apply::default()).await?;
    }
    world.may_be_forgotten(&target);
    for worker in &workers {
        until_expired(worker, &target).await?;
        ensure!(worker.wait(&target).await?.digest == released.digest, "the verdict stays");
        // Nobody is said to be missing of whom nothing is known any more.
        refused(&worker.look(&target).await, Code::Expired)?;
        refused(&worker.client.participants(&target, None, None).await, Code::Expired)?;
    }
    let coordinator = world.coordinator();
    until("the coordinator let go of the details", || async {
        match coordinator.explain(&target).await {
            Ok(why) if why.lines.iter().any(|line| line.contains("past its retention")) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let status = world.status(&target).await?;
    ensure!(status.state == State::Released, "{status:?}");
    ensure!(status.release.is_some_and(|release| release.digest == released.digest));
    ensure!(coordinator.wait(&target, None).await?.digest == released.digest);
    Ok(())
}

/// With details of one, the verdicts of ten are kept.
async fn generations_are_forgotten_and_numbers_go_on(world: &World<'_>) -> Outcome {
    const GENERATIONS: u64 = 13;
    world.define("step", json!({"generations": "cyclic", "retention": 1})).await?;
    let workers = world.workers(&["1"]);
    for n in 1..=GENERATIONS {
        let target = world.target("step", n);
        world.cross(&target, &workers).await?;
        world.may_be_forgotten(&target);
    }
    let (first, last) = (world.target("step", 1), world.target("step", GENERATIONS));
    until_forgotten(world, &first).await?;
    let gone = refused(&world.coordinator().wait(&first, None).await, Code::Expired)?;
    ensure!(gone.status == 410, "{gone:?}");
    for worker in &workers {
        until_expired(worker, &first).await?;
        refused(&worker.client.wait(&first, None).await, Code::Expired)?;
        worker.wait(&last).await?;
    }
    // The open one, and ten verdicts.
    let (barrier, coordinator) = (world.barrier("step"), world.coordinator());
    until("ten verdicts are kept", || async {
        let history = coordinator.history(&barrier).await.map_err(|error| error.to_string())?;
        let numbers: Vec<u64> = history.iter().map(|row| row.n).collect();
        let kept: Vec<u64> = (GENERATIONS - 9..=GENERATIONS + 1).rev().collect();
        if numbers == kept { Ok(()) } else { Err(format!("{numbers:?}, not {kept:?}")) }
    })
    .await?;
    let next = world.cross(&world.target("step", GENERATIONS + 1), &workers).await?;
    ensure!(next.n == GENERATIONS + 1);
    Ok(())
}

async fn a_region_that_was_away_learns_what_is_forgotten(world: &World<'_>) -> Outcome {
    const GENERATIONS: u64 = 13;
    let rule = json!({"atLeast": 1, "of": world.regions()});
    world.define("step", json!({"generations": "cyclic", "retention": 1, "releaseWhen": rule})).await?;
    let (here, away) = (world.worker(0, "1"), world.worker(1, "1"));
    let (first, last) = (world.target("step", 1), world.target("step", GENERATIONS));
    until("the other region knows the first", || async {
        away.client.participants(&first, None, None).await.map(drop)
    })
    .await?;
    let agent = Part::Agent(away.region.clone(), 0);
    world.cluster.stop(&agent).await?;
    for n in 1..=GENERATIONS {
        let target = world.target("step", n);
        world.may_be_forgotten(&target);
        world.cross(&target, std::slice::from_ref(&here)).await?;
    }
    until_forgotten(world, &first).await?;
    world.cluster.start(&agent).await?;
    // Who waits there for what it still thinks to gather is told at once.
    let since = std::time::Instant::now();
    let path = format!("/v1/barriers/{}/generations/1/wait?wait=10m", world.barrier("step"));
    let _ = world.raw_agent(1, "GET", &path).send().await?.problem(Code::Expired);
    ensure!(since.elapsed() < DEADLINE, "it was not woken");
    until_expired(&away, &first).await?;
    ensure!(!away.wait(&last).await?.whole);
    let next = world.target("step", GENERATIONS + 1);
    away.cross(&next).await?;
    Ok(())
}
