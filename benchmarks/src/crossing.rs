//! How long a crossing of three regions takes when nothing else goes on,
//! against the sum of its hops.
//!
//! One participant in each region; two wait already. The clock runs from the
//! first byte that the last one sends until the last byte of the last of the
//! three answers. Crossings and hops take turns, so that noise hits both, and
//! medians are compared, so that a part of it hits neither.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use muster_client::{Apply, Client, Target};
use muster_protocol::generation::State;
use muster_protocol::name::{BarrierName, RegionName};
use muster_tests::until::until;
use muster_wire::answer::{Released, Status};
use serde_json::json;

use crate::connection::{Answered, Connection};
use crate::hops::{Hop, Hops};
use crate::results::{Measured, Target as Goal};
use crate::samples::{Samples, rounded};
use crate::stage::{Stage, until_waiting};

pub(crate) const NAME: &str = "global_crossing_vs_hops_p50";
const GOAL: Goal = Goal::AtMost { at_most: 3.0 };
/// Crossings and hops of one turn.
const TURN: usize = 10;
/// Silence before whatever is measured.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn measure(
    stage: &Stage,
    crossings: usize,
) -> anyhow::Result<(Measured, BTreeMap<&'static str, Hop>)> {
    let mut hops = Hops::prepare(stage).await?;
    let mut course = Course::lay(stage).await?;
    // The first of everything connects, plans and allocates.
    for _ in 0..TURN {
        course.cross().await?;
        hops.take(PAUSE).await?;
    }
    hops.forget();
    let mut times = Samples::default();
    while times.values().len() < crossings {
        for _ in 0..TURN {
            times.add_time(course.cross().await?);
        }
        for _ in 0..TURN {
            hops.take(PAUSE).await?;
        }
        eprint!("\r  {} of {crossings} crossings", times.values().len());
    }
    eprintln!();
    let hops = hops.summary();
    let sum: f64 = hops.values().filter(|hop| hop.in_sum).map(|hop| hop.times.p50_ms).sum();
    let median = times.median().context("nothing was measured")?;
    let measured = Measured {
        value: rounded(median / sum, 3),
        goal: GOAL,
        counted: "median from sending the last arrival to the last of three wake-ups, by the sum of the hops' medians",
        details: json!({ "crossing": times.times(), "hops_p50_sum_ms": rounded(sum, 3) }),
    };
    Ok((measured, hops))
}

/// A cyclic barrier that a participant of each region crosses again and again.
struct Course<'a> {
    stage: &'a Stage,
    barrier: BarrierName,
    coordinator: Client,
    participants: Vec<(RegionName, Connection)>,
    n: u64,
}

impl<'a> Course<'a> {
    async fn lay(stage: &'a Stage) -> anyhow::Result<Self> {
        let barrier: BarrierName = "bench/crossing".parse()?;
        let definition = json!({
            "kind": "Barrier", "name": barrier, "regions": stage.regions(), "participants": 1,
            "generations": "cyclic", "deadline": "none",
        });
        let coordinator = stage.coordinator()?;
        coordinator.apply(&barrier, definition.to_string(), Apply::default()).await?;
        Ok(Self { stage, barrier, coordinator, participants: Vec::new(), n: 1 })
    }

    /// One crossing; another region is the last each time.
    async fn cross(&mut self) -> anyhow::Result<Duration> {
        self.connect().await?;
        let count = self.participants.len();
        self.participants.rotate_left(1);
        let path = format!("/v1/barriers/{}/generations/{}/arrivals/1?wait=50s", self.barrier, self.n);
        let (last, waiting) = self.participants.split_last_mut().context("there is no region")?;
        for (_, connection) in waiting.iter_mut() {
            connection.send("PUT", &path).await?;
        }
        for (region, _) in waiting.iter() {
            until_waiting(&self.stage.agent(region), region, 1).await?;
        }
        let target: Target = format!("{}@{}", self.barrier, self.n).parse()?;
        until_status(&self.coordinator, &target, |status| status.arrived == count as u64 - 1).await?;
        tokio::time::sleep(PAUSE).await;

        let sent = last.1.send("PUT", &path).await?;
        let answers = self.participants.iter_mut().map(|(_, connection)| connection.receive());
        let mut woken = sent;
        for answer in futures::future::try_join_all(answers).await? {
            woken = woken.max(released(answer, self.n)?);
        }
        // What follows a release comes to its end before the next begins.
        until_status(&self.coordinator, &target, |status| status.state == State::Released).await?;
        self.n += 1;
        Ok(woken - sent)
    }

    /// New connections: a service closes those that were silent for long. Each
    /// has carried a call before, as a kept one has.
    async fn connect(&mut self) -> anyhow::Result<()> {
        let order: Vec<RegionName> = match self.participants.is_empty() {
            true => self.stage.regions().to_vec(),
            false => self.participants.drain(..).map(|(region, _)| region).collect(),
        };
        for region in order {
            let mut connection = Connection::open(&self.stage.agent(&region)).await?;
            connection.call("GET", "/livez").await?.1.must_be(200)?;
            self.participants.push((region, connection));
        }
        Ok(())
    }
}

async fn until_status(coordinator: &Client, target: &Target, is: impl Fn(&Status) -> bool) -> anyhow::Result<()> {
    until(&format!("{target} comes to the next step"), || async {
        let status = coordinator.status(target, None).await?;
        ensure!(is(&status), "{status:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await
}

/// When a participant was let through, which it must have been.
fn released(answer: Answered, n: u64) -> anyhow::Result<Instant> {
    let answer = answer.must_be(200)?;
    let released: Released = serde_json::from_str(&answer.body).context("read a release")?;
    ensure!(released.n == n && matches!(released.state, State::Released | State::Releasing), "{}", answer.body);
    Ok(answer.at)
}
