//! The decision's own statements: the last region's report of a generation
//! whose other regions are complete.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use muster_global_coordinator::store::postgres::{Postgres, PostgresOptions, migrate};
use muster_global_coordinator::store::{Mode, Store};
use muster_protocol::fact::{AgentId, Hello};
use muster_protocol::global::{Change, Command, Expect, Step};
use muster_protocol::identity::Digest;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::participants::Participants;
use muster_protocol::region::MACHINE_VERSION;
use muster_protocol::report::RegionReport;
use muster_protocol::spec::{Generations, Rule, Scope, Slice, Spec};
use muster_tests::database::Database;

use super::records;

/// A store with a cyclic barrier over all regions.
pub(super) struct Decider {
    store: Postgres,
    barrier: BarrierName,
    regions: Vec<RegionName>,
    n: u64,
    index: u64,
    decided: Option<Digest>,
    // Dropped last, when nobody is connected to it any more.
    _database: Database,
}

impl Decider {
    pub(super) async fn seat(server: &str, name: &str, regions: &[RegionName]) -> anyhow::Result<Self> {
        let database = Database::create(server, name).await?;
        migrate(&database.url).await?;
        let options = PostgresOptions { url: database.url.clone(), ..PostgresOptions::default() };
        let store = Postgres::new(&options)?;
        for region in regions {
            store.declare(region).await?;
            store.hello(&hello(region)).await?;
        }
        let spec = spec(regions);
        let barrier = spec.name.clone();
        let define = Command::Define { spec: Box::new(spec), expect: Expect::NewOrEqual };
        let steps = store.transact(vec![(barrier.clone(), define)], Mode::Commit).await?;
        ensure!(steps.iter().all(|step| step.reply.is_ok()), "the barrier was not defined: {steps:?}");
        let regions = regions.to_vec();
        Ok(Self { store, barrier, regions, n: 1, index: 1, decided: None, _database: database })
    }

    /// Every region but one is complete.
    pub(super) async fn gather(&mut self, last: usize) -> anyhow::Result<()> {
        for (place, region) in self.regions.clone().iter().enumerate().filter(|(place, _)| *place != last) {
            let step = self.report(region, None).await?;
            ensure!(decided(&step).is_none(), "decided without region {last}, by {place}");
        }
        Ok(())
    }

    /// The last one is.
    pub(super) async fn decide(&mut self, last: usize) -> anyhow::Result<Duration> {
        let region = self.regions[last].clone();
        let report = self.next_report(&region, None);
        let batch = vec![(self.barrier.clone(), Command::Report(Box::new(report)))];
        let started = Instant::now();
        let steps = self.store.transact(batch, Mode::Commit).await?;
        let took = started.elapsed();
        let step = steps.into_iter().next().context("no step for a report")?;
        self.decided = Some(decided(&step).with_context(|| format!("it was not decided: {step:?}"))?);
        Ok(took)
    }

    /// Every region has applied it, and the next generation is open.
    pub(super) async fn settle(&mut self) -> anyhow::Result<()> {
        let digest = self.decided.take();
        for region in self.regions.clone() {
            self.report(&region, digest).await?;
        }
        self.n += 1;
        Ok(())
    }

    async fn report(&mut self, region: &RegionName, applied: Option<Digest>) -> anyhow::Result<Step> {
        let report = self.next_report(region, applied);
        let batch = vec![(self.barrier.clone(), Command::Report(Box::new(report)))];
        let steps = self.store.transact(batch, Mode::Commit).await?;
        let step = steps.into_iter().next().context("no step for a report")?;
        match &step.reply {
            Ok(_) => Ok(step),
            Err(refusal) => Err(anyhow!("a report was refused: {refusal:?}")),
        }
    }

    fn next_report(&mut self, region: &RegionName, applied: Option<Digest>) -> RegionReport {
        self.index += 1;
        RegionReport { applied, ..records::report(region, self.n, self.index) }
    }
}

fn decided(step: &Step) -> Option<Digest> {
    step.changes.iter().find_map(|change| match change {
        Change::Decided { decided, .. } => Some(decided.outcome.digest()),
        _ => None,
    })
}

fn hello(region: &RegionName) -> Hello {
    Hello {
        region: region.clone(),
        agent: AgentId { name: format!("{region}-1"), instance: "bench".to_owned() },
        history: records::HISTORY,
        shard: 0,
        head: 1,
        machine_version: MACHINE_VERSION,
        address: "http://127.0.0.1:7171".to_owned(),
        era: None,
    }
}

fn spec(regions: &[RegionName]) -> Spec {
    let retention_ms = 86_400_000;
    let slice = Slice {
        participants: Participants::Count(1),
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: Slice::outputs_share(regions.len()),
        deadline_ms: None,
        retention_ms,
    };
    Spec {
        name: records::barrier(),
        description: String::new(),
        owner: "bench".to_owned(),
        labels: BTreeMap::new(),
        scope: Scope::Global,
        regions: regions.iter().map(|region| (region.clone(), slice.clone())).collect(),
        generations: Generations::Cyclic,
        deadline_ms: None,
        release_when: Rule::All,
        retention_ms,
        retention_generations: muster_protocol::caps::RETENTION_GENERATIONS_MAX,
        failures_max: 0,
        after: None,
    }
}
