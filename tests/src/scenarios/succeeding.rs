//! A job's barriers: one comes after the other, and goes down with it.

use anyhow::{Context, ensure};
use futures::future::join_all;
use muster_protocol::generation::State;
use muster_wire::answer::Reason;
use muster_wire::code::Code;
use muster_wire::request::Keep;
use serde_json::json;

use super::{Outcome, failed, on_every_cluster, refused};
use crate::world::World;

on_every_cluster!(a_job_goes_down_together_and_is_retried_together, numbers_of_cycles_go_down_together);

async fn a_job_goes_down_together_and_is_retried_together(world: &World<'_>) -> Outcome {
    let define = async |name: &str, after: Option<&str>| {
        let after = after.map(|after| json!({"generations": "keyed", "after": world.barrier(after)}));
        world.define(name, after.unwrap_or(json!({"generations": "keyed"}))).await
    };
    define("map", None).await?;
    define("shuffle", Some("map")).await?;
    define("reduce", Some("shuffle")).await?;
    let (coordinator, workers) = (world.coordinator(), world.workers(&["1"]));
    let [map, shuffle, reduce] = ["map", "shuffle", "reduce"].map(|name| world.target(name, "k~0"));
    for name in ["map", "shuffle", "reduce"] {
        coordinator.open(&world.barrier(name), Some(&"k".parse()?)).await?;
    }
    let why = coordinator.explain(&shuffle).await?;
    let line = format!("It comes after {0}, and breaks if that breaks ({0}@k).", world.barrier("map"));
    ensure!(why.lines.contains(&line), "{:?}", why.lines);
    // Everybody waits for the end of the job; one failure ends it for all.
    let waits = join_all(workers.iter().map(|worker| worker.wait(&reduce)));
    let (heard, failed) = futures::join!(waits, workers[1].arrive_as(&map, failed(1)));
    failed?;
    for heard in heard {
        let problem = refused(&heard, Code::Broken)?;
        ensure!(problem.more.get("reason") == Some(&json!("predecessor-broken")), "{problem:?}");
        ensure!(problem.detail.contains(&format!("{}@k", world.barrier("shuffle"))), "{problem:?}");
    }
    let broken = world.until_state(&shuffle, State::Broken).await?.broken.context("no cause")?;
    ensure!(broken.reason == Reason::PredecessorBroken, "{broken:?}");

    // What opens after its predecessor broke goes down as well.
    coordinator.open(&world.barrier("map"), Some(&"late".parse()?)).await?;
    coordinator.abort(&world.target("map", "late"), "wrong input", false).await?;
    coordinator.open(&world.barrier("shuffle"), Some(&"late".parse()?)).await?;
    let late = world.until_state(&world.target("shuffle", "late"), State::Broken).await?;
    ensure!(late.reason == Reason::PredecessorBroken, "{late:?}");
    // Another key is another job.
    ensure!(coordinator.open(&world.barrier("shuffle"), Some(&"other".parse()?)).await?.created);
    ensure!(world.status(&world.target("shuffle", "other")).await?.state == State::Gathering);

    // Retried alone it goes down again; once its predecessor is retried, it stays.
    coordinator.retry(&shuffle, Keep::Ok, "alone", false).await?;
    let alone = world.target("shuffle", "k~1");
    let broken = world.until_state(&alone, State::Broken).await?;
    ensure!(broken.reason == Reason::PredecessorBroken, "{broken:?}");
    coordinator.retry(&map, Keep::Ok, "mended", false).await?;
    coordinator.retry(&alone, Keep::Ok, "after its predecessor", false).await?;
    coordinator.retry(&reduce, Keep::Ok, "after its predecessor", false).await?;
    for (name, round) in [("map", "k~1"), ("shuffle", "k~2"), ("reduce", "k~1")] {
        let again = |number: usize| if (name, number) == ("map", 1) { 2 } else { 1 };
        let target = world.target(name, round);
        world.require(&target, &workers);
        for (number, worker) in workers.iter().enumerate() {
            worker.arrive_as(&target, super::attempt(again(number))).await?;
        }
        ensure!(workers[0].wait(&target).await?.whole);
    }
    Ok(())
}

/// Cycles have numbers for keys, and go on after each break.
async fn numbers_of_cycles_go_down_together(world: &World<'_>) -> Outcome {
    world.define("step", json!({"generations": "cyclic"})).await?;
    world.define("follow", json!({"generations": "cyclic", "after": world.barrier("step")})).await?;
    let workers = world.workers(&["1"]);
    world.cross(&world.target("step", 1), &workers).await?;
    world.cross(&world.target("follow", 1), &workers).await?;
    world.coordinator().abort(&world.target("step", 2), "x", false).await?;
    let heard = workers[2].wait(&world.target("follow", 2)).await;
    ensure!(refused(&heard, Code::Broken)?.more.get("reason") == Some(&json!("predecessor-broken")));
    world.cross(&world.target("step", 3), &workers).await?;
    world.cross(&world.target("follow", 3), &workers).await?;
    Ok(())
}
