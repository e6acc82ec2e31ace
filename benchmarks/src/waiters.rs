//! What one who waits costs, and whether ten thousand are woken.
//!
//! The embedded service (`muster dev`) is a process of its own; the
//! participants are connections of this one. Each arrives and waits in one
//! call. Memory is what the system says is resident, before the first connects
//! and when all wait: with the arrivals, the log's entries and the connections'
//! buffers, since nobody waits without these.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use muster_client::{Apply, Client};
use muster_protocol::name::{BarrierName, RegionName};
use muster_tests::services::muster_binary;
use muster_tests::spawner::{mortal, spawn};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::connection::Connection;
use crate::results::{Measured, Target};
use crate::samples::rounded;
use crate::stage::until_waiting;
use crate::surroundings::resident_bytes;

pub(crate) const NAME: &str = "bytes_per_waiter_10000";
const WAITERS: usize = 10_000;
/// Before them, so that what is needed once is not counted as theirs.
const WARMUP: usize = 100;
/// Descriptors of a process beside those of the connections.
const DESCRIPTORS_SPARE: u64 = 300;
/// Calls that have been begun and not yet sent, at most.
const CONNECTING_MAX: usize = 128;
/// Lets buffers settle before memory is read.
const PAUSE: Duration = Duration::from_secs(2);

pub(crate) async fn measure() -> anyhow::Result<Measured> {
    allow_descriptors(WAITERS as u64 + DESCRIPTORS_SPARE)?;
    let dev = tokio::task::spawn_blocking(Dev::start).await??;
    dev.wait_with("bench/warmup", WARMUP).await?.release().await?;
    tokio::time::sleep(PAUSE).await;
    let before = resident_bytes(dev.pid())?;
    let started = Instant::now();
    let crowd = dev.wait_with("bench/crowd", WAITERS).await?;
    let gathered = started.elapsed();
    eprintln!("  {WAITERS} wait after {} ms", gathered.as_millis());
    tokio::time::sleep(PAUSE).await;
    let waiting = resident_bytes(dev.pid())?;
    let woken = crowd.release().await?;
    eprintln!("  all {WAITERS} were woken within {} ms", woken.as_millis());
    let bytes = waiting.saturating_sub(before) as f64 / WAITERS as f64;
    Ok(Measured {
        value: rounded(bytes, 0),
        goal: Target::Reported,
        counted: "resident memory of the embedded service when all wait, less that before, by their number",
        details: json!({
            "waiters": WAITERS,
            "woken": WAITERS,
            "resident_bytes_before": before,
            "resident_bytes_waiting": waiting,
            "all_wait_after_ms": rounded(gathered.as_secs_f64() * 1e3, 1),
            "last_arrival_to_last_wake_up_ms": rounded(woken.as_secs_f64() * 1e3, 1),
        }),
    })
}

/// Raises the limit of open files for this process and those it starts.
fn allow_descriptors(needed: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        bail!("{needed} open files are needed and {maximum} are allowed: raise the hard limit (ulimit -Hn)");
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .context("raise the limit of open files")
}

/// The embedded service, ended when dropped.
struct Dev {
    child: Child,
    coordinator: String,
    region: RegionName,
    agent: String,
}

impl Dev {
    fn start() -> anyhow::Result<Self> {
        let mut command = mortal(&muster_binary()?);
        command.args(["dev", "--port", "0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = spawn(command)?;
        let output = child.stdout.take().context("the service has no output")?;
        let region: RegionName = "us-east".parse()?;
        // From here on it is ended whatever happens.
        let mut dev = Self { child, coordinator: String::new(), region, agent: String::new() };
        for line in BufReader::new(output).lines() {
            let line = line.context("read what the service prints")?;
            match line.split_once(' ').map(|(name, url)| (name, url.trim())) {
                Some(("coordinator", url)) => url.clone_into(&mut dev.coordinator),
                Some((name, url)) if name == dev.region.as_str() => url.clone_into(&mut dev.agent),
                Some(("Next:", _)) => break,
                _ => {}
            }
        }
        ensure!(
            !dev.coordinator.is_empty() && !dev.agent.is_empty(),
            "muster dev ended, or did not tell its addresses"
        );
        Ok(dev)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// So many participants wait at a new barrier that lacks one more.
    async fn wait_with(&self, barrier: &str, count: usize) -> anyhow::Result<Crowd> {
        let barrier: BarrierName = barrier.parse()?;
        let definition = json!({
            "kind": "Barrier", "name": barrier, "regions": [self.region], "participants": count + 1,
            "generations": "single", "deadline": "none",
        });
        let coordinator = Client::new([&self.coordinator])?;
        coordinator.apply(&barrier, definition.to_string(), Apply::default()).await?;
        let room = Arc::new(Semaphore::new(CONNECTING_MAX));
        let path = move |id: usize| format!("/v1/barriers/{barrier}/generations/1/arrivals/{id}?wait=10m");
        let wait = |id| {
            let (room, agent, path) = (room.clone(), self.agent.clone(), path(id));
            tokio::spawn(async move {
                let place = room.acquire().await?;
                let mut connection = Connection::open(&agent).await?;
                connection.send("PUT", &path).await?;
                drop(place);
                let answer = connection.receive().await?;
                Ok((answer.status, answer.at))
            })
        };
        let waiters = (0..count).map(wait).collect();
        until_waiting(&self.agent, &self.region, count).await?;
        Ok(Crowd { waiters, agent: self.agent.clone(), last: path(count) })
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Participants who wait.
struct Crowd {
    waiters: Vec<tokio::task::JoinHandle<anyhow::Result<(u16, Instant)>>>,
    agent: String,
    last: String,
}

impl Crowd {
    /// The one they wait for arrives. Every one of them must be told that it
    /// may pass; gives the time until the last one was.
    async fn release(self) -> anyhow::Result<Duration> {
        let mut last = Connection::open(&self.agent).await?;
        let (sent, answer) = last.call("PUT", &self.last).await?;
        let mut woken = answer.must_be(200)?.at;
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        let count = self.waiters.len();
        for waiter in self.waiters {
            let answer = match waiter.await? {
                Ok((status, at)) => {
                    woken = woken.max(at);
                    status.to_string()
                }
                Err(error) => format!("{error:#}"),
            };
            *answers.entry(answer).or_default() += 1;
        }
        ensure!(answers.get("200") == Some(&count), "of {count} who waited not all were let through: {answers:?}");
        Ok(woken - sent)
    }
}
