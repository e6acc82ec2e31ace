//! A region that is away by plan: what opens meanwhile goes on without it.

use anyhow::{Context, ensure};
use muster_client::AuditFilter;
use muster_protocol::generation::State;
use muster_wire::answer::RegionState;
use muster_wire::code::Code;
use muster_wire::request::{Drain, DrainOpen};
use serde_json::json;

use super::{Outcome, own_cluster, refused};
use crate::cluster::{Part, Shape, regions};
use crate::world::World;

own_cluster!(
    a_drained_region_is_not_waited_for: Shape { regions: regions(["us-east", "eu-west"]), ..Shape::default() },
);

async fn a_drained_region_is_not_waited_for(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed"})).await?;
    world.define("step", json!({"generations": "cyclic"})).await?;
    let (coordinator, region) = (world.coordinator(), world.region(1).clone());
    let workers = world.workers(&["1"]);
    let (stays, goes) = (&workers[..1], &workers[1]);
    let [before, during, after] = ["before", "during", "after"].map(|key| world.target("map", key));
    let step = world.target("step", 1);
    goes.arrive(&step).await?;
    coordinator.open(&world.barrier("map"), Some(&"before".parse()?)).await?;
    let drain = |open, reason: &str| Drain { until: "2h".to_owned(), open, reason: reason.to_owned() };
    refused(&coordinator.drain_region(&region, &drain(DrainOpen::Keep, "")).await, Code::BadRequest)?;
    let drained = coordinator.drain_region(&region, &drain(DrainOpen::Keep, "new switches")).await?;
    ensure!(drained.drained.is_some_and(|drained| drained.reason == "new switches"));
    let shown = coordinator.regions().await?;
    ensure!(shown.iter().all(|one| one.drained.is_some() == (one.name == region)), "{shown:?}");

    // What was open keeps it.
    let of_region = |status: &muster_wire::answer::Status| {
        status.regions.iter().find(|one| one.name == region).map(|one| one.state)
    };
    ensure!(of_region(&world.status(&before).await?) != Some(RegionState::Waived));
    let why = coordinator.explain(&before).await?;
    ensure!(why.lines.iter().any(|line| line.contains("is drained until")), "{:?}", why.lines);
    // It may be gone altogether: what opens now is released, and so is the next
    // cycle once the one that kept it is through.
    world.cross(&step, stays).await?;
    world.cluster.stop(&Part::Agent(region.clone(), 0)).await?;
    for target in [&during, &world.target("step", 2), &world.target("step", 3)] {
        world.everybody(target, &workers);
        let released = world.cross(target, stays).await?;
        ensure!(!released.whole, "{released:?}");
    }
    let release = world.status(&during).await?.release.context("not released")?;
    ensure!(release.waived == [(region.clone(), String::new())].into(), "{release:?}");
    ensure!(world.status(&before).await?.state == State::Gathering);
    // Waived in what was open, too.
    world.everybody(&before, &workers);
    coordinator.drain_region(&region, &drain(DrainOpen::Waive, "it takes longer")).await?;
    ensure!(of_region(&world.status(&before).await?) == Some(RegionState::Waived));
    ensure!(!world.cross(&before, stays).await?.whole);

    world.cluster.start(&Part::Agent(region.clone(), 0)).await?;
    refused(&coordinator.resume_region(&region, " ").await, Code::BadRequest)?;
    let resumed = coordinator.resume_region(&region, "they are in").await?;
    ensure!(resumed.drained.is_none(), "{resumed:?}");
    // Back, it learns what went on without it, and is waited for again.
    for target in [&before, &during, &world.target("step", 3)] {
        ensure!(!goes.wait(target).await?.whole);
    }
    ensure!(world.cross(&after, &workers).await?.whole);
    let audit = coordinator.audit(&AuditFilter::default()).await?;
    let rows: Vec<(&str, &str)> = audit.iter().map(|row| (row.action.as_str(), row.reason.as_str())).collect();
    let drains: Vec<_> = rows.iter().filter(|(action, _)| ["drain", "resume"].contains(action)).collect();
    let expected = [("resume", "they are in"), ("drain", "it takes longer"), ("drain", "new switches")];
    ensure!(drains == expected.iter().collect::<Vec<_>>(), "{rows:?}");
    ensure!(rows.contains(&("waive", "it takes longer")), "{rows:?}");
    Ok(())
}
