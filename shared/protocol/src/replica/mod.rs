//! The machine that keeps one replica of a region: what to append, what to do
//! when the answer is lost, when to read the log anew, when a read is fresh.
//!
//! The caller's contract: begin with [`Replica::start`], carry out every
//! [`Output`], and feed what comes of it back as an [`Input`]. Outputs of one
//! step may be carried out in any order, but an [`Output::Answer`] may leave
//! the process only after the step that made it has returned. Nothing of it is
//! lost when the process dies: tickets are all that it holds, and their callers
//! die with it.
//!
//! ```text
//!             CaughtUp                  gap · ended · overdue · writer gone
//!  catching up ───────▶ following ──────────────────────────────────▶ catching up
//!      │                    │
//!      └────────────────────┴── unreadable · head gone or lower ─▶ stopped
//! ```
//!
//! One append of a writer is in flight at a time; whatever is submitted
//! meanwhile is the next batch (group commit).

mod step;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use crate::caps;
use crate::entry::{Body, Snapshot, Witness, command_bytes};
use crate::identity::{Digest, Writer};
use crate::mutant;
use crate::region::{Command, Effect, MACHINE_VERSION, Refusal, Region, Reply};

/// Appended batches whose entries were not applied yet, at most.
const BATCHES_MAX: usize = 16;

/// Notices that nothing came for a whole period though something should have:
/// the hint that would have brought it was lost.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    /// The index at the last look, if something was expected then.
    expected_at: Option<u64>,
}

impl Patience {
    /// How long something that is expected may take to come.
    pub const PERIOD: core::time::Duration = core::time::Duration::from_secs(1);

    /// Looks, once each [`Patience::PERIOD`]. True: say [`Input::Overdue`].
    pub fn is_over(&mut self, replica: &Replica) -> bool {
        let index = replica.region().index();
        let expects = replica.expects_entries();
        let over = expects && self.expected_at == Some(index) && !crate::mutant!(NoPatience);
        self.expected_at = expects.then_some(index);
        over
    }
}

/// Names one submitted command or requested read of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// This process is registered as a new writer. Only ever the answer to
    /// [`Output::Register`].
    Registered(Writer),
    /// The registration is lost: nothing of this writer can land any more.
    RegistrationLost(Writer),
    /// Somebody wants a command done.
    Submitted {
        /// Whose answer it is.
        ticket: Ticket,
        /// The command.
        command: Box<Command>,
    },
    /// Somebody wants to read what is certainly not older than now.
    ReadRequested(Ticket),
    /// Somebody no longer waits for an answer.
    GivenUp(Ticket),
    /// What an append came to.
    Appended {
        /// Whose it was.
        writer: Writer,
        /// Which.
        seq: u64,
        /// What came of it.
        result: Appended,
    },
    /// The head, or `None` when the log did not answer.
    HeadRead(Option<u64>),
    /// Entries that the follower saw, in order.
    Followed(Vec<Logged>),
    /// The follower is over.
    FollowEnded,
    /// Everything after the index asked for.
    CaughtUp {
        /// The bytes of a snapshot, if the log no longer reaches back.
        snapshot: Option<Vec<u8>>,
        /// Every entry after it.
        entries: Vec<Logged>,
        /// The head when that was read.
        head: u64,
    },
    /// Something that should have come by now did not.
    Overdue,
}

/// An entry's bytes at their place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The log index.
    pub index: u64,
    /// Who wrote it.
    pub writer: Writer,
    /// The writer's count.
    pub seq: u64,
    /// What [`Body::encode`] wrote.
    pub bytes: Vec<u8>,
}

