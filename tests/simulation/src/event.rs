//! What can happen, and to whom. Messages are values: one that is lost, late or
//! doubled is one that is dropped, queued late or cloned.

use std::time::Duration;

use muster_protocol::fact::{Fact, Heartbeat, Hello, Welcome};
use muster_protocol::global::{self, Command, Step};
use muster_protocol::identity::{Epoch, History, SessionId, Writer};
use muster_protocol::name::{BarrierName, Key, ParticipantId, RegionName};
use muster_protocol::outcome::Outcome;
use muster_protocol::region::{ArrivalOutcome, Refusal};
use muster_protocol::replica::{Appended, Logged, Ticket};
use muster_protocol::report::RegionReport;

use crate::log::Listed;
use crate::store::{Looked, Seen};

/// One event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Agent {
        agent: usize,
        life: u32,
        what: ToAgent,
    },
    Coordinator {
        coordinator: usize,
        life: u32,
        what: ToCoordinator,
    },
    Client {
        client: usize,
        what: ToClient,
    },
    Log {
        region: usize,
        /// The life of the log that is meant.
        history: History,
        agent: usize,
        life: u32,
        call: u64,
        request: LogRequest,
    },
    Store {
        coordinator: usize,
        life: u32,
        call: u64,
        request: StoreRequest,
    },
    /// A record reached the bus.
    Up(Up),
    /// A record reached the bus.
    Down(Down),
    /// Leases may have run out.
    Leases {
        region: usize,
    },
    Fault(Fault),
}

/// What an agent meets.
#[derive(Clone, Debug)]
pub(crate) enum ToAgent {
    Start,
    Tick,
    Answered {
        call: u64,
        answer: LogAnswer,
    },
    /// A call got no answer in time.
    Unanswered {
        call: u64,
    },
    /// A call whose pause has passed.
    Send {
        call: u64,
        request: LogRequest,
    },
    Followed {
        follower: u64,
        entry: Box<Logged>,
    },
    FollowerLost {
        follower: u64,
    },
    Heard(Box<Down>),
    FactLeft(Box<Fact>),
    GiveUp(Ticket),
    Asked(Box<Asked>),
    /// A held or waiting call's time is up.
    Patience {
        call: u64,
    },
}

/// What a coordinator meets.
#[derive(Clone, Debug)]
pub(crate) enum ToCoordinator {
    Start,
    Tick,
    Read(Box<Up>),
    Answered {
        call: u64,
        answer: StoreAnswer,
    },
    Unanswered {
        call: u64,
    },
    /// Try again what is at hand.
    Again,
    Asked(Box<Asked>),
}

/// What a client meets.
#[derive(Clone, Debug)]
pub(crate) enum ToClient {
    /// It goes on with what it does.
    Go,
    Told {
        call: u64,
        said: Box<Said>,
    },
    /// A call got no answer in time.
    Silence {
        call: u64,
    },
    /// The next heartbeat of a session is due.
    Beat {
        session: SessionId,
    },
}

/// A call of a client.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) call: u64,
    pub(crate) client: usize,
    pub(crate) what: Ask,
}

/// Which generation a client means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Number(u64),
    Key(Key),
}

/// What a client asks of an agent or a coordinator.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Arrive {
        barrier: BarrierName,
        which: Which,
        who: ParticipantId,
        attempt: u32,
        outcome: ArrivalOutcome,
        session: Option<SessionId>,
    },
    OpenSession {
        barrier: BarrierName,
        which: Which,
        who: ParticipantId,
        id: SessionId,
        ttl_ms: u64,
    },
    Heartbeat {
        session: SessionId,
    },
    CloseSession {
        session: SessionId,
    },
    Withdraw {
        barrier: BarrierName,
        which: Which,
        who: ParticipantId,
        attempt: u32,
    },
    Wait {
        barrier: BarrierName,
        which: Which,
    },
    /// What gathers now, or what there is of a key.
    Look {
        barrier: BarrierName,
        key: Option<Key>,
    },
    /// Something for the machine of a barrier.
    Decide {
        barrier: BarrierName,
        command: Box<Command>,
        dry_run: bool,
    },
    /// To take another life of a region's log for the one that counts.
    Adopt {
        region: RegionName,
        history: History,
    },
}

/// What a client is told.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Arrived {
        n: u64,
    },
    Withdrawn,
    Opened {
        n: u64,
        ttl_ms: u64,
        attempt: u32,
        /// It has arrived already.
        done: bool,
    },
    /// A heartbeat counts.
    Heard {
        ttl_ms: u64,
    },
    /// There is no such session any more.
    Over,
    Refused(Refusal),
    /// Not done, and it never will be.
    NotDone,
    /// Done or not.
    Unknown,
    /// Not open here yet.
    Behind,
    StillGathering,
    Ended(Box<Outcome>),
    Looked(Looked),
    /// What a coordinator answered.
    Step(Box<Step>),
    /// The life of a region's log that was to be adopted counts.
    Adopted,
    /// What a barrier of regional scope answered.
    Regional(Box<Result<global::Reply, global::Refusal>>),
}

