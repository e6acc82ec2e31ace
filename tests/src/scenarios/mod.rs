//! What must hold, told once and run on every kind of cluster. A scenario ends
//! with the judgement of everything its clients saw.

mod arriving;
mod away;
mod bad_input;
mod binary;
mod breaking;
mod cancelling;
mod chaos;
mod crossing;
mod crowding;
mod cutting;
mod defining;
mod draining;
mod dying;
mod failing;
mod forgetting;
mod jumping;
mod overruling;
mod regional;
mod repeating;
mod restarting;
mod restoring;
mod retrying;
mod ruling;
mod sessions;
mod storing;
mod succeeding;
mod surviving;
mod tracing_a_crossing;
mod trouble;
mod upgrading;
mod waiting;
mod wiping;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use futures::future::try_join_all;
use muster_client::{AuditFilter, Error, Session, SessionState, Target};
use muster_protocol::region::ArrivalOutcome;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request::Arrival;

use tokio::sync::{Mutex, Semaphore};

use crate::cluster::in_process::InProcess;
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Shape};
use crate::services::Services;
use crate::worker::Worker;
use crate::world::World;

/// What a scenario ends with.
type Outcome = anyhow::Result<()>;

/// The problem with which a call was refused, which must have this code.
fn refused<T: Debug>(answer: &Result<T, Error>, code: Code) -> anyhow::Result<Problem> {
    match answer {
        Err(Error::Refused(problem)) if problem.code == code => Ok((**problem).clone()),
        other => anyhow::bail!("expected {code}, not {other:?}"),
    }
}

/// An arrival of this attempt.
fn attempt(attempt: u32) -> Arrival {
    Arrival { attempt: Some(attempt), ..Arrival::default() }
}

/// A failed one.
fn failed(number: u32) -> Arrival {
    Arrival { outcome: Some(ArrivalOutcome::Failed), note: Some("disk full".to_owned()), ..attempt(number) }
}

/// All arrive under sessions that were opened before whatever happened, none of
/// which it has ended.
async fn cross_under(world: &World<'_>, target: &Target, workers: &[Worker], sessions: &[Session]) -> Outcome {
    let over = sessions.iter().find(|session| *session.state().borrow() != SessionState::Alive);
    anyhow::ensure!(over.is_none(), "{over:?}");
    world.require(target, workers);
    let crossed = try_join_all(workers.iter().zip(sessions).map(async |(worker, session)| {
        let arrival = Arrival { session: Some(session.id()), attempt: Some(1), ..Arrival::default() };
        worker.arrive_as(target, arrival).await?;
        worker.wait(target).await
    }))
    .await?;
    anyhow::ensure!(crossed.iter().all(|released| released.whole), "somebody was lost");
    Ok(())
}

/// Whoever asks for a whole release of what was released otherwise is told no,
/// everywhere.
async fn no_whole_release(world: &World<'_>, target: &Target) -> Outcome {
    let generation = target.generation.as_ref().map(ToString::to_string).unwrap_or_default();
    let path = format!("/v1/barriers/{}/generations/{generation}/wait?wait=60s&whole=true", target.barrier);
    let agents = (0..world.regions().len()).map(|number| world.raw_agent(number, "GET", &path));
    for request in agents.chain([world.raw("GET", &path)]) {
        let _ = request.send().await?.problem(Code::NotWhole);
    }
    Ok(())
}

/// What was decided over a barrier, the latest first: action, generation,
/// reason, object.
async fn audited(world: &World<'_>, name: &str) -> anyhow::Result<Vec<[String; 4]>> {
    let filter = AuditFilter { barrier: Some(world.barrier(name)), ..AuditFilter::default() };
    let rows = world.coordinator().audit(&filter).await?;
    Ok(rows.into_iter().map(|row| [row.action, row.generation.unwrap_or_default(), row.reason, row.object]).collect())
}

