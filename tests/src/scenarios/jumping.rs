//! Clocks on the wall that jump: they are for people, and nothing is decided
//! by them.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::Target;
use muster_wire::code::Code;
use serde_json::json;

use super::{Outcome, cross_under, refused, special_processes};
use crate::cluster::processes::Extras;
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::worker::Worker;
use crate::world::World;

/// Far less than the clocks jump.
const BRIEF: Duration = Duration::from_secs(3);
/// Longer than a lease and a session bear silence.
const WHILE: Duration = Duration::from_secs(8);

#[test]
fn clocks_that_jump_by_an_hour_decide_nothing() {
    // Nobody else could do the work of the two whose clocks jump.
    let shape = Shape { regions: regions(["us-east", "eu-west"]), ..Shape::default() };
    let jumping = [Part::Coordinator(0), Part::Agent(shape.regions[0].clone(), 0)];
    special_processes(shape, Extras::default(), async |world, cluster| {
        for part in &jumping {
            cluster.stop(part).await?;
            cluster.make_clock_jump(part);
            cluster.start(part).await?;
        }
        cluster.ready().await?;
        let (workers, two) = (world.workers(&["1", "2"]), json!(["1", "2"]));
        world.define("step", json!({"generations": "cyclic", "participants": two})).await?;
        let liveness = json!({"ttl": "4s", "rejoin": "0s"});
        world.define("map", json!({"participants": two, "liveness": liveness})).await?;
        let map = world.target("map", 1);
        let sessions = try_join_all(workers.iter().map(|worker| worker.session(&map, None))).await?;
        the_clock_is_odd(&world.target("step", 1), world, &workers).await?;
        let working = laps(world, &workers);
        futures::try_join!(working, breaks_in_time(world, "global"), breaks_in_time(world, "regional"))?;

        cross_under(world, &map, &workers, &sessions).await
    });
}

/// Two instants of one agent, read off a clock that jumps, may be alike; of
/// twenty some are hours apart.
async fn the_clock_is_odd(target: &Target, world: &World<'_>, workers: &[Worker]) -> Outcome {
    world.define("many", json!({"participants": "[1-20]"})).await?;
    let many = world.target("many", 1);
    for id in 1..=20 {
        world.worker(0, &id.to_string()).arrive(&many).await?;
    }
    let seen = workers[0].client.participants(&many, None, None).await?;
    let mut hours: Vec<&str> = seen.iter().filter_map(|one| one.arrived_at.as_deref()?.get(..13)).collect();
    hours.sort_unstable();
    hours.dedup();
    ensure!(hours.len() > 1, "the clock does not jump: {hours:?}");
    world.cross(target, workers).await.map(drop)
}

/// Crossings go on for a while.
async fn laps(world: &World<'_>, workers: &[Worker]) -> Outcome {
    let started = Instant::now();
    for n in 2.. {
        let target = world.target("step", n);
        world.cross(&target, workers).await.with_context(|| target.to_string())?;
        if started.elapsed() > WHILE {
            break;
        }
    }
    Ok(())
}

/// A deadline is neither early nor an hour late.
async fn breaks_in_time(world: &World<'_>, scope: &str) -> Outcome {
    let deadline = format!("{}s", BRIEF.as_secs());
    let started = Instant::now();
    let regions = [world.region(0)];
    world.define(scope, json!({"scope": scope, "regions": regions, "deadline": deadline})).await?;
    let problem = refused(&world.worker(0, "1").wait(&world.target(scope, 1)).await, Code::Broken)?;
    ensure!(problem.more.get("reason") == Some(&json!("deadline-exceeded")), "{problem:?}");
    ensure!(started.elapsed() >= BRIEF, "{scope} broke after {:?}", started.elapsed());
    Ok(())
}