/// What an append came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Durable at this index.
    Landed {
        /// The log index.
        index: u64,
    },
    /// An earlier try had landed.
    AlreadyThere,
    /// The writer's registration is gone.
    WriterGone,
    /// The log takes no writes any more.
    HeadGone,
    /// The log has no room; not written.
    Full,
    /// The log refused it, and would again; not written.
    Refused,
    /// Written or not.
    Unknown,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Register this process under a new instance.
    Register,
    /// Append these bytes. After an unknown outcome the same append comes
    /// again: wait a little longer each `attempt`.
    Append {
        /// As whom.
        writer: Writer,
        /// Under which count.
        seq: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// 0 for the first try.
        attempt: u32,
    },
    /// Read everything after an index, then follow from there.
    CatchUp {
        /// The index.
        after: u64,
    },
    /// Read the head.
    ReadHead,
    /// Tell whoever holds the ticket.
    Answer {
        /// Whose.
        ticket: Ticket,
        /// What.
        answer: Answer,
    },
    /// Something is worth telling.
    Effect {
        /// What.
        effect: Effect,
        /// Whether an entry of this process led to it: then telling others is
        /// this process's turn.
        own: bool,
    },
    /// A snapshot put the state further on, and what led there is not told:
    /// whoever waits for anything, or has to tell something, looks again.
    Restored,
    /// Another replica differs from this one, which was read anew and came to
    /// the same: the writer is wrong (against I12).
    Diverged {
        /// The agent that is wrong.
        writer: Writer,
        /// Where it differs.
        index: u64,
    },
    /// This replica can't go on.
    Stop(Stop),
}

/// The answer to a ticket. Three outcomes: done, not done, unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The command was applied, here and by every replica, with this reply.
    Reply(Reply),
    /// The state is not older than when the read was requested.
    Fresh {
        /// The index it has.
        index: u64,
    },
    /// Not done, and it never will be.
    NotDone(NotDone),
    /// Given up while it may or may not land.
    Unknown,
}

/// Why a command was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// As many commands wait as may.
    Busy,
    /// The log did not answer in time.
    Unavailable,
    /// The log has no room.
    Full,
    /// The log refused it.
    Refused,
    /// This replica has stopped.
    Stopped,
}

/// Why a replica can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// An entry or a snapshot of a newer build, or damaged.
    #[error("the log can't be replayed at index {index}: {why}")]
    Unreadable {
        /// Where.
        index: u64,
        /// Why.
        why: String,
    },
    /// Every other agent runs a higher version of the region's machine.
    #[error(
        "the log needs version {needed} of the region's machine from index {index} on, and this build runs {runs}: \
         start a newer build of this agent"
    )]
    TooNew {
        /// From where on.
        index: u64,
        /// The version it needs.
        needed: u16,
        /// The version this build runs.
        runs: u16,
    },
    /// The head is gone.
    #[error(
        "the log's head is gone: it takes no writes; stop the region's agents, then bring back the data it had, or `muster region recover`"
    )]
    HeadGone,
    /// The log is an older one than what was seen, such as a restored backup.
    #[error(
        "the log ends at {head}, but {seen} was seen: it was set back; stop the region's agents, then bring back the data it had, or `muster region recover`"
    )]
    SetBack {
        /// Where it ends.
        head: u64,
        /// What was seen.
        seen: u64,
    },
}

/// One replica of a region.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The version of the region's machine that this build runs.
    runs: u16,
    blank: Region,
    region: Region,
    hash: Digest,
    /// Hashes of the latest indices, to compare with witnesses.
    recent: VecDeque<Witness>,
    phase: Phase,
    writer: Option<Writer>,
    registering: bool,
    next_seq: u64,
    queue: VecDeque<Queued>,
    batches: BTreeMap<u64, Batch>,
    in_flight: Option<u64>,
    reads: Reads,
    /// What this replica's hash was where a witness differed, while it is
    /// read anew.
    doubt: Option<Witness>,
    /// Writers found wrong: their witnesses say nothing.
    distrusted: BTreeSet<Writer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    CatchingUp { anew: bool },
    Following,
    Stopped,
}

#[derive(Clone, Debug)]
struct Queued {
    ticket: Ticket,
    command: Command,
}

#[derive(Clone, Debug)]
struct Batch {
    bytes: Vec<u8>,
    commands: Vec<Queued>,
    attempt: u32,
}

/// Reads share one look at the head: those that come while one is on its way
/// wait for the next.
#[derive(Clone, Debug, Default)]
struct Reads {
    waiting: Vec<Ticket>,
    asked: Vec<Ticket>,
    at: Vec<(u64, Ticket)>,
}