/// The seed of this run, printed with how to repeat it.
fn seed() -> u64 {
    let seed = std::env::var("MUSTER_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    eprintln!("seed {seed}; again with MUSTER_TEST_SEED={seed}");
    seed
}

fn block_on(run: impl Future<Output = Outcome>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let outcome = runtime.block_on(run);
    runtime.shutdown_background();
    if let Err(error) = outcome {
        panic!("{error:#}");
    }
}

async fn play(cluster: &dyn Cluster, scenario: impl AsyncFnOnce(&World<'_>) -> Outcome) -> Outcome {
    let world = World::new(cluster);
    let outcome = async {
        scenario(&world).await?;
        world.judge().await
    }
    .await;
    if outcome.is_err() {
        eprintln!("{}", cluster.last_words());
    }
    outcome
}

/// Runs a scenario on a cluster in this process.
fn in_process(shape: Shape, scenario: impl AsyncFnOnce(&World<'_>) -> Outcome) {
    block_on(async {
        let cluster = InProcess::start(shape).await?;
        play(&cluster, scenario).await
    });
}

/// Clusters of processes at once, beside the one that is shared.
static ALONE: Semaphore = Semaphore::const_new(2);

/// Runs what starts real processes of its own.
fn on_processes(run: impl AsyncFnOnce() -> Outcome) {
    block_on(async {
        let _permit = ALONE.acquire().await?;
        run().await
    });
}

/// Runs a scenario on real processes of its own, of which some are special.
fn special_processes(shape: Shape, extras: Extras, scenario: impl AsyncFnOnce(&World<'_>, &Processes) -> Outcome) {
    on_processes(async || {
        let cluster = Processes::start(shape, Services::given()?, extras).await?;
        play(&*cluster, async |world| scenario(world, &cluster).await).await
    });
}

/// Runs a scenario on real processes of its own, which it may hurt.
fn processes(shape: Shape, scenario: impl AsyncFnOnce(&World<'_>) -> Outcome) {
    on_processes(async || {
        let cluster = Processes::start(shape, Services::given()?, Extras::default()).await?;
        play(&*cluster, scenario).await
    });
}

/// Runs a scenario on real processes that others use at the same time. They
/// end with this program.
fn shared_processes(scenario: impl AsyncFnOnce(&World<'_>) -> Outcome) {
    static SHARED: Mutex<Option<Arc<Processes>>> = Mutex::const_new(None);
    block_on(async {
        let cluster = {
            let mut shared = SHARED.lock().await;
            match &*shared {
                Some(cluster) => Arc::clone(cluster),
                None => {
                    let started = Processes::start(Shape::default(), Services::given()?, Extras::default()).await?;
                    Arc::clone(shared.insert(started))
                }
            }
        };
        play(&*cluster, scenario).await
    });
}

/// One test for each scenario and each kind of cluster.
macro_rules! on_every_cluster {
    ($($name:ident),* $(,)?) => {
        mod in_process {
            $(#[test] fn $name() { crate::scenarios::in_process(crate::cluster::Shape::default(), super::$name); })*
        }
        mod processes {
            $(#[test] fn $name() { crate::scenarios::shared_processes(super::$name); })*
        }
    };
}
use on_every_cluster;

/// The same for scenarios that hurt the cluster, which must be theirs alone.
macro_rules! own_cluster {
    ($($name:ident $(: $shape:expr)?),* $(,)?) => {
        mod in_process_alone {
            #[allow(unused_imports)]
            use super::*;
            $(#[test] fn $name() { crate::scenarios::in_process(crate::scenarios::shape!($($shape)?), super::$name); })*
        }
        mod processes_alone {
            #[allow(unused_imports)]
            use super::*;
            $(#[test] fn $name() { crate::scenarios::processes(crate::scenarios::shape!($($shape)?), super::$name); })*
        }
    };
}
use own_cluster;

macro_rules! shape {
    () => {
        crate::cluster::Shape::default()
    };
    ($shape:expr) => {
        $shape
    };
}
use shape;
