//! Everybody arrives, everybody passes.

use std::collections::BTreeMap;

use anyhow::ensure;
use futures::future::{join_all, try_join_all};
use muster_protocol::generation::State;
use muster_protocol::region::ArrivalOutcome;
use muster_wire::request::{Arrival, BatchArrival};
use serde_json::json;

use super::{Outcome, on_every_cluster};
use crate::world::World;

on_every_cluster!(
    single,
    many_cycles,
    cyclic_arrivals_ahead_of_slow_leavers,
    a_key_opens_by_first_arrivals_in_all_regions_at_once,
    keys_opened_ahead_gather_beside_each_other,
    participants_as_a_number,
    participants_as_ranges_and_per_region,
    outputs_come_back_to_everybody,
    batches,
    arrive_and_wait_in_one_call,
);

async fn single(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1", "2"]);
    let (last, others) = workers.split_last().unwrap();
    world.require(&target, &workers);
    let waits = try_join_all(others.iter().map(|worker| worker.cross(&target)));
    let last_one = async {
        // Everybody else is counted before the last one comes.
        world.until_status(&target, "all but one arrived", |status| status.arrived == 5).await?;
        let status = world.status(&target).await?;
        ensure!(status.state == State::Gathering && status.expected == 6, "{status:?}");
        let missing: Vec<_> = status.regions.iter().filter(|region| region.missing_count > 0).collect();
        ensure!(missing.len() == 1 && missing[0].missing == "2" && missing[0].name == last.region, "{status:?}");
        Ok(last.cross(&target).await?)
    };
    let (released, last_released) = futures::join!(waits, last_one);
    let (released, last_released) = (released?, last_released?);
    ensure!(last_released.whole && released.iter().all(|one| one.digest == last_released.digest));
    let status = world.until_state(&target, State::Released).await?;
    ensure!(status.regions.iter().all(|region| region.applied), "{status:?}");
    ensure!(status.release.is_some_and(|release| release.digest == last_released.digest));
    // There is but one: nobody has to name it.
    let only = format!("/v1/barriers/{}/wait", world.barrier("map"));
    for answer in [world.raw("GET", &only).send().await?, world.raw_agent(1, "GET", &only).send().await?] {
        ensure!(answer.status == 200 && answer.body.contains(&last_released.digest), "{answer:?}");
    }
    Ok(())
}

async fn many_cycles(world: &World<'_>) -> Outcome {
    world.define("step", json!({"generations": "cyclic"})).await?;
    let workers = world.workers(&["1"]);
    for n in 1..=20 {
        let released = world.cross(&world.target("step", n), &workers).await?;
        ensure!(released.n == n);
    }
    Ok(())
}

/// Nobody waits for the slowest: whoever is through goes on to the next
/// generation, while others have not even asked for the end of the last.
async fn cyclic_arrivals_ahead_of_slow_leavers(world: &World<'_>) -> Outcome {
    const GENERATIONS: u64 = 12;
    world.define("step", json!({"generations": "cyclic", "participants": ["1", "2"]})).await?;
    let workers = world.workers(&["1", "2"]);
    for n in 1..=GENERATIONS {
        world.require(&world.target("step", n), &workers);
    }
    let coordinator = &world.coordinator();
    let laps = workers.iter().map(async |worker| {
        for n in 1..=GENERATIONS {
            let target = world.target("step", n);
            worker.arrive(&target).await?;
            if worker.id.as_str() == "1" {
                worker.wait(&target).await?;
                continue;
            }
            // Half of them learn the end where it is decided, before their own
            // region has applied it, and go on at once; there they ask for it
            // when they are two further on.
            coordinator.wait(&target, Some((std::time::Instant::now() + crate::until::DEADLINE).into())).await?;
            if n > 2 {
                worker.wait(&world.target("step", n - 2)).await?;
            }
        }
        worker.wait(&world.target("step", GENERATIONS - 1)).await?;
        worker.wait(&world.target("step", GENERATIONS)).await
    });
    try_join_all(laps).await?;
    Ok(())
}

async fn a_key_opens_by_first_arrivals_in_all_regions_at_once(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
    let workers = world.workers(&["1", "2"]);
    for key in ["2026-10-07", "7", "run:a+b=c"] {
        let target = world.target("map", key);
        world.cross(&target, &workers).await?;
        let status = world.status(&target).await?;
        ensure!(status.generation == key, "{status:?}");
    }
    let history = world.coordinator().history(&world.barrier("map")).await?;
    ensure!(history.len() == 3, "one generation for each key: {history:?}");
    Ok(())
}

async fn keys_opened_ahead_gather_beside_each_other(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed", "maxOpen": 2})).await?;
    let (barrier, coordinator) = (world.barrier("map"), world.coordinator());
    let (a, b) = ("a".parse()?, "b".parse()?);
    let opened = coordinator.open(&barrier, Some(&a)).await?;
    ensure!(opened.created && opened.generation == "a");
    let again = coordinator.open(&barrier, Some(&a)).await?;
    ensure!(!again.created && again.n == opened.n, "{again:?}");
    // Opening at an agent is the same act.
    ensure!(world.agents(world.region(1)).open(&barrier, Some(&b)).await?.created);
    let c = "c".parse()?;
    let refused = coordinator.open(&barrier, Some(&c)).await;
    ensure!(refused.as_ref().is_err_and(|error| error.is(muster_wire::code::Code::TooManyOpen)), "{refused:?}");
    let workers = world.workers(&["1"]);
    world.cross(&world.target("map", "b"), &workers).await?;
    ensure!(world.status(&world.target("map", "a")).await?.state == State::Gathering);
    world.cross(&world.target("map", "a"), &workers).await?;
    // One has ended, so there is room again.
    world.cross(&world.target("map", "c"), &workers).await?;
    Ok(())
}

