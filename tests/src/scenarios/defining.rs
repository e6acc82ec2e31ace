//! Definitions: what changes when, and what happens to names.

use anyhow::ensure;
use muster_client::Apply;
use muster_protocol::generation::State;
use muster_wire::code::Code;
use serde_json::json;

use super::{Outcome, on_every_cluster, refused};
use crate::world::World;

on_every_cluster!(
    an_equal_definition_changes_nothing,
    a_change_holds_from_the_next_generation,
    a_region_that_is_added_has_no_part_in_what_is_open,
    another_definition_is_a_conflict_with_a_diff,
    numbers_go_on_after_delete_and_redefine,
    yaml_is_json_and_an_agent_is_a_coordinator,
);

async fn a_region_that_is_added_has_no_part_in_what_is_open(world: &World<'_>) -> Outcome {
    let regions = world.regions();
    let keyed =
        |regions: serde_json::Value| world.definition("map", json!({"generations": "keyed", "regions": regions}));
    let barrier = world.barrier("map");
    let apply = Apply { replace: true, ..Apply::default() };
    world.coordinator().apply(&barrier, keyed(json!([regions[0]])).to_string(), apply).await?;
    world.coordinator().open(&barrier, Some(&"k".parse()?)).await?;
    world.coordinator().apply(&barrier, keyed(json!([regions[0], regions[1]])).to_string(), apply).await?;
    let target = world.target("map", "k");
    refused(&world.worker(1, "1").arrive(&target).await, Code::WrongRegion)?;
    // Whoever waits there is told by the coordinator.
    let waiter = world.worker(1, "1");
    let (waited, arrived) = futures::join!(waiter.wait(&target), async {
        world.until_status(&target, "it is open", |status| status.expected == 1).await?;
        anyhow::Ok(world.worker(0, "1").arrive(&target).await?)
    });
    arrived?;
    ensure!(waited?.whole);
    Ok(())
}

async fn an_equal_definition_changes_nothing(world: &World<'_>) -> Outcome {
    let first = world.define("map", json!({})).await?;
    ensure!(first.created && first.changed && first.barrier.gathering == 1, "{first:?}");
    let again = world.define("map", json!({})).await?;
    ensure!(!again.created && !again.changed && again.barrier == first.barrier, "{again:?}");
    // Defaults that are written out are the same definition.
    let spelled = json!({"scope": "global", "attempts": 1, "maxFailures": 0, "failFast": true, "releaseWhen": "all"});
    ensure!(!world.define("map", spelled).await?.changed);
    ensure!(world.coordinator().history(&world.barrier("map")).await?.len() == 1);
    world.cross(&world.target("map", 1), &world.workers(&["1"])).await?;
    Ok(())
}

async fn a_change_holds_from_the_next_generation(world: &World<'_>) -> Outcome {
    world.define("step", json!({"generations": "cyclic"})).await?;
    let barrier = world.barrier("step");
    let before = world.workers(&["1"]);
    before[0].arrive(&world.target("step", 1)).await?;
    let regions = world.regions();
    let changed = world.definition(
        "step",
        json!({"generations": "cyclic", "participants": ["1", "2"], "regions": [regions[0].clone(), regions[2].clone()]}),
    );
    let apply = Apply { replace: true, ..Apply::default() };
    let applied = world.coordinator().apply(&barrier, changed.to_string(), apply).await?;
    ensure!(applied.changed && !applied.created && applied.barrier.revision == 2, "{applied:?}");
    // The one that gathers is still that of the old definition …
    let status = world.status(&world.target("step", 1)).await?;
    ensure!(status.expected == 3 && status.regions.len() == 3, "{status:?}");
    refused(&world.worker(0, "2").arrive(&world.target("step", 1)).await, Code::NotExpected)?;
    world.cross(&world.target("step", 1), &before).await?;
    // … and the next that of the new one.
    let second = world.target("step", 2);
    let status = world.until_state(&second, State::Gathering).await?;
    ensure!(status.expected == 4 && status.regions.len() == 2, "{status:?}");
    let after = [world.worker(0, "1"), world.worker(0, "2"), world.worker(2, "1"), world.worker(2, "2")];
    world.cross(&second, &after).await?;
    refused(&world.worker(1, "1").arrive(&world.target("step", 3)).await, Code::WrongRegion)?;
    Ok(())
}

