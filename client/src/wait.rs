//! Waiting for a release. Nothing but a release comes back as one.

use std::time::Duration;

use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use muster_protocol::generation::State;
use muster_wire::answer::Released;
use muster_wire::code::Code;
use tokio::time::Instant;

use crate::call::{Call, json};
use crate::{Client, Error, Target};

/// How often a definition that is awaited is looked for.
const DEFINITION_PAUSE: Duration = Duration::from_secs(1);

/// How to wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    /// When to give up; `None` waits for as long as it takes.
    pub until: Option<Instant>,
    /// Wait for a barrier or a generation that does not exist yet, too.
    pub await_definition: bool,
}

impl Client {
    /// Waits until the generation is released. Services may stop and start
    /// meanwhile, and connections break.
    ///
    /// # Errors
    /// `broken` when it ended otherwise; timed out; unreachable.
    pub async fn wait(&self, target: &Target, until: Option<Instant>) -> Result<Released, Error> {
        let target = self.resolve(target).await?;
        let mut call = Call::get(format!("{}/wait", target.path()));
        call.answers = &[200];
        self.call_waiting(call, until, released).await
    }

    /// [`wait`](Self::wait), for what may not be defined yet as well.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub async fn wait_as(&self, target: &Target, how: Waiting) -> Result<Released, Error> {
        loop {
            match self.wait(target, how.until).await {
                Err(Error::Refused(problem))
                    if how.await_definition && matches!(problem.code, Code::NotDefined | Code::NoSuchGeneration) =>
                {
                    let left = how.until.map(|until| until.saturating_duration_since(Instant::now()));
                    if left.is_some_and(|left| left.is_zero()) {
                        return Err(Error::TimedOut { last: Some(problem) });
                    }
                    tokio::time::sleep(left.map_or(DEFINITION_PAUSE, |left| left.min(DEFINITION_PAUSE))).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits until all are released; the first that is not ends it.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), of the first.
    pub async fn wait_all(&self, targets: &[Target], how: Waiting) -> Result<Vec<Released>, Error> {
        try_join_all(targets.iter().map(|target| self.wait_as(target, how))).await
    }

    /// Waits until one is released, though others break.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), of the last, when none was released.
    pub async fn wait_any(&self, targets: &[Target], how: Waiting) -> Result<Released, Error> {
        let mut waits: FuturesUnordered<_> = targets.iter().map(|target| self.wait_as(target, how)).collect();
        let mut error = Error::TimedOut { last: None };
        while let Some(outcome) = waits.next().await {
            match outcome {
                Ok(released) => return Ok(released),
                Err(other) => error = other,
            }
        }
        Err(error)
    }
}

/// Reads the body of a yes. One that does not say so itself is none.
pub(crate) fn released(body: &[u8]) -> Result<Released, String> {
    let released: Released = json(body)?;
    match released.state {
        State::Released | State::Releasing => Ok(released),
        other => Err(format!("the state is {}", other.as_str())),
    }
}
