//! Known bugs, put back on purpose to see that the tests would catch them.
//!
//! `mutant!(Name)` stands in the one line of the product that the bug would
//! change. It is the constant `false` unless the feature `mutants` is on; then
//! one bug of `Mutant::ALL` is switched on at run time, so that one build runs
//! them all. No build that is shipped has the feature.

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
    use core::sync::atomic::{AtomicUsize, Ordering};

    static ON: AtomicUsize = AtomicUsize::new(0);

    macro_rules! mutants {
        ($($name:ident, $what:literal, $why:literal;)*) => {
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
        AcknowledgeBeforeDurable, "the reply to a command leaves before its entry is durable", "I3";
        StaleRefusal, "a refusal comes from the bare replica", "I8";
        RetryAppendedTwice, "an append of unknown outcome is repeated under a new number", "I8, I14";
        SetBackUnnoticed, "a replica goes on with a log that was set back", "I3";
        ActsUnwelcomed, "facts are acted on before the coordinator has answered the greeting", "I3";
        ManifestWithoutEpoch, "a deposed leader puts a snapshot in place", "I7";
        ManifestFalls, "an older snapshot replaces a newer one", "I3, I12";
        ReadIndexByRevision, "a fresh read waits for the store's revision instead of the log's index", "I6";
        ForgottenComesBack, "a late opening brings back a generation that was forgotten", "I10";
        VersionIgnored, "a command is appended though some agents' builds do not know it", "I12";
        SettlesEarly, "an end that one region has applied counts as applied everywhere", "I6";
        NoRepeatsDown, "the coordinator says nothing twice", "I6";
        NoRepeatsUp, "a region's leader reports nothing twice", "I6";
        NoPatience, "an entry that is overdue is waited for, however long", "I6";
        LockAndCountAtOnce, "reports are read in the statement that locks", "I6";
        HeartbeatWithoutProof, "a heartbeat is acknowledged without a proven lease and a fresh state", "a loss is known to its client first";
        HeardAfterSilence, "a heartbeat is acknowledged while its agent's word that the session is silent is on its way", "a loss is known to its client first";
        ExpiryWithoutOwner, "a session expires by the word of an agent that no longer hears it", "a loss is known to its client first";
        FencedArrives, "an arrival counts under a session that a later one fenced", "I8";
        ExcludedCompleteEmpty, "those who are excluded complete a region nobody arrived in", "I1";
        ZoneOfAnother, "who arrives counts in the first zone of the region, not in its own", "I1";
        ZoneNotSealed, "a participant withdraws from a zone that has promised", "I1";
        AfterIgnored, "what comes after a generation that broke gathers on", "I6";
        EraIgnored, "a store that came back from a backup decides before its regions have spoken", "I2";
        EndMadeAnew, "an end that a region has applied is made anew where the store lost it", "I2";
        EndNotAdopted, "an end that a region brings is not taken for what it is", "I2";
        DrainedRequired, "what opens waits for a region that is drained", "I6";
        CountsOnItsWay, "a regional deadline or a loss counts from a tick that was on its way before it", "a deadline is never early";
        LossEarly, "a loss acts before the time to rejoin has passed", "a loss acts no sooner than it may";
    }

    impl Mutant {
        /// The bug with this name.
        #[must_use]
        pub fn named(name: &str) -> Option<Self> {
            Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
        }
    }

    /// Switches one on, or all off.
    pub fn switch(mutant: Option<Mutant>) {
        ON.store(mutant.map_or(0, |mutant| mutant as usize + 1), Ordering::SeqCst);
    }

    /// Whether it is the one that is on.
    #[must_use]
    pub fn is_on(mutant: Mutant) -> bool {
        ON.load(Ordering::Relaxed) == mutant as usize + 1
    }
}
