//! Known bugs, put back on purpose to see that the tests would catch them.
//!
//! `mutant!(Name)` stands in the one line of the product that the bug would
//! change. It is the constant `false` unless the feature `mutants` is on; then
//! one bug of `Mutant::ALL` is switched on at run time, by a call or by the
//! variable `MUSTER_MUTANT`, so that one build runs them all. No build that is
//! shipped has the feature.

/// Whether a known bug is switched on; `false` in every build that is shipped.
#[cfg(not(feature = "mutants"))]
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

/// Whether a known bug is switched on.
#[cfg(feature = "mutants")]
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutant::is_on($crate::mutant::Mutant::$name)
    };
}

#[cfg(feature = "mutants")]
pub use switch::*;

#[cfg(feature = "mutants")]
mod switch {
    // For the one variable; without the feature the crate has no std.
    extern crate std;

    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Nobody has switched, nor read the variable.
    const UNREAD: usize = usize::MAX;
    static ON: AtomicUsize = AtomicUsize::new(UNREAD);

    /// Whose tests have to catch a bug.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Place {
        /// The simulator's seeds.
        Simulator,
        /// The region log on etcd.
        EtcdLog,
        /// The region log in SQLite.
        SqliteLog,
        /// The store in Postgres.
        PostgresStore,
        /// The store in SQLite.
        SqliteStore,
    }

    macro_rules! places {
        () => { &[Place::Simulator] };
        ($($place:ident)+) => { &[$(Place::$place),+] };
    }

    macro_rules! mutants {
        ($($name:ident, $what:literal, $why:literal $(, in $($place:ident)+)?;)*) => {
            /// A known bug.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum Mutant {
                $(#[doc = $what] $name,)*
            }

            impl Mutant {
                /// All of them.
                pub const ALL: &'static [Self] = &[$(Self::$name),*];

                /// Its name.
                #[must_use]
                pub fn name(self) -> &'static str {
                    match self { $(Self::$name => stringify!($name),)* }
                }

                /// What the bug does.
                #[must_use]
                pub fn what(self) -> &'static str {
                    match self { $(Self::$name => $what,)* }
                }

                /// Which promises it breaks.
                #[must_use]
                pub fn breaks(self) -> &'static str {
                    match self { $(Self::$name => $why,)* }
                }

                /// Where it is put back.
                #[must_use]
                pub fn places(self) -> &'static [Place] {
                    match self { $(Self::$name => places!($($($place)+)?),)* }
                }
            }
        };
    }

    mutants! {
        NoHeadIndex, "an entry that comes is the next one, whatever its index", "I12";
        NoWriterTable, "an entry that landed twice takes effect twice", "I14";
        NoEpochCheck, "a deposed leader's commands have effect", "I7";
        NoAttemptNumber, "a late repeat of an attempt that was withdrawn counts", "I8";
        WithdrawAfterComplete, "a participant withdraws from a complete region", "I1";
        ArrivesAtLatest, "an arrival counts in the latest generation, not in its own", "I4";
        SecondOutcomeOverwrites, "the second outcome that a region hears replaces the first", "I2, I5";
        OneRegionFewer, "all regions but one suffice for a release", "I1";
        NumbersRestart, "generations count from 1 again when a name is defined again", "I2, I4";
        TimerOfOldGeneration, "a deadline ends the generation that gathers now, not its own", "I8";
        DeadlineEarly, "a deadline ends a generation before it has passed", "deadlines never fire early";
        AcknowledgeBeforeDurable, "the reply leaves before what it says is durable", "I3", in Simulator EtcdLog SqliteLog PostgresStore SqliteStore;
        StaleRefusal, "a refusal comes from the bare replica", "I8";
        RetryAppendedTwice, "an append of unknown outcome is repeated under a new number", "I8, I14";
        SetBackUnnoticed, "a replica goes on with a log that was set back", "I3";
        ActsUnwelcomed, "facts are acted on before the coordinator has answered the greeting", "I3";
        ManifestWithoutEpoch, "a deposed leader puts a snapshot in place", "I7", in Simulator EtcdLog SqliteLog;
        ManifestFalls, "an older snapshot replaces a newer one", "I3, I12", in Simulator EtcdLog SqliteLog;
        ReadIndexByRevision, "a fresh read waits for the store's revision instead of the log's index", "I6", in Simulator EtcdLog;
        ForgottenComesBack, "a late opening brings back a generation that was forgotten", "I10";
        VersionIgnored, "a command is appended though some agents' builds do not know it", "I12";
        SettlesEarly, "an end that one region has applied counts as applied everywhere", "I6";
        NoRepeatsDown, "the coordinator says nothing twice", "I6";
        NoRepeatsUp, "a region's leader reports nothing twice", "I6";
        NoPatience, "an entry that is overdue is waited for, however long", "I6";
        LockAndCountAtOnce, "reports are read in the statement that locks", "I6", in Simulator PostgresStore;
        HeartbeatWithoutProof, "a heartbeat is acknowledged without a proven lease and a fresh state", "a loss is known to its client first";
        HeardAfterSilence, "a heartbeat is acknowledged while its agent's word that the session is silent is on its way", "a loss is known to its client first";
        ExpiryWithoutOwner, "a session expires by the word of an agent that no longer hears it", "a loss is known to its client first";
        FencedArrives, "an arrival counts under a session that a later one fenced", "I8";
        ExcludedCompleteEmpty, "those who are excluded complete a region nobody arrived in", "I1";
        ZoneOfAnother, "who arrives counts in the first zone of the region, not in its own", "I1";
        ZoneNotSealed, "a participant withdraws from a zone that has promised", "I1";
        AfterIgnored, "what comes after a generation that broke gathers on", "I6";
        EraIgnored, "a store that came back from a backup decides before its regions have spoken", "I2", in Simulator PostgresStore SqliteStore;
        EndMadeAnew, "an end that a region has applied is made anew where the store lost it", "I2";
        EndNotAdopted, "an end that a region brings is not taken for what it is", "I2";
        DrainedRequired, "what opens waits for a region that is drained", "I6";
        CountsOnItsWay, "a regional deadline or a loss counts from a tick that was on its way before it", "a deadline is never early";
        LossEarly, "a loss acts before the time to rejoin has passed", "a loss acts no sooner than it may";

        HeadBornAgain, "a head that was lost begins anew", "I3", in EtcdLog SqliteLog;
        HeadFalls, "a head lower than it was seen numbers again", "I3", in EtcdLog;
        NoRegistration, "an append lands whose writer's registration is gone", "I8", in EtcdLog SqliteLog;
        LandsTwice, "an append that landed lands again", "I14", in EtcdLog SqliteLog;
        DoubtForgotten, "a refusal counts though an earlier try may have landed", "I8", in EtcdLog;
        GapUnnoticed, "a log that lacks an entry is read as if it did not", "I3, I12", in EtcdLog SqliteLog;
        FollowsLate, "a follower begins one entry behind what was caught up with", "I6", in EtcdLog SqliteLog;
        FollowsOverGap, "a follower goes on over entries that are gone", "I12", in EtcdLog SqliteLog;
        SilenceTrusted, "a watch that says nothing is not questioned", "I6", in EtcdLog;
        TruncatesLate, "truncation takes an entry that landed behind the snapshot", "I3", in EtcdLog;
        SnapshotBeyondHead, "a snapshot stands for entries that are not there", "I12", in EtcdLog SqliteLog;
        ChunksUncounted, "a snapshot that lost a part is read", "I12", in EtcdLog;
        LeadsOver, "a candidate takes the place of a leader that lives", "I7", in EtcdLog SqliteLog;
        LeadsUnregistered, "an agent whose registration is gone leads", "I7", in EtcdLog SqliteLog;
        ResignsForOthers, "who steps down deposes its successor", "I7", in EtcdLog SqliteLog;
        RegistersOver, "an instance that lives is registered over", "I14", in EtcdLog SqliteLog;
        CreatedTwice, "of two that create a log the second replaces the first", "I3", in EtcdLog;
        BaseForgotten, "another life of a log numbers from 1 again", "I12", in EtcdLog SqliteLog;
        ProvenByAnswer, "a lease counts from the answer to its keep-alive", "a loss is known to its client first", in EtcdLog;
        LosesItsTask, "an append whose caller goes away may land and be told to nobody", "I6", in SqliteLog;

        NoLock, "a batch decides without the lock of its barriers", "I2, I6", in PostgresStore;
        GreetingTellsAll, "a greeting counts as if the region had told its ends", "I2", in PostgresStore SqliteStore;
        EraWithoutTimeline, "a failover does not begin another life of the database", "I2", in PostgresStore;
        SecondOutcomeWritten, "the second outcome that is written replaces the first", "I2, I5", in PostgresStore SqliteStore;
        OlderReportWritten, "an older report replaces a newer one", "I1, I11", in PostgresStore SqliteStore;
        StampWithoutHistory, "reports of two lives of a region's log are compared by their index alone", "I6", in Simulator PostgresStore SqliteStore;
        OpenedTwice, "a generation's number is opened twice", "I4", in PostgresStore SqliteStore;
        NumbersFall, "the next number of a barrier falls", "I4", in PostgresStore SqliteStore;
        WaiverNarrows, "an older waiver replaces a newer one", "I1", in PostgresStore SqliteStore;
        IndexFalls, "the highest index of a region falls", "I3", in PostgresStore SqliteStore;
        AnyLifeCounts, "a sign of life of a log that does not count is taken for the region's", "I3", in PostgresStore SqliteStore;
        AnyEndAnswers, "a region that applied another end is told of none", "I2, I6", in PostgresStore SqliteStore;
        TriedIsWritten, "what was only tried is written", "I1", in PostgresStore SqliteStore;
        LossIsRefusal, "a commit whose answer was lost counts as not done", "I8", in PostgresStore;
        DrainsUnlocked, "who opens while a region is drained may not know of it", "I6", in PostgresStore;
        GoesWithItsCaller, "a transaction ends with the caller that goes away", "I6", in PostgresStore SqliteStore;
        LeavesOpen, "a connection comes back with a transaction that nobody knows of", "I3", in PostgresStore;
    }

    impl Mutant {
        /// The bug with this name.
        #[must_use]
        pub fn named(name: &str) -> Option<Self> {
            Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
        }
    }

    fn number(mutant: Option<Mutant>) -> usize {
        mutant.map_or(0, |mutant| mutant as usize + 1)
    }

    /// Switches one on, or all off.
    pub fn switch(mutant: Option<Mutant>) {
        ON.store(number(mutant), Ordering::SeqCst);
    }

    /// Whether it is the one that is on.
    #[must_use]
    pub fn is_on(mutant: Mutant) -> bool {
        let on = match ON.load(Ordering::Relaxed) {
            UNREAD => read(),
            on => on,
        };
        on == number(Some(mutant))
    }

    /// What `MUSTER_MUTANT` says, unless somebody has switched.
    #[cold]
    fn read() -> usize {
        let named = std::env::var("MUSTER_MUTANT").ok();
        let known = |name: std::string::String| {
            Mutant::named(&name).unwrap_or_else(|| panic!("MUSTER_MUTANT: there is no bug {name:?}"))
        };
        let on = number(named.map(known));
        match ON.compare_exchange(UNREAD, on, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => on,
            Err(switched) => switched,
        }
    }
}
