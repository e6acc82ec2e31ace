//! An etcd of three members that changes its leader under load, and loses most
//! of its members.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, ensure};
use futures::future::{join_all, try_join_all};
use muster_wire::request::Arrival;
use serde_json::json;

use super::super::Outcome;
use super::{Place, standing};
use crate::cluster::Cluster;
use crate::until::until;

/// Laps between two blows, so that each falls on a busy region.
const LAPS: u64 = 2;
/// Leaders of each kind that are lost.
const BLOWS: usize = 2;

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

impl Place<'_> {
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
