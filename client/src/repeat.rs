//! The one loop that repeats calls, and decides when to stop.
//!
//! ```text
//!           ┌─────────────── next address, or a pause ◀────────────┐
//!           ▼                                                      │
//!  send ─▶ answer ──▶ done, refused                                │
//!             ├─────▶ not yet ──▶ time left? same call again ──────┤
//!             └─────▶ later, lost ──▶ patience left? same call ────┘
//! ```

use std::time::Duration;

use muster_wire::code::Code;
use muster_wire::problem::Problem;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::call::{Attempt, Call};
use crate::{Client, Error, Trouble};

/// How long one call asks a service to wait; then it asks again.
const HOLD_MAX: Duration = Duration::from_secs(50);
/// What an answer may take on the way after the deadline.
const GRACE: Duration = Duration::from_secs(2);
/// An early "not yet" without a Retry-After is not repeated sooner.
const NOT_YET_PAUSE: Duration = Duration::from_secs(1);

/// What is known about a call that is being repeated.
struct Progress {
    index: usize,
    /// Addresses in trouble since the last pause.
    failed: usize,
    /// Since when nobody has answered.
    trouble_since: Option<Instant>,
    backoff: Backoff,
    /// Whether it may have been done by a try whose answer was lost.
    unknown: bool,
    last: Option<Box<Problem>>,
}

impl Client {
    /// Sends a call until it is answered, refused, or time is up.
    pub(crate) async fn call<T>(
        &self,
        call: Call,
        read: impl Fn(&[u8]) -> Result<T, String> + Sync,
    ) -> Result<T, Error> {
        self.repeat(call, None, read).await
    }

    /// The same for a call that waits: "not yet" is repeated until `until`,
    /// for ever when there is none.
    pub(crate) async fn call_waiting<T>(
        &self,
        call: Call,
        until: Option<Instant>,
        read: impl Fn(&[u8]) -> Result<T, String> + Sync,
    ) -> Result<T, Error> {
        let until = until.into_iter().chain(self.deadline).min();
        self.repeat(call, Some(until), read).await
    }

    async fn repeat<T>(
        &self,
        mut call: Call,
        waits: Option<Option<Instant>>,
        read: impl Fn(&[u8]) -> Result<T, String> + Sync,
    ) -> Result<T, Error> {
        let deadline = waits.map_or(self.deadline, |until| until);
        let mut progress = Progress {
            index: self.preferred(),
            failed: 0,
            trouble_since: None,
            backoff: Backoff::default(),
            unknown: false,
            last: None,
        };
        loop {
            if waits.is_some() {
                call = call.hold(deadline.map_or(HOLD_MAX, |deadline| left(deadline).min(HOLD_MAX)));
            }
            let address = &self.addresses[progress.index];
            let started = Instant::now();
            let patience = deadline.map(|deadline| left(deadline) + GRACE);
            let (why, asked) = match self.attempt(address, &call, &read, patience).await {
                Attempt::Done(answer) => {
                    self.prefer(progress.index);
                    return Ok(answer);
                }
                Attempt::Refused(problem) => return Err(progress.refused(&call, problem)),
                Attempt::NotYet(problem, after) => {
                    self.prefer(progress.index);
                    progress.answered(problem);
                    let early = started.elapsed() * 2 < call.held;
                    match waits {
                        Some(_) if deadline.is_none_or(|deadline| !left(deadline).is_zero()) => {}
                        _ => return Err(Error::TimedOut { last: progress.last }),
                    }
                    if early {
                        let pause = progress.backoff.pause(Some(after.unwrap_or(NOT_YET_PAUSE)));
                        tokio::time::sleep(deadline.map_or(pause, |deadline| pause.min(left(deadline)))).await;
                    }
                    continue;
                }
                Attempt::Later(problem, after) => {
                    progress.unknown |= call.mutation && problem.code == Code::OutcomeUnknown;
                    let why = problem.to_string();
                    progress.last = Some(Box::new(problem));
                    (why, after)
                }
                Attempt::Lost { why, sent } => {
                    progress.unknown |= call.mutation && sent;
                    progress.last = None;
                    (why, None)
                }
            };
            self.pause(&mut progress, deadline, why, asked).await?;
        }
    }

    /// After trouble: on to the next address, with a pause once all have had
    /// their turn, or the end of patience.
    async fn pause(
        &self,
        progress: &mut Progress,
        deadline: Option<Instant>,
        why: String,
        asked: Option<Duration>,
    ) -> Result<(), Error> {
        let now = Instant::now();
        let since = *progress.trouble_since.get_or_insert(now);
        let address = self.addresses[progress.index].clone();
        progress.index = (progress.index + 1) % self.addresses.len();
        progress.failed += 1;
        let pause = match progress.failed < self.addresses.len() {
            true => Duration::ZERO,
            false => {
                progress.failed = 0;
                progress.backoff.pause(asked)
            }
        };
        let end = deadline.unwrap_or(since + self.patience);
        if now + pause >= end {
            // Which one it was matters only where there are several.
            let why = if self.addresses.len() > 1 { format!("{address}: {why}") } else { why };
            return Err(self.give_up(progress, why));
        }
        tracing::debug!(address, why, pause_ms = pause.as_millis() as u64, "repeating a call");
        if let Some(listener) = &self.listener {
            listener(&Trouble { address, why, again_in: pause });
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn give_up(&self, progress: &mut Progress, why: String) -> Error {
        let last = progress.last.take();
        match progress.unknown {
            true => Error::Unknown { why, last },
            false => Error::Unreachable { addresses: self.addresses.to_vec(), why, last },
        }
    }
}

impl Progress {
    fn answered(&mut self, problem: Problem) {
        self.last = Some(Box::new(problem));
        // Whoever says "not yet" has taken the call.
        self.unknown = false;
        self.trouble_since = None;
        self.failed = 0;
        self.backoff.reset();
    }

    /// A refusal is final, unless the very call may have caused it: one whose
    /// first try was done, and whose repeat found it done.
    fn refused(&self, call: &Call, problem: Problem) -> Error {
        let by_itself = self.unknown && problem.code == Code::Precondition;
        let defect = call.mutation && problem.code == Code::Internal;
        let why = problem.to_string();
        match by_itself || defect {
            true => Error::Unknown { why, last: Some(Box::new(problem)) },
            false => Error::Refused(Box::new(problem)),
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
