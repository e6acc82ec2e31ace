//! Every durable step is a place to die: the process kills itself there, is
//! started again, and the crossing ends right.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use serde_json::json;
use tokio::sync::Notify;

use super::{Outcome, on_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Part, Shape};
use crate::services::Services;
use crate::world::World;

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Agent,
    Coordinator,
}

/// Every point there is, and whose it is.
const POINTS: &[(&str, Who)] = &[
    ("log.register.before", Who::Agent),
    ("log.register.after", Who::Agent),
    ("log.lead.after", Who::Agent),
    ("log.append.before", Who::Agent),
    ("log.append.after", Who::Agent),
    ("agent.open.before", Who::Agent),
    ("agent.fact.before", Who::Agent),
    ("agent.fact.after", Who::Agent),
    ("agent.report.before", Who::Agent),
    ("agent.report.after", Who::Agent),
    ("log.snapshot.chunks", Who::Agent),
    ("log.snapshot.manifest", Who::Agent),
    ("log.truncate", Who::Agent),
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
    on_processes(async || die_at_every_point(Who::Agent).await);
}

#[test]
fn the_coordinator_dies_at_every_point() {
    on_processes(async || die_at_every_point(Who::Coordinator).await);
}

async fn die_at_every_point(who: Who) -> Outcome {
    let cluster = Processes::start(Shape::default(), Services::given()?, Extras::default()).await?;
    let world = World::new(&*cluster);
    let all = async {
        world.define("map", json!({"generations": "keyed", "participants": ["1", "2"]})).await?;
        fill_the_log(&world).await?;
        for (point, _) in POINTS.iter().filter(|(_, its)| *its == who) {
            let part = match who {
                Who::Agent => Part::Agent(world.region(0).clone(), 0),
                Who::Coordinator => Part::Coordinator(0),
            };
            die_at(&world, &cluster, &part, point).await.with_context(|| format!("{part} dies at {point}"))?;
        }
        world.judge().await
    };
    all.await.inspect_err(|_| eprintln!("{}", cluster.last_words()))
}

async fn die_at(world: &World<'_>, cluster: &Processes, part: &Part, point: &str) -> Outcome {
    let target = world.target("map", point);
    let workers = world.workers(&["1", "2"]);
    world.require(&target, &workers);
    cluster.kill(part).await?;
    cluster.arm(part, point);
    cluster.start(part).await?;
    let (own, others) = workers.split_at(2);
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

/// A log that is worth a snapshot to whoever comes to lead.
async fn fill_the_log(world: &World<'_>) -> Outcome {
    world.define("fill", json!({"generations": "keyed", "participants": "[0-99]"})).await?;
    let target = world.target("fill", "k");
    for id in 0..100 {
        world.worker(0, &id.to_string()).arrive(&target).await?;
    }
    Ok(())
}
