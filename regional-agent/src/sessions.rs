//! The sessions whose heartbeats this agent takes, as
//! [`muster_protocol::heartbeats`] says: looks who fell silent and says so on
//! the region's log, keeps the state fresh enough to acknowledge heartbeats,
//! and remembers for a while why a session ended.
//!
//! Nothing expires by a stop: the sessions of an agent that stops may move to
//! another one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_protocol::heartbeats::{Footing, Heartbeats, LOOK_INTERVAL, Took};
use muster_protocol::identity::SessionId;
use muster_protocol::region::{Command, Refusal, Reply};
use muster_telemetry::TraceContext;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::driver::{Handle, NoAnswer};
use crate::log::boot_clock;

/// Sessions that ended and are remembered.
const ENDED_MAX: usize = 10_000;

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It fell silent, its client ended it, or it never was.
    Lost,
    /// A later session works for its participants.
    Fenced,
}

/// What became of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    /// It counts.
    Taken {
        /// How long the session may be silent.
        ttl: Duration,
    },
    /// The session is over.
    Over(End),
    /// This agent can't tell whether it still hears the session.
    Unsure,
    /// The log did not answer.
    NoAnswer(NoAnswer),
}

/// Sessions that fenced or silent ones have become; the oldest are forgotten.
#[derive(Debug, Default)]
pub(crate) struct EndedSessions(Mutex<(HashMap<SessionId, End>, VecDeque<SessionId>)>);

impl EndedSessions {
    pub(crate) fn note(&self, session: SessionId, end: End) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ends, order) = &mut *kept;
        if ends.insert(session, end).is_none() {
            order.push_back(session);
        }
        if order.len() > ENDED_MAX
            && let Some(oldest) = order.pop_front()
        {
            ends.remove(&oldest);
        }
    }

    pub(crate) fn end(&self, session: SessionId) -> End {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0.get(&session).copied().unwrap_or(End::Lost)
    }
}

/// This agent's sessions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Sessions {
    handle: Handle,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    heartbeats: Heartbeats,
    /// What clients say of how far they have come.
    progress: BTreeMap<SessionId, String>,
}

impl Sessions {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, kept: Arc::default() }
    }

    /// Locked only after the region's state, where both are: those who read the
    /// state ask for what is kept here.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn footing(&self) -> Footing {
        // The proof is read after the clock: it may only be shorter than it says.
        let now = boot_clock::now();
        let writer = self.handle.replica(muster_protocol::replica::Replica::writer);
        Footing { writer, proven_for: self.handle.proven_for(), now }
    }

    /// Looks after the sessions until the stop begins.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut interval = tokio::time::interval(LOOK_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let look = async {
            loop {
                interval.tick().await;
                self.look().await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = look => {}
        }
    }

    async fn look(&self) {
        // Without a session of its own there is nothing to be sure of.
        let owns = self.handle.replica(|replica| {
            let writer = replica.writer();
            writer.is_some() && replica.region().sessions().any(|(_, session)| session.owner == writer)
        });
        if !owns && !self.kept().heartbeats.has_any() {
            return;
        }
        let began = boot_clock::now();
        let fresh = self.handle.fresh().await.is_ok();
        let footing = self.footing();
        let expired = self.handle.read(|region| {
            let mut kept = self.kept();
            if fresh {
                kept.heartbeats.read_at(began);
            }
            let Kept { heartbeats, progress } = &mut *kept;
            let expired = heartbeats.look(region, footing);
            progress.retain(|session, _| heartbeats.last_heard(*session).is_some());
            expired
        });
        if expired.is_empty() {
            return;
        }
        info!(count = expired.len(), "sessions fell silent");
        for reply in self.handle.submit_all(expired, None).await {
            debug!(?reply, "a session that fell silent");
        }
    }

    /// Puts a command of a session on the log. Its reply proves how fresh the
    /// state is.
    pub(crate) async fn submit(&self, command: Command) -> Result<Reply, NoAnswer> {
        let began = boot_clock::now();
        let reply = self.handle.submit(command, TraceContext::current()).await;
        if reply.is_ok() {
            self.kept().heartbeats.read_at(began);
        }
        reply
    }

    /// A client says that it lives.
    pub(crate) async fn heartbeat(&self, session: SessionId, progress: Option<String>) -> Heartbeat {
        match self.take(session) {
            Took::Attach => return self.attach(session, progress).await,
            Took::Unknown | Took::Unsure => {
                let began = boot_clock::now();
                if let Err(none) = self.handle.fresh().await {
                    return Heartbeat::NoAnswer(none);
                }
                self.kept().heartbeats.read_at(began);
            }
            Took::Acknowledged { ttl_ms } => return self.taken(session, ttl_ms, progress),
        }
        match self.take(session) {
            Took::Attach => self.attach(session, progress).await,
            Took::Acknowledged { ttl_ms } => self.taken(session, ttl_ms, progress),
            Took::Unsure => Heartbeat::Unsure,
            Took::Unknown => Heartbeat::Over(self.handle.ended_sessions().end(session)),
        }
    }

    fn take(&self, session: SessionId) -> Took {
        let footing = self.footing();
        self.handle.read(|region| self.kept().heartbeats.heartbeat(session, region, footing))
    }

    async fn attach(&self, session: SessionId, progress: Option<String>) -> Heartbeat {
        match self.submit(Command::AttachSession(session)).await {
            Ok(Reply::Refused(Refusal::SessionLost)) => Heartbeat::Over(self.handle.ended_sessions().end(session)),
            Ok(_) => match self.take(session) {
                Took::Acknowledged { ttl_ms } => self.taken(session, ttl_ms, progress),
                // Another agent was as quick.
                Took::Attach | Took::Unsure | Took::Unknown => Heartbeat::Unsure,
            },
            Err(none) => Heartbeat::NoAnswer(none),
        }
    }

    fn taken(&self, session: SessionId, ttl_ms: u64, progress: Option<String>) -> Heartbeat {
        if let Some(progress) = progress {
            self.kept().progress.insert(session, progress);
        }
        Heartbeat::Taken { ttl: Duration::from_millis(ttl_ms) }
    }

    /// How long ago a session was heard, if this agent hears it.
    pub(crate) fn last_seen(&self, session: SessionId) -> Option<Duration> {
        let heard = self.kept().heartbeats.last_heard(session)?;
        Some(boot_clock::now().saturating_sub(heard))
    }

    /// What a session's client said last of how far it has come.
    pub(crate) fn progress(&self, session: SessionId) -> Option<String> {
        self.kept().progress.get(&session).cloned()
    }
}
