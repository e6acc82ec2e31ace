//! What a run has seen. A run of many seeds that never saw one of these proves
//! less than it seems to, and fails as vacuous.

use muster_protocol::region::{Refusal, Reply};

use crate::workload::Restored;

macro_rules! sights {
    ($($name:ident,)*) => {
        /// Something worth having seen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub(crate) enum Sight { $($name,)* }

        const ALL: &[Sight] = &[$(Sight::$name),*];
    };
}

sights! {
    Released,
    BrokenAborted,
    BrokenDeleted,
    BrokenDeadline,
    BrokenFailed,
    BrokenMaxFailures,
    Withdrawn,
    Sealed,
    StaleAttempt,
    WithdrawnAttemptRefused,
    Full,
    NotExpected,
    UnknownAnswer,
    NotDoneAnswer,
    RetriedAppend,
    AlreadyThere,
    TruncatedRetryLandedAgain,
    WriterGone,
    CatchUpByEntries,
    CatchUpBySnapshot,
    IndexGap,
    OldEpochRefused,
    LeaderChanged,
    SnapshotInstalled,
    SnapshotRefused,
    AgentLost,
    ClockAdvanced,
    CrashBetweenOutputs,
    CoordinatorCrashed,
    CommitAnswerLost,
    DoubledMessage,
    FactLeftToOthers,
    FactRepeated,
    Redefined,
    NumbersWentOn,
    KeyOpenedTwice,
    TooManyOpen,
    DryRun,
    StaleReportIgnored,
    VersionRaised,
    VersionTooLow,
    Forced,
    LeftOut,
    WaivedRegion,
    WaivedParticipants,
    Retried,
    CarriedOver,
    Collected,
    Forgotten,
    LateArrival,
    SessionMoved,
    SessionLost,
    SessionFenced,
    OrphanExpired,
    RejoinedInTime,
    LossFailed,
    LossExcluded,
    RegionalReleased,
    RegionalForced,
    RegionalWaived,
    RegionalDeadline,
    RegionalAborted,
    RegionalRetried,
    RegionalAlone,
    BrokenNameTaken,
    ZonesReleased,
    ZoneAheadOfRegion,
    PredecessorBroke,
    RegionalPredecessorBroke,
    OpenedDrained,
    // Only with a log that was set back and is recovered.
    SetBackStopped,
    SetBackRefused,
    RecoveredWhatIsLeft,
    RecoveredEmpty,
    LogRefused,
    AdoptedTooEarly,
    Adopted,
    SetBackUnseen,
    // Only with a store that was rolled back.
    ConflictAlarm,
    EndsTold,
    EndAdopted,
    DecidedAnewUnheard,
}

/// How many there are.
const COUNT: usize = ALL.len();
/// From here on not every run can see them.
const OF_LOG: usize = Sight::SetBackStopped as usize;
const OF_STORE: usize = Sight::ConflictAlarm as usize;

/// How often each was seen.
#[derive(Clone, Debug)]
pub struct Sightings([u64; COUNT]);

impl Default for Sightings {
    fn default() -> Self {
        Self([0; COUNT])
    }
}

impl Sightings {
    pub(crate) fn sight(&mut self, sight: Sight) {
        self.0[sight as usize] += 1;
    }

    pub(crate) fn sight_if(&mut self, seen: bool, sight: Sight) {
        self.0[sight as usize] += u64::from(seen);
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// What was never seen, by name, of what runs without restored data, or with
    /// such data, are to see.
    #[must_use]
    pub fn missing(&self, restored: Restored) -> Vec<String> {
        let wanted = match restored {
            Restored::Nothing => 0..OF_LOG,
            Restored::Log => OF_LOG..OF_STORE,
            Restored::Store => OF_STORE..COUNT,
        };
        let all = ALL[wanted].iter();
        all.filter(|sight| self.0[**sight as usize] == 0).map(|sight| format!("{sight:?}")).collect()
    }

    /// How often the sight with this name was seen.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.counts().find(|(sight, _)| sight == name).map_or(0, |(_, count)| count)
    }

    /// Every sight by name, with how often.
    pub fn counts(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        ALL.iter().map(|sight| (format!("{sight:?}"), self.0[*sight as usize]))
    }
}

impl Sightings {
    /// What a reply to a client shows.
    pub(crate) fn replied(&mut self, reply: &Reply) {
        match reply {
            Reply::Withdrawn => self.sight(Sight::Withdrawn),
            Reply::Arrived(arrived) => self.sight_if(arrived.late, Sight::LateArrival),
            Reply::Refused(refusal) => match refusal {
                Refusal::Sealed => self.sight(Sight::Sealed),
                Refusal::StaleAttempt { .. } => self.sight(Sight::StaleAttempt),
                Refusal::Withdrawn { .. } => self.sight(Sight::WithdrawnAttemptRefused),
                Refusal::Full { .. } => self.sight(Sight::Full),
                Refusal::NotExpected => self.sight(Sight::NotExpected),
                _ => {}
            },
            Reply::Done { .. } | Reply::SessionOpened(_) | Reply::Regional(_) => {}
        }
    }
}
