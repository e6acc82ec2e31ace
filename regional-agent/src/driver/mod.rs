//! Drives the pure replica: carries out its outputs on the region's log and
//! feeds what comes of them back in.
//!
//! ```text
//!  Handle ──submit, read──▶ inbox ──▶ Driver ──step──▶ Replica (pure)
//!    ▲                        ▲         │
//!    │ answers                │         ├─▶ append · read head · catch up, follow · register
//!    └────────────────────────┴─────────┘        (tasks; each puts its result in the inbox)
//!                                       └─▶ effects ──▶ waiters, and News for the reporter
//! ```
//!
//! One task owns the replica's steps. Everybody else reads the state under a
//! lock that is held for the length of one step.

mod handle;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use muster_protocol::fact::AgentId;
use muster_protocol::identity::Writer;
use muster_protocol::region::{Effect, MACHINE_VERSION, Region};
use muster_protocol::replica::{Answer, Appended, Input, Logged, Output, Patience, Replica, Stop, Ticket};
use muster_telemetry::{TraceContext, metrics};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

pub use handle::{Handle, NoAnswer};

use crate::log::{RegionLog, Registered};
use crate::sessions::{End, EndedSessions};
use crate::waiters::Waiters;

/// Messages from outside that wait for the driver.
const INBOX_MAX: usize = 16_384;
/// Callers that the span of an append links to.
const LINKS_MAX: usize = 16;

/// The version of the region's machine that this process runs. A build with
/// failpoints can be told to run an older one, as an older build does:
/// `FAILPOINTS="agent.machine_version=return(1)"`.
pub(crate) fn machine_version() -> u16 {
    fail::fail_point!("agent.machine_version", |told| told
        .and_then(|version| version.parse().ok())
        .unwrap_or(MACHINE_VERSION));
    MACHINE_VERSION
}

/// How this process takes part in a region's log.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The region.
    pub region: muster_protocol::name::RegionName,
    /// This agent's configured name.
    pub agent_name: String,
    /// Where it can be reached.
    pub address: String,
    /// How long its lease lives without being kept alive.
    pub lease_ttl: Duration,
}

/// Something worth telling the coordinator.
#[derive(Clone, Debug)]
pub enum News {
    /// An entry was applied.
    Applied {
        /// What happened.
        effect: Effect,
        /// Whether telling is this process's turn.
        own: bool,
        /// What led to it.
        cause: Option<TraceContext>,
    },
    /// A snapshot put the region further on: anything may have happened.
    Restored,
}

pub(crate) enum Message {
    Submit(Vec<Submission>),
    Read(oneshot::Sender<Answer>),
    GiveUp(Ticket),
}

pub(crate) struct Submission {
    ticket: Ticket,
    command: muster_protocol::region::Command,
    trace: Option<TraceContext>,
    answer: oneshot::Sender<Answer>,
}

/// What tasks put back.
enum Event {
    Input(Input),
    /// From the task that catches up and follows, with which one it is: what a
    /// former one still says is no news.
    Follower(u64, Input),
    Registered(Arc<dyn Registered>),
}

/// What handles and the driver share.
pub(crate) struct Shared {
    pub(crate) replica: RwLock<Replica>,
    pub(crate) waiters: Waiters,
    pub(crate) ended_sessions: EndedSessions,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) registered: RwLock<Option<Arc<dyn Registered>>>,
}

/// How the replica is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether it follows the log, registered as a writer.
    pub following: bool,
    /// The last index applied.
    pub index: u64,
    /// Whether the log had no room for this process's last entry, and none has
    /// been seen since.
    pub full: bool,
    /// Why it has stopped for good.
    pub stopped: Option<Stop>,
}

struct Caller {
    answer: oneshot::Sender<Answer>,
    trace: Option<TraceContext>,
}

struct Driver {
    settings: Settings,
    log: Arc<dyn RegionLog>,
    shared: Arc<Shared>,
    news: mpsc::UnboundedSender<News>,
    events: mpsc::UnboundedSender<Event>,
    callers: HashMap<Ticket, Caller>,
    reads: u64,
    followers: u64,
    follower: Option<tokio::task::AbortHandle>,
    patience: Patience,
    tracker: TaskTracker,
}

/// Starts a replica of `log`. Its handle serves everybody; the news are for
/// the one who reports.
pub fn start(
    settings: Settings,
    log: Arc<dyn RegionLog>,
    blank: Region,
    shutdown: CancellationToken,
) -> (Handle, mpsc::UnboundedReceiver<News>, tokio::task::JoinHandle<()>) {
    let (inbox, messages) = mpsc::channel(INBOX_MAX);
    let (events, results) = mpsc::unbounded_channel();
    // Effects are few per entry, and the reporter keeps one state per
    // generation however many it is sent.
    let (news, told) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        replica: RwLock::new(Replica::new(blank).as_build_of(machine_version())),
        waiters: Waiters::new(settings.region.as_str()),
        ended_sessions: EndedSessions::default(),
        status: watch::Sender::new(Status::default()),
        registered: RwLock::new(None),
    });
    let driver = Driver {
        settings,
        log,
        shared: shared.clone(),
        news,
        events,
        callers: HashMap::new(),
        reads: 0,
        followers: 0,
        follower: None,
        patience: Patience::default(),
        tracker: TaskTracker::new(),
    };
    let task = tokio::spawn(driver.run(messages, results, shutdown));
    (Handle::new(shared, inbox), told, task)
}

