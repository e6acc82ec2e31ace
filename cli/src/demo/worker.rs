//! One worker: `muster demo-worker`, which nobody types. It maps its share,
//! shuffles for one reducer, sums for another, and between any two of these
//! meets all others at a barrier. It speaks HTTP to its own region's agents.
//!
//! Every step may be repeated: files are replaced whole, an arrival that is
//! sent again gets its first answer.

use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use muster_client::{Client, Error, Target};
use muster_wire::answer::Released;
use muster_wire::code::Code;
use muster_wire::reference::Reference;
use muster_wire::request::Arrival;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::folder;
use super::job::{Event, Instant, Job};
use super::roster::Phase;
use super::words::{self, Counter};
use crate::failure::Failure;

/// Exit code of a worker whose demo has gone away.
const ABANDONED: i32 = 1;

/// Does the job that comes on standard input.
///
/// # Errors
/// The barrier broke (told before: exit code 3); a service can't be reached; a
/// file can't be read or written.
pub(crate) async fn run() -> Result<(), Failure> {
    let job = receive().await?;
    let deadline = tokio::time::Instant::now() + job.limit;
    let client = Client::new(&job.agents).map_err(anyhow::Error::new)?.until(deadline);
    let mut worker = Worker { client, deadline, job };
    let mapped = worker.map().await?;
    let released = worker.meet(Phase::Map, mapped).await?;
    let shuffled = worker.shuffle(&released)?;
    let released = worker.meet(Phase::Shuffle, shuffled).await?;
    let reduced = worker.reduce(&released)?;
    worker.meet(Phase::Reduce, reduced).await?;
    Ok(())
}

/// Reads the job, and ends this process when the demo ends, however it does.
async fn receive() -> anyhow::Result<Job> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut line = String::new();
        let read = input.read_line(&mut line).map(|_| line);
        // The receiver waits for nothing else.
        let _ = sender.send(read);
        let _ = input.read_to_end(&mut Vec::new());
        std::process::exit(ABANDONED);
    });
    let line = receiver.await?.context("read the job from standard input")?;
    serde_json::from_str(&line).context("read the job; `muster demo mapreduce` starts workers, nobody else does")
}

struct Worker {
    client: Client,
    deadline: tokio::time::Instant,
    job: Job,
}

impl Worker {
    /// Counts the share, and leaves a file for each reducer.
    async fn map(&self) -> anyhow::Result<Value> {
        let mut counter = Counter::default();
        let half = self.job.share.len().div_ceil(2);
        for slice in &self.job.share[..half] {
            slice.count(&mut counter)?;
        }
        tell(&Event::Halfway);
        if self.job.rest > Duration::ZERO {
            tokio::time::sleep(self.job.rest).await;
        }
        for slice in &self.job.share[half..] {
            slice.count(&mut counter)?;
        }
        let counts = counter.counts();
        let name = self.job.worker.file_name();
        for (reducer, content) in words::partition(&counts, self.job.workers).iter().enumerate() {
            folder::write(&self.file(folder::mapped(&name, reducer)), content)?;
        }
        Ok(json!({"worker": name, "words": words::total(&counts)}))
    }

    /// Brings together what every mapper left for one reducer. Who they are is
    /// told by the release: all that arrived.
    fn shuffle(&self, released: &Released) -> anyhow::Result<Value> {
        let reducer = self.job.shuffles;
        let mut files = Vec::with_capacity(self.job.workers);
        for (participant, output) in &released.outputs {
            let output: Value = serde_json::from_str(output).unwrap_or_default();
            let Some(worker) = output["worker"].as_str() else { bail!("{participant} left no output at demo/map") };
            files.push(folder::read(&self.file(folder::mapped(worker, reducer)))?);
        }
        if files.len() != self.job.workers {
            bail!("demo/map released with {} outputs of {} workers", files.len(), self.job.workers);
        }
        let merged = words::shuffle(files.iter().map(Vec::as_slice)).context("read what was mapped")?;
        folder::write(&self.file(folder::shuffled(reducer)), &merged)?;
        Ok(json!({"reducer": reducer}))
    }

    /// Sums what another worker shuffled.
    fn reduce(&self, released: &Released) -> anyhow::Result<Value> {
        if released.outputs.len() != self.job.workers {
            bail!("demo/shuffle released with {} outputs of {} workers", released.outputs.len(), self.job.workers);
        }
        let reducer = self.job.place;
        let shuffled = folder::read(&self.file(folder::shuffled(reducer)))?;
        let reduced = words::reduce(&shuffled).context("read what was shuffled")?;
        folder::write(&self.file(folder::reduced(reducer)), &reduced)?;
        Ok(json!({"reducer": reducer}))
    }

    /// Arrives, and waits for all others.
    async fn meet(&mut self, phase: Phase, output: Value) -> Result<Released, Failure> {
        let barrier = phase.barrier().map_err(anyhow::Error::new)?;
        let target = Target { barrier, generation: Some(Reference::Key(self.job.key.clone(), None)) };
        let id = self.job.worker.id().map_err(anyhow::Error::new)?;
        let arrival = Arrival { output: Some(output.to_string()), ..Arrival::default() };
        tell(&Event::Arriving { phase, at: Instant::now() });
        match self.client.arrive_and_wait(&target, &id, &arrival, Some(self.deadline)).await {
            Ok(released) => {
                tell(&Event::Woken { phase, at: Instant::now() });
                Ok(released)
            }
            Err(Error::Refused(problem)) if problem.code == Code::Broken => {
                tell(&Event::Heard { phase, words: problem.detail.clone() });
                Err(Failure::Code(Code::Broken.exit()))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn file(&self, name: PathBuf) -> PathBuf {
        Path::new(&self.job.folder).join(name)
    }
}

fn tell(event: &Event) {
    let mut out = std::io::stdout().lock();
    // An event is plain data, and nobody listening is the end of the demo,
    // which standard input tells as well.
    let _ = serde_json::to_writer(&mut out, event);
    let _ = out.write_all(b"\n");
    let _ = out.flush();
}
