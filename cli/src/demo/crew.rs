//! Starts the workers and stands for them, as `muster run` does for one: a
//! worker that dies without arriving is arrived for, as failed, with a note of
//! how it died. Nobody waits for the dead.
//!
//! None outlives the demo: each is killed and reaped at the end, and each ends
//! by itself when its standard input does.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use muster_client::{Client, Error};
use muster_protocol::region::ArrivalOutcome;
use muster_wire::code::Code;
use muster_wire::request::Arrival;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::barriers::target;
use super::job::{Event, Job};
use super::roster::{Phase, WorkerName};
use crate::failure::Failure;

/// From the middle of its map to the death of one that is to be killed: time
/// enough to see whom everybody waits for.
const KILL_AFTER: Duration = Duration::from_secs(1);

/// The hidden subcommand that is a worker.
pub(crate) const WORKER: &str = "demo-worker";

/// What is known of a worker, from itself or from its end.
#[derive(Debug)]
pub(crate) enum News {
    /// It says so.
    Event(Event),
    /// For people.
    Note(String),
    /// It is gone.
    Ended(Ending),
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All phases are done.
    Done,
    /// It heard that a barrier is broken.
    Heard,
    /// It died, or gave up: `signal 9`, `exit 1`.
    Died(String),
    /// The demo ended it.
    Stopped,
}

/// News, with the place of the worker it is about.
pub(crate) type Post = mpsc::Sender<(usize, News)>;

/// All workers, and those who stand for them.
pub(crate) struct Crew {
    supervisors: JoinSet<()>,
    stop: CancellationToken,
}

impl Crew {
    /// Starts a worker for each job. `kill` dies in the middle of map.
    ///
    /// # Errors
    /// A process can't be started; those that were are killed.
    pub(crate) fn hire(jobs: Vec<Job>, kill: Option<&WorkerName>, post: &Post) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let program = std::env::current_exe().context("find this program's own file")?;
        let mut supervisors = JoinSet::new();
        for job in jobs {
            let mut command = Command::new(&program);
            // In a group of its own: Ctrl-C is for the demo, which then ends
            // its workers, and does not take their deaths for failures.
            command.arg(WORKER).process_group(0).kill_on_drop(true);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().with_context(|| format!("start the worker {}", job.worker))?;
            let agent = Client::new(&job.agents)?.until(Instant::now() + job.limit);
            let victim = kill == Some(&job.worker);
            let phase = Phase::Map;
            let supervisor =
                Supervisor { job, agent, victim, phase, heard: false, stop: stop.clone(), post: post.clone() };
            supervisors.spawn(supervisor.stand_for(child));
        }
        Ok(Self { supervisors, stop })
    }

    /// Ends all workers that still run; returns when every one is reaped.
    pub(crate) async fn dismiss(mut self) {
        self.stop.cancel();
        while self.supervisors.join_next().await.is_some() {}
    }
}

struct Supervisor {
    job: Job,
    agent: Client,
    victim: bool,
    /// The first phase whose release the worker has not heard.
    phase: Phase,
    heard: bool,
    stop: CancellationToken,
    post: Post,
}

impl Supervisor {
    async fn stand_for(mut self, mut child: Child) {
        self.listen(&mut child).await;
        let stopped = self.stop.is_cancelled();
        if stopped {
            // An error means that it is dead already.
            let _ = child.start_kill();
        }
        let ending = match child.wait().await {
            Ok(status) if status.success() => Ending::Done,
            _ if self.heard => Ending::Heard,
            _ if stopped => Ending::Stopped,
            Ok(status) => Ending::Died(how(status)),
            Err(error) => Ending::Died(format!("unknown end: {error}")),
        };
        if let Ending::Died(note) = &ending {
            tokio::select! {
                () = self.stop.clone().cancelled_owned() => {}
                () = self.arrive_as_failed(note) => {}
            }
        }
        self.tell(News::Ended(ending)).await;
    }

