//! What enters the region's log, and what comes of it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::ArrivalOutcome;
use crate::fact::Fact;
use crate::generation::GenerationId;
use crate::global;
use crate::identity::{Digest, Epoch, SessionId, Timestamp, Writer};
use crate::name::{BarrierName, ParticipantId};

/// One command on the log. Postcard writes variants by their position: append
/// new ones at the end, and never reorder or remove one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The coordinator said so.
    Fact(Fact),
    /// A participant arrives.
    Arrive(Arrive),
    /// A participant takes an attempt back.
    Withdraw(Withdraw),
    /// A new leader acts from here on.
    TookOver {
        /// Its incarnation.
        epoch: Epoch,
    },
    /// The leader counted time. Names where the clock stood, so that a repeat
    /// of the command can't count the same time twice.
    ClockAdvanced {
        /// The leader's incarnation.
        epoch: Epoch,
        /// Where the region clock stood, in milliseconds.
        from_ms: u64,
        /// Where it stands now, in milliseconds.
        to_ms: u64,
    },
    /// The leader saw that an agent's registration is gone: nothing of that
    /// writer can land any more.
    AgentLost {
        /// The leader's incarnation.
        epoch: Epoch,
        /// The agent that is gone.
        writer: Writer,
    },
    /// Every living agent can run a higher version of this machine.
    VersionRaised {
        /// The leader's incarnation.
        epoch: Epoch,
        /// The version from here on.
        version: u16,
    },
    /// The leader counted time, and what is due acts. From version 2 on.
    Ticked {
        /// The leader's incarnation.
        epoch: Epoch,
        /// Where the region clock stood, in milliseconds.
        from_ms: u64,
        /// Where it stands now, in milliseconds.
        to_ms: u64,
        /// When, on the agent's clock; for people.
        at: Timestamp,
    },
    /// A client opens a session. From version 2 on, like all that follow.
    OpenSession(OpenSession),
    /// Another agent takes a session's heartbeats.
    AttachSession(SessionId),
    /// A client ends its session.
    CloseSession(SessionId),
    /// The agent that takes a session's heartbeats heard none for too long.
    ExpireSession {
        /// The session.
        session: SessionId,
        /// Its owner, by count.
        attach: u32,
    },
    /// Somebody speaks to a barrier of regional scope.
    Regional(Box<Regional>),
}

impl Command {
    /// The version of the machine that knows the command.
    #[must_use]
    pub fn machine_version(&self) -> u16 {
        match self {
            Self::Fact(Fact::Opened(_) | Fact::Decided(_))
            | Self::Arrive(_)
            | Self::Withdraw(_)
            | Self::TookOver { .. }
            | Self::ClockAdvanced { .. }
            | Self::AgentLost { .. }
            | Self::VersionRaised { .. } => 1,
            Self::Fact(Fact::Closed(_) | Fact::Waived(_))
            | Self::Ticked { .. }
            | Self::OpenSession(_)
            | Self::AttachSession(_)
            | Self::CloseSession(_)
            | Self::ExpireSession { .. }
            | Self::Regional(_) => 2,
        }
    }

    /// The version of the machine that a build has to run to replay it.
    #[must_use]
    pub fn needs(&self) -> u16 {
        match self {
            Self::VersionRaised { version, .. } => *version,
            command => command.machine_version(),
        }
    }
}

/// A client opens a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenSession {
    /// Its name, random.
    pub id: SessionId,
    /// Milliseconds that it may be silent.
    pub ttl_ms: u64,
    /// Whom it works for.
    pub works: Vec<Work>,
    /// When, on the agent's clock; for people.
    pub at: Timestamp,
}

/// A participant of a generation, as a session works for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Work {
    /// The barrier.
    pub barrier: BarrierName,
    /// The generation.
    pub n: u64,
    /// The participant.
    pub participant: ParticipantId,
}

/// What is said to a barrier of regional scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Regional {
    /// The barrier.
    pub barrier: BarrierName,
    /// What.
    pub command: global::Command,
    /// When, on the agent's clock; for people.
    pub at: Timestamp,
}

/// A participant arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrive {
    /// At which barrier.
    pub barrier: BarrierName,
    /// In which generation.
    pub n: u64,
    /// Who.
    pub participant: ParticipantId,
    /// Which incarnation, from 1.
    pub attempt: u32,
    /// How its work went.
    pub outcome: ArrivalOutcome,
    /// What it says about that.
    pub note: Option<String>,
    /// What it leaves for those who pass.
    pub output: Option<String>,
    /// Its session.
    pub session: Option<SessionId>,
    /// When, on the agent's clock; for people.
    pub at: Timestamp,
}