async fn participants_as_a_number(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": 3})).await?;
    let target = world.target("map", 1);
    world.require_count(&target, 3);
    let names = [["a", "b", "c"], ["x", "y", "z"], ["host-1", "host-2", "host-3"]];
    let crossings = names.iter().enumerate().flat_map(|(region, ids)| ids.iter().map(move |id| (region, id)));
    try_join_all(crossings.map(async |(region, id)| world.worker(region, id).cross(&target).await)).await?;
    let status = world.status(&target).await?;
    ensure!((status.arrived, status.expected) == (9, 9), "{status:?}");
    Ok(())
}

async fn participants_as_ranges_and_per_region(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    let definition = json!({
        "participants": "p-[007-010]",
        "regions": {
            (regions[0].to_string()): {},
            (regions[1].to_string()): {"participants": 2},
            (regions[2].to_string()): {"participants": ["only"]},
        },
    });
    world.define("map", definition).await?;
    let target = world.target("map", 1);
    let workers = [(0, "p-007"), (0, "p-008"), (0, "p-009"), (0, "p-010"), (1, "any"), (1, "body"), (2, "only")]
        .map(|(region, id)| world.worker(region, id));
    world.cross(&target, &workers).await?;
    let status = world.status(&target).await?;
    let expected: BTreeMap<_, _> =
        status.regions.iter().map(|region| (region.name.as_str(), region.expected)).collect();
    ensure!(expected[regions[0].as_str()] == 4 && expected[regions[1].as_str()] == 2, "{expected:?}");
    Ok(())
}

async fn outputs_come_back_to_everybody(world: &World<'_>) -> Outcome {
    world.define("map", json!({})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1"]);
    world.require(&target, &workers);
    let crossings = workers.iter().map(async |worker| {
        let output = Some(format!("s3://parts/{}?x=\"1\"", worker.region));
        worker.arrive_as(&target, Arrival { output, ..Arrival::default() }).await?;
        worker.wait(&target).await
    });
    let released = try_join_all(crossings).await?;
    let expected: BTreeMap<String, String> =
        workers.iter().map(|worker| (worker.name(), format!("s3://parts/{}?x=\"1\"", worker.region))).collect();
    ensure!(released.iter().all(|one| one.outputs == expected), "{released:?}");
    let told = world.coordinator().outputs(&target).await?;
    for (name, output) in &expected {
        ensure!(told.to_string().contains(name.as_str()), "{told}");
        ensure!(told.to_string().contains(output.split('?').next().unwrap_or_default()), "{told}");
    }
    Ok(())
}

async fn batches(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": "[0-299]"})).await?;
    let target = world.target("map", 1);
    let batch =
        |ids: std::ops::Range<u32>| ids.map(|id| arrival(&id.to_string(), ArrivalOutcome::Ok)).collect::<Vec<_>>();
    let clients: Vec<_> = world.regions().iter().map(|region| world.agents(region)).collect();
    // A stranger among them is told so, and hurts nobody.
    let mut mixed = batch(0..150);
    mixed.push(arrival("stranger", ArrivalOutcome::Ok));
    let answers = clients[0].arrive_all(&target, mixed).await?;
    let statuses: Vec<u16> = answers.arrivals.iter().map(|item| item.status).collect();
    ensure!(statuses[..150].iter().all(|status| *status == 201) && statuses[150] == 422, "{statuses:?}");
    let repeated = clients[0].arrive_all(&target, batch(100..300)).await?;
    let statuses: Vec<u16> = repeated.arrivals.iter().map(|item| item.status).collect();
    ensure!(statuses[..50].iter().all(|status| *status == 200), "{statuses:?}");
    ensure!(statuses[50..].iter().all(|status| *status == 201), "{statuses:?}");
    let others = clients[1..].iter().map(|client| client.arrive_all(&target, batch(0..300)));
    ensure!(join_all(others).await.iter().all(Result::is_ok));
    for client in &clients {
        let until = Some((std::time::Instant::now() + crate::until::DEADLINE).into());
        ensure!(client.wait(&target, until).await?.whole);
    }
    let status = world.status(&target).await?;
    ensure!((status.arrived, status.expected) == (900, 900), "{status:?}");
    let page = clients[2].participants(&target, Some("arrived"), None).await?;
    ensure!(page.len() == 300, "{}", page.len());
    Ok(())
}

fn arrival(participant: &str, outcome: ArrivalOutcome) -> BatchArrival {
    BatchArrival {
        participant: participant.parse().unwrap(),
        attempt: None,
        outcome: Some(outcome),
        note: None,
        output: None,
        session: None,
    }
}

async fn arrive_and_wait_in_one_call(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed"})).await?;
    let target = world.target("map", "k");
    let workers = world.workers(&["1"]);
    world.require(&target, &workers);
    try_join_all(workers.iter().map(|worker| worker.arrive_and_wait(&target, Arrival::default()))).await?;
    Ok(())
}
