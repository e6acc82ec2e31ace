//! Generations that end without a release: everybody hears, with a reason.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::join_all;
use muster_protocol::generation::State;
use muster_protocol::region::ArrivalOutcome;
use muster_wire::answer::Reason;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request::Arrival;
use serde_json::json;

use super::{Outcome, on_every_cluster, refused};
use crate::worker::Worker;
use crate::world::World;

on_every_cluster!(
    a_failed_arrival_breaks_everywhere_by_name,
    a_deadline_acts_everywhere_and_never_early,
    an_abort_through_one_region_is_heard_by_all,
    a_broken_cycle_goes_on,
    deleting_breaks_what_gathers,
);

/// All wait, and `act` breaks the generation: all must be told so.
async fn all_hear(
    world: &World<'_>,
    target: &muster_client::Target,
    workers: &[Worker],
    act: impl AsyncFnOnce() -> Outcome,
) -> anyhow::Result<Vec<Problem>> {
    let waits = join_all(workers.iter().map(|worker| worker.wait(target)));
    let (heard, acted) = futures::join!(waits, act());
    acted?;
    ensure!(world.status(target).await?.state == State::Broken);
    heard.iter().map(|heard| refused(heard, Code::Broken)).collect()
}

async fn a_failed_arrival_breaks_everywhere_by_name(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1", "2"]);
    let failing = &workers[3];
    for worker in workers.iter().filter(|worker| worker.name() != failing.name()).skip(1) {
        worker.arrive(&target).await?;
    }
    let note = Some("disk full on /data".to_owned());
    let failed = Arrival { outcome: Some(ArrivalOutcome::Failed), note, ..Arrival::default() };
    let heard = all_hear(world, &target, &workers, async || {
        failing.arrive_as(&target, failed.clone()).await?;
        Ok(())
    })
    .await?;
    for problem in heard {
        ensure!(problem.more.get("reason") == Some(&json!("participant-failed")), "{problem:?}");
        ensure!(problem.detail.contains(&failing.name()), "{problem:?}");
    }
    let status = world.status(&target).await?;
    let broken = status.broken.clone().context("no reason")?;
    ensure!(broken.reason == Reason::ParticipantFailed && broken.failed == [failing.name()], "{broken:?}");
    ensure!(broken.region.as_ref() == Some(&failing.region), "{broken:?}");
    ensure!(serde_json::to_string(&status)?.contains("disk full on /data"), "{status:?}");
    // Whoever comes now is told, and nothing is counted.
    refused(&workers[0].arrive(&target).await, Code::Broken)?;
    Ok(())
}

async fn a_deadline_acts_everywhere_and_never_early(world: &World<'_>) -> Outcome {
    const DEADLINE: Duration = Duration::from_millis(1_500);
    let before = Instant::now();
    world.define("map", json!({"deadline": "1500ms"})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1"]);
    workers[0].arrive(&target).await?;
    let waits = join_all(workers.iter().map(async |worker| (worker.wait(&target).await, Instant::now()))).await;
    for (heard, at) in waits {
        let problem = refused(&heard, Code::Broken)?;
        ensure!(problem.more.get("reason") == Some(&json!("deadline-exceeded")), "{problem:?}");
        // It counts from the definition, which was after `before`; the database's
        // clock is this machine's, in whole milliseconds.
        ensure!(at.duration_since(before) + Duration::from_millis(2) >= DEADLINE, "early: {:?}", at - before);
    }
    let status = world.status(&target).await?;
    ensure!(status.broken.is_some_and(|broken| broken.reason == Reason::DeadlineExceeded));
    // A cyclic generation that opened by itself counts from its first arrival.
    world.define("step", json!({"generations": "cyclic", "deadline": "1s"})).await?;
    let (first, second) = (world.target("step", 1), world.target("step", 2));
    world.until_state(&first, State::Broken).await?;
    let next = world.until_state(&second, State::Gathering).await?;
    ensure!(next.deadline_at.is_none(), "nobody came, so no time runs: {next:?}");
    let arrived = Instant::now();
    workers[1].arrive(&second).await?;
    let heard = workers[2].wait(&second).await;
    refused(&heard, Code::Broken)?;
    ensure!(arrived.elapsed() + Duration::from_millis(2) >= Duration::from_secs(1));
    Ok(())
}

async fn an_abort_through_one_region_is_heard_by_all(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed"})).await?;
    let target = world.target("map", "k");
    let workers = world.workers(&["1"]);
    workers[1].arrive(&target).await?;
    let heard = all_hear(world, &target, &workers, async || {
        let dry = world.agents(world.region(2)).abort(&target, "only looking", true).await?;
        ensure!(world.status(&target).await?.state == State::Gathering, "{dry:?}");
        let aborted = world.agents(world.region(2)).abort(&target, "the input was wrong", false).await?;
        ensure!(aborted.changed && aborted.status.state == State::Broken, "{aborted:?}");
        Ok(())
    })
    .await?;
    for problem in heard {
        ensure!(problem.more.get("reason") == Some(&json!("aborted")), "{problem:?}");
        ensure!(problem.detail.contains("the input was wrong"), "{problem:?}");
    }
    // Again: told, not changed. The first reason stays.
    let again = world.coordinator().abort(&target, "another reason", false).await?;
    ensure!(!again.changed, "{again:?}");
    ensure!(again.status.broken.is_some_and(|broken| broken.message.contains("the input was wrong")));
    Ok(())
}

async fn a_broken_cycle_goes_on(world: &World<'_>) -> Outcome {
    world.define("step", json!({"generations": "cyclic"})).await?;
    let workers = world.workers(&["1"]);
    let (first, second) = (world.target("step", 1), world.target("step", 2));
    workers[0].arrive(&first).await?;
    world.coordinator().abort(&first, "try again", false).await?;
    world.cross(&second, &workers).await?;
    for worker in &workers {
        refused(&worker.wait(&first).await, Code::Broken)?;
    }
    let released = world.coordinator().abort(&second, "too late", false).await;
    refused(&released, Code::AlreadyDecided)?;
    Ok(())
}

async fn deleting_breaks_what_gathers(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed"})).await?;
    let (barrier, target) = (world.barrier("map"), world.target("map", "k"));
    let workers = world.workers(&["1"]);
    workers[0].arrive(&target).await?;
    let refusal = refused(&world.coordinator().delete(&barrier, None).await, Code::Conflict)?;
    ensure!(refusal.more.get("open") == Some(&json!(["k"])), "{refusal:?}");
    let waits = join_all(workers.iter().map(|worker| worker.wait(&target)));
    let delete = async {
        let deleted = world.coordinator().delete(&barrier, Some("the job is gone")).await?;
        ensure!(deleted.changed && deleted.broken == ["k"], "{deleted:?}");
        Ok(())
    };
    let (heard, deleted) = futures::join!(waits, delete);
    deleted?;
    for heard in heard {
        let problem = refused(&heard, Code::Broken)?;
        ensure!(problem.more.get("reason") == Some(&json!("deleted")), "{problem:?}");
    }
    Ok(())
}
