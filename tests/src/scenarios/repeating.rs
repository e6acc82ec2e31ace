//! What Kafka says twice, late and in another order changes nothing.

use anyhow::{bail, ensure};
use futures::future::try_join_all;
use muster_client::Target;
use muster_protocol::generation::State;
use muster_wire::answer::Status;
use muster_wire::code::Code;
use serde_json::json;

use super::{Outcome, refused, special_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Part, Shape};
use crate::replay::replay;
use crate::services::Services;
use crate::world::World;

const IDS: [&str; 6] = ["1", "2", "3", "4", "5", "6"];
/// How often a record comes again at most.
const TIMES: usize = 3;

#[test]
fn what_kafka_repeats_and_reorders_changes_nothing() {
    special_processes(Shape::default(), Extras::default(), async |world, cluster| {
        world.define("step", json!({"generations": "cyclic", "retention": 2})).await?;
        world.define("map", json!({"generations": "keyed", "participants": IDS})).await?;
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
        // One after the other, so that each region has said it in many words.
        let mut heard = 0;
        for id in &IDS[1..] {
            try_join_all(world.workers(&[id]).iter().map(|worker| worker.arrive(&open))).await?;
            heard += 3;
            world.until_status(&open, "all are heard", |status| status.arrived == heard).await?;
        }
        let before = world.status(&open).await?;

        for seed in 0..3 {
            // Of the same barriers and so in the same places: when these are
            // heard, what came before was.
            let marker = world.target("map", format!("marker-{seed}"));
            let late = async {
                let sent = replay(&Services::given()?.kafka, cluster.name(), TIMES, seed).await?;
                ensure!(sent > 20, "only {sent} records were there to be sent again");
                try_join_all(workers.iter().map(|worker| worker.arrive(&marker))).await?;
                world.until_status(&marker, "what came behind is heard", |status| status.arrived == 3).await
            };
            tokio::select! {
                heard = late => drop(heard?),
                fallen = until_it_falls(world, &open, &before) => bail!("{open} fell back: {:?}", fallen?),
            }
            let after = world.target("step", 7 + seed);
            world.cross(&after, &workers).await?;
            world.until_state(&after, State::Released).await?;
            ensure!(workers[0].wait(&world.target("step", 5)).await?.digest == digests[4]);
            refused(&workers[0].wait(&broken).await, Code::Broken)?;
            nothing_is_back(world, cluster).await?;
        }
        world.cross(&open, &world.workers(&IDS)).await.map(drop)
    });
}

/// Looks at a generation that goes on until less is known of it than before. Not
/// for long: regions say everything anew when their old greetings come again.
async fn until_it_falls(world: &World<'_>, target: &Target, before: &Status) -> anyhow::Result<Status> {
    loop {
        let now = world.status(target).await?;
        if (now.state, now.arrived) != (before.state, before.arrived) {
            return Ok(now);
        }
    }
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
