//! Parts that die in the middle, and come back.
//!
//! Whatever happens: released or broken, never a hang; and the history is one
//! that a correct service could have had.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_protocol::generation::State;
use muster_wire::request::BatchArrival;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::{Outcome, own_cluster, seed};
use crate::cluster::{Part, Shape};
use crate::until::until;
use crate::worker::Worker;
use crate::world::World;

own_cluster!(
    any_part_killed_at_any_moment,
    a_regions_only_agent_restarts_while_participants_wait,
    an_agent_without_coordinator_is_ready_for_its_region_alone,
    everything_restarts: Shape { durable: true, ..Shape::default() },
    one_of_two_agents_dies: Shape { agents_per_region: 2, ..Shape::default() },
    one_of_two_coordinators_dies: Shape { coordinators: 2, ..Shape::default() },
    a_late_second_agent_comes_to_the_same_state: Shape { agents_per_region: 2, ..Shape::default() },
);

/// Laps over a cyclic barrier, while somebody kills.
async fn laps(world: &World<'_>, workers: &[Worker], laps: u64) -> Outcome {
    for n in 1..=laps {
        world.require(&world.target("step", n), workers);
    }
    try_join_all(workers.iter().map(async |worker| {
        for n in 1..=laps {
            let target = world.target("step", n);
            let crossed = worker.cross(&target).await;
            crossed.with_context(|| format!("{} at {target}", worker.name()))?;
        }
        anyhow::Ok(())
    }))
    .await?;
    Ok(())
}

async fn any_part_killed_at_any_moment(world: &World<'_>) -> Outcome {
    const LAPS: u64 = 8;
    const ROUNDS: usize = 2;
    let mut chance = StdRng::seed_from_u64(seed());
    world.define("step", json!({"generations": "cyclic", "participants": ["1", "2"]})).await?;
    let workers = world.workers(&["1", "2"]);
    let killing = async {
        for _ in 0..ROUNDS {
            for part in world.cluster.shape().parts() {
                tokio::time::sleep(Duration::from_millis(chance.random_range(0..150))).await;
                world.cluster.kill(&part).await?;
                tokio::time::sleep(Duration::from_millis(chance.random_range(0..150))).await;
                world.cluster.start(&part).await?;
                // One at a time: a part is back before the next goes.
                world.cluster.part_ready(&part).await?;
            }
        }
        anyhow::Ok(())
    };
    let (crossed, killed) = futures::join!(laps(world, &workers, LAPS), killing);
    killed?;
    crossed?;
    // The faults are over: what is decidable is decided.
    world.until_state(&world.target("step", LAPS), State::Released).await?;
    Ok(())
}

async fn a_regions_only_agent_restarts_while_participants_wait(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1", "2"]);
    world.require(&target, &workers);
    let agent = Part::Agent(world.region(0).clone(), 0);
    let (last, early) = workers.split_last().context("nobody")?;
    let waits = try_join_all(early.iter().map(|worker| worker.cross(&target)));
    let trouble = async {
        world.until_status(&target, "all but one arrived", |status| status.arrived == 5).await?;
        world.cluster.kill(&agent).await?;
        // It is decided while the region is away; the region hears it later.
        let released = last.cross(&target).await?;
        ensure!(world.status(&target).await?.state == State::Releasing);
        world.cluster.start(&agent).await?;
        anyhow::Ok(released)
    };
    let (waited, released) = futures::join!(waits, trouble);
    let released = released?;
    ensure!(waited?.iter().all(|one| one.digest == released.digest));
    world.until_state(&target, State::Released).await?;
    Ok(())
}

async fn an_agent_without_coordinator_is_ready_for_its_region_alone(world: &World<'_>) -> Outcome {
    let coordinator = Part::Coordinator(0);
    world.cluster.kill(&coordinator).await?;
    // The bus is up, so nothing but asking can tell.
    let global = world.raw_agent(0, "GET", "/readyz?need=global").send().await?;
    let ready: muster_wire::answer::Ready = serde_json::from_str(&global.body)?;
    let missing: Vec<&str> = ready.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
    ensure!(global.status == 503 && !ready.ready && missing == ["coordinator"], "{global:?}");
    let local = world.raw_agent(0, "GET", "/readyz").send().await?;
    ensure!(local.status == 200, "{local:?}");
    world.cluster.start(&coordinator).await?;
    world.cluster.part_ready(&Part::Agent(world.region(0).clone(), 0)).await
}

async fn everything_restarts(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
    world.define("step", json!({"generations": "cyclic", "deadline": "10m"})).await?;
    let ones = world.workers(&["1"]);
    let all = world.workers(&["1", "2"]);
    let (done, open, broken) = (world.target("map", "done"), world.target("map", "open"), world.target("map", "gone"));
    let crossed = world.cross(&done, &all).await?;
    world.cross(&world.target("step", 1), &ones).await?;
    try_join_all(ones.iter().map(|worker| worker.arrive(&open))).await?;
    ones[0].arrive(&broken).await?;
    world.coordinator().abort(&broken, "not needed", false).await?;
    world.require(&open, &all);
    let before = world.coordinator().barrier(&world.barrier("map")).await?;

    world.cluster.restart_everything().await?;

    ensure!(world.coordinator().barrier(&world.barrier("map")).await? == before);
    ensure!(all[1].wait(&done).await?.digest == crossed.digest);
    super::refused(&all[1].wait(&broken).await, muster_wire::code::Code::Broken)?;
    world.until_status(&open, "the arrivals stand", |status| status.arrived == 3).await?;
    for worker in &ones {
        ensure!(!worker.arrive(&open).await?.first);
    }
    world.cross(&open, &all).await?;
    world.cross(&world.target("step", 2), &ones).await?;
    Ok(())
}

