//! Every durable step is a place to die: the process kills itself there, is
//! started again, and the crossing ends right.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_protocol::name::RegionName;
use serde_json::json;
use tokio::sync::Notify;

use super::{Outcome, on_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Part, Shape};
use crate::services::Services;
use crate::worker::Worker;
use crate::world::World;

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The first agent that ever comes to its region.
    FirstAgent,
    Agent,
    Coordinator,
    /// The command that recovers a region, which the log's own tests stop.
    Recovery,
    /// Nobody: there an agent is told to run as an older build, and a clock to
    /// jump.
    Nobody,
}

/// Every point there is, and whose it is.
const POINTS: &[(&str, Who)] = &[
    ("clock.wall", Who::Nobody),
    ("log.create.before", Who::FirstAgent),
    ("log.create.after", Who::FirstAgent),
    ("log.register.before", Who::Agent),
    ("log.register.after", Who::Agent),
    ("log.lead.after", Who::Agent),
    ("log.append.before", Who::Agent),
    ("log.append.after", Who::Agent),
    ("agent.machine_version", Who::Nobody),
    ("agent.open.before", Who::Agent),
    ("agent.fact.before", Who::Agent),
    ("agent.fact.after", Who::Agent),
    ("agent.report.before", Who::Agent),
    ("agent.report.after", Who::Agent),
    ("log.snapshot.chunks", Who::Agent),
    ("log.snapshot.manifest", Who::Agent),
    ("log.truncate", Who::Agent),
    ("log.recovery.cleared", Who::Recovery),
    ("coordinator.received", Who::Coordinator),
    ("coordinator.committed", Who::Coordinator),
    ("coordinator.sent", Who::Coordinator),
    ("store.locked", Who::Coordinator),
    ("store.before_commit", Who::Coordinator),
    ("store.after_commit", Who::Coordinator),
];

#[test]
fn the_table_has_every_point_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for folder in ["regional-agent/src", "global-coordinator/src", "shared"] {
        points_of(&root.join(folder), &mut found);
    }
    let table: BTreeSet<String> = POINTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, table);
}

fn points_of(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            points_of(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("fail_point!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(names.map(ToOwned::to_owned));
        }
    }
}

/// Agents and coordinator are killed in two clusters beside each other.
#[test]
fn an_agent_dies_at_every_point() {
    let shape = Shape::default();
    let agent = |region: usize| Part::Agent(shape.regions[region].clone(), 0);
    // A region's log is made once, so each of these points has its own region.
    let first: Vec<(Part, &str)> = points(Who::FirstAgent).enumerate().map(|(n, point)| (agent(n), point)).collect();
    let extras = Extras { unborn: first.iter().map(|(part, _)| part.clone()).collect(), ..Extras::default() };
    on_own_cluster(extras, async |world, cluster| {
        for (part, point) in &first {
            die_at(world, cluster, part, point).await?;
        }
        fill_the_log(world).await?;
        for point in points(Who::Agent) {
            die_at(world, cluster, &agent(0), point).await?;
        }
        Ok(())
    });
}

#[test]
fn the_coordinator_dies_at_every_point() {
    on_own_cluster(Extras::default(), async |world, cluster| {
        for point in points(Who::Coordinator) {
            die_at(world, cluster, &Part::Coordinator(0), point).await?;
        }
        Ok(())
    });
}

fn points(who: Who) -> impl Iterator<Item = &'static str> {
    POINTS.iter().filter(move |(_, its)| *its == who).map(|(point, _)| *point)
}

/// Every point at which a part may die in any of its lives, and whether the
/// part is an agent.
pub(super) fn points_of_parts() -> Vec<(bool, &'static str)> {
    [Who::Agent, Who::Coordinator]
        .into_iter()
        .flat_map(|who| points(who).map(move |at| (who == Who::Agent, at)))
        .collect()
}

fn on_own_cluster(extras: Extras, scenario: impl AsyncFnOnce(&World<'_>, &Processes) -> Outcome) {
    on_processes(async || {
        let cluster = Processes::start(Shape::default(), Services::given()?, extras).await?;
        let world = World::new(&*cluster);
        let all = async {
            scenario(&world, &cluster).await?;
            world.judge().await
        };
        all.await.inspect_err(|_| eprintln!("{}", cluster.last_words()))
    });
}

async fn die_at(world: &World<'_>, cluster: &Processes, part: &Part, point: &str) -> Outcome {
    die_and_cross(world, cluster, part, point).await.with_context(|| format!("{part} dies at {point}"))
}

async fn die_and_cross(world: &World<'_>, cluster: &Processes, part: &Part, point: &str) -> Outcome {
    let (own, others) = workers(world, cluster, part);
    let everybody: Vec<Worker> = own.iter().chain(&others).cloned().collect();
    let regions: BTreeSet<&RegionName> = everybody.iter().map(|worker| &worker.region).collect();
    let more = json!({"regions": regions, "generations": "keyed", "participants": ["1", "2"]});
    world.define(point, more).await?;
    let target = world.target(point, "k");
    world.require(&target, &everybody);
    if !cluster.is_dead(part) {
        cluster.kill(part).await?;
    }
    cluster.arm(part, point);
    cluster.start(part).await?;
    let died = Notify::new();
    let crossing = async {
        // Those of the dying agent come first: what opens, appends and reports
        // then is it.
        let first = try_join_all(own.iter().map(|worker| worker.cross(&target)));
        let rest = async {
            if matches!(part, Part::Agent(..)) {
                died.notified().await;
            }
            anyhow::Ok(try_join_all(others.iter().map(|worker| worker.cross(&target))).await?)
        };
        let (first, rest) = futures::join!(first, rest);
        rest?;
        first?;
        anyhow::Ok(())
    };
    let death = async {
        let status = cluster.until_dead(part).await?;
        ensure!(status.signal() == Some(9), "it ended with {status}");
        ensure!(cluster.log(part).contains(&format!("failpoint {point} panic")), "it died of something else");
        died.notify_one();
        cluster.disarm(part);
        cluster.start(part).await
    };
    futures::try_join!(crossing, death)?;
    cluster.part_ready(part).await
}

/// Two participants of every region that has an agent: those of the one that is
/// to die (of any, if it is nobody's), and the others.
fn workers(world: &World<'_>, cluster: &Processes, part: &Part) -> (Vec<Worker>, Vec<Worker>) {
    let dying = match part {
        Part::Agent(region, _) => region,
        Part::Coordinator(_) => world.region(0),
    };
    let lives = |region: &RegionName| !cluster.is_dead(&Part::Agent(region.clone(), 0));
    let workers = world.workers(&["1", "2"]).into_iter();
    workers
        .filter(|worker| worker.region == *dying || lives(&worker.region))
        .partition(|worker| worker.region == *dying)
}

/// A log that is worth a snapshot to whoever comes to lead.
async fn fill_the_log(world: &World<'_>) -> Outcome {
    world.define("fill", json!({"generations": "keyed", "participants": "[0-99]"})).await?;
    let target = world.target("fill", "k");
    for id in 0..100 {
        world.worker(0, &id.to_string()).arrive(&target).await?;
    }
    Ok(())
}
