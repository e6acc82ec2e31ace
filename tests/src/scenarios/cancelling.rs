//! Callers that hang up in the middle of anything, and call again.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::{Client, Error};
use muster_wire::code::Code;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use super::{Outcome, refused, seed, special_processes};
use crate::cluster::processes::Extras;
use crate::cluster::{Part, Shape, regions};
use crate::until::DEADLINE;
use crate::world::World;

/// More than the coordinators' connections to the database that calls may use.
const CLIENTS: u64 = 16;
const ROUNDS: usize = 3;
/// A call is dropped before so much of it has passed.
const HANG_UP_WITHIN: Duration = Duration::from_millis(40);

/// One who hangs up at random moments.
struct Hasty(RefCell<StdRng>);

impl Hasty {
    fn moments(&self) -> Vec<Duration> {
        let mut chance = self.0.borrow_mut();
        let count = chance.random_range(1..4);
        (0..count).map(|_| chance.random_range(Duration::ZERO..HANG_UP_WITHIN)).collect()
    }

    fn flips(&self) -> bool {
        self.0.borrow_mut().random()
    }

    /// Calls and hangs up a few times, then stays for the answer.
    async fn call<T>(&self, call: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
        for moment in self.moments() {
            let _ = tokio::time::timeout(moment, call()).await;
        }
        call().await
    }

    /// Hangs up on a call that takes longer than anybody here would wait.
    async fn drop_all<T>(&self, call: impl AsyncFn() -> Result<T, Error>) {
        for moment in self.moments() {
            let _ = tokio::time::timeout(moment, call()).await;
        }
    }
}

#[test]
fn cancelled_calls_leave_nothing_half_done() {
    let regions = regions(["us-east", "eu-west"]);
    let shape = Shape { regions, agents_per_region: 2, coordinators: 2, ..Shape::default() };
    special_processes(shape, Extras::default(), async |world, cluster| {
        let seed = seed();
        let storm = CancellationToken::new();
        let clients = try_join_all((0..CLIENTS).map(async |number| {
            let hasty = Hasty(RefCell::new(StdRng::seed_from_u64(seed.wrapping_add(number))));
            for round in 0..ROUNDS {
                let name = format!("c{number}-{round}");
                one_round(world, &hasty, &name).await.with_context(|| name)?;
            }
            anyhow::Ok(())
        }));
        let all = async {
            let _ended = storm.clone().drop_guard();
            clients.await
        };
        let watching = nothing_stays_open(cluster.postgres(), &storm);
        futures::try_join!(all, watching)?;
        everything_works_at_once(world).await
    });
}

/// A barrier's whole life, of which every call is dropped before it is made in
/// earnest. It ends in a release or is aborted.
async fn one_round(world: &World<'_>, hasty: &Hasty, name: &str) -> Outcome {
    let (target, key) = (world.target(name, "k"), "k".parse()?);
    let (coordinator, workers) = (world.coordinator(), world.workers(&["1", "2"]));
    world.require(&target, &workers);
    hasty.call(|| world.define(name, json!({"generations": "keyed", "participants": ["1", "2"]}))).await?;
    // Calls about the whole world are made at an agent as well, which hands
    // them on.
    let asked = if hasty.flips() { &coordinator } else { &workers[0].client };
    let opened = hasty.call(|| asked.open(&target.barrier, Some(&key))).await?;
    ensure!(opened.n == 1, "{opened:?}");
    let (last, early) = workers.split_last().context("nobody")?;
    for worker in early {
        for moment in hasty.moments() {
            worker.arrive_and_hang_up(&target, moment).await;
        }
        worker.arrive(&target).await?;
        hasty.drop_all(|| worker.client.wait(&target, Some((std::time::Instant::now() + DEADLINE).into()))).await;
    }
    hasty.call(|| asked.status(&target, None)).await?;
    if hasty.flips() {
        hasty.call(|| asked.abort(&target, "not needed", false)).await?;
        return refused(&last.wait(&target).await, Code::Broken).map(drop);
    }
    last.arrive(&target).await?;
    try_join_all(workers.iter().map(|worker| worker.wait(&target))).await.map(drop).map_err(Into::into)
}

/// A transaction that nobody ends holds its locks, and swallows what the next
/// one on its connection writes. The server ends it only after 5 s.
const OPEN_FOR_GOOD: &str = "select count(*) from pg_stat_activity where datname = current_database()
    and state like 'idle in transaction%' and xact_start < clock_timestamp() - interval '2 s'";
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// One that was left open as the storm ended is seen by then.
const LOOKS_AFTER: usize = 20;

/// Looks at the database's connections until the storm is over, and a while
/// longer.
async fn nothing_stays_open(postgres: &str, storm: &CancellationToken) -> Outcome {
    let mut connection = PgConnection::connect(postgres).await?;
    let mut after = 0;
    while after < LOOKS_AFTER {
        let open: i64 = sqlx::query_scalar(OPEN_FOR_GOOD).fetch_one(&mut connection).await?;
        ensure!(open == 0, "{open} connections are left in a transaction");
        tokio::time::sleep(LOOK_EVERY).await;
        after += usize::from(storm.is_cancelled());
    }
    connection.close().await.map_err(Into::into)
}

/// What was acknowledged is there, and nobody has to call twice.
async fn everything_works_at_once(world: &World<'_>) -> Outcome {
    for number in 0..world.cluster.shape().coordinators {
        let client = Client::new([world.cluster.url(&Part::Coordinator(number))])?.patience(Duration::ZERO);
        for name in (0..CLIENTS).flat_map(|client| (0..ROUNDS).map(move |round| format!("c{client}-{round}"))) {
            let defined = client.barrier(&world.barrier(&name)).await.with_context(|| name)?;
            ensure!(defined.revision == 1, "defined twice: {defined:?}");
        }
    }
    let workers = world.workers(&["1", "2"]);
    try_join_all((0..CLIENTS).map(async |number| {
        let name = format!("after-{number}");
        world.define(&name, json!({"participants": ["1", "2"]})).await?;
        world.cross(&world.target(&name, 1), &workers).await
    }))
    .await
    .map(drop)
}