/// A participant takes an attempt back, for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdraw {
    /// At which barrier.
    pub barrier: BarrierName,
    /// In which generation.
    pub n: u64,
    /// Who.
    pub participant: ParticipantId,
    /// This attempt, and all before it.
    pub attempt: u32,
}

/// The answer to one command. Every replica computes the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The participant has arrived, now or earlier.
    Arrived(Arrived),
    /// The attempt is withdrawn, now or earlier.
    Withdrawn,
    /// Done; `changed` is false when it had been done before.
    Done {
        /// Whether the command changed anything.
        changed: bool,
    },
    /// Not done, and true for ever for this command.
    Refused(Refusal),
    /// The session is open, now or earlier.
    SessionOpened(SessionOpened),
    /// What a barrier of regional scope answered.
    Regional(Box<Result<global::Reply, global::Refusal>>),
}

/// A session that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// Its owner, by count.
    pub attach: u32,
    /// Milliseconds that it may be silent.
    pub ttl_ms: u64,
    /// One for each participant it was opened for, in that order.
    pub attempts: Vec<Attempt>,
}

/// What a session was given for a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The attempt to arrive with.
    pub attempt: u32,
    /// Whether it has arrived ok: there is nothing to do.
    pub done: bool,
}

/// A positive answer to an arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrived {
    /// The attempt that counts.
    pub attempt: u32,
    /// How that attempt went.
    pub outcome: ArrivalOutcome,
    /// Whether this command was the one that counted.
    pub first: bool,
    /// Whether the generation had been released before.
    pub late: bool,
    /// How many arrived ok in this region.
    pub arrived: u32,
    /// How many are expected in this region.
    pub expected: u32,
}

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The region knows no such generation (yet).
    NoSuchGeneration,
    /// The participant is not in the set.
    NotExpected,
    /// So many others arrived already; the latest of them.
    Full {
        /// Those that arrived last, the latest first.
        latest: Vec<ParticipantId>,
    },
    /// A higher attempt has arrived.
    StaleAttempt {
        /// That attempt.
        known: u32,
    },
    /// The attempt was withdrawn.
    Withdrawn {
        /// The highest attempt withdrawn.
        through: u32,
    },
    /// The region has promised; wait for the outcome.
    Sealed,
    /// The generation was released before.
    AlreadyReleased,
    /// The generation is broken.
    Broken,
    /// Details of the generation are past their retention.
    Expired,
    /// The region's share of outputs is used up.
    OutputsFull {
        /// Bytes the region's outputs may take.
        limit: u32,
    },
    /// Too many attempts of strangers were withdrawn.
    TooManyWithdrawn,
    /// A newer leader has acted.
    OldEpoch {
        /// Its incarnation.
        current: Epoch,
    },
    /// The clock stood elsewhere: this time was counted before.
    ClockMoved,
    /// The region lacks the slice that the fact names.
    SliceUnknown {
        /// The slice's digest.
        spec: Digest,
    },
    /// A different fact of this kind was applied first; it stays.
    Conflict,
    /// The build that applies this can't run that version.
    VersionTooHigh,
    /// Not every agent of the region can run what this needs.
    VersionTooLow,
    /// A later session works for the participant.
    Fenced,
    /// There is no such session, or it fell silent.
    SessionLost,
    /// Another agent takes the session's heartbeats, or took them since.
    NotOwner,
    /// The region has as many sessions as it may.
    TooManySessions,
    /// The name is a barrier of the other scope here.
    NameTaken,
}

/// What is worth telling after an entry was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A generation opened here.
    Opened {
        /// The barrier.
        barrier: BarrierName,
        /// The generation's number.
        n: u64,
    },
    /// A generation's state changed; its report is due, at once if urgent.
    Changed {
        /// The barrier.
        barrier: BarrierName,
        /// The generation's number.
        n: u64,
        /// Whether somebody waits for the report.
        urgent: bool,
    },
    /// A generation ended here, or is forgotten though its end never came:
    /// wake everybody who waits for it.
    Ended {
        /// The barrier.
        barrier: BarrierName,
        /// The generation's number.
        n: u64,
    },
    /// A second, different fact arrived for one generation (against I2).
    Conflict {
        /// The barrier.
        barrier: BarrierName,
        /// The generation's number.
        n: u64,
    },
    /// Another agent leads.
    TookOver {
        /// Its incarnation.
        epoch: Epoch,
    },
    /// The coordinator speaks of a name that is a regional barrier here.
    NameTaken {
        /// Its generation.
        generation: GenerationId,
    },
    /// A session is over, though its client did not end it.
    SessionEnded {
        /// Which.
        session: SessionId,
        /// Whether a later one took its place, rather than that it fell silent.
        fenced: bool,
    },
}
