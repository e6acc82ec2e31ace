//! Rules: what may be left out of a release, and what those left out learn.

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::Target;
use muster_protocol::generation::State;
use muster_wire::answer::RegionState;
use serde_json::json;

use super::{Outcome, no_whole_release, on_every_cluster};
use crate::until::until;
use crate::world::World;

on_every_cluster!(
    so_many_regions_are_enough_and_the_rest_learns_it,
    a_nested_rule_waits_for_what_it_names,
    zones_of_a_region_are_enough,
    a_cycle_goes_on_without_a_slow_region,
);

/// Waits until the explanation says what the rule still needs.
async fn until_needed(world: &World<'_>, target: &Target, needs: &str) -> Outcome {
    let line = format!("Release needs {needs}.");
    let coordinator = world.coordinator();
    until(&format!("{target} needs {needs}"), || async {
        match coordinator.explain(target).await {
            Ok(why) if why.lines.contains(&line) => Ok(()),
            Ok(why) => Err(format!("{:?}", why.lines)),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

async fn so_many_regions_are_enough_and_the_rest_learns_it(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    world.define("map", json!({"participants": ["1", "2"], "releaseWhen": {"atLeast": 2, "of": regions}})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1", "2"]);
    let of = |numbers: [usize; 2]| numbers.into_iter().flat_map(|n| workers[2 * n..2 * n + 2].to_vec()).collect();
    world.require_any(&target, &[of([0, 1]), of([0, 2]), of([1, 2])]);
    world.everybody(&target, &workers);
    let names: Vec<&str> = regions.iter().map(|region| region.as_str()).collect();
    until_needed(world, &target, &format!("2 of [{}]", names.join(", "))).await?;
    // Half of a region is none.
    workers[0].arrive(&target).await?;
    workers[4].arrive(&target).await?;
    workers[1].arrive(&target).await?;
    until_needed(world, &target, &format!("1 of [{}]", names[1..].join(", "))).await?;
    let slow = try_join_all(workers[4..].iter().map(|worker| worker.wait(&target)));
    let last = try_join_all(workers[2..4].iter().map(|worker| worker.cross(&target)));
    let (slow, last) = futures::try_join!(slow, last)?;
    ensure!(slow.iter().chain(&last).all(|released| !released.whole && released.digest == last[0].digest));
    let status = world.until_state(&target, State::Released).await?;
    let release = status.release.context("not released")?;
    ensure!(release.left_out == [regions[2].clone()] && !release.whole, "{release:?}");
    ensure!(status.message.contains("left out"), "{}", status.message);
    no_whole_release(world, &target).await?;
    // Whoever comes late passes.
    let late = workers[5].arrive(&target).await?;
    ensure!(late.late && late.state == State::Released, "{late:?}");
    ensure!(workers[5].wait(&target).await?.digest == release.digest);
    Ok(())
}

async fn a_nested_rule_waits_for_what_it_names(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    let rule = json!({"all": [regions[0].clone(), {"atLeast": 1, "of": [regions[1].clone(), regions[2].clone()]}]});
    world.define("map", json!({"generations": "keyed", "releaseWhen": rule})).await?;
    let workers = world.workers(&["1"]);
    let (with, without) = (world.target("map", "with"), world.target("map", "without"));
    for target in [&with, &without] {
        world.require_any(
            target,
            &[vec![workers[0].clone(), workers[1].clone()], vec![workers[0].clone(), workers[2].clone()]],
        );
        world.everybody(target, &workers);
    }
    workers[1].arrive(&without).await?;
    workers[2].arrive(&without).await?;
    until_needed(world, &without, regions[0].as_str()).await?;
    workers[0].cross(&without).await?;
    let release = world.until_state(&without, State::Released).await?.release.context("not released")?;
    ensure!(release.whole && release.left_out.is_empty(), "everybody came: {release:?}");

    workers[0].arrive(&with).await?;
    until_needed(world, &with, &format!("1 of [{}, {}]", regions[1], regions[2])).await?;
    workers[2].cross(&with).await?;
    let release = world.until_state(&with, State::Released).await?.release.context("not released")?;
    ensure!(release.left_out == [regions[1].clone()], "{release:?}");
    Ok(())
}

async fn zones_of_a_region_are_enough(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    let zone = |name: &str| format!("{}/{name}", regions[0]);
    let more = json!({
        "regions": {
            (regions[0].to_string()): {"zones": {"a": "[0-1]", "b": "[2-3]"}},
            (regions[1].to_string()): {}, (regions[2].to_string()): {},
        },
        "releaseWhen": {"all": [zone("a"), regions[1].clone()]},
    });
    world.define("map", more).await?;
    let target = world.target("map", 1);
    let required = [world.worker(0, "0"), world.worker(0, "1"), world.worker(1, "1")];
    world.require(&target, &required);
    world.everybody(&target, &[&required[..], &[world.worker(0, "2"), world.worker(2, "1")]].concat());
    until_needed(world, &target, &format!("{} and {}", zone("a"), regions[1])).await?;
    required[0].arrive(&target).await?;
    world.worker(0, "2").arrive(&target).await?;
    required[1].arrive(&target).await?;
    until_needed(world, &target, regions[1].as_str()).await?;
    let status = world.status(&target).await?;
    let first = status.regions.iter().find(|region| region.name == regions[0]).context("no region")?;
    let zones: Vec<_> = first.zones.iter().map(|(name, zone)| (name.as_str(), zone.arrived, zone.complete)).collect();
    ensure!(zones == [("a", 2, true), ("b", 1, false)] && first.state == RegionState::Gathering, "{first:?}");
    let released = required[2].cross(&target).await?;
    ensure!(!released.whole, "{released:?}");
    let status = world.until_state(&target, State::Released).await?;
    let release = status.release.context("not released")?;
    ensure!(release.left_out.len() == 2 && !release.left_out.contains(&regions[1]), "{release:?}");
    ensure!(world.worker(0, "3").arrive(&target).await?.late);
    Ok(())
}

/// The slow region's participants pass what was released without them, one
/// generation after the other, and count again when they have caught up.
async fn a_cycle_goes_on_without_a_slow_region(world: &World<'_>) -> Outcome {
    const GENERATIONS: u64 = 5;
    let regions = world.regions();
    let rule = json!({"all": [regions[0].clone(), regions[1].clone()]});
    world.define("step", json!({"generations": "cyclic", "releaseWhen": rule})).await?;
    let workers = world.workers(&["1"]);
    let (slow, fast) = workers.split_last().context("nobody")?;
    for n in 1..=GENERATIONS {
        let target = world.target("step", n);
        world.everybody(&target, &workers);
        world.cross(&target, fast).await?;
    }
    for n in 1..=GENERATIONS {
        let target = world.target("step", n);
        ensure!(!slow.wait(&target).await?.whole);
        ensure!(slow.arrive(&target).await?.late, "{target}");
    }
    let next = world.target("step", GENERATIONS + 1);
    slow.arrive(&next).await?;
    world.until_status(&next, "the slow one is counted", |status| status.arrived == 1).await?;
    ensure!(world.cross(&next, fast).await?.whole);
    Ok(())
}
