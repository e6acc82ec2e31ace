//! What the rest of the agent holds of its replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_protocol::region::{Command, Region, Reply};
use muster_protocol::replica::{Answer, NotDone, Ticket};
use muster_telemetry::TraceContext;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Message, Shared, Status, Submission};
use crate::sessions::EndedSessions;
use crate::waiters::Waiters;

/// How long a caller waits for a command's answer before it gives up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no reply. The first kind is certain, the second is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// Not done, and it never will be.
    NotDone(NotDone),
    /// It may or may not be done.
    Unknown,
}

/// A replica's handle. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    inbox: mpsc::Sender<Message>,
    tickets: Arc<AtomicU64>,
}

impl Handle {
    pub(super) fn new(shared: Arc<Shared>, inbox: mpsc::Sender<Message>) -> Self {
        Self { shared, inbox, tickets: Arc::new(AtomicU64::new(1)) }
    }

    /// Puts a command on the region's log; the reply follows its application
    /// here.
    pub async fn submit(&self, command: Command, trace: Option<TraceContext>) -> Result<Reply, NoAnswer> {
        let mut replies = self.submit_all(vec![command], trace).await;
        replies.pop().unwrap_or(Err(NoAnswer::Unknown))
    }

    /// Puts commands on the log, in order, and answers each.
    pub async fn submit_all(
        &self,
        commands: Vec<Command>,
        trace: Option<TraceContext>,
    ) -> Vec<Result<Reply, NoAnswer>> {
        let count = commands.len();
        let first = self.tickets.fetch_add(count as u64, Ordering::Relaxed);
        let (submissions, answers): (Vec<_>, Vec<_>) = commands
            .into_iter()
            .zip(first..)
            .map(|(command, ticket)| {
                let (answer, receive) = oneshot::channel();
                let ticket = Ticket(ticket);
                (Submission { ticket, command, trace: trace.clone(), answer }, (ticket, receive))
            })
            .unzip();
        if self.inbox.try_send(Message::Submit(submissions)).is_err() {
            return vec![Err(NoAnswer::NotDone(NotDone::Busy)); count];
        }
        let deadline = tokio::time::Instant::now() + ANSWER_TIMEOUT;
        let mut replies = Vec::with_capacity(count);
        for (ticket, answer) in answers {
            replies.push(self.answer(ticket, answer, deadline).await);
        }
        replies
    }

    async fn answer(
        &self,
        ticket: Ticket,
        mut answer: oneshot::Receiver<Answer>,
        deadline: tokio::time::Instant,
    ) -> Result<Reply, NoAnswer> {
        let answer = match tokio::time::timeout_at(deadline, &mut answer).await {
            Ok(answer) => answer,
            // The replica knows whether it was ever sent.
            Err(_) => match self.inbox.send(Message::GiveUp(ticket)).await {
                Ok(()) => answer.await,
                Err(_) => return Err(NoAnswer::Unknown),
            },
        };
        match answer {
            Ok(Answer::Reply(reply)) => Ok(reply),
            Ok(Answer::NotDone(why)) => Err(NoAnswer::NotDone(why)),
            Ok(Answer::Unknown | Answer::Fresh { .. }) | Err(_) => Err(NoAnswer::Unknown),
        }
    }

    /// Returns once the state is not older than now: what was acknowledged by
    /// any agent before this call is in it.
    pub async fn fresh(&self) -> Result<(), NoAnswer> {
        let (answer, receive) = oneshot::channel();
        let unavailable = NoAnswer::NotDone(NotDone::Unavailable);
        self.inbox.send(Message::Read(answer)).await.map_err(|_| unavailable)?;
        match tokio::time::timeout(ANSWER_TIMEOUT, receive).await {
            Ok(Ok(Answer::Fresh { .. })) => Ok(()),
            Ok(Ok(Answer::NotDone(why))) => Err(NoAnswer::NotDone(why)),
            _ => Err(unavailable),
        }
    }

    /// Reads the region's state as this replica has it.
    pub fn read<T>(&self, read: impl FnOnce(&Region) -> T) -> T {
        self.shared.read(|replica| read(replica.region()))
    }

    /// Reads the replica.
    pub fn replica<T>(&self, read: impl FnOnce(&muster_protocol::replica::Replica) -> T) -> T {
        self.shared.read(read)
    }

    /// Who waits for what.
    #[must_use]
    pub fn waiters(&self) -> &Waiters {
        &self.shared.waiters
    }

    /// Why sessions ended, as far as this process saw it.
    pub(crate) fn ended_sessions(&self) -> &EndedSessions {
        &self.shared.ended_sessions
    }

    /// How the replica is doing, and every change of that.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// For how long from now this process's lease is proven to live.
    #[must_use]
    pub fn proven_for(&self) -> Duration {
        let registered = self.shared.registered.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        registered.as_ref().map_or(Duration::ZERO, |registered| registered.proven_for())
    }
}
