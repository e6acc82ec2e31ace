//! Data that comes back from a backup, or does not come back, and the
//! procedures of `docs/operations.md` for it, on services of this test's own.

use std::time::Duration;

use anyhow::{Context, ensure};
use muster_client::Client;
use muster_protocol::generation::State;
use muster_protocol::name::RegionName;
use muster_wire::answer::Region;
use muster_wire::code::Code;
use muster_wire::request::{Adopt, Arrival};
use serde_json::json;

use super::{Outcome, on_processes, refused};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::services::{OwnServices, Services};
use crate::until::until;
use crate::world::World;

#[test]
fn what_a_backup_does_not_know_is_told_or_recovered() {
    on_processes(async || {
        let given = Services::given()?;
        let own = OwnServices::start_databases(given.kafka.clone()).await?;
        let with_etcd = Services { etcd: own.services.etcd.clone(), ..given.clone() };
        let with_postgres = Services { postgres: own.services.postgres.clone(), ..given };
        futures::try_join!(
            on(with_etcd, async |cluster| {
                an_etcd_comes_back_from_a_backup(cluster, &own).await.context("an etcd comes back from a backup")?;
                an_etcd_comes_back_empty(cluster, &own).await.context("an etcd comes back empty")
            }),
            on(with_postgres, async |cluster| {
                a_postgres_is_promoted_at_an_earlier_point(cluster, &own).await.context("a Postgres is promoted")
            }),
        )?;
        Ok(())
    });
}

async fn on(services: Services, scenario: impl AsyncFnOnce(&Processes) -> Outcome) -> Outcome {
    let shape = Shape { regions: regions(["us-east", "eu-west"]), ..Shape::default() };
    let cluster = Processes::start(shape, services, Extras::default()).await?;
    scenario(&cluster).await.inspect_err(|_| eprintln!("{}", cluster.last_words()))
}

async fn an_etcd_comes_back_from_a_backup(cluster: &Processes, own: &OwnServices) -> Outcome {
    // What is acknowledged after the backup will be lost, and not silently: of
    // that nothing is judged but what is said here.
    let (world, lost) = (World::new(cluster), World::new(cluster));
    let region = world.region(0);
    let agent = Part::Agent(region.clone(), 0);
    for world in [&world, &lost] {
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
    }
    let workers = world.workers(&["1", "2"]);
    let [before, open, after] = ["before", "open", "after"].map(|key| world.target("map", key));
    let between = lost.target("map", "between");
    world.cross(&before, &workers).await?;
    own.back_up("etcd-us-east").await?;
    cluster.ready().await?;
    lost.cross(&between, &lost.workers(&["1", "2"])).await?;
    lost.until_state(&between, State::Released).await?;
    world.agents(region).arrive(&open, &"1".parse()?, &Arrival::default()).await?;
    world.until_status(&open, "one has arrived", |status| status.arrived == 1).await?;

    cluster.stop(&agent).await?;
    own.restore("etcd-us-east").await?;
    Cluster::start(cluster, &agent).await?;
    told_by_readyz(cluster, &agent, "muster region recover").await?;
    cluster.stop(&agent).await?;

    let seen = known(&world, region).await?.index.context("the coordinator has heard nothing")?.to_string();
    let reason = ["--reason", "restored from the backup of 02:00"];
    let recover = [&["region", "recover", "--yes", "--seen", &seen], &reason[..]].concat();
    // The backup held the lease of an agent that ran when it was taken.
    until("the region is recovered", || cluster.with_configuration(&agent, &recover)).await?;
    cluster.launch(&agent)?;
    adopt(&world, region).await?;
    cluster.ready().await?;
    // It learns what it had forgotten, and who had arrived is missing again.
    let released = lost.worker(0, "1").wait(&between).await?;
    ensure!(released.whole, "{released:?}");
    let told = lost.until_state(&between, State::Released).await?;
    ensure!(told.arrived == 4, "who had arrived then is taken back: {told:?}");
    world.until_status(&open, "nobody has arrived", |status| status.arrived == 0).await?;
    world.cross(&open, &workers).await?;
    world.cross(&after, &workers).await?;
    world.judge().await
}

