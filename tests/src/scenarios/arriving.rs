//! Arrivals that are not the plain first one: repeated, late, withdrawn, at
//! the wrong place, of the wrong people.

use anyhow::ensure;
use futures::future::try_join_all;
use muster_client::Error;
use muster_protocol::generation::State;
use muster_protocol::region::ArrivalOutcome;
use muster_wire::code::Code;
use muster_wire::request::Arrival;
use serde_json::json;

use super::{Outcome, on_every_cluster, refused};
use crate::until::until;
use crate::world::World;

on_every_cluster!(
    a_repeat_gets_the_first_answer,
    a_late_arrival_gets_the_recorded_outcome,
    withdrawn_for_good_and_sealed,
    a_wrong_generation_is_told_the_right_one,
    one_too_many_and_a_stranger,
    the_wrong_region,
    ok_is_final_and_a_lower_attempt_is_stale,
);

async fn a_repeat_gets_the_first_answer(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let target = world.target("map", 1);
    let worker = world.worker(0, "1");
    let output = |text: &str| Arrival { output: Some(text.to_owned()), ..Arrival::default() };
    let first = worker.arrive_as(&target, output("first")).await?;
    ensure!(first.first && !first.late && (first.arrived, first.expected) == (1, 2), "{first:?}");
    // Eight at once, with another body: all get what the first got.
    let repeats = try_join_all((0..8).map(|_| worker.arrive_as(&target, output("second")))).await?;
    ensure!(repeats.iter().all(|repeat| !repeat.first && repeat.arrived == 1), "{repeats:?}");
    let mut others = world.workers(&["1", "2"]);
    others.retain(|other| other.name() != worker.name());
    let released = world.cross(&target, &others).await?;
    ensure!(released.outputs.get(&worker.name()).is_some_and(|output| output == "first"), "{released:?}");
    // A repeat after the end is still answered, and told that it was counted.
    let after = worker.arrive(&target).await?;
    ensure!(!after.first && !after.late, "{after:?}");
    Ok(())
}

async fn a_late_arrival_gets_the_recorded_outcome(world: &World<'_>) -> Outcome {
    // By number the last region needs nobody of a certain name: who comes
    // after all places are taken is one too many, not late.
    world.define("step", json!({"generations": "cyclic"})).await?;
    let (first, second) = (world.target("step", 1), world.target("step", 2));
    let workers = world.workers(&["1"]);
    let released = world.cross(&first, &workers).await?;
    for worker in &workers {
        let again = worker.wait(&first).await?;
        ensure!(again == released || again.digest == released.digest, "{again:?}");
        // It does not open or join the next generation.
        ensure!(!worker.arrive(&first).await?.first);
    }
    let status = world.status(&second).await?;
    ensure!(status.arrived == 0 && status.state == State::Gathering, "{status:?}");
    world.cross(&second, &workers).await?;
    Ok(())
}

async fn withdrawn_for_good_and_sealed(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let target = world.target("map", 1);
    let (one, two) = (world.worker(0, "1"), world.worker(0, "2"));
    one.arrive(&target).await?;
    one.withdraw(&target, 1).await?;
    one.withdraw(&target, 1).await?;
    let again = one.arrive(&target).await;
    refused(&again, Code::Withdrawn)?;
    // Of one that never came, too.
    two.withdraw(&target, 1).await?;
    refused(&two.arrive(&target).await, Code::Withdrawn)?;
    let status = world.until_status(&target, "nobody counts", |status| status.arrived == 0).await?;
    ensure!(status.state == State::Gathering, "{status:?}");

    let attempt = |attempt| Arrival { attempt: Some(attempt), ..Arrival::default() };
    one.arrive_as(&target, attempt(2)).await?;
    two.arrive_as(&target, attempt(2)).await?;
    // The region is complete and has promised so.
    refused(&one.withdraw(&target, 2).await, Code::Sealed)?;
    let mut others = world.workers(&["1", "2"]);
    let all = others.clone();
    others.retain(|other| other.region != one.region);
    try_join_all(others.iter().map(|worker| worker.cross(&target))).await?;
    world.require(&target, &all);
    one.wait(&target).await?;
    refused(&one.withdraw(&target, 2).await, Code::AlreadyDecided)?;
    Ok(())
}

