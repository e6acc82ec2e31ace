//! An etcd that is full, that changes its leader under load, that loses most of
//! its members: what its region answers meanwhile, and that it needs nobody's
//! help afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::{join_all, try_join_all};
use muster_client::{Client, Session, SessionState};
use muster_protocol::generation::State;
use muster_wire::answer::ParticipantState;
use muster_wire::code::Code;
use muster_wire::request::Arrival;
use serde_json::json;

use super::{Outcome, on_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::etcd::Etcd;
use crate::raw::{Answer, Request};
use crate::services::{OwnServices, Services};
use crate::until::{DEADLINE, until};
use crate::world::World;

/// Bytes that the etcd which runs full may hold.
const QUOTA: &str = "16777216";
/// Twice what the clusters of tests hold a lease for.
const TWO_LEASES: Duration = Duration::from_secs(8);
/// Laps between two blows, so that each falls on a busy region.
const LAPS: u64 = 2;
/// Leaders of each kind that are lost.
const BLOWS: usize = 2;

/// The first region's etcd, which is this test's own.
struct Place<'a> {
    world: &'a World<'a>,
    cluster: &'a Processes,
    own: &'a OwnServices,
    etcd: Etcd,
}

/// Two regions of two agents, the first on an etcd started with these options.
fn standing(options: &[&str], scenario: impl AsyncFnOnce(&Place<'_>) -> Outcome) {
    on_processes(async || {
        let shape = Shape { regions: regions(["us-east", "eu-west"]), agents_per_region: 2, ..Shape::default() };
        let own = OwnServices::start_etcd(Services::given()?, &shape.regions[0], options).await?;
        let etcd = Etcd::new(&shape.regions[0], &own.services.etcd[0]);
        let cluster = Processes::start(shape, own.services.clone(), Extras::default()).await?;
        super::play(&*cluster, async |world| scenario(&Place { world, cluster: &cluster, own: &own, etcd }).await).await
    });
}

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
fn a_region_of_three_etcds_loses_leaders_and_then_most() {
    standing(&["--etcd-members", "3"], async |place| {
        let world = place.world;
        world.define("step", json!({"generations": "cyclic", "participants": ["1", "2"]})).await?;
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
        let half = world.target("map", "half");
        let workers = world.workers(&["1", "2"]);
        world.require(&half, &workers);
        try_join_all([0, 2, 3].map(|number| workers[number].arrive(&half))).await?;
        // Its client bears it for so long that nobody hears it.
        let session = workers[1].session(&half, Some("60s")).await?;
        let lap = AtomicU64::new(1);
        place.under_load(&lap, place.loses_leaders(&lap)).await.context("leaders are lost")?;

        let registered = place.registered().await?;
        let (leader, _) = place.etcd.leader().await?;
        let names = place.etcd.names();
        let lost = [&names[leader], &names[(leader + 1) % names.len()]];
        try_join_all(lost.map(|name| place.own.kill(name))).await?;
        join_all(place.agents().map(|agent| place.answers_nothing(agent))).await.into_iter().collect::<Outcome>()?;
        try_join_all(lost.map(|name| place.own.start_again(name))).await?;
        place.under_load(&lap, place.laps(&lap, LAPS)).await.context("most are back")?;
        ensure!(place.registered().await? == registered, "the agents' leases live");
        workers[1].client.heartbeat(session.id(), None, None).await.context("the session lives")?;
        workers[1].arrive_as(&half, Arrival { session: Some(session.id()), ..Arrival::default() }).await?;
        try_join_all(workers.iter().map(|worker| worker.wait(&half))).await?;
        place.cluster.ready().await
    });
}

fn lives(session: &Session) -> Outcome {
    let state = session.state().borrow().clone();
    ensure!(state == SessionState::Alive, "{state:?}");
    Ok(())
}

impl Place<'_> {
    /// The agents that stand on it.
    fn agents(&self) -> [Part; 2] {
        [0, 1].map(|number| Part::Agent(self.world.region(0).clone(), number))
    }

    /// Who is registered, and since when.
    async fn registered(&self) -> anyhow::Result<Vec<(String, i64)>> {
        let region = self.world.region(0);
        self.etcd.keys(&format!("{}/{region}/0/agents/", self.cluster.etcd_prefix())).await
    }

    /// Who has led once has never stopped.
    fn still_leads(&self) -> Outcome {
        for agent in self.agents() {
            ensure!(!self.cluster.log(&agent).contains("no longer leads the region"), "{agent} stepped down");
        }
        Ok(())
    }

    async fn ask(&self, agent: &Part, method: &'static str, path: &str) -> anyhow::Result<Answer> {
        let asked = Request::new(method, format!("{}{path}", self.cluster.url(agent))).send();
        tokio::time::timeout(DEADLINE, asked).await.with_context(|| format!("{agent} hangs: {path}"))?.context("ask")
    }

    fn arrival(&self, key: &str) -> String {
        format!("/v1/barriers/{}/generations/{key}/arrivals/2", self.world.barrier("map"))
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

    /// Nothing that is asked is answered as done or as true, and nothing hangs.
    async fn answers_nothing(&self, agent: Part) -> Outcome {
        let half = self.arrival("half");
        let (arrived, seen) = futures::try_join!(self.ask(&agent, "PUT", &half), self.ask(&agent, "GET", &half))?;
        let code = arrived.json()["code"].clone();
        ensure!(arrived.status == 503 && (code == "outcome-unknown" || code == "unavailable"), "{arrived:?}");
        let _ = seen.problem(Code::Unavailable);
        Ok(())
    }

    /// Everybody crosses again and again until the trouble is over.
    async fn under_load(&self, lap: &AtomicU64, trouble: impl Future<Output = Outcome>) -> Outcome {
        let over = AtomicBool::new(false);
        let workers = self.world.workers(&["1", "2"]);
        let laps = async {
            while !over.load(Ordering::Relaxed) {
                let n = lap.load(Ordering::Relaxed);
                self.world.cross(&self.world.target("step", n), &workers).await.with_context(|| format!("lap {n}"))?;
                lap.store(n + 1, Ordering::Relaxed);
            }
            Ok(())
        };
        let trouble = async {
            trouble.await?;
            over.store(true, Ordering::Relaxed);
            Ok(())
        };
        futures::try_join!(laps, trouble).map(drop)
    }

    /// The member that leads.
    async fn leader(&self) -> anyhow::Result<String> {
        let (leader, _) = self.etcd.leader().await?;
        Ok(self.etcd.names()[leader].clone())
    }

    async fn laps(&self, lap: &AtomicU64, more: u64) -> Outcome {
        let to = lap.load(Ordering::Relaxed) + more;
        until("laps go on", || async {
            let now = lap.load(Ordering::Relaxed);
            if now >= to { Ok(()) } else { Err(format!("lap {now}")) }
        })
        .await
    }

    /// Whoever leads is killed, then asked to leave it to another, then asleep
    /// until it leads no more and does not know it.
    async fn loses_leaders(&self, lap: &AtomicU64) -> Outcome {
        for _ in 0..BLOWS {
            self.laps(lap, LAPS).await?;
            let name = self.leader().await?;
            self.own.kill(&name).await?;
            self.laps(lap, LAPS).await.with_context(|| format!("{name} is dead"))?;
            self.own.start_again(&name).await?;
            self.etcd.move_leader().await?;
            self.laps(lap, LAPS).await?;
            let name = self.leader().await?;
            self.own.pause(&name).await?;
            self.laps(lap, LAPS).await.with_context(|| format!("{name} sleeps"))?;
            self.own.resume(&name).await?;
        }
        Ok(())
    }
}