/// Nothing is judged but what is said here: what the region had acknowledged
/// is gone with its etcd.
async fn an_etcd_comes_back_empty(cluster: &Processes, own: &OwnServices) -> Outcome {
    let world = World::new(cluster);
    let region = world.region(1);
    let agent = Part::Agent(region.clone(), 0);
    world.define("step", json!({"generations": "cyclic"})).await?;
    let workers = world.workers(&["1"]);
    let (first, second) = (world.target("step", 1), world.target("step", 2));
    world.cross(&first, &workers).await?;
    world.until_state(&first, State::Released).await?;
    let former = known(&world, region).await?.history;

    cluster.stop(&agent).await?;
    own.empty("etcd-eu-west").await?;
    cluster.launch(&agent)?;
    told_by_readyz(cluster, &agent, "adopt").await?;
    // A log that nobody adopted is no evidence of anything.
    let here = &workers[..1];
    here[0].arrive(&second).await?;
    let there = &workers[1];
    let briefly = Client::new([cluster.url(&agent)])?.patience(Duration::from_secs(1));
    let arrival = briefly.arrive(&second, &"1".parse()?, &Arrival::default()).await;
    ensure!(arrival.is_err(), "{arrival:?}");
    ensure!(known(&world, region).await?.history == former, "it was adopted by itself");
    adopt(&world, region).await?;
    cluster.ready().await?;
    there.wait(&first).await?;
    let crossed = [there.cross(&second).await?, here[0].wait(&second).await?];
    ensure!(crossed.iter().all(|one| one.whole), "{crossed:?}");
    Ok(())
}

async fn a_postgres_is_promoted_at_an_earlier_point(cluster: &Processes, own: &OwnServices) -> Outcome {
    let world = World::new(cluster);
    world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
    let workers = world.workers(&["1", "2"]);
    let [before, between, open, after] = ["before", "between", "open", "after"].map(|key| world.target("map", key));
    world.cross(&before, &workers).await?;
    own.back_up("postgres").await?;
    cluster.ready().await?;
    // What comes now is in no backup, but the regions know it.
    world.cross(&between, &workers).await?;
    let released = world.until_state(&between, State::Released).await?;
    world.everybody(&open, &workers);
    let (arrived, missing) = workers.split_at(2);
    for worker in arrived {
        worker.arrive(&open).await?;
    }
    world.until_status(&open, "half of them arrived", |status| status.arrived == 2).await?;
    world.define("late", json!({})).await?;

    own.restore("postgres").await?;
    cluster.ready().await?;
    let again = world.until_state(&between, State::Released).await?;
    ensure!((again.n, &again.release) == (released.n, &released.release), "{released:?}\n{again:?}");
    refused(&world.coordinator().barrier(&world.barrier("late")).await, Code::NotDefined)?;
    world.define("late", json!({})).await?;
    world.until_status(&open, "half of them arrived", |status| status.arrived == 2).await?;
    for worker in missing {
        worker.arrive(&open).await?;
    }
    for worker in &workers {
        worker.wait(&open).await?;
    }
    world.cross(&after, &workers).await?;
    world.judge().await
}

/// The region's agents say what is the matter, and what to do.
async fn told_by_readyz(cluster: &Processes, agent: &Part, what: &str) -> Outcome {
    let client = Client::new([cluster.url(agent)])?;
    until(&format!("/readyz of {agent} speaks of {what}"), || async {
        let ready = client.ready(true).await.map_err(|error| error.to_string())?;
        let details = ready.checks.iter().filter(|check| !check.ok).filter_map(|check| check.detail.as_ref());
        match details.into_iter().any(|detail| detail.contains(what)) {
            true => Ok(()),
            false => Err(format!("{:?}", ready.checks)),
        }
    })
    .await
}

async fn known(world: &World<'_>, region: &RegionName) -> anyhow::Result<Region> {
    let regions = world.coordinator().regions().await?;
    regions.into_iter().find(|known| known.name == *region).context("the region is not declared")
}

/// As an operator does once the region's new log is shown as unknown.
async fn adopt(world: &World<'_>, region: &RegionName) -> Outcome {
    let history = until("another log asks to be adopted", || async {
        let known = known(world, region).await?;
        known.unknown_histories.first().cloned().context("none does")
    })
    .await?;
    let reason = "the former one is lost".to_owned();
    world.coordinator().adopt_region(region, &Adopt { history: history.parse()?, reason }).await?;
    Ok(())
}
