//! A generation that broke is tried again, as the next round of its key.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_protocol::generation::State;
use muster_wire::answer::ParticipantState;
use muster_wire::code::Code;
use muster_wire::request::{Arrival, Keep};
use serde_json::json;

use super::{Outcome, attempt, audited, failed, on_every_cluster, refused};
use crate::world::World;

on_every_cluster!(
    what_is_done_is_done_in_the_next_round,
    a_round_that_keeps_nothing_starts_anew,
    what_did_not_break_is_not_retried,
);

async fn what_is_done_is_done_in_the_next_round(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
    let (key, first, second) = (world.target("map", "k"), world.target("map", "k~0"), world.target("map", "k~1"));
    let coordinator = world.coordinator();
    let workers = world.workers(&["1", "2"]);
    let (failing, others) = workers.split_last().context("nobody")?;
    let (done, rest) = others.split_at(2);
    coordinator.open(&world.barrier("map"), Some(&"k".parse()?)).await?;
    for worker in done {
        let output = Some(format!("of {}", worker.name()));
        worker.arrive_as(&first, Arrival { output, ..Arrival::default() }).await?;
    }
    failing.arrive_as(&first, failed(1)).await?;
    world.until_state(&first, State::Broken).await?;

    refused(&coordinator.retry(&key, Keep::Ok, "", false).await, Code::BadRequest)?;
    let tried = coordinator.retry(&key, Keep::Ok, "mended", true).await?;
    ensure!(tried.changed && tried.status.generation == "k~1", "{tried:?}");
    ensure!(world.status(&key).await?.round == 0, "it was only tried");
    for (number, changed) in [(0, true), (1, false), (2, false)] {
        let client = world.agents(world.region(number));
        let retried = client.retry(&key, Keep::Ok, "mended", false).await?;
        ensure!(retried.changed == changed && retried.status.generation == "k~1", "{retried:?}");
        ensure!((retried.status.round, retried.status.state) == (1, State::Gathering), "{retried:?}");
    }
    ensure!(audited(world, "map").await? == [["retry", "k", "mended", "k~1"]]);

    world.require(&second, &workers);
    world.carries(&second, &first);
    let status = world.until_status(&second, "what was done is counted", |status| status.arrived == 2).await?;
    ensure!(status.failed == 0, "{status:?}");
    ensure!(done[0].look(&second).await?.state == ParticipantState::Arrived);
    // A process of the round that broke is told so, by whatever name it calls it.
    refused(&failing.arrive(&first).await, Code::Broken)?;
    refused(&failing.arrive(&second).await, Code::Withdrawn)?;
    let bare = failing.client.arrive(&key, &failing.id, &Arrival::default()).await;
    refused(&bare, Code::Withdrawn)?;
    let waits = try_join_all(done.iter().map(|worker| worker.wait(&second)));
    let crosses = try_join_all(rest.iter().map(|worker| worker.cross(&second)));
    let again = async {
        failing.arrive_as(&second, attempt(2)).await?;
        failing.wait(&second).await
    };
    let (waited, _, last) = futures::try_join!(waits, crosses, again)?;
    let outputs: BTreeMap<_, _> = done.iter().map(|worker| (worker.name(), format!("of {}", worker.name()))).collect();
    ensure!(last.whole && last.round == 1 && last.outputs == outputs, "{last:?}");
    ensure!(waited.iter().all(|released| released.digest == last.digest));
    // The key is its latest round; the one before stays what it was.
    ensure!(world.coordinator().wait(&key, None).await?.digest == last.digest);
    refused(&failing.wait(&first).await, Code::Broken)?;
    refused(&coordinator.retry(&second, Keep::Ok, "x", false).await, Code::AlreadyDecided)?;
    Ok(())
}

async fn a_round_that_keeps_nothing_starts_anew(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed"})).await?;
    let (first, second) = (world.target("map", "k~0"), world.target("map", "k~1"));
    let (coordinator, workers) = (world.coordinator(), world.workers(&["1"]));
    coordinator.open(&world.barrier("map"), Some(&"k".parse()?)).await?;
    workers[0].arrive(&first).await?;
    coordinator.abort(&first, "wrong input", false).await?;
    coordinator.retry(&first, Keep::None, "right input", false).await?;
    workers[1].arrive(&second).await?;
    let status = world.until_status(&second, "one arrived", |status| status.arrived == 1).await?;
    ensure!(status.expected == 3, "{status:?}");
    ensure!(workers[0].look(&second).await?.state == ParticipantState::Missing);
    ensure!(world.cross(&second, &workers).await?.whole);
    // It breaks again, and is tried again: rounds count on.
    let (third, fourth) = (world.target("map", "again~0"), world.target("map", "again~2"));
    coordinator.open(&world.barrier("map"), Some(&"again".parse()?)).await?;
    for target in [&third, &world.target("map", "again~1")] {
        coordinator.abort(target, "x", false).await?;
        coordinator.retry(target, Keep::Ok, "y", false).await?;
    }
    let released = world.cross(&fourth, &workers).await?;
    ensure!((released.round, released.generation.as_str()) == (2, "again~2"), "{released:?}");
    Ok(())
}

async fn what_did_not_break_is_not_retried(world: &World<'_>) -> Outcome {
    world.define("step", json!({"generations": "cyclic"})).await?;
    world.define("map", json!({})).await?;
    let (step, map, coordinator) = (world.target("step", 1), world.target("map", 1), world.coordinator());
    refused(&coordinator.retry(&map, Keep::Ok, "x", false).await, Code::NotBroken)?;
    coordinator.abort(&step, "x", false).await?;
    let goes_on = refused(&coordinator.retry(&step, Keep::Ok, "x", false).await, Code::AlreadyDecided)?;
    ensure!(goes_on.more.get("generation") == Some(&json!("2")), "{goes_on:?}");
    // The only generation of a barrier has rounds, too.
    let workers = world.workers(&["1"]);
    workers[0].arrive(&map).await?;
    coordinator.abort(&map, "wrong input", false).await?;
    let retried = coordinator.retry(&map, Keep::Ok, "right input", false).await?;
    ensure!((retried.status.n, retried.status.round, retried.changed) == (2, 1, true), "{retried:?}");
    ensure!(!coordinator.retry(&map, Keep::Ok, "right input", false).await?.changed);
    let second = world.target("map", 2);
    world.require(&second, &workers);
    world.carries(&second, &map);
    let waits = workers[0].wait(&second);
    let crosses = try_join_all(workers[1..].iter().map(|worker| worker.cross(&second)));
    let (waited, _) = futures::try_join!(waits, crosses)?;
    ensure!(waited.whole, "{waited:?}");
    Ok(())
}