/// What an agent asks of its region's log.
#[derive(Clone, Debug)]
pub(crate) enum LogRequest {
    Register {
        machine_version: u16,
    },
    KeepAlive {
        writer: Writer,
        sent_at: Duration,
    },
    /// `seen` is the highest index this process has seen of the log.
    Append {
        writer: Writer,
        seq: u64,
        bytes: Vec<u8>,
        seen: u64,
    },
    Head,
    CatchUp {
        after: u64,
        follower: u64,
    },
    Campaign {
        writer: Writer,
    },
    Registrations,
    List {
        index: u64,
    },
    PutChunk {
        epoch: Epoch,
        index: u64,
        number: usize,
        bytes: Vec<u8>,
    },
    PutManifest {
        epoch: Epoch,
        index: u64,
        listed: Listed,
        bytes: usize,
    },
    Truncate {
        index: u64,
        covered: u64,
    },
}

/// What the log answers.
#[derive(Clone, Debug)]
pub(crate) enum LogAnswer {
    Registered(Writer),
    KeptAlive {
        writer: Writer,
        sent_at: Duration,
        lives: bool,
    },
    Appended(Appended),
    Head(u64),
    CaughtUp {
        snapshot: Option<Vec<u8>>,
        entries: Vec<Logged>,
        head: u64,
    },
    Elected(Option<Epoch>),
    /// Each with the machine version that it announced.
    Registrations(Vec<(Writer, u16)>),
    Listed(Listed),
    Put(bool),
    Truncated,
}

/// What a coordinator asks of the store.
#[derive(Clone, Debug)]
pub(crate) enum StoreRequest {
    /// A transaction begins; it waits for its locks a moment.
    Begin {
        batch: Vec<(BarrierName, Command)>,
    },
    /// It has them.
    Commit {
        batch: Vec<(BarrierName, Command)>,
        seen: Box<Seen>,
    },
    DryRun {
        batch: Vec<(BarrierName, Command)>,
    },
    Hello(Box<Hello>),
    Heartbeats(Vec<Heartbeat>),
    Unanswered {
        only: Option<RegionName>,
    },
    Due,
    Look {
        barrier: BarrierName,
        key: Option<Key>,
    },
    Adopt {
        region: RegionName,
        history: History,
    },
}

/// What the store answers.
#[derive(Clone, Debug)]
pub(crate) enum StoreAnswer {
    Steps(Vec<Step>),
    Welcome(Box<Welcome>),
    /// Those that have not heard of this era.
    Heard(Vec<Welcome>),
    Unanswered(Vec<(RegionName, Fact)>),
    Due(Vec<(BarrierName, Command)>),
    Looked(Looked),
    /// Whether that changed anything, if the life of the log is known.
    Adopted(Option<bool>),
}

/// A record on its way up.
#[derive(Clone, Debug)]
pub(crate) enum Up {
    Hello(Hello),
    Heartbeat(Heartbeat),
    Report(Box<RegionReport>),
}

/// A record on its way down.
#[derive(Clone, Debug)]
pub(crate) enum Down {
    Welcome(Welcome),
    Fact(Fact),
}

/// What breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    CrashAgent {
        agent: usize,
        back_after: Duration,
    },
    CrashCoordinator {
        coordinator: usize,
        back_after: Duration,
    },
    PauseAgent {
        agent: usize,
        lasts: Duration,
    },
    PauseCoordinator {
        coordinator: usize,
        lasts: Duration,
    },
    /// A pause is over: agents come first, then coordinators.
    Wake {
        sleeper: usize,
    },
    /// Some link, some ways, for a while.
    Cut {
        link: crate::network::Link,
        there: bool,
        back: bool,
        lasts: Duration,
    },
    /// Whoever leads a region, from its log, beyond its lease.
    CutLeader {
        region: usize,
        lasts: Duration,
    },
    /// The followers of a region's log are over, as after a compaction.
    Compact {
        region: usize,
    },
    /// Old records of the bus are read once more, up and down.
    Replay {
        count: usize,
    },
    /// The latest ends that the bus has carried are read by an agent that lags,
    /// on its bus and on its log.
    ReplayEnds,
    /// The region's log comes back from a backup.
    SetBack {
        region: usize,
        by: u64,
    },
    /// A region's agents are stopped, and its log begins another life: with
    /// what can still be read of it, or empty.
    Recover {
        region: usize,
        keeps: bool,
        history: History,
    },
    /// A region is taken out for a while, and is away.
    Drain {
        region: usize,
        lasts: Duration,
    },
    /// It is back.
    Resume {
        region: usize,
    },
    /// The store loses its latest transactions.
    RollBack {
        count: usize,
    },
}