async fn a_wrong_generation_is_told_the_right_one(world: &World<'_>) -> Outcome {
    world.define("step", json!({"generations": "cyclic"})).await?;
    let workers = world.workers(&["1"]);
    world.cross(&world.target("step", 1), &workers).await?;
    // One that does not exist yet: nobody is hurt, and a moment later it may.
    let ahead = workers[0].client.clone().until(soon());
    let early = ahead.arrive(&world.target("step", 9), &workers[0].id, &Arrival::default()).await;
    let told = early.as_ref().err().and_then(Error::problem);
    ensure!(
        told.is_some_and(|problem| matches!(problem.code, Code::WrongGeneration | Code::Behind | Code::NotOpenYet)),
        "{early:?}"
    );
    // One that a barrier of single generations will never have.
    world.define("once", json!({})).await?;
    // A region that has heard of it names the right one.
    let once = world.target("once", 1);
    until("the region has heard of it", || async { workers[0].client.participants(&once, None, None).await.map(drop) })
        .await?;
    let never = workers[0].arrive(&world.target("once", 2)).await;
    let problem = refused(&never, Code::WrongGeneration)?;
    ensure!(problem.more.get("generation") == Some(&json!("1")), "{problem:?}");
    refused(&workers[0].arrive(&world.target("once", "a-key")).await, Code::NoSuchGeneration)?;
    world.cross(&world.target("once", 1), &workers).await?;
    world.cross(&world.target("step", 2), &workers).await?;
    Ok(())
}

fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + std::time::Duration::from_secs(1)
}

async fn one_too_many_and_a_stranger(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    let more = json!({"regions": {
        (regions[0].to_string()): {"participants": 2},
        (regions[1].to_string()): {"participants": "[1-3]"},
        (regions[2].to_string()): {"participants": ["x"]},
    }});
    world.define("map", more).await?;
    let target = world.target("map", 1);
    let mut workers = vec![world.worker(0, "a"), world.worker(0, "b")];
    try_join_all(workers.iter().map(|worker| worker.arrive(&target))).await?;
    let full = refused(&world.worker(0, "c").arrive(&target).await, Code::Full)?;
    ensure!(full.more.get("latest").is_some_and(|latest| latest.as_array().is_some_and(|l| l.len() == 2)), "{full:?}");
    // A place that is given back is free for another.
    let status = world.status(&target).await?;
    let stranger = refused(&world.worker(1, "4").arrive(&target).await, Code::NotExpected)?;
    ensure!(stranger.more.get("expected") == Some(&json!("[1-3]")), "{stranger:?}");
    refused(&world.worker(1, "4").look(&target).await, Code::NotExpected)?;
    ensure!(world.status(&target).await?.arrived >= status.arrived);
    workers.extend(["1", "2", "3"].map(|id| world.worker(1, id)));
    workers.push(world.worker(2, "x"));
    world.cross(&target, &workers).await?;
    refused(&world.worker(0, "c").arrive(&target).await, Code::Full)?;
    refused(&world.worker(1, "4").arrive(&target).await, Code::NotExpected)?;
    Ok(())
}

async fn the_wrong_region(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    world.define("map", json!({"regions": [regions[0].clone(), regions[1].clone()]})).await?;
    let target = world.target("map", 1);
    // A region without a part.
    refused(&world.worker(2, "1").arrive(&target).await, Code::WrongRegion)?;
    // A call for one region at the agent of another.
    let elsewhere = Arrival { region: Some(regions[1].clone()), ..Arrival::default() };
    refused(&world.agents(&regions[0]).arrive(&target, &"1".parse()?, &elsewhere).await, Code::WrongRegion)?;
    let status = world.status(&target).await?;
    ensure!(status.arrived == 0, "{status:?}");
    // The coordinator hands it on to where it belongs.
    let arrived = world.coordinator().arrive(&target, &"1".parse()?, &elsewhere).await?;
    ensure!(arrived.participant == format!("{}/1", regions[1]), "{arrived:?}");
    let released = world.worker(0, "1").cross(&target).await?;
    // Whoever has no part may still wait for the end.
    let until = Some((std::time::Instant::now() + crate::until::DEADLINE).into());
    let elsewhere = world.agents(&regions[2]).wait(&target, until).await?;
    ensure!(elsewhere.digest == released.digest);
    Ok(())
}

async fn ok_is_final_and_a_lower_attempt_is_stale(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let target = world.target("map", 1);
    let worker = world.worker(0, "1");
    let attempt = |attempt, outcome| Arrival { attempt: Some(attempt), outcome: Some(outcome), ..Arrival::default() };
    worker.arrive_as(&target, attempt(2, ArrivalOutcome::Ok)).await?;
    let later = worker.arrive_as(&target, attempt(5, ArrivalOutcome::Failed)).await?;
    ensure!(!later.first && later.attempt == 2 && later.outcome == ArrivalOutcome::Ok, "{later:?}");
    refused(&worker.arrive_as(&target, attempt(1, ArrivalOutcome::Ok)).await, Code::StaleAttempt)?;
    refused(&worker.withdraw(&target, 1).await, Code::StaleAttempt)?;
    let mut others = world.workers(&["1", "2"]);
    world.require(&target, &others.clone());
    others.retain(|other| other.name() != worker.name());
    try_join_all(others.iter().map(|worker| worker.cross(&target))).await?;
    worker.wait(&target).await?;
    Ok(())
}