async fn one_of_two_agents_dies(world: &World<'_>) -> Outcome {
    world.define("step", json!({"generations": "cyclic", "participants": ["1", "2"]})).await?;
    let workers = world.workers(&["1", "2"]);
    world.cross(&world.target("step", 1), &workers).await?;
    let target = world.target("step", 2);
    world.require(&target, &workers);
    let region = world.region(0).clone();
    let (killed, lives) = (Part::Agent(region.clone(), 0), Part::Agent(region.clone(), 1));
    // Whoever waits at the one that lives never notices; whoever knows both
    // goes on at it.
    let alone = muster_client::Client::new([world.cluster.url(&lives)])?;
    let at_other = Worker::new(alone, region, "1".parse()?, world.history.clone());
    at_other.arrive(&target).await?;
    let waits = async { futures::join!(at_other.wait(&target), workers[0].wait(&target), workers[1].cross(&target)) };
    let trouble = async {
        world.until_status(&target, "a region is complete", |status| status.arrived == 2).await?;
        world.cluster.kill(&killed).await?;
        try_join_all(workers[2..].iter().map(|worker| worker.cross(&target))).await.map_err(anyhow::Error::from)
    };
    let ((other, one, two), crossed) = futures::join!(waits, trouble);
    let digest = other?.digest;
    ensure!([one?, two?].iter().chain(&crossed?).all(|released| released.digest == digest));
    world.cross(&world.target("step", 3), &workers).await?;
    world.cluster.start(&killed).await?;
    world.cluster.part_ready(&killed).await?;
    // The one that was away replays to the same: asked alone, it tells it all.
    let returned = muster_client::Client::new([world.cluster.url(&killed)])?;
    let until = Some((std::time::Instant::now() + crate::until::DEADLINE).into());
    ensure!(returned.wait(&target, until).await?.digest == digest);
    world.cross(&world.target("step", 4), &workers).await?;
    Ok(())
}

async fn one_of_two_coordinators_dies(world: &World<'_>) -> Outcome {
    const LAPS: u64 = 10;
    world.define("step", json!({"generations": "cyclic"})).await?;
    let workers = world.workers(&["1"]);
    let killing = async {
        for number in [0, 1, 0] {
            let part = Part::Coordinator(number);
            let half = world.target("step", 2 + number as u64);
            let _ = world.until_status(&half, "some are through", |_| true).await?;
            world.cluster.kill(&part).await?;
            // Long enough for the other one to have all of the work.
            world.until_status(&world.target("step", 1), "the other answers", |_| true).await?;
            world.cluster.start(&part).await?;
            world.cluster.part_ready(&part).await?;
        }
        anyhow::Ok(())
    };
    let (crossed, killed) = futures::join!(laps(world, &workers, LAPS), killing);
    killed?;
    crossed?;
    for url in world.cluster.coordinators() {
        let one = muster_client::Client::new([url])?;
        let rows = one.history(&world.barrier("step")).await?;
        ensure!(rows.len() as u64 == LAPS + 1, "{rows:?}");
    }
    Ok(())
}

/// Enough entries that the leader has written a snapshot and truncated the
/// log: what the second agent then replays is another way to the same state.
async fn a_late_second_agent_comes_to_the_same_state(world: &World<'_>) -> Outcome {
    let region = world.region(0).clone();
    let late = Part::Agent(region.clone(), 1);
    world.cluster.stop(&late).await?;
    world.define("map", json!({"generations": "keyed", "participants": "[0-999]", "maxOpen": 8})).await?;
    let first = muster_client::Client::new([world.cluster.url(&Part::Agent(region.clone(), 0))])?;
    let keys = ["a", "b", "c"];
    for key in keys {
        let target = world.target("map", key);
        // One at a time, so that each is an entry of its own.
        for part in 0..40 {
            let arrivals = (part * 25..(part + 1) * 25).map(|id| async move {
                let batch = BatchArrival {
                    participant: id.to_string().parse()?,
                    attempt: None,
                    outcome: None,
                    note: Some(format!("part {id}")),
                    output: None,
                    session: None,
                };
                anyhow::Ok(batch)
            });
            let arrivals = try_join_all(arrivals).await?;
            let answers = first.arrive_all(&target, arrivals).await?;
            ensure!(answers.arrivals.iter().all(|item| item.status == 201), "{key} {part}");
        }
    }
    world.cluster.start(&late).await?;
    world.cluster.part_ready(&late).await?;
    let second = muster_client::Client::new([world.cluster.url(&late)])?;
    for key in keys {
        let target = world.target("map", key);
        let told = first.participants(&target, None, None).await?;
        ensure!(told.len() == 1_000);
        until("both tell the same", || async {
            let same = second.participants(&target, None, None).await.map_err(|error| error.to_string())?;
            if same == told { Ok(()) } else { Err(format!("{} of {}", same.len(), told.len())) }
        })
        .await?;
    }
    Ok(())
}
