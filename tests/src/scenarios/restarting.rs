//! Parts that are told to stop, as by whoever brings a new version: one after
//! the other, while everybody works.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::{Client, Target};
use muster_protocol::generation::State;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{Outcome, cross_under, special_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::until::{DEADLINE, until};
use crate::worker::Worker;
use crate::world::World;

/// What a part says that had to cut somebody off, or left work undone.
const NOT_DRAINED: [&str; 2] = ["did not end in time", "stopped before everything had ended"];
/// What a part exits with that SIGTERM ended at once: as it started, or as it
/// drained.
pub(super) const TERMINATED: i32 = 143;
/// How long a watch asks for news at a time.
const WATCH: Duration = Duration::from_secs(10);

#[test]
fn everything_is_restarted_in_turn_under_load() {
    let regions = regions(["us-east", "eu-west"]);
    let shape = Shape { regions, agents_per_region: 2, coordinators: 2, ..Shape::default() };
    special_processes(shape, Extras::default(), async |world, cluster| {
        let participants = json!(["1", "2"]);
        world.define("step", json!({"generations": "cyclic", "participants": participants})).await?;
        world.define("late", json!({"participants": participants})).await?;
        let liveness = json!({"ttl": "15s", "rejoin": "0s"});
        world.define("map", json!({"participants": participants, "liveness": liveness})).await?;
        let (late, map) = (world.target("late", 1), world.target("map", 1));
        let workers = world.workers(&["1", "2"]);
        world.require(&late, &workers);
        let (last, early) = workers.split_last().context("nobody")?;
        try_join_all(early.iter().map(|worker| worker.arrive(&late))).await?;
        let sessions = try_join_all(workers.iter().map(|worker| worker.session(&map, None))).await?;

        let over = CancellationToken::new();
        let restarts = async {
            let _over = over.clone().drop_guard();
            for part in cluster.shape().parts() {
                restart(cluster, &part).await.with_context(|| part.to_string())?;
            }
            last.arrive(&late).await.map_err(anyhow::Error::from)
        };
        let waits = wait_at_every_part(world, cluster, &late, early);
        let working = laps(world, &workers, &over);
        futures::try_join!(restarts, waits, working, watch(world, &late))?;
        cross_under(world, &map, &workers, &sessions).await
    });
}

async fn restart(cluster: &Processes, part: &Part) -> Outcome {
    cluster.terminate(part)?;
    let status = cluster.until_dead(part).await?;
    ensure!(status.code() == Some(0), "it ended with {status}");
    let log = cluster.log(part);
    ensure!(!NOT_DRAINED.iter().any(|words| log.contains(words)), "it did not drain: {log}");
    cluster.start(part).await?;
    cluster.part_ready(part).await
}

/// Everybody crosses again and again until it is over.
async fn laps(world: &World<'_>, workers: &[Worker], over: &CancellationToken) -> Outcome {
    for n in 1.. {
        let target = world.target("step", n);
        world.cross(&target, workers).await.with_context(|| target.to_string())?;
        if over.is_cancelled() {
            break;
        }
    }
    Ok(())
}

/// At each agent and each coordinator somebody waits who knows no other.
async fn wait_at_every_part(world: &World<'_>, cluster: &Processes, target: &Target, early: &[Worker]) -> Outcome {
    let parts = cluster.shape().parts().into_iter();
    let alone = parts.map(async |part| {
        let worker = early[0].with(Client::new([world.cluster.url(&part)])?);
        worker.patient(2 * DEADLINE).wait(target).await.with_context(|| format!("the wait at {part}"))
    });
    let (alone, early) = futures::try_join!(try_join_all(alone), async {
        Ok(try_join_all(early.iter().map(|one| one.wait(target))).await?)
    })?;
    ensure!(alone.iter().chain(&early).all(|released| released.whole && released.digest == alone[0].digest));
    Ok(())
}

/// Follows the status to its end. What was told once stays true.
async fn watch(world: &World<'_>, target: &Target) -> Outcome {
    let coordinator = world.coordinator();
    let mut seen = coordinator.status(target, None).await?;
    while seen.state != State::Released {
        let next = coordinator.status(target, Some((&seen.index, WATCH))).await?;
        ensure!(next.arrived >= seen.arrived && next.state as u8 >= seen.state as u8, "{next:?} came after {seen:?}");
        seen = next;
    }
    Ok(())
}

#[test]
fn a_second_signal_does_not_wait_for_the_drain() {
    let shape = Shape { regions: regions(["us-east"]), ..Shape::default() };
    special_processes(shape, Extras::default(), async |world, cluster| {
        for part in cluster.shape().parts() {
            let url = world.cluster.url(&part);
            let address = url.strip_prefix("http://").context("no URL")?;
            // Its body never comes, and so its answer can't.
            let mut held = TcpStream::connect(address).await?;
            let head = "PUT /v1/barriers/t/held HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n";
            held.write_all(head.as_bytes()).await?;
            let mut answer = [0; 12];
            held.read_exact(&mut answer).await?;
            ensure!(answer.ends_with(b"100"), "{}", String::from_utf8_lossy(&answer));
            cluster.terminate(&part)?;
            until(&format!("{part} takes nobody new"), || async {
                TcpStream::connect(address).await.err().ok_or("it does")
            })
            .await?;
            ensure!(!cluster.is_dead(&part), "{part} did not wait for whom it serves");
            cluster.terminate(&part)?;
            let status = cluster.until_dead(&part).await?;
            ensure!(status.code() == Some(TERMINATED), "{part} ended with {status}");
            let log = cluster.log(&part);
            ensure!(!NOT_DRAINED.iter().any(|words| log.contains(words)), "{part} drained: {log}");
        }
        Ok(())
    });
}
