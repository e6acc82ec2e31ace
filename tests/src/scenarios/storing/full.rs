//! An etcd with no room: by its own quota it refuses to write, without a disk it
//! ends.

use std::time::Duration;

use anyhow::ensure;
use futures::future::{join_all, try_join_all};
use muster_client::{Client, Session, SessionState};
use muster_protocol::generation::State;
use muster_wire::answer::ParticipantState;
use muster_wire::code::Code;
use muster_wire::request::Arrival;
use serde_json::json;

use super::super::Outcome;
use super::{Place, standing};
use crate::cluster::{Cluster, Part};
use crate::until::until;

/// Bytes that the etcd which runs full may hold.
const QUOTA: &str = "16777216";
/// Bytes of the disk that runs full: two files of 64 MiB to write ahead to, and
/// the data.
const DISK: &str = "201326592";
/// Arrivals that a full disk surely has no room for.
const ARRIVALS_MAX: usize = 2_000;
/// How long a participant bears it that nobody answers.
const PATIENCE: Duration = Duration::from_secs(4);
/// Twice what the clusters of tests hold a lease for.
const TWO_LEASES: Duration = Duration::from_secs(8);

#[test]
fn a_region_whose_etcd_is_full_refuses_and_resumes() {
    standing(&["--etcd-quota", QUOTA], async |place| {
        let world = place.world;
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
        let [decided, half, new] = ["decided", "half", "new"].map(|key| world.target("map", key));
        let workers = world.workers(&["1", "2"]);
        world.require(&decided, &workers);
        world.require(&half, &workers);
        try_join_all([0, 1, 2].map(|number| workers[number].arrive(&decided))).await?;
        try_join_all([0, 2, 3].map(|number| workers[number].arrive(&half))).await?;
        for target in [&decided, &half] {
            world.until_status(target, "one is missing", |status| status.arrived == 3).await?;
        }
        let session = workers[1].session(&half, Some("9s")).await?;
        let registered = place.registered().await?;

        place.etcd.fill().await?;
        let trouble = async {
            // Decided elsewhere: here it is told once there is room to note it.
            workers[3].arrive(&decided).await?;
            world.until_state(&decided, State::Releasing).await?;
            join_all(place.agents().map(|agent| place.refuses(agent))).await.into_iter().collect::<Outcome>()?;
            tokio::time::sleep(TWO_LEASES).await;
            lives(&session)?;
            ensure!(place.registered().await? == registered, "the agents' leases live");
            place.still_leads()?;
            ensure!(workers[1].look(&half).await?.state == ParticipantState::Working, "nothing was done");
            place.etcd.make_room().await
        };
        let waits = async { Ok(try_join_all(workers.iter().map(|worker| worker.wait(&decided))).await?) };
        futures::try_join!(waits, trouble)?;

        workers[1].arrive_as(&half, Arrival { session: Some(session.id()), ..Arrival::default() }).await?;
        try_join_all(workers.iter().map(|worker| worker.wait(&half))).await?;
        world.cross(&new, &workers).await?;
        place.cluster.ready().await
    });
}

#[test]
fn a_region_whose_etcd_has_no_disk_left_loses_nothing() {
    standing(&["--etcd-disk", DISK], async |place| {
        let world = place.world;
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
        let half = world.target("map", "half");
        let workers = world.workers(&["1", "2"]);
        world.require(&half, &workers);
        try_join_all([0, 2, 3].map(|number| workers[number].arrive(&half))).await?;
        let name = &place.etcd.names()[0];
        place.own.fill(name).await?;

        let early = workers[0].clone().patient(PATIENCE);
        let mut acknowledged = Vec::new();
        for number in 0..ARRIVALS_MAX {
            let target = world.target("map", number);
            match early.arrive(&target).await {
                Ok(_) => acknowledged.push(target),
                Err(_) => break,
            }
        }
        ensure!(acknowledged.len() < ARRIVALS_MAX, "the disk is not full");
        join_all(place.agents().map(|agent| place.answers_nothing(agent))).await.into_iter().collect::<Outcome>()?;
        place.own.kill(name).await?;
        place.own.free(name).await?;
        place.own.start_again(name).await?;

        for target in &acknowledged {
            let seen = workers[0].look(target).await?;
            ensure!(seen.state == ParticipantState::Arrived, "an acknowledged arrival is lost: {seen:?}");
        }
        workers[1].arrive(&half).await?;
        try_join_all(workers.iter().map(|worker| worker.wait(&half))).await?;
        if let Some(target) = acknowledged.last() {
            world.cross(target, &workers).await?;
        }
        place.cluster.ready().await
    });
}

fn lives(session: &Session) -> Outcome {
    let state = session.state().borrow().clone();
    ensure!(state == SessionState::Alive, "{state:?}");
    Ok(())
}

impl Place<'_> {
    /// Who has led once has never stopped.
    fn still_leads(&self) -> Outcome {
        for agent in self.agents() {
            ensure!(!self.cluster.log(&agent).contains("no longer leads the region"), "{agent} stepped down");
        }
        Ok(())
    }

    /// What would be written is refused and not done; reads, and what says
    /// why, go on.
    async fn refuses(&self, agent: Part) -> Outcome {
        let (half, new) = (self.arrival("half"), self.arrival("new"));
        let _ = self.ask(&agent, "PUT", &half).await?.problem(Code::StorageFull);
        let _ = self.ask(&agent, "PUT", &new).await?.problem(Code::StorageFull);
        let seen = self.ask(&agent, "GET", &half).await?;
        ensure!(seen.status == 200 && seen.json()["state"] == "working", "{seen:?}");
        ensure!(self.ask(&agent, "GET", "/readyz").await?.status == 200, "what it can do it is ready for");
        let client = Client::new([self.cluster.url(&agent)])?;
        until(&format!("/readyz of {agent} says why"), || async {
            let ready = client.ready(true).await.map_err(|error| error.to_string())?;
            let room = ready.checks.iter().find(|check| check.name == "room" && !check.ok);
            match room.and_then(|check| check.detail.as_deref()) {
                Some(detail) if detail.contains("disarm") => Ok(()),
                _ => Err(format!("{:?}", ready.checks)),
            }
        })
        .await
    }
}