    /// Hears the worker until it has closed its outputs, or all is to end.
    async fn listen(&mut self, child: &mut Child) {
        let (Some(input), Some(out), Some(err)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return;
        };
        let (mut out, mut err) = (BufReader::new(out).lines(), BufReader::new(err).lines());
        let (mut out_open, mut err_open) = (true, true);
        // A job may be larger than a pipe, so it is written while listening.
        let feed = feed(input, serde_json::to_vec(&self.job));
        tokio::pin!(feed);
        let mut held = None;
        let mut kill_at = None;
        while out_open || err_open {
            tokio::select! {
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    kill_at = None;
                    self.kill(child).await;
                }
                () = self.stop.cancelled() => return,
                input = &mut feed, if held.is_none() => held = Some(input),
                line = out.next_line(), if out_open => match line {
                    Ok(Some(line)) => {
                        let event = self.event(&line).await;
                        if self.victim && event == Some(Event::Halfway) {
                            kill_at = Some(Instant::now() + KILL_AFTER);
                        }
                    }
                    _ => out_open = false,
                },
                line = err.next_line(), if err_open => match line {
                    Ok(Some(line)) => self.tell(News::Note(format!("{}: {line}", self.job.worker))).await,
                    _ => err_open = false,
                },
            }
        }
    }

    async fn kill(&self, child: &mut Child) {
        // An error means that it is dead already.
        let _ = child.start_kill();
        self.tell(News::Note(format!("killed {} in the middle of map (--kill)", self.job.worker))).await;
    }

    async fn event(&mut self, line: &str) -> Option<Event> {
        let Ok(event) = serde_json::from_str::<Event>(line) else {
            self.tell(News::Note(format!("{}: {line}", self.job.worker))).await;
            return None;
        };
        match &event {
            Event::Woken { phase, .. } => self.phase = phase.next().unwrap_or(*phase),
            Event::Heard { .. } => self.heard = true,
            _ => {}
        }
        self.tell(News::Event(event.clone())).await;
        Some(event)
    }

    /// Arrives for the dead, at the first barrier where it has not arrived
    /// itself: it may have been killed between arriving and hearing.
    async fn arrive_as_failed(&self, note: &str) {
        let worker = &self.job.worker;
        let mut next = Some(self.phase);
        while let Some(phase) = next {
            match self.fail_at(phase, note).await {
                Ok(true) => {
                    let at = phase.name();
                    self.tell(News::Note(format!("{worker} died ({note}) and arrived at {at} as failed"))).await;
                    return;
                }
                Ok(false) => next = phase.next(),
                Err(failure) => {
                    let why = failure.sentence().unwrap_or_default();
                    let sentence = format!("{worker} died ({note}), and could not be arrived for: {why}");
                    return self.tell(News::Note(sentence)).await;
                }
            }
        }
    }

    /// Whether this counts: not when it had arrived ok before.
    async fn fail_at(&self, phase: Phase, note: &str) -> Result<bool, Failure> {
        let id = self.job.worker.id().map_err(anyhow::Error::new)?;
        let outcome = Some(ArrivalOutcome::Failed);
        let arrival = Arrival { outcome, note: Some(note.to_owned()), ..Arrival::default() };
        match self.agent.arrive(&target(phase, &self.job.key)?, &id, &arrival).await {
            Ok(arrived) => Ok(arrived.outcome == ArrivalOutcome::Failed),
            // Broken by somebody else: there is nothing left to fail.
            Err(Error::Refused(problem)) if problem.code == Code::Broken => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    async fn tell(&self, news: News) {
        // Nobody listens at the end of the demo.
        let _ = self.post.send((self.job.place, news)).await;
    }
}

/// Writes the job, and gives the input back to be held open.
async fn feed(mut input: ChildStdin, job: serde_json::Result<Vec<u8>>) -> ChildStdin {
    let mut line = job.unwrap_or_default();
    line.push(b'\n');
    // An error means that the worker is dead, which its outputs tell as well.
    let _ = input.write_all(&line).await;
    let _ = input.flush().await;
    input
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit {code}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_are_told_as_muster_run_tells_them() {
        assert_eq!(how(ExitStatus::from_raw(9)), "signal 9");
        assert_eq!(how(ExitStatus::from_raw(1 << 8)), "exit 1");
    }
}
