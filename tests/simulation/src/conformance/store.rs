//! The simulated store beside the one in SQLite: the same commands at the same
//! time come to the same answers and the same rows. The store's own suite looks
//! at tables that there are none of here.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;

use muster_global_coordinator::store::embedded::Embedded;
use muster_global_coordinator::store::{GenerationFilter, Mode, Overruled, Store as _};
use muster_protocol::fact::{AgentId, Heartbeat, Hello};
use muster_protocol::global::{Barrier, Command, Generation};
use muster_protocol::identity::{Era, History, Timestamp};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Override;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};

use super::commands::{BARRIERS, REGIONS, batch, named};
use crate::chance::Chance;
use crate::store::{Seen, Store};

const SEEDS: u64 = 8;
const BATCHES: usize = 150;
/// Later than any clock of this machine: the store keeps to what is written.
const BEGINNING: u64 = 10_000_000_000_000;

/// Both stores, at one time.
struct Both {
    seed: u64,
    simulated: Store,
    real: Embedded,
    /// For the clock of the real one.
    behind: SqliteConnection,
    now: Timestamp,
    folder: PathBuf,
}

impl Drop for Both {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// The first life of a log so many times in a thousand, or the second.
fn life(chance: &mut Chance, first: u64) -> History {
    History([if chance.permille(first) { 1 } else { 2 }; 16])
}

/// A sign of life.
fn beat(chance: &mut Chance, region: &str, era: &Era) -> Heartbeat {
    Heartbeat {
        region: named(region),
        agent: AgentId { name: "agent".to_owned(), instance: "f00d".to_owned() },
        history: life(chance, 700),
        shard: 0,
        index: chance.within(1..=500),
        address: String::new(),
        era: chance.pick(&[Some(era.clone()), Some(Era::new("before")), None]).clone(),
    }
}

/// A greeting.
fn hello(chance: &mut Chance, region: &str, first: u64) -> Hello {
    Hello {
        region: named(region),
        agent: AgentId { name: "agent".to_owned(), instance: "f00d".to_owned() },
        history: life(chance, first),
        shard: 0,
        head: chance.within(1..=500),
        machine_version: 1,
        address: "http://127.0.0.1:1".to_owned(),
        era: None,
    }
}

/// Lists that stores may order as they like.
fn sorted<T: Debug>(items: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    items.into_iter().map(|item| format!("{item:?}")).collect()
}

impl Both {
    async fn new(seed: u64) -> Self {
        let folder = std::env::temp_dir().join(format!("muster-stores-{:032x}", rand::random::<u128>()));
        let file = folder.join("muster.db");
        let real = Embedded::open(&file).await.unwrap();
        let behind = SqliteConnectOptions::new().filename(&file).connect().await.unwrap();
        let regions = REGIONS.map(named);
        let simulated = Store::new(&regions, false);
        let mut both = Self { seed, simulated, real, behind, now: Timestamp(BEGINNING), folder };
        let era = "update identity set era = 'simulated'";
        sqlx::query(era).execute(&mut both.behind).await.unwrap();
        for region in &regions {
            both.real.declare(region).await.unwrap();
        }
        both.pass(0).await;
        both
    }

    /// Time passes in both.
    async fn pass(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        let now = i64::try_from(self.now.0).unwrap();
        sqlx::query("update identity set clock_at = $1").bind(now).execute(&mut self.behind).await.unwrap();
    }

    async fn greet(&mut self, hello: &Hello) {
        let real = self.real.hello(hello).await.unwrap();
        assert_eq!(self.simulated.hello(hello), real, "seed {}: {hello:?}", self.seed);
    }

    async fn show_life(&mut self, beat: &Heartbeat) {
        let real = self.real.heartbeats(std::slice::from_ref(beat)).await.unwrap();
        let simulated: Vec<_> = self.simulated.heartbeat(beat).into_iter().collect();
        assert_eq!(simulated, real, "seed {}: {beat:?}", self.seed);
    }

    async fn adopt(&mut self, region: &RegionName, history: History) {
        let by = Override { actor: None, reason: "new disks".to_owned() };
        let real = match self.real.adopt(region, history, &by).await.unwrap() {
            Overruled::Done { changed } => Some(changed),
            Overruled::NeverGreeted(_) => None,
            other => panic!("seed {}: {other:?}", self.seed),
        };
        assert_eq!(self.simulated.adopt(region, history), real, "seed {}: {region} {history}", self.seed);
    }

