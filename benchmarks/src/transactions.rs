//! How many write transactions of etcd a thousand participants cost who arrive
//! together at one agent.
//!
//! Counted by etcd itself, from before the first arrival until the region has
//! applied the release, as `etcd_server_proposals_applied_total`: every write
//! that went through its log, whoever made it and whatever for. Keep-alives of
//! leases are no proposals; a lease granted meanwhile, or a compaction, is one
//! and counts against us. Two other counts must agree: the puts
//! (`etcd_mvcc_put_total`; an append is two, the entry and the head), and how
//! far the region's log moved on.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::{Apply, Client, Target};
use muster_protocol::name::{BarrierName, RegionName};
use muster_regional_agent::log::RegionLog;
use muster_regional_agent::log::etcd::{Etcd, EtcdOptions};
use muster_tests::until::until;
use serde_json::json;
use tokio::sync::watch;

use crate::connection::Connection;
use crate::results::{Measured, Target as Goal};
use crate::samples::{Samples, rounded};
use crate::stage::{Stage, gauge};

pub(crate) const NAME: &str = "etcd_transactions_per_participant_1000";
const PARTICIPANTS: usize = 1_000;
const ROUNDS: usize = 7;
const GOAL: Goal = Goal::AtMost { at_most: 0.05 };
/// Lets what a definition caused come to its end.
const PAUSE: Duration = Duration::from_millis(500);

/// Where etcd and the log stand.
#[derive(Clone, Copy, Debug)]
struct Standing {
    proposals: f64,
    puts: f64,
    head: f64,
}

struct Burst<'a> {
    stage: &'a Stage,
    region: &'a RegionName,
    etcd: &'a str,
    log: Etcd,
}

pub(crate) async fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let region = stage.regions().first().context("there is no region")?;
    let etcd = stage.services.etcd.first().context("there is no etcd")?;
    let options =
        EtcdOptions { endpoints: vec![etcd.clone()], prefix: stage.cluster.etcd_prefix(), ..EtcdOptions::default() };
    let log = Etcd::open(options, region).await?;
    let burst = Burst { stage, region, etcd, log };
    let (mut proposals, mut puts, mut entries, mut seconds) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    for round in 1..=ROUNDS {
        let (spent, took) = burst.round(round).await.with_context(|| format!("round {round}"))?;
        eprintln!("  round {round}: {} transactions, {} entries, {} ms", spent.proposals, spent.head, took.as_millis());
        ensure!(
            spent.puts >= 2.0 * spent.head && spent.proposals >= spent.head,
            "etcd counts less than what was appended: {spent:?}"
        );
        proposals.add(spent.proposals);
        puts.add(spent.puts / 2.0);
        entries.add(spent.head);
        seconds.add_time(took);
    }
    let transactions = proposals.median().context("nothing was measured")?;
    Ok(Measured {
        value: rounded(transactions / PARTICIPANTS as f64, 4),
        goal: GOAL,
        counted: "etcd_server_proposals_applied_total, from before the first arrival until the release is applied",
        details: json!({
            "participants": PARTICIPANTS,
            "transactions": proposals.values(),
            "puts_by_two": puts.values(),
            "log_entries": entries.values(),
            "until_all_are_answered": seconds.times(),
        }),
    })
}

impl Burst<'_> {
    /// One burst, on a barrier of its own.
    async fn round(&self, round: usize) -> anyhow::Result<(Standing, Duration)> {
        let barrier: BarrierName = format!("bench/burst-{round}").parse()?;
        let definition = json!({
            "kind": "Barrier", "name": barrier, "regions": [self.region], "participants": PARTICIPANTS,
            "generations": "single", "deadline": "none",
        });
        self.stage.coordinator()?.apply(&barrier, definition.to_string(), Apply::default()).await?;
        let target: Target = format!("{barrier}@1").parse()?;
        let agent = self.stage.agent(self.region);
        let client = Client::new([&agent])?;
        let nobody = "nobody".parse()?;
        until("the barrier is open in the region", || client.arrival(&target, &nobody, None)).await?;
        let (go, participants) = gather(&agent, &barrier).await?;
        tokio::time::sleep(PAUSE).await;

        let before = self.standing().await?;
        let started = Instant::now();
        go.send_replace(true);
        let mut last = started;
        for participant in participants {
            last = last.max(participant.await??);
        }
        client.wait(&target, Some((started + muster_tests::until::DEADLINE).into())).await?;
        let after = self.standing().await?;
        let spent = Standing {
            proposals: after.proposals - before.proposals,
            puts: after.puts - before.puts,
            head: after.head - before.head,
        };
        Ok((spent, last - started))
    }

    async fn standing(&self) -> anyhow::Result<Standing> {
        let counter =
            async |name: &str| gauge(self.etcd, name).await?.with_context(|| format!("this etcd has no metric {name}"));
        Ok(Standing {
            proposals: counter("etcd_server_proposals_applied_total").await?,
            puts: counter("etcd_mvcc_put_total").await?,
            head: self.log.head().await? as f64,
        })
    }
}

type Participant = tokio::task::JoinHandle<anyhow::Result<Instant>>;

/// Connected participants, who all arrive at the sign.
async fn gather(agent: &str, barrier: &BarrierName) -> anyhow::Result<(watch::Sender<bool>, Vec<Participant>)> {
    let mut connections = Vec::with_capacity(PARTICIPANTS);
    for _ in 0..PARTICIPANTS {
        connections.push(Connection::open(agent).await?);
    }
    try_join_all(connections.iter_mut().map(async |connection| connection.call("GET", "/livez").await?.1.must_be(200)))
        .await?;
    let go = watch::Sender::new(false);
    let arrive = |(id, mut connection): (usize, Connection)| {
        let (mut sign, path) = (go.subscribe(), format!("/v1/barriers/{barrier}/generations/1/arrivals/{id}"));
        tokio::spawn(async move {
            sign.wait_for(|go| *go).await?;
            Ok(connection.call("PUT", &path).await?.1.must_be(201)?.at)
        })
    };
    let participants = connections.into_iter().enumerate().map(arrive).collect();
    Ok((go, participants))
}
