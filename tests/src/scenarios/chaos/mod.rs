//! Everything is taken away in turn, at random, on real processes, while
//! generation after generation goes on: storms, and calms in which all that
//! was begun must come to its end. What the storms do is drawn from one seed.
//!
//! ```text
//! plan    which fault comes when, from the seed
//! fault   how it strikes, how it is over
//! load    generations, each brought to one of all ends
//! scan    what is kept in the end, against what was told
//! tally   what happened, counted
//! ```

mod fault;
mod load;
mod plan;
mod scan;
mod tally;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::future::try_join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

use super::{Outcome, block_on, dying};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Shape, regions};
use crate::links::Links;
use crate::world::World;
use fault::Place;
use load::{Ending, Round};
use plan::{Hand, Plan};
use tally::Tally;

/// How long one storm lasts.
const STORM: Duration = Duration::from_secs(75);
/// Faults over, everything that can be decided is decided within this.
const CALM: Duration = Duration::from_secs(30);
/// The same where other tests have the machine too.
const CROWDED_CALM: Duration = Duration::from_secs(90);
/// Generations that go on at once.
const LANES: usize = 128;

#[test]
fn everything_is_taken_away_and_nothing_is_lost() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("MUSTER_CHAOS_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let alone = number("MUSTER_CHAOS_MINUTES");
    let minutes = alone.unwrap_or(3);
    let calm = if alone.is_some() { CALM } else { CROWDED_CALM };
    eprintln!("chaos: again with make chaos SEED={seed} MINUTES={minutes}");
    block_on(async {
        let _permit = super::ALONE.acquire().await?;
        chaos(seed, Duration::from_secs(60 * minutes), calm).await
    });
}

async fn chaos(seed: u64, lasts: Duration, calm: Duration) -> Outcome {
    let shape =
        Shape { regions: regions(["us-east", "eu-west"]), agents_per_region: 2, coordinators: 2, ..Shape::default() };
    let (links, own) = Links::start(&shape).await?;
    let links = Arc::new(links);
    let extras = Extras { links: Some(Arc::clone(&links)), ..Extras::default() };
    let cluster = Processes::start(shape, own.services.clone(), extras).await?;
    let place = Place { cluster: &cluster, links: &links, own: &own };
    let tally = Tally::default();
    let all = async {
        let points = dying::points_of_parts();
        let mut plans = Hand::ALL.map(|hand| Plan::new(seed, hand, cluster.shape(), &points));
        let began = Instant::now();
        for storm in 1.. {
            weather(&place, &tally, &mut plans, seed.wrapping_add(storm), calm)
                .await
                .with_context(|| format!("storm {storm}"))?;
            eprintln!("chaos: after {} s and {storm} storms\n{tally}", began.elapsed().as_secs());
            if began.elapsed() >= lasts {
                break;
            }
        }
        anyhow::Ok(())
    };
    all.await.inspect_err(|_| {
        eprintln!("chaos: seed {seed}\n{tally}\n{}", cluster.last_words());
    })
}

/// A storm, and the calm after it: a world of its own, whose history is judged.
async fn weather(place: &Place<'_>, tally: &Tally, plans: &mut [Plan], seed: u64, calm: Duration) -> Outcome {
    let world = World::new(place.cluster);
    load::define(&world).await?;
    // No more faults and generations begin; all faults are healed.
    let (over, healed) = (CancellationToken::new(), CancellationToken::new());
    let begun = AtomicU64::new(0);
    let lanes = (0..LANES as u64).map(|lane| go_on(&world, tally, &over, &begun, seed ^ (lane << 32)));
    let load = async {
        tokio::select! {
            played = try_join_all(lanes) => played.map(drop).inspect_err(|_| over.cancel()),
            stuck = stuck(&world, tally, &healed, calm) => {
                bail!("for {} s after the last fault these do not go on:\n{stuck}", calm.as_secs())
            }
        }
    };
    let storm = async {
        let hands = try_join_all(plans.iter_mut().map(|plan| storm(place, tally, &over, plan)));
        let time = async {
            let _ = over.run_until_cancelled(tokio::time::sleep(STORM)).await;
            over.cancel();
            anyhow::Ok(())
        };
        futures::try_join!(hands, time).inspect_err(|_| over.cancel())?;
        tally.note("all faults are over".to_owned());
        healed.cancel();
        let calm = Instant::now();
        place.cluster.ready().await?;
        anyhow::Ok(calm)
    };
    let (calm, ()) = tokio::try_join!(storm, load)?;
    tally.calmed(calm.elapsed());
    world.judge_seen()?;
    tally.calls(&world.history);
    tally.scanned(scan::scan(place, &world).await.context("scan etcd and Postgres")?);
    Ok(())
}

/// Returns with those that come to a stand though all faults are over.
async fn stuck(world: &World<'_>, tally: &Tally, healed: &CancellationToken, calm: Duration) -> String {
    healed.cancelled().await;
    let since = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stuck = tally.stuck(since, calm, world).await;
        if !stuck.is_empty() {
            return stuck.join("\n");
        }
    }
}

/// One generation after another.
async fn go_on(world: &World<'_>, tally: &Tally, over: &CancellationToken, begun: &AtomicU64, seed: u64) -> Outcome {
    let mut chance = StdRng::seed_from_u64(seed);
    while !over.is_cancelled() {
        let number = begun.fetch_add(1, Ordering::Relaxed);
        let ending = Ending::ALL[usize::try_from(number)? % Ending::ALL.len()];
        let round = Round::new(world, tally, ending, format!("k{number}"), chance.random());
        let target = round.target().to_string();
        let played = round.play().await.with_context(|| format!("{target}, which should be {ending:?}"));
        played.inspect_err(|_| over.cancel())?;
        tally.ended(ending, &target);
    }
    Ok(())
}

/// One fault after another, until the storm is over.
async fn storm(place: &Place<'_>, tally: &Tally, over: &CancellationToken, plan: &mut Plan) -> Outcome {
    loop {
        let deed = plan.deed();
        if over.run_until_cancelled(tokio::time::sleep(deed.after)).await.is_none() {
            return Ok(());
        }
        tally.note(format!("{}, for {} ms", deed.fault, deed.lasts.as_millis()));
        deed.fault.strike(place).await.with_context(|| format!("strike: {}", deed.fault))?;
        let _ = over.run_until_cancelled(tokio::time::sleep(deed.lasts)).await;
        deed.fault.heal(place).await.with_context(|| format!("heal: {}", deed.fault))?;
        tally.note(format!("{} is over", deed.fault));
        tally.befell(&deed.fault);
    }
}
