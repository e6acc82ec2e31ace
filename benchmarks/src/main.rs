//! Ratios measured in one run: `make bench`.
//!
//! ```text
//! transactions  1,000 arrive at once: write transactions of etcd for each
//! crossing      three regions, idle: a crossing by the sum of its hops
//! succession    the leader of a region is killed: how long until another leads
//! waiters       10,000 wait at the embedded service: memory for each
//!
//! stage         the service on real etcd, Kafka and Postgres, for one run
//! hops/         each hop of a crossing alone
//! results       benchmarks/results/latest.json, and the table
//! ```
//!
//! Absolute times say more about a machine than about the service; ratios of
//! medians, taken side by side, can be compared.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod connection;
mod crossing;
mod hops;
mod results;
mod samples;
mod stage;
mod succession;
mod surroundings;
mod transactions;
mod waiters;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::results::Results;
use crate::stage::Stage;
use crate::surroundings::Versions;

const NAMES: [&str; 4] = [transactions::NAME, crossing::NAME, succession::NAME, waiters::NAME];

/// Measures the ratios into benchmarks/results/latest.json, on services of its
/// own unless MUSTER_TEST_ETCD, MUSTER_TEST_KAFKA and MUSTER_TEST_POSTGRES name
/// some. Exit code 1 if a target is missed.
#[derive(Debug, Parser)]
struct Arguments {
    /// Measure this one alone, and leave latest.json as it is
    #[arg(long, value_name = "NAME", value_parser = NAMES)]
    only: Option<String>,
    /// How often three regions cross
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    crossings: u32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match prepare_and_run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    fn want(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == name)
    }
}

/// Whether every target is met.
fn prepare_and_run(arguments: &Arguments) -> anyhow::Result<bool> {
    stage::build_muster()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // What ends early ends its services and processes, too: it is dropped.
        tokio::select! {
            good = run(arguments) => good,
            _ = interrupt.recv() => bail!("interrupted; everything that was started is ended"),
            _ = terminate.recv() => bail!("told to end; everything that was started is ended"),
        }
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut results = Results::begin()?;
    if arguments.want(waiters::NAME) {
        eprintln!("{}", waiters::NAME);
        results.add(waiters::NAME, waiters::measure().await.context(waiters::NAME)?);
    }
    if [transactions::NAME, crossing::NAME, succession::NAME].into_iter().any(|name| arguments.want(name)) {
        eprintln!("starting etcd, Kafka, Postgres, three agents and a coordinator…");
        let stage = Stage::set().await?;
        on_stage(&stage, arguments, &mut results).await?;
    }
    if arguments.only.is_none() {
        let path = results.write()?;
        eprintln!("written to {}", path.display());
    }
    print!("\n{}", results.table());
    Ok(results.are_good())
}

async fn on_stage(stage: &Stage, arguments: &Arguments, results: &mut Results) -> anyhow::Result<()> {
    results.services = Some(Versions::ask(&stage.services, stage.has_own_services()).await?);
    if arguments.want(transactions::NAME) {
        eprintln!("{}", transactions::NAME);
        results.add(transactions::NAME, transactions::measure(stage).await.context(transactions::NAME)?);
    }
    if arguments.want(crossing::NAME) {
        eprintln!("{}", crossing::NAME);
        let crossings = usize::try_from(arguments.crossings)?;
        let (measured, hops) = crossing::measure(stage, crossings).await.context(crossing::NAME)?;
        results.add(crossing::NAME, measured);
        results.hops = hops;
    }
    if arguments.want(succession::NAME) {
        eprintln!("{}", succession::NAME);
        results.add(succession::NAME, succession::measure(stage).await.context(succession::NAME)?);
    }
    Ok(())
}