impl Driver {
    async fn run(
        mut self,
        mut messages: mpsc::Receiver<Message>,
        mut results: mpsc::UnboundedReceiver<Event>,
        shutdown: CancellationToken,
    ) {
        let first = self.shared.read(Replica::start);
        self.carry_out(first);
        let mut timer = tokio::time::interval(Patience::PERIOD);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(event) = results.recv() => self.event(event),
                Some(message) = messages.recv() => self.message(message, &mut messages),
                _ = timer.tick() => self.look_for_overdue(),
            }
        }
        // Stepping down at once lets another agent take over without waiting
        // for the lease to run out.
        let registered = self.shared.take_registered();
        if let Some(registered) = registered {
            registered.release().await;
        }
        self.follower.iter().for_each(tokio::task::AbortHandle::abort);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Input(Input::RegistrationLost(writer)) => {
                warn!(region = %self.settings.region, %writer, "the lease on the region's log is lost; registering anew");
                self.shared.take_registered();
                self.step(Input::RegistrationLost(writer));
            }
            Event::Input(input) => {
                let full = matches!(input, Input::Appended { result: Appended::Full, .. });
                self.step(input);
                if full {
                    self.full();
                }
            }
            Event::Follower(follower, input) if follower == self.followers => self.step(input),
            Event::Follower(..) => {}
            Event::Registered(registered) => {
                let writer = registered.writer();
                self.shared.set_registered(registered.clone());
                tasks::watch_registration(registered, self.events.clone(), &self.tracker);
                info!(region = %self.settings.region, %writer, "registered on the region's log");
                self.step(Input::Registered(writer));
            }
        }
    }

    /// Takes the message and everything that waits behind it, so that a crowd
    /// shares one batch.
    fn message(&mut self, first: Message, rest: &mut mpsc::Receiver<Message>) {
        let mut next = Some(first);
        let mut outputs = Vec::new();
        while let Some(message) = next {
            match message {
                Message::Submit(submissions) => {
                    for submission in submissions {
                        let Submission { ticket, command, trace, answer } = submission;
                        self.callers.insert(ticket, Caller { answer, trace });
                        outputs.extend(self.shared.step(Input::Submitted { ticket, command: Box::new(command) }));
                    }
                }
                Message::Read(answer) => {
                    let ticket = self.read_ticket();
                    self.callers.insert(ticket, Caller { answer, trace: None });
                    outputs.extend(self.shared.step(Input::ReadRequested(ticket)));
                }
                Message::GiveUp(ticket) => outputs.extend(self.shared.step(Input::GivenUp(ticket))),
            }
            next = rest.try_recv().ok();
        }
        self.carry_out(outputs);
    }

    /// Reads have tickets of their own: nobody gives them up by number.
    fn read_ticket(&mut self) -> Ticket {
        self.reads += 1;
        Ticket(u64::MAX - self.reads)
    }

    fn step(&mut self, input: Input) {
        let outputs = self.shared.step(input);
        self.carry_out(outputs);
    }

    /// Something landed, or a read is due, and a whole period brought no
    /// entry: the hint was lost.
    fn look_for_overdue(&mut self) {
        let patience = &mut self.patience;
        if self.shared.read(|replica| patience.is_over(replica)) {
            self.step(Input::Overdue);
        }
    }

    fn carry_out(&mut self, outputs: Vec<Output>) {
        // Answers go first: callers, then those who wait, then the reporter.
        let mut cause = None;
        let mut effects = Vec::new();
        for output in outputs {
            match output {
                Output::Answer { ticket, answer } => {
                    if let Some(caller) = self.callers.remove(&ticket) {
                        cause = caller.trace.or(cause);
                        // A caller that has gone away needs no answer.
                        let _ = caller.answer.send(answer);
                    }
                }
                Output::Effect { effect, own } => effects.push((effect, own)),
                Output::Append { writer, seq, bytes, attempt } => self.append(writer, seq, bytes, attempt),
                Output::ReadHead => tasks::read_head(&self.log, &self.events, &self.tracker),
                Output::CatchUp { after } => self.catch_up(after),
                Output::Register => tasks::register(&self.settings, &self.log, &self.events, &self.tracker),
                Output::Restored => self.restored(),
                Output::Diverged { writer, index } => self.diverged(writer, index),
                Output::Stop(stop) => self.stopped(stop),
            }
        }
        for (effect, own) in effects {
            self.tell(effect, own, cause.clone());
        }
        self.shared.publish_status();
    }

    fn append(&self, writer: Writer, seq: u64, bytes: Vec<u8>, attempt: u32) {
        let span = self.append_span(seq);
        let append = tasks::Append { writer, seq, bytes, attempt, span };
        tasks::append(&self.settings.region, &self.log, &self.events, &self.tracker, append);
    }

    /// An append serves many callers: it stands in the first one's trace, and
    /// links to some of the others.
    fn append_span(&self, seq: u64) -> tracing::Span {
        let tickets: Vec<Ticket> = self.shared.read(|replica| replica.tickets(seq).collect());
        let span = tracing::info_span!("append", region = %self.settings.region, seq, commands = tickets.len());
        let mut traces = tickets.iter().filter_map(|ticket| self.callers.get(ticket)?.trace.as_ref());
        if let Some(first) = traces.next() {
            first.set_parent(&span);
        }
        traces.take(LINKS_MAX).for_each(|trace| trace.link(&span));
        span
    }

    fn catch_up(&mut self, after: u64) {
        self.followers += 1;
        self.follower.iter().for_each(tokio::task::AbortHandle::abort);
        let follower = tasks::follow(&self.settings.region, &self.log, &self.events, self.followers, after);
        self.follower = Some(follower);
        metrics::catch_ups(self.settings.region.as_str().to_owned()).increment(1);
    }

    /// Said once, until the log has taken an entry again.
    fn full(&self) {
        let news = self.shared.status.send_if_modified(|status| !std::mem::replace(&mut status.full, true));
        if news {
            warn!(region = %self.settings.region, "the region's log has no room; what would be written is refused");
        }
    }

    fn diverged(&self, writer: Writer, index: u64) {
        metrics::replica_divergences(self.settings.region.as_str().to_owned()).increment(1);
        metrics::invariant_violations("I12").increment(1);
        error!(region = %self.settings.region, %writer, index,
            "another agent's replica differs from this one, which was read anew and came to the same: stop that agent");
    }

    fn restored(&self) {
        self.shared.waiters.wake_all();
        let _ = self.news.send(News::Restored);
    }

    fn stopped(&self, stop: Stop) {
        error!(region = %self.settings.region, %stop, "this replica has stopped");
        self.shared.status.send_modify(|status| status.stopped = Some(stop));
        self.shared.waiters.wake_all();
    }

    fn tell(&self, effect: Effect, own: bool, cause: Option<TraceContext>) {
        match &effect {
            Effect::Opened { barrier, .. } => self.shared.waiters.opened(barrier),
            Effect::Changed { barrier, n, .. } => self.shared.waiters.progressed(barrier, *n),
            Effect::Ended { barrier, n } => self.shared.waiters.ended(barrier, *n, cause.as_ref()),
            Effect::Conflict { barrier, n } => {
                metrics::invariant_violations("I2").increment(1);
                error!(region = %self.settings.region, %barrier, n,
                    "a second, different fact was heard for one generation; the first one stays");
            }
            Effect::SessionEnded { session, fenced } => {
                self.shared.ended_sessions.note(*session, if *fenced { End::Fenced } else { End::Lost });
            }
            Effect::NameTaken { generation } => warn!(region = %self.settings.region, %generation,
                "the coordinator opened a barrier whose name is one of this region's own; it breaks there"),
            Effect::TookOver { .. } => {}
        }
        // The reporter ends only with the process.
        let _ = self.news.send(News::Applied { effect, own, cause });
    }
}

