//! What Kafka says twice, late and in another order changes nothing.

use anyhow::ensure;
use futures::future::try_join_all;
use muster_protocol::generation::State;
use serde_json::json;

use super::{Outcome, refused, special_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Part, Shape};
use crate::replay::replay;
use crate::services::Services;
use crate::world::World;
use muster_wire::code::Code;

/// How often a record comes again at most.
const TIMES: usize = 3;

#[test]
fn what_kafka_repeats_and_reorders_changes_nothing() {
    special_processes(Shape::default(), Extras::default(), async |world, cluster| {
        world.define("step", json!({"generations": "cyclic", "retention": 2})).await?;
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
        let workers = world.workers(&["1"]);
        let (broken, open) = (world.target("map", "broken"), world.target("map", "open"));
        // Released and forgotten, released and kept, broken, and still open.
        let mut digests = Vec::new();
        for n in 1..=6 {
            let target = world.target("step", n);
            world.may_be_forgotten(&target);
            digests.push(world.cross(&target, &workers).await?.digest);
        }
        workers[0].arrive(&broken).await?;
        world.coordinator().abort(&broken, "not needed", false).await?;
        try_join_all(workers.iter().map(|worker| worker.arrive(&open))).await?;
        let before = world.until_status(&open, "all are heard", |status| status.arrived == 3).await?;

        for seed in 0..3 {
            let sent = replay(&Services::given()?.kafka, cluster.name(), TIMES, seed).await?;
            ensure!(sent > 20, "only {sent} records were there to be sent again");
            // One that is behind them all: when it is through, they are.
            let after = world.target("step", 7 + seed);
            world.cross(&after, &workers).await?;
            world.until_state(&after, State::Released).await?;
            ensure!(workers[0].wait(&world.target("step", 5)).await?.digest == digests[4]);
            refused(&workers[0].wait(&broken).await, Code::Broken)?;
            let now = world.status(&open).await?;
            ensure!((now.state, now.arrived) == (before.state, before.arrived), "{now:?}");
            nothing_is_back(world, cluster).await?;
        }
        world.cross(&open, &world.workers(&["1", "2"])).await.map(drop)
    });
}

/// No old generation is back, and nobody heard of two ends.
async fn nothing_is_back(world: &World<'_>, cluster: &Processes) -> Outcome {
    let listed = world.coordinator().history(&world.barrier("step")).await?;
    let open: Vec<u64> = listed.iter().filter(|row| row.state != State::Released).map(|row| row.n).collect();
    ensure!(open.len() <= 1 && open.iter().all(|n| *n > 7), "{listed:?}");
    for region in world.regions() {
        let agent = Part::Agent(region.clone(), 0);
        ensure!(!cluster.log(&agent).contains("another outcome"), "{agent} heard of two ends");
    }
    Ok(())
}
