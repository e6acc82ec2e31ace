//! Sessions: a client says that it works for participants, and goes on saying
//! it. Who falls silent is lost, and knows it before anybody else does.
//!
//! ```text
//!            ┌── answered ◀──┐
//!            ▼               │
//! open ──▶ alive ──every ttl/3, to any address──▶ fenced      another took over
//!            │  ╲                                └▶ lost       the region says so
//!            │   └── nothing answered for 9/10 of ttl, by this
//!            │       process's clock, from when what was answered
//!            ▼       last was sent ─────────────▶ lost
//!         closed
//! ```
//!
//! A region counts `ttl` from when it takes a heartbeat, which is never before
//! it was sent: so a process has stopped, or was told to, before its place is
//! given away.

use std::time::Duration;

use http::Method;
use muster_protocol::identity::SessionId;
use muster_protocol::name::RegionName;
use muster_wire::answer::{HeartbeatTaken, Session as Opened, SessionWork};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request::{Heartbeat, OpenSession};
use muster_wire::time::format_duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::call::{Attempt, Call, json};
use crate::{Client, Error};

/// What is left of `ttl` for whoever works to stop in.
const MARGIN: f64 = 0.1;
/// A server's word is taken within these bounds.
const TTL_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(24 * 3_600));

impl Client {
    /// Opens a session. A repeat with the same id opens nothing twice.
    ///
    /// # Errors
    /// `not-expected`, `already-decided`, `broken` …
    pub async fn open_session(&self, open: &OpenSession) -> Result<Opened, Error> {
        self.call(Call::new(Method::POST, "/v1/sessions").json(open), json).await
    }

    /// Says that a session lives. At a coordinator its region must be told.
    ///
    /// # Errors
    /// `fenced` when another session took over, `session-lost` when it was
    /// silent for too long.
    pub async fn heartbeat(
        &self,
        session: SessionId,
        region: Option<&RegionName>,
        progress: Option<&str>,
    ) -> Result<HeartbeatTaken, Error> {
        self.call(heartbeat(session, region, progress), json).await
    }

    /// Ends a session. Nobody is lost: whoever it worked for and has not arrived
    /// is missing again.
    ///
    /// # Errors
    /// Nobody answered.
    pub async fn close_session(&self, session: SessionId, region: Option<&RegionName>) -> Result<(), Error> {
        let call = Call::new(Method::DELETE, format!("/v1/sessions/{session}")).query_if("region", region);
        self.call(call, |_| Ok(())).await
    }

    /// Opens a session and keeps it alive until it is closed or dropped.
    ///
    /// # Errors
    /// As [`open_session`](Self::open_session).
    pub async fn session(&self, mut open: OpenSession) -> Result<Session, Error> {
        // Chosen here, so that a repeat opens nothing twice.
        let id = *open.id.get_or_insert_with(Session::new_id);
        let sent = Instant::now();
        let opened = self.open_session(&open).await?;
        let (told, state) = watch::channel(SessionState::Alive);
        let (progress, news) = watch::channel(None);
        let pulse = Pulse {
            client: self.clone(),
            id,
            region: open.region.clone(),
            ttl: bounded(opened.ttl_seconds),
            answered: sent,
            index: self.preferred(),
            progress: news,
        };
        let task = tokio::spawn(async move {
            let over = pulse.beat().await;
            told.send_replace(SessionState::Over(Box::new(over)));
        });
        Ok(Session { client: self.clone(), id, region: open.region, opened, state, progress, task })
    }
}

fn heartbeat(session: SessionId, region: Option<&RegionName>, progress: Option<&str>) -> Call {
    let body = Heartbeat { progress: progress.map(str::to_owned) };
    Call::new(Method::PUT, format!("/v1/sessions/{session}/heartbeat")).query_if("region", region).json(&body)
}

fn bounded(ttl_seconds: f64) -> Duration {
    let (least, most) = TTL_BOUNDS;
    Duration::try_from_secs_f64(ttl_seconds).unwrap_or(least).clamp(least, most)
}

/// Whether a session lives.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionState {
    /// It was heard within its time.
    Alive,
    /// It is over, and its work must stop: `fenced` or `session-lost`.
    Over(Box<Problem>),
}

/// A session that is kept alive. Dropped, it falls silent; [`close`](Self::close)
/// tells its region at once.
#[derive(Debug)]
pub struct Session {
    client: Client,
    id: SessionId,
    region: Option<RegionName>,
    opened: Opened,
    state: watch::Receiver<SessionState>,
    progress: watch::Sender<Option<String>>,
    task: JoinHandle<()>,
}

