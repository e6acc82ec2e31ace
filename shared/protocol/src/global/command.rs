//! What is asked of the coordinator's machine, and what comes of it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Generation, Waiver};
use crate::fact::{Decided, Fact};
use crate::generation::GenerationId;
use crate::identity::Timestamp;
use crate::name::{BarrierName, Key, ParticipantId, RegionName};
use crate::outcome::{Outcome, Override};
use crate::participants::IdSet;
use crate::report::RegionReport;
use crate::spec::Spec;

/// One command for one barrier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Define it, or change its definition from the next generation on.
    Define {
        /// The definition.
        spec: Box<Spec>,
        /// What the caller believes of the present one.
        expect: Expect,
    },
    /// Delete its definition.
    Delete {
        /// Break what is gathering.
        force: bool,
        /// Who asks, and why.
        by: Override,
    },
    /// Open a generation: of a key, or the one a barrier without keys has.
    Open {
        /// The key, for a keyed barrier.
        key: Option<Key>,
    },
    /// A region's state of one generation.
    Report(Box<RegionReport>),
    /// End a generation without a release.
    Abort {
        /// Which.
        n: u64,
        /// Who asks, and why.
        by: Override,
    },
    /// Release a generation before it is complete.
    Release {
        /// Which.
        n: u64,
        /// Who asks, and why.
        by: Override,
    },
    /// Go on without a region, or without some of its participants.
    Waive {
        /// In which generation.
        n: u64,
        /// The region.
        region: RegionName,
        /// The participants; `None` is the whole region.
        participants: Option<IdSet>,
        /// Who asks, and why.
        by: Override,
    },
    /// Open a broken generation's next round.
    Retry {
        /// Which.
        n: u64,
        /// Its key, if it has one.
        key: Option<Key>,
        /// Whether those that arrived ok have arrived in the next round too.
        keep: bool,
        /// Who asks, and why.
        by: Override,
    },
    /// The generation that this one comes after broke.
    PredecessorBroke {
        /// Which.
        n: u64,
        /// The one before.
        predecessor: GenerationId,
    },
    /// Look which finished generations are past their retention.
    Collect {
        /// Whether a region still speaks of one that is forgotten.
        tell: bool,
    },
    /// Look whether a generation's time is up.
    Expire {
        /// Which.
        n: u64,
    },
}

/// What the caller of a definition believes of the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// There is none, or it is equal.
    NewOrEqual,
    /// It is at this revision.
    Revision(u64),
    /// Whatever it is.
    Anything,
}

/// What a batch must load of a barrier before it can be applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Generations by number.
    pub numbers: BTreeSet<u64>,
    /// The latest round of these keys.
    pub keys: BTreeSet<Key>,
    /// The latest round of the keys that are said to have these numbers, for
    /// numbers that [`Barrier::takes_up`](super::Barrier::takes_up).
    pub said: BTreeSet<(u64, Key)>,
    /// Every generation that is gathering.
    pub gathering: bool,
    /// The generation with the highest number.
    pub latest: bool,
    /// Every finished generation that is past its retention, and the numbers of
    /// all others.
    pub finished: bool,
}

impl Names {
    /// Adds what one command names.
    pub fn add(&mut self, command: &Command) {
        match command {
            Command::Report(report) => {
                self.numbers.insert(report.generation.n);
                self.said.extend(report.generation.key.clone().map(|key| (report.generation.n, key)));
            }
            Command::Abort { n, .. }
            | Command::Expire { n }
            | Command::Release { n, .. }
            | Command::Waive { n, .. }
            | Command::PredecessorBroke { n, .. } => {
                self.gathering |= crate::mutant!(TimerOfOldGeneration);
                self.numbers.insert(*n);
            }
            Command::Retry { n, key, .. } => {
                self.numbers.insert(*n);
                self.keys.extend(key.clone());
                self.latest = true;
            }
            Command::Collect { .. } => self.finished = true,
            Command::Open { key: Some(key) } => {
                self.keys.insert(key.clone());
            }
            Command::Define { .. } | Command::Delete { .. } | Command::Open { key: None } => self.gathering = true,
        }
    }
}

/// What one command led to. `changes` must be durable before anything of
/// `reply` or `facts` may leave the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Rows to write, in this order.
    pub changes: Vec<Change>,
    /// The answer.
    pub reply: Result<Reply, Refusal>,
    /// What the regions must hear.
    pub facts: Vec<Fact>,
}

