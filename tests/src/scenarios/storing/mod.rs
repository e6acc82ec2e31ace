//! Trouble with a region's etcd: what the region answers meanwhile, and that it
//! needs nobody's help afterwards.

mod full;
mod members;

use anyhow::{Context, ensure};
use muster_wire::code::Code;

use super::{Outcome, on_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::etcd::Etcd;
use crate::raw::{Answer, Request};
use crate::services::{OwnServices, Services};
use crate::until::DEADLINE;
use crate::world::World;

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

    async fn ask(&self, agent: &Part, method: &'static str, path: &str) -> anyhow::Result<Answer> {
        let asked = Request::new(method, format!("{}{path}", self.cluster.url(agent))).send();
        tokio::time::timeout(DEADLINE, asked).await.with_context(|| format!("{agent} hangs: {path}"))?.context("ask")
    }

    fn arrival(&self, key: &str) -> String {
        format!("/v1/barriers/{}/generations/{key}/arrivals/2", self.world.barrier("map"))
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
}