impl Shared {
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Replica) -> T) -> T {
        read(&self.replica.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// A step that panicked would leave a state that is neither before nor
    /// after it; the poisoned lock is therefore not ignored here.
    fn step(&self, input: Input) -> Vec<Output> {
        match self.replica.write() {
            Ok(mut replica) => replica.step(input),
            Err(_) => Vec::new(),
        }
    }

    fn publish_status(&self) {
        let (following, index) = self.read(|r| (r.is_following() && r.writer().is_some(), r.region().index()));
        self.status.send_if_modified(|status| {
            let changed = (status.following, status.index) != (following, index);
            status.full &= status.index == index;
            (status.following, status.index) = (following, index);
            changed
        });
    }

    fn set_registered(&self, registered: Arc<dyn Registered>) {
        *self.registered.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(registered);
    }

    fn take_registered(&self) -> Option<Arc<dyn Registered>> {
        self.registered.write().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

impl From<crate::log::RawEntry> for Logged {
    fn from(raw: crate::log::RawEntry) -> Self {
        let crate::log::RawEntry { index, writer, seq, bytes } = raw;
        Self { index, writer, seq, bytes }
    }
}

/// A new life of this process, as the log and the coordinator know it.
pub(crate) fn new_instance(name: &str) -> AgentId {
    AgentId { name: name.to_owned(), instance: format!("{:016x}", rand::random::<u64>()) }
}