/// One change of the coordinator's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The barrier's row has this spec at this revision.
    Defined {
        /// The revision.
        revision: u64,
        /// The spec.
        spec: Box<Spec>,
    },
    /// The barrier's row is marked deleted.
    Deleted,
    /// A new generation; the barrier's next number is one higher.
    Opened(Box<Generation>),
    /// A region's report; it replaces only one with a lower index.
    Reported {
        /// The generation.
        n: u64,
        /// The report.
        report: Box<RegionReport>,
    },
    /// A generation's time runs out then.
    DeadlineSet {
        /// The generation.
        n: u64,
        /// When.
        at: Timestamp,
    },
    /// The end of a generation; only where there is none.
    Decided {
        /// The generation.
        n: u64,
        /// Its end.
        decided: Box<Decided>,
    },
    /// Every region has applied the end.
    Settled {
        /// The generation.
        n: u64,
    },
    /// A region, or some of its participants, are waived; it replaces an
    /// earlier waiver of the region.
    Waived {
        /// The generation.
        n: u64,
        /// The region.
        region: RegionName,
        /// The waiver.
        waiver: Waiver,
    },
    /// Reports of these generations are past their retention.
    Closed {
        /// The generations.
        n: Vec<u64>,
    },
    /// These generations are forgotten.
    Forgotten {
        /// The generations.
        n: Vec<u64>,
    },
    /// Somebody decided what participants had not: for the audit log.
    Audited(Box<Audit>),
}

/// One entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// When, on the clock of who decided.
    pub at: Timestamp,
    /// What was done.
    pub action: Action,
    /// The barrier.
    pub barrier: BarrierName,
    /// The generation, when one was meant.
    pub generation: Option<GenerationId>,
    /// Who did it, and why.
    pub by: Override,
    /// To which region or participants, as people write them.
    pub object: String,
}

/// What somebody decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Deleted a definition by force.
    Delete,
    /// Ended a generation.
    Abort,
    /// Released a generation.
    Release,
    /// Waived a region or participants.
    Waive,
    /// Retried a generation.
    Retry,
    /// Replaced a definition.
    Replace,
    /// Drained a region.
    Drain,
    /// Ended a drain.
    Resume,
    /// Took another log for a region's.
    Adopt,
}

impl Action {
    /// The action as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Abort => "abort",
            Self::Release => "release",
            Self::Waive => "waive",
            Self::Retry => "retry",
            Self::Replace => "replace",
            Self::Drain => "drain",
            Self::Resume => "resume",
            Self::Adopt => "adopt",
        }
    }
}

/// A positive answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The definition is in force.
    Defined {
        /// Its revision.
        revision: u64,
        /// Whether there was none.
        created: bool,
        /// Whether anything changed.
        changed: bool,
    },
    /// The definition is gone.
    Deleted {
        /// Whether it was there.
        changed: bool,
        /// What was broken with it.
        broken: Vec<GenerationId>,
    },
    /// The generation exists.
    Opened {
        /// Which.
        generation: GenerationId,
        /// Whether this command opened it.
        created: bool,
        /// Its end, if it has ended.
        outcome: Option<Box<Outcome>>,
    },
    /// The report was read.
    Reported {
        /// Whether it was newer than what was known.
        newer: bool,
    },
    /// The generation has ended this way.
    Ended {
        /// How.
        outcome: Box<Outcome>,
        /// Whether this command ended it.
        changed: bool,
    },
    /// Its time is not up.
    NotDue,
    /// The region or the participants are waived.
    Waived {
        /// Whether this command waived any.
        changed: bool,
        /// The end, when that decided it.
        outcome: Option<Box<Outcome>>,
    },
    /// What was past its retention is gone.
    Collected {
        /// How many generations lost their details or were forgotten.
        count: usize,
    },
}

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The name has no definition.
    NotDefined,
    /// The barrier has no such generation.
    NoSuchGeneration,
    /// The present definition differs.
    Conflict {
        /// The definition in force.
        current: Box<Spec>,
        /// Its revision.
        revision: u64,
    },
    /// The definition is not at the revision that the caller named.
    Precondition {
        /// The revision in force; 0 for none.
        revision: u64,
    },
    /// Generations are gathering.
    StillGathering {
        /// Which.
        open: Vec<GenerationId>,
    },
    /// As many keys gather as may.
    TooManyOpen {
        /// How many may.
        limit: u32,
    },
    /// The namespace is full.
    TooManyBarriers {
        /// How many it may have.
        limit: u32,
    },
    /// A keyed barrier opens by key.
    KeyNeeded,
    /// Only a keyed barrier has keys.
    NotKeyed,
    /// The definition names a region that is not declared.
    UnknownRegion {
        /// Which.
        region: RegionName,
        /// Those that are.
        declared: Vec<RegionName>,
    },
    /// The generation has ended; that stays.
    AlreadyDecided {
        /// How it ended.
        outcome: Box<Outcome>,
    },
    /// Only a broken generation can be retried.
    NotBroken,
    /// A cyclic barrier goes on by itself.
    GoesOn {
        /// The generation that gathers now.
        next: Option<GenerationId>,
    },
    /// The generation's details are past their retention.
    Expired,
    /// The barrier has no such region.
    NotInBarrier {
        /// The regions it has.
        regions: Vec<RegionName>,
    },
    /// The region expects any so many: none of them has a name to waive.
    NoNames,
    /// One that is to be waived is not expected.
    NotExpected {
        /// Which.
        participant: ParticipantId,
    },
    /// A region has not greeted since the database may have lost commits.
    RegionBehind {
        /// Which.
        region: RegionName,
    },
    /// The report comes from another life of the region's log, or from a
    /// region the generation does not have.
    ForeignReport,
    /// The generations of a name are numbered or have keys, once and for all.
    KindStays {
        /// Whether they have keys.
        keyed: bool,
    },
}