impl Session {
    /// A name that no other session has, to open one with.
    #[must_use]
    pub fn new_id() -> SessionId {
        SessionId(rand::random())
    }

    /// Its name, to arrive with.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whom it works for, in the order they were given, with their attempts.
    #[must_use]
    pub fn participants(&self) -> &[SessionWork] {
        &self.opened.participants
    }

    /// Whether it lives, now and whenever that changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<SessionState> {
        self.state.clone()
    }

    /// Waits until it is over, and says why.
    pub async fn over(&self) -> Problem {
        let mut state = self.state.clone();
        let over = state.wait_for(|state| matches!(state, SessionState::Over(_))).await.map(|state| state.clone());
        match over {
            Ok(SessionState::Over(problem)) => *problem,
            _ => Problem::new(Code::SessionLost, "the session's heartbeats have ended"),
        }
    }

    /// Tells people how far the work has come, with the next heartbeat.
    pub fn tell_progress(&self, progress: impl Into<String>) {
        self.progress.send_replace(Some(progress.into()));
    }

    /// Ends it: whoever has not arrived is missing again, not lost.
    ///
    /// # Errors
    /// Nobody answered; then it falls silent by itself.
    pub async fn close(self) -> Result<(), Error> {
        self.task.abort();
        self.client.close_session(self.id, self.region.as_ref()).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The heartbeats of one session.
pub(crate) struct Pulse {
    pub(crate) client: Client,
    pub(crate) id: SessionId,
    pub(crate) region: Option<RegionName>,
    pub(crate) ttl: Duration,
    /// When the heartbeat that was answered last was sent.
    pub(crate) answered: Instant,
    pub(crate) index: usize,
    pub(crate) progress: watch::Receiver<Option<String>>,
}

impl Pulse {
    /// When this process must take the session for lost.
    pub(crate) fn end(&self) -> Instant {
        self.answered + self.ttl.mul_f64(1.0 - MARGIN)
    }

    /// Sends heartbeats until the session is over, and says why it is.
    pub(crate) async fn beat(mut self) -> Problem {
        loop {
            // Counted from the last one that was answered: after a slow answer
            // the next is due at once.
            sleep_until((self.answered + self.ttl / 3).min(self.end())).await;
            if let Err(over) = self.renew().await {
                return over;
            }
        }
    }

    /// One heartbeat, at every address in turn, until one is answered or time is
    /// up.
    async fn renew(&mut self) -> Result<(), Problem> {
        let mut backoff = Backoff::default();
        let mut failed = 0;
        let mut why = "no heartbeat was sent in time".to_owned();
        loop {
            let sent = Instant::now();
            let left = self.end().saturating_duration_since(sent);
            if left.is_zero() {
                return Err(self.lost(&why));
            }
            // A silent address must leave time for the next one.
            let patience = left.min(self.ttl / 6);
            let call = heartbeat(self.id, self.region.as_ref(), self.progress.borrow_and_update().as_deref());
            let address = self.client.addresses()[self.index].clone();
            match self.client.attempt(&address, &call, &json::<HeartbeatTaken>, Some(patience)).await {
                Attempt::Done(taken) => {
                    (self.answered, self.ttl) = (sent, bounded(taken.ttl_seconds));
                    return Ok(());
                }
                Attempt::Refused(problem) if matches!(problem.code, Code::Fenced | Code::SessionLost) => {
                    return Err(problem);
                }
                Attempt::Refused(problem) | Attempt::NotYet(problem, _) | Attempt::Later(problem, _) => {
                    why = problem.to_string();
                }
                Attempt::Lost { why: lost, .. } => why = lost,
            }
            tracing::debug!(address, why, "a heartbeat was not taken");
            self.index = (self.index + 1) % self.client.addresses().len();
            failed += 1;
            if failed % self.client.addresses().len() == 0 {
                sleep_until((Instant::now() + backoff.pause(None)).min(self.end())).await;
            }
        }
    }

    fn lost(&self, why: &str) -> Problem {
        let silent = format_duration(self.answered.elapsed());
        let ttl = format_duration(self.ttl);
        Problem::new(
            Code::SessionLost,
            format!("no heartbeat was answered for {silent} of the {ttl} a session may be silent: {why}"),
        )
        .hint("stop working: another may take the place; start again with a new session")
    }
}
