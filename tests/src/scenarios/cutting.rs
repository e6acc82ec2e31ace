//! Parts that are cut off from what they stand on, while everything runs.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::{Client, Error};
use muster_protocol::generation::State;
use muster_wire::answer::Reason;
use muster_wire::code::Code;
use serde_json::json;

use super::{Outcome, on_processes, refused};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::links::{End, Links, Trouble, Way};
use crate::raw::Request;
use crate::until::{DEADLINE, until};
use crate::worker::Worker;
use crate::world::World;

/// Three times what the clusters of tests hold a lease for.
const THREE_LEASES: Duration = Duration::from_secs(12);
/// How long a participant bears it that its agent can't answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Longer than an agent holds a call for an opening, and looks then.
const HELD: Duration = Duration::from_secs(10);

/// Two regions of two agents and two coordinators, each behind proxies.
fn linked(scenario: impl AsyncFnOnce(&World<'_>, &Processes, &Links) -> Outcome) {
    on_processes(async || {
        let regions = regions(["us-east", "eu-west"]);
        let shape = Shape { regions, agents_per_region: 2, coordinators: 2, ..Shape::default() };
        let (links, own) = Links::start(&shape).await?;
        let links = std::sync::Arc::new(links);
        let extras = Extras { links: Some(links.clone()), ..Extras::default() };
        let cluster = Processes::start(shape, own.services.clone(), extras).await?;
        super::play(&*cluster, async |world| scenario(world, &cluster, &links).await).await
    });
}

fn agents_of(world: &World<'_>, region: usize) -> [Part; 2] {
    [0, 1].map(|number| Part::Agent(world.region(region).clone(), number))
}

/// A client of one agent alone.
fn alone(world: &World<'_>, agent: &Part, id: &str) -> anyhow::Result<Worker> {
    let Part::Agent(region, _) = agent else { anyhow::bail!("{agent} is no agent") };
    let client = Client::new([world.cluster.url(agent)])?;
    Ok(Worker::new(client, region.clone(), id.parse()?, world.history.clone()))
}

#[test]
fn a_region_cut_off_from_kafka_takes_arrivals_and_passes_nobody() {
    linked(async |world, _, links| {
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
        world.define("brief", json!({"generations": "keyed", "participants": ["1", "2"], "deadline": "3s"})).await?;
        let (map, brief) = (world.target("map", "k"), world.target("brief", "k"));
        let workers = world.workers(&["1", "2"]);
        world.require(&map, &workers);
        // Both are open everywhere; then the first region can't be heard.
        for target in [&map, &brief] {
            try_join_all([&workers[0], &workers[2]].map(|worker| worker.arrive(target))).await?;
        }
        let agents = agents_of(world, 0);
        for agent in &agents {
            links.trouble(agent, End::Broker, Trouble::Cut(Way::Both));
        }
        ensure!(workers[1].arrive(&map).await?.first, "what is durable is acknowledged");
        workers[3].arrive(&map).await?;
        world
            .until_status(&map, "who can't be heard is waited for", |status| {
                status.reason == Reason::RegionSilent && status.message.contains("us-east")
            })
            .await?;
        let early = workers[2].wait_for(&map, Duration::from_secs(1)).await;
        ensure!(matches!(early, Err(Error::TimedOut { .. })), "{early:?}");
        // The other one breaks by its deadline, as decided once, for all.
        refused(&workers[2].wait(&brief).await, Code::Broken)?;
        for agent in &agents {
            links.heal(agent, End::Broker);
        }
        let released = try_join_all(workers.iter().map(|worker| worker.wait(&map))).await?;
        ensure!(released.iter().all(|one| one.whole && one.digest == released[0].digest), "{released:?}");
        refused(&workers[0].wait(&brief).await, Code::Broken)?;
        world.until_state(&map, State::Released).await.map(drop)
    });
}

#[test]
fn an_agent_cut_off_from_its_etcd_acknowledges_nothing_and_the_other_leads() {
    linked(async |world, cluster, links| {
        world.define("step", json!({"generations": "cyclic", "participants": ["1", "2"]})).await?;
        let workers = world.workers(&["1", "2"]);
        let mut n = 1;
        // One of them leads; each loses one way, then the other.
        for way in [Way::Answer, Way::Ask] {
            for agent in agents_of(world, 0) {
                let target = world.target("step", n);
                let cut = alone(world, &agent, "1")?.patient(PATIENCE);
                links.trouble(&agent, End::Database, Trouble::Cut(way));
                let patient = cut.client.clone().patience(PATIENCE);
                let (arrived, listed) = futures::join!(cut.arrive(&target), patient.participants(&target, None, None));
                ensure!(matches!(arrived, Err(Error::Unknown { .. } | Error::Unreachable { .. })), "{arrived:?}");
                ensure!(listed.is_err(), "it can't know who is missing: {listed:?}");
                // The others go on with the agent that hears its log.
                world.cross(&target, &workers).await.with_context(|| format!("{agent} without {way:?}"))?;
                let next =
                    cut.client.clone().patience(HELD).participants(&world.target("step", n + 1), None, None).await;
                let said = next.as_ref().err().and_then(Error::problem).map(|problem| problem.code);
                ensure!(next.is_err() && said != Some(Code::NotOpenYet), "it can't know what is open: {said:?}");
                links.heal(&agent, End::Database);
                cluster.part_ready(&agent).await?;
                // It comes to the same: asked alone, it tells the end.
                alone(world, &agent, "1")?.patient(DEADLINE).wait(&target).await?;
                n += 1;
            }
        }
        Ok(())
    });
}

#[test]
fn a_leader_that_slept_for_three_leases_does_no_harm() {
    linked(async |world, cluster, links| {
        world.define("step", json!({"generations": "cyclic", "participants": ["1", "2"]})).await?;
        let workers = world.workers(&["1", "2"]);
        for (n, agent) in (1..).zip(agents_of(world, 0)) {
            let target = world.target("step", n);
            workers[0].arrive(&target).await?;
            // What it says before it falls asleep lands when it wakes.
            links.trouble(&agent, End::Database, Trouble::Cut(Way::Ask));
            let unheard = alone(world, &agent, "2")?.patient(PATIENCE);
            let asleep = async {
                tokio::time::sleep(PATIENCE / 4).await;
                cluster.pause(&agent)
            };
            let (arrived, paused) = futures::join!(unheard.arrive(&target), asleep);
            paused?;
            ensure!(arrived.is_err(), "{arrived:?}");
            tokio::time::sleep(THREE_LEASES).await;
            world.cross(&target, &workers).await.with_context(|| format!("{agent} sleeps"))?;
            links.heal(&agent, End::Database);
            cluster.resume(&agent)?;
            cluster.part_ready(&agent).await?;
            alone(world, &agent, "1")?.patient(DEADLINE).wait(&target).await?;
        }
        Ok(())
    });
}

#[test]
fn who_waits_at_an_agent_that_missed_a_snapshot_is_told() {
    linked(async |world, cluster, links| {
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
        world.define("fill", json!({"generations": "keyed", "participants": "[1-100]"})).await?;
        let workers = world.workers(&["1", "2"]);
        let [agent, other] = agents_of(world, 0);
        for (key, (agent, other)) in [(&agent, &other), (&other, &agent)].into_iter().enumerate() {
            let target = world.target("map", key);
            workers[0].arrive(&target).await?;
            let url = format!("{}/v1/barriers/{}/generations/{key}/wait?wait=5m", cluster.url(agent), target.barrier);
            let waits = tokio::spawn(Request::new("GET", url).send());
            until("it waits", || async {
                let metrics = Request::new("GET", format!("{}/metrics", cluster.url(agent))).send().await?;
                let waits = format!("muster_waiters{{region=\"{}\"}} 1", world.region(0));
                ensure!(metrics.body.lines().any(|line| line == waits), "nobody does");
                anyhow::Ok(())
            })
            .await?;
            links.trouble(agent, End::Database, Trouble::Refused);
            world.cross(&target, &workers).await.with_context(|| format!("{agent} is cut off"))?;
            // So many that a snapshot covers the end.
            for id in 1..=100 {
                alone(world, other, &id.to_string())?.arrive(&world.target("fill", key)).await?;
            }
            links.heal(agent, End::Database);
            let told =
                tokio::time::timeout(DEADLINE, waits).await.with_context(|| format!("{agent} tells nobody"))???;
            ensure!(told.status == 200, "{told:?}");
            cluster.part_ready(agent).await?;
        }
        Ok(())
    });
}

#[test]
fn a_coordinator_that_sleeps_leaves_its_calls_to_the_other() {
    linked(async |world, cluster, _| {
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
        let workers = world.workers(&["1", "2"]);
        for coordinator in [0, 1].map(Part::Coordinator) {
            cluster.pause(&coordinator)?;
            // Its first arrival opens it.
            let crossed = world.cross(&world.target("map", &coordinator), &workers).await;
            crossed.with_context(|| format!("{coordinator} sleeps"))?;
            cluster.resume(&coordinator)?;
            cluster.part_ready(&coordinator).await?;
        }
        Ok(())
    });
}

#[test]
fn a_coordinator_cut_off_from_postgres_leaves_its_work_to_the_other() {
    linked(async |world, cluster, links| {
        world.define("step", json!({"generations": "cyclic"})).await?;
        let workers = world.workers(&["1"]);
        // One of them has the barrier: each loses one way, then the other.
        let cuts = [(0, Way::Answer), (1, Way::Answer), (0, Way::Ask), (1, Way::Ask)];
        for (n, (number, way)) in (1..).zip(cuts) {
            let coordinator = Part::Coordinator(number);
            links.trouble(&coordinator, End::Database, Trouble::Cut(way));
            let crossed = world.cross(&world.target("step", n), &workers).await;
            crossed.with_context(|| format!("{coordinator} without {way:?}"))?;
            links.heal(&coordinator, End::Database);
            cluster.part_ready(&coordinator).await?;
        }
        Ok(())
    });
}