async fn another_definition_is_a_conflict_with_a_diff(world: &World<'_>) -> Outcome {
    world.define("map", json!({"owner": "data-platform"})).await?;
    let other = json!({"owner": "search", "participants": ["1", "2"]});
    let conflict = refused(&world.define("map", other.clone()).await, Code::Conflict)?;
    let diff = conflict.more.get("diff").cloned().unwrap_or_default().to_string();
    for part in ["owner", "data-platform", "search", "participants"] {
        ensure!(diff.contains(part), "{part}: {diff}");
    }
    let (coordinator, barrier) = (world.coordinator(), world.barrier("map"));
    let unchanged = coordinator.barrier(&barrier).await?;
    ensure!(unchanged.revision == 1 && unchanged.effective["owner"] == "data-platform", "{unchanged:?}");
    let definition = world.definition("map", other).to_string();
    let stale = Apply { if_match: Some(7), ..Apply::default() };
    refused(&coordinator.apply(&barrier, definition.clone(), stale).await, Code::Precondition)?;
    let dry = Apply { dry_run: true, replace: true, ..Apply::default() };
    ensure!(coordinator.apply(&barrier, definition.clone(), dry).await?.changed);
    ensure!(coordinator.barrier(&barrier).await? == unchanged);
    let right = Apply { if_match: Some(1), ..Apply::default() };
    ensure!(coordinator.apply(&barrier, definition, right).await?.barrier.revision == 2);
    Ok(())
}

async fn numbers_go_on_after_delete_and_redefine(world: &World<'_>) -> Outcome {
    world.define("map", json!({})).await?;
    let (coordinator, barrier) = (world.coordinator(), world.barrier("map"));
    let workers = world.workers(&["1"]);
    let first = world.cross(&world.target("map", 1), &workers).await?;
    world.until_state(&world.target("map", 1), State::Released).await?;
    ensure!(coordinator.delete(&barrier, None).await?.changed);
    ensure!(!coordinator.delete(&barrier, None).await?.changed, "deleting twice is deleting once");
    refused(&coordinator.barrier(&barrier).await, Code::NotDefined)?;
    // The verdict of what is gone stays.
    let still = workers[0].wait(&world.target("map", 1)).await?;
    ensure!(still.digest == first.digest);
    ensure!(world.define("map", json!({})).await?.created);
    let second = world.cross(&world.target("map", 2), &workers).await?;
    ensure!(second.n == 2 && second.digest != first.digest);
    Ok(())
}

async fn yaml_is_json_and_an_agent_is_a_coordinator(world: &World<'_>) -> Outcome {
    let barrier = world.barrier("map");
    let regions: Vec<&str> = world.regions().iter().map(|region| region.as_str()).collect();
    let yaml = format!(
        "kind: Barrier\nname: {barrier}\ndescription: all parts are written\nregions: [{}]\nparticipants: [\"1\"]\n\
         generations: keyed\nmaxOpen: 4\ndeadline: 2h\nlabels: {{app: etl}}\n",
        regions.join(", ")
    );
    let agent = world.agents(world.region(1));
    let applied = agent.apply(&barrier, yaml.clone(), Apply::default()).await?;
    ensure!(applied.created, "{applied:?}");
    let same = json!({
        "description": "all parts are written", "generations": "keyed", "maxOpen": 4, "deadline": "2h",
        "labels": {"app": "etl"},
    });
    ensure!(!world.define("map", same).await?.changed);
    let seen = agent.barrier(&barrier).await?;
    ensure!(seen == world.coordinator().barrier(&barrier).await?);
    ensure!(agent.barriers().await?.iter().any(|one| one.name == barrier));
    world.cross(&world.target("map", "k"), &world.workers(&["1"])).await?;
    Ok(())
}
