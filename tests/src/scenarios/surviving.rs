//! Sessions outlive the agents that hear them.

use std::collections::BTreeSet;

use anyhow::ensure;
use futures::future::{join_all, try_join_all};
use muster_client::{Client, Session, SessionState, Target};
use muster_wire::answer::{Participant, ParticipantState};
use muster_wire::request::{Arrival, OpenSession};
use serde_json::json;

use super::{Outcome, own_cluster};
use crate::cluster::{Part, Shape, regions};
use crate::until::{DEADLINE, until};
use crate::worker::Worker;
use crate::world::World;

own_cluster!(
    an_agent_dies_and_its_sessions_move: Shape { regions: regions(["us-east"]), agents_per_region: 2, ..Shape::default() },
    all_agents_of_a_region_restart: Shape { regions: regions(["us-east"]), agents_per_region: 2, ..Shape::default() },
);

/// Workers whose clients call this agent first, each with a session.
async fn at_work(
    world: &World<'_>,
    target: &Target,
    first: usize,
    ids: &[String],
) -> anyhow::Result<Vec<(Worker, Session)>> {
    let mut agents = world.cluster.agents(world.region(0));
    agents.rotate_left(first);
    let open = ids.iter().map(async |id| {
        let worker = world.worker(0, id).with(Client::new(&agents)?);
        let session = worker.session(target, None).await?;
        anyhow::Ok((worker, session))
    });
    try_join_all(open).await
}

/// Everybody as this part of the service sees them.
async fn everybody(world: &World<'_>, target: &Target) -> anyhow::Result<Vec<Participant>> {
    let agents = world.cluster.agents(world.region(0));
    let lists = agents.iter().map(async |agent| {
        let listed: anyhow::Result<_> = Ok(Client::new([agent])?.participants(target, None, None).await?);
        listed
    });
    let lists: Vec<Vec<Participant>> = join_all(lists).await.into_iter().filter_map(Result::ok).collect();
    ensure!(!lists.is_empty(), "no agent answers");
    Ok(lists.concat())
}

/// Waits until agents that live hear all of these sessions, while none may be
/// lost.
async fn until_heard(world: &World<'_>, target: &Target, workers: &[(Worker, Session)]) -> Outcome {
    let names: BTreeSet<String> = workers.iter().map(|(worker, _)| worker.name()).collect();
    let lost = until("every session is heard again", || async {
        let seen = everybody(world, target).await.map_err(|error| format!("{error:#}"))?;
        if let Some(lost) = seen.iter().find(|one| one.state != ParticipantState::Working) {
            return Ok(Some(lost.clone()));
        }
        let heard = seen.into_iter().filter(|one| one.last_seen_seconds.is_some());
        let heard: BTreeSet<String> = heard.map(|one| one.participant).collect();
        if heard == names { Ok(None) } else { Err(format!("{} of {} are heard", heard.len(), names.len())) }
    })
    .await?;
    ensure!(lost.is_none(), "{lost:?}");
    let over = workers.iter().find(|(_, session)| *session.state().borrow() != SessionState::Alive);
    ensure!(over.is_none(), "{over:?}");
    Ok(())
}

/// Whoever works arrives under the session it began with, as its first attempt.
async fn finish(world: &World<'_>, target: &Target, workers: &[(Worker, Session)]) -> Outcome {
    let everybody: Vec<Worker> = workers.iter().map(|(worker, _)| worker.clone()).collect();
    world.require(target, &everybody);
    let crossed = try_join_all(workers.iter().map(async |(worker, session)| {
        let arrival = Arrival { session: Some(session.id()), attempt: Some(1), ..Arrival::default() };
        worker.arrive_as(target, arrival).await?;
        worker.wait(target).await
    }))
    .await?;
    ensure!(crossed.iter().all(|released| released.whole), "nobody was lost");
    Ok(())
}

async fn an_agent_dies_and_its_sessions_move(world: &World<'_>) -> Outcome {
    let liveness = json!({"ttl": "15s", "rejoin": "0s"});
    world.define("map", json!({"participants": "[1-6]", "liveness": liveness})).await?;
    let target = world.target("map", 1);
    let ids: Vec<String> = (1..=6).map(|id| id.to_string()).collect();
    let (some, rest) = ids.split_at(4);
    let mut workers = at_work(world, &target, 0, some).await?;
    workers.extend(at_work(world, &target, 1, rest).await?);
    // Any agent of the region takes a heartbeat.
    let each = world.agents(world.region(0)).each();
    for client in each.iter().rev().chain(&each) {
        for (_, session) in &workers {
            client.clone().patience(DEADLINE).heartbeat(session.id(), None, None).await?;
        }
    }
    let agent = Part::Agent(world.region(0).clone(), 0);
    world.cluster.kill(&agent).await?;
    until_heard(world, &target, &workers).await?;
    // The other one may go as well, once the first is back.
    world.cluster.start(&agent).await?;
    world.cluster.part_ready(&agent).await?;
    world.cluster.stop(&Part::Agent(world.region(0).clone(), 1)).await?;
    until_heard(world, &target, &workers).await?;
    // An id that is told once is nobody else's.
    let known = workers[0].1.id();
    let again = OpenSession { id: Some(known), ..workers[0].0.opening(&target, None) };
    let opened = workers[0].0.client.open_session(&again).await?;
    ensure!((opened.session, opened.participants[0].attempt) == (known.to_string(), 1));
    finish(world, &target, &workers).await
}

async fn all_agents_of_a_region_restart(world: &World<'_>) -> Outcome {
    const SESSIONS: usize = 200;
    let liveness = json!({"ttl": "30s", "rejoin": "0s"});
    world.define("map", json!({"participants": format!("[1-{SESSIONS}]"), "liveness": liveness})).await?;
    let target = world.target("map", 1);
    let ids: Vec<String> = (1..=SESSIONS).map(|id| id.to_string()).collect();
    let (some, rest) = ids.split_at(SESSIONS / 2);
    let (some, rest) = futures::try_join!(at_work(world, &target, 0, some), at_work(world, &target, 1, rest))?;
    let workers: Vec<_> = some.into_iter().chain(rest).collect();
    let agents = [0, 1].map(|number| Part::Agent(world.region(0).clone(), number));
    for agent in &agents {
        world.cluster.kill(agent).await?;
    }
    for agent in &agents {
        world.cluster.start(agent).await?;
    }
    until_heard(world, &target, &workers).await?;
    finish(world, &target, &workers).await
}
