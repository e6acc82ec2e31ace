//! Participants that fail: how often, how many, and when that breaks.

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_protocol::generation::State;
use muster_protocol::region::ArrivalOutcome;
use muster_wire::answer::{ParticipantState, Reason};
use muster_wire::code::Code;
use serde_json::json;

use super::{Outcome, attempt, failed, no_whole_release, on_every_cluster, refused};
use crate::world::World;

on_every_cluster!(
    a_participant_has_failed_with_its_last_attempt,
    some_may_fail_and_the_release_is_not_whole,
    one_failure_too_many_in_all_breaks,
    a_share_may_fail_in_a_region_and_in_all,
    without_fail_fast_everybody_speaks_first,
);

async fn a_participant_has_failed_with_its_last_attempt(world: &World<'_>) -> Outcome {
    world.define("map", json!({"attempts": 3})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1"]);
    let (one, others) = workers.split_first().context("nobody")?;
    world.require(&target, &workers);
    world.everybody(&target, &workers);
    ensure!(one.arrive_as(&target, failed(1)).await?.first);
    let seen = one.look(&target).await?;
    ensure!((seen.state, seen.attempt) == (ParticipantState::Retrying, Some(1)), "{seen:?}");
    let retrying = |status: &muster_wire::answer::Status| status.regions.iter().any(|region| region.retrying == 1);
    let status = world.until_status(&target, "one may try again", retrying).await?;
    ensure!((status.state, status.failed, status.arrived) == (State::Gathering, 0, 0), "{status:?}");
    // The same attempt again is no other one.
    ensure!(!one.arrive_as(&target, failed(1)).await?.first);
    ensure!(one.arrive_as(&target, failed(2)).await?.first);
    ensure!(one.arrive_as(&target, attempt(3)).await?.first);
    // Done is done: what an earlier or a later attempt says changes nothing.
    refused(&one.arrive_as(&target, failed(2)).await, Code::StaleAttempt)?;
    let final_one = one.arrive_as(&target, failed(4)).await?;
    ensure!((final_one.attempt, final_one.outcome) == (3, ArrivalOutcome::Ok), "{final_one:?}");
    let crossed = try_join_all(others.iter().map(|worker| worker.cross(&target))).await?;
    ensure!(crossed.iter().all(|released| released.whole), "{crossed:?}");

    world.define("shuffle", json!({"attempts": 2})).await?;
    let shuffle = world.target("shuffle", 1);
    one.arrive_as(&shuffle, failed(1)).await?;
    one.arrive_as(&shuffle, failed(2)).await?;
    let status = world.until_state(&shuffle, State::Broken).await?;
    let broken = status.broken.context("no cause")?;
    ensure!((broken.reason, broken.failed) == (Reason::ParticipantFailed, vec![one.name()]), "{}", broken.message);
    for other in others {
        refused(&other.wait(&shuffle).await, Code::Broken)?;
    }
    Ok(())
}

async fn some_may_fail_and_the_release_is_not_whole(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"], "maxFailures": 2})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1", "2"]);
    world.everybody(&target, &workers);
    // Those of the first region fail.
    let (failing, rest) = workers.split_at(2);
    world.require(&target, rest);
    for worker in failing {
        worker.arrive_as(&target, failed(1)).await?;
    }
    let waits = try_join_all(failing.iter().map(|worker| worker.wait(&target)));
    let crosses = try_join_all(rest.iter().map(|worker| worker.cross(&target)));
    let (waited, crossed) = futures::try_join!(waits, crosses)?;
    ensure!(waited.iter().chain(&crossed).all(|released| !released.whole), "{waited:?} {crossed:?}");
    let release = world.until_state(&target, State::Released).await?.release.context("not released")?;
    ensure!((release.whole, release.failed) == (false, 2), "{release:?}");
    no_whole_release(world, &target).await
}

