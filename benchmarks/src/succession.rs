//! How long a region has no leader after the one it had is killed, by the time
//! a lease lasts: from the kill until the other agent says that it leads, which
//! is after the region has applied that it took over.

use std::time::{Duration, Instant};

use anyhow::Context;
use muster_regional_agent::Options;
use muster_tests::cluster::processes::{Extras, Processes};
use muster_tests::cluster::{Cluster, Part, Shape, regions};
use muster_tests::until::until;
use serde_json::json;

use crate::results::{Measured, Target as Goal};
use crate::samples::{Samples, rounded};
use crate::stage::Stage;

pub(crate) const NAME: &str = "leaderless_vs_lease_max";
const ROUNDS: usize = 7;
/// The lease and two seconds: [`Options`] has leases of ten.
const GOAL: Goal = Goal::AtMost { at_most: 1.2 };

pub(crate) async fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let shape = Shape { regions: regions(["us-east"]), agents_per_region: 2, ..Shape::default() };
    let agents = [0, 1].map(|number| Part::Agent(shape.regions[0].clone(), number));
    let extras = Extras { unhurried: true, ..Extras::default() };
    let cluster = Processes::start(shape, stage.services.clone(), extras).await?;
    let lease = Duration::from_secs(Options::default().lease_seconds);
    let mut seconds = Samples::default();
    let mut leader = until("an agent leads", || async {
        agents.iter().position(|agent| times_led(&cluster, agent) > 0).ok_or("nobody")
    })
    .await?;
    for round in 1..=ROUNDS {
        let [killed, other] = [&agents[leader], &agents[1 - leader]];
        let before = times_led(&cluster, other);
        let started = Instant::now();
        cluster.kill(killed).await?;
        until("the other agent leads", || async {
            (times_led(&cluster, other) > before).then_some(()).ok_or("nobody")
        })
        .await?;
        let took = started.elapsed();
        eprintln!("  round {round}: {} ms", took.as_millis());
        seconds.add(rounded(took.as_secs_f64(), 3));
        cluster.start(killed).await?;
        cluster.part_ready(killed).await?;
        leader = 1 - leader;
    }
    let longest = seconds.percentile(100).context("nothing was measured")?;
    Ok(Measured {
        value: rounded(longest / lease.as_secs_f64(), 3),
        goal: GOAL,
        counted: "the longest time from the kill of the leader until the other agent leads, by the time of a lease",
        details: json!({ "lease_seconds": lease.as_secs(), "seconds": seconds.values(), "median": seconds.median() }),
    })
}

/// How often an agent has come to lead, by its own word.
fn times_led(cluster: &Processes, agent: &Part) -> usize {
    cluster.log(agent).lines().filter(|line| line.contains(" leads the region") && !line.contains("no longer")).count()
}