    async fn transact(&mut self, chance: &mut Chance, era: &Era) {
        let batch = batch(chance, &self.simulated, era);
        let mode = if chance.permille(150) { Mode::DryRun } else { Mode::Commit };
        let real = self.real.transact(batch.clone(), mode).await;
        let real = real.unwrap_or_else(|error| panic!("seed {}: {error:?}: {batch:#?}", self.seed));
        let simulated = match mode {
            Mode::DryRun => self.simulated.dry_run(&batch, self.now),
            Mode::Commit => self.simulated.transact(&batch, &Seen::new(), self.now),
        };
        for (at, (simulated, real)) in simulated.unwrap().into_iter().zip(real).enumerate() {
            assert_eq!(simulated, real, "seed {}: {mode:?} {:#?}", self.seed, batch[at]);
        }
    }

    /// Every row that both have.
    async fn compare(&self) {
        for name in BARRIERS.map(named::<BarrierName>) {
            let simulated = self.simulated.barrier(&name).filter(|barrier| barrier.revision > 0);
            let real = self.real.barrier(&name).await.unwrap();
            let row = |barrier: &Barrier| (barrier.revision, barrier.deleted, barrier.next_n, barrier.gathering);
            assert_eq!(simulated.map(row), real.as_ref().map(row), "seed {}: {name}", self.seed);
            assert_eq!(simulated.and_then(Barrier::spec), real.as_ref().and_then(Barrier::spec));
            let filter = GenerationFilter { barrier: Some(name.clone()), ..GenerationFilter::default() };
            let rows = self.real.generations(&filter, None, 1_000).await.unwrap().items;
            let real: Vec<Generation> = rows.into_iter().rev().map(|row| row.generation).collect();
            let simulated: Vec<Generation> =
                simulated.into_iter().flat_map(|barrier| barrier.generations.values()).cloned().collect();
            assert_eq!(simulated, real, "seed {}: {name}", self.seed);
        }
        let real = self.real.unanswered(None, None, 1_000).await.unwrap().items;
        assert_eq!(sorted(self.simulated.unanswered(None)), sorted(real), "seed {}", self.seed);
        let due = self.real.due(1_000).await.unwrap();
        let orphaned = due.orphaned.into_iter();
        let orphaned = orphaned.map(|(name, n, predecessor)| (name, Command::PredecessorBroke { n, predecessor }));
        let expired = due.generations.into_iter().map(|(name, n)| (name, Command::Expire { n }));
        assert_eq!(sorted(self.simulated.due(self.now)), sorted(orphaned.chain(expired)), "seed {}", self.seed);
    }
}

#[tokio::test]
async fn the_simulated_store_does_what_the_store_in_sqlite_does() {
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let mut chance = Chance::new(seed);
        let mut both = Both::new(seed).await;
        let era = both.real.check().await.unwrap();
        for region in REGIONS {
            both.greet(&hello(&mut chance, region, 1_000)).await;
        }
        for _ in 0..BATCHES {
            if chance.permille(100) {
                let region = REGIONS[chance.below(REGIONS.len())];
                let hello = hello(&mut chance, region, 900);
                both.greet(&hello).await;
            }
            if chance.permille(100) {
                let region = REGIONS[chance.below(REGIONS.len())];
                let beat = beat(&mut chance, region, &era);
                both.show_life(&beat).await;
            }
            if chance.permille(60) {
                let region = named(REGIONS[chance.below(REGIONS.len())]);
                both.adopt(&region, life(&mut chance, 700)).await;
            }
            both.transact(&mut chance, &era).await;
            both.compare().await;
            both.pass(chance.within(0..=300)).await;
            let all = both.simulated.barriers().flat_map(|barrier| barrier.generations.values());
            seen.extend(all.map(|one| (one.state().as_str(), one.closed)));
        }
    }
    let wanted = [
        ("gathering", false),
        ("releasing", false),
        ("released", false),
        ("released", true),
        ("broken", false),
        ("broken", true),
    ];
    assert!(wanted.iter().all(|wanted| seen.contains(wanted)), "only these came to be: {seen:?}");
}