impl Replica {
    /// A replica that knows nothing but whose log it follows.
    #[must_use]
    pub fn new(blank: Region) -> Self {
        Self {
            runs: MACHINE_VERSION,
            region: blank.clone(),
            blank,
            hash: Digest([0; 32]),
            recent: VecDeque::new(),
            phase: Phase::CatchingUp { anew: false },
            writer: None,
            registering: false,
            next_seq: 1,
            queue: VecDeque::new(),
            batches: BTreeMap::new(),
            in_flight: None,
            reads: Reads::default(),
            doubt: None,
            distrusted: BTreeSet::new(),
        }
    }

    /// As a build does that runs this version of the region's machine: how
    /// tests run an older one beside newer ones.
    #[must_use]
    pub fn as_build_of(self, version: u16) -> Self {
        Self { runs: version, ..self }
    }

    /// What to do first.
    #[must_use]
    pub fn start(&self) -> Vec<Output> {
        Vec::from([Output::CatchUp { after: self.region.index() }])
    }

    /// The region's state as this replica has it.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The hash over everything up to the applied index.
    #[must_use]
    pub fn witness(&self) -> Witness {
        Witness { index: self.region.index(), hash: self.hash }
    }

    /// The writer this process is, while it is registered.
    #[must_use]
    pub fn writer(&self) -> Option<Writer> {
        self.writer
    }

    /// Whether the replica follows the log, as far as it knows.
    #[must_use]
    pub fn is_following(&self) -> bool {
        self.phase == Phase::Following
    }

    /// Whether something should come soon; see [`Patience`].
    #[must_use]
    pub fn expects_entries(&self) -> bool {
        let landed = self.batches.keys().any(|seq| Some(*seq) != self.in_flight);
        self.is_following() && (landed || !self.reads.at.is_empty())
    }

    /// Whose commands an append that was not applied yet carries.
    pub fn tickets(&self, seq: u64) -> impl Iterator<Item = Ticket> + '_ {
        self.batches.get(&seq).into_iter().flat_map(|batch| batch.commands.iter().map(|queued| queued.ticket))
    }

    /// The state as a snapshot, with the last sequence numbers it covers.
    #[must_use]
    pub fn snapshot(&self) -> (Snapshot, Vec<(Writer, u64)>) {
        let seqs = self.region.writers().iter().map(|(writer, seq)| (*writer, *seq)).collect();
        (Snapshot { hash: self.hash, region: self.region.clone() }, seqs)
    }

    /// Takes the next batch off the queue and sends it, unless one is in
    /// flight.
    fn flush(&mut self, outputs: &mut Vec<Output>) {
        let Some(writer) = self.writer else { return };
        if self.in_flight.is_some() || self.queue.is_empty() || self.batches.len() >= BATCHES_MAX {
            return;
        }
        let mut room = caps::ENTRY_BYTES_MAX;
        let mut commands = Vec::new();
        while let Some(next) = self.queue.front() {
            // Older builds of the region can't even read it, and would stop.
            if next.command.machine_version() > self.region.machine_version() && !mutant!(VersionIgnored) {
                let (ticket, reply) = (next.ticket, Reply::Refused(Refusal::VersionTooLow));
                self.queue.pop_front();
                outputs.push(Output::Answer { ticket, answer: Answer::Reply(reply) });
                continue;
            }
            let bytes = command_bytes(&next.command);
            if commands.len() >= caps::ENTRY_COMMANDS_MAX || bytes > room && !commands.is_empty() {
                break;
            }
            room = room.saturating_sub(bytes);
            commands.extend(self.queue.pop_front());
        }
        if commands.is_empty() {
            return;
        }
        let body = Body {
            witness: self.witness(),
            commands: commands.iter().map(|queued: &Queued| queued.command.clone()).collect(),
        };
        let (seq, bytes) = (self.next_seq, body.encode());
        self.next_seq += 1;
        self.in_flight = Some(seq);
        self.batches.insert(seq, Batch { bytes: bytes.clone(), commands, attempt: 0 });
        outputs.push(Output::Append { writer, seq, bytes, attempt: 0 });
    }
}

/// The hash of an index: over everything before it, the entry's bytes and the
/// replies that it led to.
fn chain(previous: Digest, bytes: &[u8], replies: &[Reply]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&previous.0);
    hasher.update(bytes);
    hasher.update(&Digest::of(&replies).0);
    Digest(*hasher.finalize().as_bytes())
}
