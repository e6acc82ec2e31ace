//! What must hold, told once and run on every kind of cluster. A scenario ends
//! with the judgement of everything its clients saw.



mod crossing;





use std::future::Future;

use crate::cluster::in_process::InProcess;
use crate::cluster::{Cluster, Shape};
use crate::world::World;

/// What a scenario ends with.
type Outcome = anyhow::Result<()>;

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

/// One test for each scenario and each kind of cluster.
macro_rules! on_every_cluster {
    ($($(#[$attribute:meta])* $name:ident),* $(,)?) => {
        mod in_process {
            $($(#[$attribute])* #[test] fn $name() { crate::scenarios::in_process(crate::cluster::Shape::default(), super::$name); })*
        }
    };
}
use on_every_cluster;
