//! The hops of a crossing, each measured alone: the same adapters with the
//! same records, and nothing of the service around them.
//!
//! ```text
//!  etcd_append_watch   one region's etcd: append, until a follower has it
//!  kafka_up            a report, until a member of the group has it
//!  postgres_decision   the last report of a generation, decided
//!  kafka_down          the decision, until a follower has it
//!  etcd_append_watch_3 the decision on three etcds at once; the slowest
//!  http                a call that does nothing, on a kept connection
//! ```

mod etcd;
mod kafka;
mod postgres;
mod records;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use futures::future::try_join_all;
use muster_protocol::name::RegionName;
use serde::Serialize;

use self::etcd::Line;
use self::kafka::Wire;
use self::postgres::Decider;
use crate::connection::Connection;
use crate::samples::{Samples, Times};
use crate::stage::Stage;

const APPEND: &str = "etcd_append_watch";
const UP: &str = "kafka_up";
const DECISION: &str = "postgres_decision";
const DOWN: &str = "kafka_down";
const APPENDS: &str = "etcd_append_watch_3";
const HTTP: &str = "http";

/// One hop, in short.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Hop {
    #[serde(flatten)]
    pub(crate) times: Times,
    /// Whether a crossing is held against it.
    pub(crate) in_sum: bool,
}

/// Everything that is needed to take each hop once.
pub(crate) struct Hops {
    regions: Vec<RegionName>,
    lines: Vec<Line>,
    wire: Wire,
    decider: Decider,
    agents: Vec<String>,
    taken: u64,
    samples: BTreeMap<&'static str, Samples>,
}

impl Hops {
    /// Prepares all of them beside the service, on the same services.
    pub(crate) async fn prepare(stage: &Stage) -> anyhow::Result<Self> {
        let name = format!("muster_bench_{:016x}", rand::random::<u64>());
        let regions = stage.regions().to_vec();
        let lines = regions.iter().zip(stage.services.etcd.iter().cycle());
        let lines = try_join_all(lines.map(|(region, etcd)| Line::lay(etcd, &name, region))).await;
        let agents = regions.iter().map(|region| stage.agent(region)).collect();
        Ok(Self {
            lines: lines.context("prepare the hop over etcd")?,
            wire: Wire::lay(&stage.services.kafka, &name, &regions).await.context("prepare the hops over Kafka")?,
            decider: Decider::seat(&stage.services.postgres, &name, &regions).await.context("prepare Postgres")?,
            regions,
            agents,
            taken: 0,
            samples: BTreeMap::new(),
        })
    }

    /// Takes each hop once, each after a pause: a crossing begins idle, too.
    pub(crate) async fn take(&mut self, pause: Duration) -> anyhow::Result<()> {
        self.taken += 1;
        let n = self.taken;
        let turn = usize::try_from(n)? % self.regions.len();
        let region = &self.regions[turn];
        let (arrival, decision) = (records::arrival_entry(n), records::decision_entry(n, &self.regions));

        tokio::time::sleep(pause).await;
        let append = self.lines[turn].append(&arrival).await.context(APPEND)?;
        tokio::time::sleep(pause).await;
        let up = self.wire.up(records::report(region, n, n)).await.context(UP)?;
        self.decider.gather(turn).await.context(DECISION)?;
        tokio::time::sleep(pause).await;
        let decided = self.decider.decide(turn).await.context(DECISION)?;
        self.decider.settle().await.context(DECISION)?;
        tokio::time::sleep(pause).await;
        let down = self.wire.down(records::decided(n, &self.regions)).await.context(DOWN)?;
        tokio::time::sleep(pause).await;
        let appends = try_join_all(self.lines.iter_mut().map(|line| line.append(&decision))).await.context(APPENDS)?;
        let mut connection = Connection::open(&self.agents[turn]).await?;
        connection.call("GET", "/livez").await.context(HTTP)?;
        tokio::time::sleep(pause).await;
        let (sent, answered) = connection.call("GET", "/livez").await.context(HTTP)?;

        let slowest = appends.into_iter().max().unwrap_or_default();
        let http = answered.must_be(200)?.at - sent;
        for (hop, time) in
            [(APPEND, append), (UP, up), (DECISION, decided), (DOWN, down), (APPENDS, slowest), (HTTP, http)]
        {
            self.samples.entry(hop).or_default().add_time(time);
        }
        Ok(())
    }

    /// Forgets what was measured so far.
    pub(crate) fn forget(&mut self) {
        self.samples.clear();
    }

    /// Each hop in short.
    pub(crate) fn summary(&self) -> BTreeMap<&'static str, Hop> {
        let hops = self.samples.iter();
        hops.filter_map(|(name, samples)| Some((*name, Hop { times: samples.times()?, in_sum: *name != HTTP })))
            .collect()
    }
}
