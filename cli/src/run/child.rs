//! A child process, and the signals that reach its parent.

use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context as _;
use muster_wire::problem::Problem;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::failure::Failure;

/// How long a child may take to stop before it is killed.
const STOP: Duration = Duration::from_secs(10);

/// How a child ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    /// The exit code to pass on: its own, or 128 and the signal.
    pub(crate) code: u8,
    /// What went wrong; `None` when it ended with 0.
    pub(crate) note: Option<String>,
    /// Whether somebody stopped it through us.
    pub(crate) interrupted: bool,
    /// Why it had to stop: its session was over.
    pub(crate) over: Option<Problem>,
}

/// The signals that ask this process to stop.
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).context("listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one; the exit code that shells give it.
    pub(super) async fn stopped(&mut self) -> u8 {
        of_signal(self.next().await.as_raw())
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}

/// A child that runs.
pub(crate) struct Child(tokio::process::Child);

impl Child {
    pub(crate) fn start(command: &[String], environment: &[(&str, String)]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
        Command::new(program).args(arguments).envs(environment).spawn().map(Self)
    }

    /// Waits for its end and hands signals on to it meanwhile. When its session
    /// is over it is asked to stop, and made to when it does not.
    pub(crate) async fn run(
        mut self,
        signals: &mut Signals,
        session: impl Future<Output = Problem>,
    ) -> Result<Ended, Failure> {
        let (mut stopped_by, mut over) = (None, None);
        let mut session = std::pin::pin!(session);
        let mut patience = std::pin::pin!(tokio::time::sleep(Duration::MAX));
        loop {
            tokio::select! {
                status = self.0.wait() => {
                    return Ok(Ended { over, ..ended(status.context("wait for the child")?, stopped_by) });
                }
                problem = &mut session, if over.is_none() => {
                    eprintln!("muster: {}; stopping the command", problem.detail);
                    over = Some(problem);
                    self.hand_on(Signal::TERM);
                    patience.as_mut().reset(Instant::now() + STOP);
                }
                () = &mut patience, if over.is_some() => {
                    self.hand_on(Signal::KILL);
                    patience.as_mut().reset(Instant::now() + STOP);
                }
                signal = signals.next() => {
                    // A terminal has sent the first interrupt to the child as
                    // well; twice would be taken for impatience.
                    let sent_by_terminal = signal == Signal::INT && stopped_by.is_none() && io::stdin().is_terminal();
                    stopped_by = Some(signal);
                    if !sent_by_terminal {
                        self.hand_on(signal);
                    }
                }
            }
        }
    }

    fn hand_on(&self, signal: Signal) {
        let pid = self.0.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        // A child that has just ended needs no signal any more.
        if let Some(Err(error)) = pid.map(|pid| kill_process(pid, signal)) {
            tracing::debug!(%error, "hand a signal on");
        }
    }
}

fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

fn ended(status: ExitStatus, stopped_by: Option<Signal>) -> Ended {
    let (code, note) = match (status.code(), status.signal()) {
        (Some(0), _) => (0, None),
        (Some(code), _) => (u8::try_from(code).unwrap_or(u8::MAX), Some(format!("exit status {code}"))),
        (None, Some(signal)) => (of_signal(signal), Some(format!("signal {signal}"))),
        (None, None) => (1, Some("ended for an unknown reason".to_owned())),
    };
    match stopped_by {
        // Whether a child that was stopped has done its work, nobody knows.
        Some(signal) if code == 0 => {
            Ended { code: of_signal(signal.as_raw()), note: None, interrupted: true, over: None }
        }
        Some(_) => Ended { code, note, interrupted: true, over: None },
        None => Ended { code, note, interrupted: false, over: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_wire::code::Code;

    async fn run(script: &str) -> Ended {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        let child = Child::start(&command, &[("MUSTER_PARTICIPANT", "7".to_owned())]).unwrap();
        child.run(&mut Signals::listen().unwrap(), std::future::pending()).await.unwrap()
    }

    #[tokio::test]
    async fn the_end_of_a_child_is_told() {
        assert_eq!(run("exit 0").await, Ended { code: 0, note: None, interrupted: false, over: None });
        assert_eq!(run("exit $MUSTER_PARTICIPANT").await.note.as_deref(), Some("exit status 7"));
        let killed = run("kill -9 $$").await;
        assert_eq!((killed.code, killed.note.as_deref()), (137, Some("signal 9")));
    }

    #[tokio::test]
    async fn a_child_that_was_stopped_through_us_is_interrupted() {
        let raw = ExitStatus::from_raw;
        let stopped = ended(raw(15), Some(Signal::TERM));
        assert!(stopped.interrupted && stopped.code == 143);
        let polite = ended(raw(0), Some(Signal::INT));
        assert!(polite.interrupted && polite.code == 130, "an end with 0 after a signal is no proof of work done");
    }

    #[tokio::test]
    async fn a_child_whose_session_is_over_is_stopped() {
        let command = ["/bin/sleep".to_owned(), "600".to_owned()];
        let child = Child::start(&command, &[]).unwrap();
        let fenced = async { Problem::new(Code::Fenced, "another session took over") };
        let ended = child.run(&mut Signals::listen().unwrap(), fenced).await.unwrap();
        assert_eq!((ended.code, ended.interrupted), (143, false));
        assert_eq!(ended.over.map(|over| over.code), Some(Code::Fenced));
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let error = Child::start(&["/no/such/program".to_owned()], &[]).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