async fn one_failure_too_many_in_all_breaks(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"], "maxFailures": 2})).await?;
    let target = world.target("map", 1);
    let failing = world.workers(&["1"]);
    for worker in &failing[..2] {
        worker.arrive_as(&target, failed(1)).await?;
    }
    let status = world.until_status(&target, "two failed", |status| status.failed == 2).await?;
    ensure!(status.state == State::Gathering, "{status:?}");
    failing[2].arrive_as(&target, failed(1)).await?;
    let broken = world.until_state(&target, State::Broken).await?.broken.context("no cause")?;
    ensure!(broken.reason == Reason::MaxFailuresExceeded && broken.failed.len() == 3, "{broken:?}");
    ensure!(broken.message.contains("3 failed in all, more than the 2 that may"), "{}", broken.message);
    for worker in world.workers(&["2"]) {
        let problem = refused(&worker.wait(&target).await, Code::Broken)?;
        ensure!(problem.more.get("reason") == Some(&json!("max-failures-exceeded")), "{problem:?}");
    }
    Ok(())
}

async fn a_share_may_fail_in_a_region_and_in_all(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    // Of 30 in all 3 may fail, of the first region's 10 one.
    let more = json!({
        "generations": "keyed", "participants": "[0-9]", "maxFailures": "10%",
        "regions": {
            (regions[0].to_string()): {"maxFailures": "10%"}, (regions[1].to_string()): {}, (regions[2].to_string()): {},
        },
    });
    world.define("map", more).await?;
    let (region, all) = (world.target("map", "region"), world.target("map", "all"));
    for (target, who) in [(&region, vec![(0, "3"), (1, "3"), (2, "3")]), (&all, vec![(1, "3"), (1, "4"), (1, "5")])] {
        for (number, id) in who {
            world.worker(number, id).arrive_as(target, failed(1)).await?;
        }
        let status = world.until_status(target, "three failed", |status| status.failed == 3).await?;
        ensure!(status.state == State::Gathering, "{status:?}");
    }
    world.worker(0, "4").arrive_as(&region, failed(1)).await?;
    world.worker(2, "4").arrive_as(&all, failed(1)).await?;
    let broken = world.until_state(&region, State::Broken).await?.broken.context("no cause")?;
    ensure!(broken.region.as_ref() == Some(&regions[0]), "{broken:?}");
    ensure!(broken.message.contains("more than the 1 that may"), "{}", broken.message);
    let broken = world.until_state(&all, State::Broken).await?.broken.context("no cause")?;
    ensure!(broken.message.contains("4 failed in all, more than the 3 that may"), "{}", broken.message);
    Ok(())
}

async fn without_fail_fast_everybody_speaks_first(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed", "participants": ["1", "2"], "failFast": false})).await?;
    let workers = world.workers(&["1", "2"]);
    let (one, others) = workers.split_first().context("nobody")?;
    let (last, middle) = others.split_last().context("nobody")?;
    let (broken, mended) = (world.target("map", "broken"), world.target("map", "mended"));
    for target in [&broken, &mended] {
        one.arrive_as(target, failed(1)).await?;
        try_join_all(middle.iter().map(|worker| worker.arrive(target))).await?;
        let all_but_one = |status: &muster_wire::answer::Status| (status.failed, status.arrived) == (1, 4);
        let status = world.until_status(target, "all but one spoke", all_but_one).await?;
        ensure!(status.state == State::Gathering, "{status:?}");
    }
    last.arrive(&broken).await?;
    let cause = world.until_state(&broken, State::Broken).await?.broken.context("no cause")?;
    ensure!((cause.reason, cause.failed) == (Reason::ParticipantFailed, vec![one.name()]), "{}", cause.message);
    // While it gathers, ok replaces failed.
    world.require(&mended, &workers);
    ensure!(one.arrive_as(&mended, attempt(2)).await?.first);
    // What is decided is what regions have said: before the last one speaks, it
    // is known that nobody failed.
    world.until_status(&mended, "it is mended", |status| (status.failed, status.arrived) == (0, 5)).await?;
    let released = last.cross(&mended).await?;
    ensure!(released.whole, "{released:?}");
    Ok(())
}
