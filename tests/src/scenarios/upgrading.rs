//! Agents of two builds in one region: what the older one can't read never gets
//! on the log, so that it goes on until it is replaced.

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::Client;
use muster_wire::answer::ParticipantState;
use muster_wire::code::Code;
use muster_wire::request::Arrival;
use serde_json::{Value, json};

use super::{Outcome, special_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::raw::Request;
use crate::until::until;
use crate::worker::Worker;
use crate::world::World;

/// What an agent says to whatever the older one does not know.
const WAIT_FOR_THE_UPGRADE: &str =
    "not every agent of us-east runs a version that knows sessions and regional barriers; nothing was done";

fn agent(number: usize) -> Part {
    Part::Agent("us-east".parse().expect("a region's name"), number)
}

#[test]
fn a_region_is_upgraded_agent_by_agent() {
    let shape = Shape { regions: regions(["us-east"]), agents_per_region: 2, ..Shape::default() };
    let extras = Extras { unborn: vec![agent(0), agent(1)], ..Extras::default() };
    special_processes(shape, extras, upgrade);
}

async fn upgrade(world: &World<'_>, cluster: &Processes) -> Outcome {
    let (older, newer) = (agent(0), agent(1));
    cluster.make_older(&older, 1);
    for part in [&older, &newer] {
        cluster.start(part).await?;
        cluster.part_ready(part).await?;
    }
    ensure!((runs(cluster, &older).await?, runs(cluster, &newer).await?) == (1, 2));
    world.define("map", json!({"participants": ["1", "2"], "generations": "cyclic"})).await?;
    let workers = [at(world, cluster, "1", &older)?, at(world, cluster, "2", &newer)?];
    world.cross(&world.target("map", 1), &workers).await?;
    for part in [&older, &newer] {
        for (method, path, body) in only_newer(world, 2) {
            let request = Request::new(method, format!("{}{path}", cluster.url(part))).json(&body);
            let problem = request.send().await?.problem(Code::Unavailable);
            ensure!(problem.detail == WAIT_FOR_THE_UPGRADE, "{part}, {path}: {problem:?}");
        }
    }
    world.cross(&world.target("map", 2), &workers).await?;

    cluster.disarm(&older);
    cluster.stop(&older).await?;
    cluster.start(&older).await?;
    cluster.part_ready(&older).await?;
    ensure!(runs(cluster, &older).await? == 2);
    for part in [&older, &newer] {
        for (method, path, body) in only_newer(world, 3) {
            until(&format!("{part} does {method} {path}"), || async {
                let request = Request::new(method, format!("{}{path}", cluster.url(part))).json(&body);
                let answer = request.send().await.map_err(|error| error.to_string())?;
                if answer.status < 300 { Ok(()) } else { Err(answer.body) }
            })
            .await?;
        }
    }
    crosses_watched(world, &workers).await?;
    an_older_build_does_not_come_back(cluster, &newer).await
}

/// A participant of the region that calls this agent.
fn at(world: &World<'_>, cluster: &Processes, id: &str, part: &Part) -> anyhow::Result<Worker> {
    Ok(world.worker(0, id).with(Client::new([cluster.url(part)])?))
}

/// The version of the region's machine that an agent says it runs.
async fn runs(cluster: &Processes, part: &Part) -> anyhow::Result<u64> {
    let answer = Request::new("GET", format!("{}/version", cluster.url(part))).send().await?;
    answer.json()["machineVersion"].as_u64().with_context(|| format!("{answer:?}"))
}

/// What version 1 of the machine knows nothing of.
fn only_newer(world: &World<'_>, n: u64) -> [(&'static str, String, Value); 2] {
    let works = json!([{"barrier": world.barrier("map"), "generation": n.to_string(), "id": "1"}]);
    let name = world.barrier("alone");
    let alone = json!({"scope": "regional", "regions": ["us-east"]});
    [
        ("POST", "/v1/sessions".to_owned(), json!({"ttl": "30s", "participants": works})),
        ("PUT", format!("/v1/barriers/{name}"), world.definition("alone", alone)),
    ]
}

/// Participants with sessions cross, and are seen at work before.
async fn crosses_watched(world: &World<'_>, workers: &[Worker]) -> Outcome {
    world.define("reduce", json!({"participants": ["1", "2"], "liveness": {"ttl": "30s"}})).await?;
    let target = world.target("reduce", 1);
    world.require(&target, workers);
    let sessions = try_join_all(workers.iter().map(|worker| worker.session(&target, None))).await?;
    for (worker, session) in workers.iter().zip(&sessions) {
        let seen = worker.look(&target).await?;
        ensure!(seen.state == ParticipantState::Working, "{seen:?}");
        worker.arrive_as(&target, Arrival { session: Some(session.id()), ..Arrival::default() }).await?;
    }
    try_join_all(workers.iter().map(|worker| worker.wait(&target))).await?;
    Ok(())
}

/// A build that can't read what is on the log by now stops, and says so.
async fn an_older_build_does_not_come_back(cluster: &Processes, part: &Part) -> Outcome {
    cluster.make_older(part, 1);
    cluster.stop(part).await?;
    cluster.start(part).await?;
    until(&format!("{part} says why it stopped"), || async {
        let ready = Request::new("GET", format!("{}/readyz", cluster.url(part))).send().await;
        let ready = ready.map_err(|error| error.to_string())?;
        let says = ready.status == 503 && ready.body.contains("start a newer build of this agent");
        if says { Ok(()) } else { Err(ready.body) }
    })
    .await
}
