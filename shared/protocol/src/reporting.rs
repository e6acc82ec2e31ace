//! When an agent tells the coordinator what its region knows of a generation:
//! at once when somebody waits for it, at most once a second otherwise, and
//! again with growing pauses, if it leads, while nothing came of it.
//!
//! ```text
//!            own, urgent or a second since the last        sent
//!  changed ────────────────────────────────────────▶ now ───────▶ quiet ──leader, 1 s doubling to 30 s──▶ now
//!     │ own, too early                                ▲
//!     └───────────── its second has passed ───────────┘
//! ```
//!
//! Reports are states: a lost one costs the time until the next. Instants are
//! what the caller reads off a clock that never steps back, since its zero.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::name::BarrierName;
use crate::region::{Effect, Region};

/// The shortest time between two reports of progress of one generation.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The first pause before a report is repeated.
pub const REPEAT_MIN: Duration = Duration::from_secs(1);
/// The longest pause between repeats of a report.
pub const REPEAT_MAX: Duration = Duration::from_secs(30);

/// Which generation.
pub type Subject = (BarrierName, u64);

/// What one agent has told and still has to tell.
#[derive(Clone, Debug, Default)]
pub struct Reporting {
    open: BTreeMap<Subject, Schedule>,
    /// What ended here and is told once more, with its end.
    ends: BTreeSet<Subject>,
}

/// When one generation is due.
#[derive(Clone, Debug)]
struct Schedule {
    sent_at: Option<Duration>,
    /// Progress that waits for its second to pass.
    changed: bool,
    repeat_after: Duration,
}

impl Schedule {
    fn new() -> Self {
        Self { sent_at: None, changed: false, repeat_after: REPEAT_MIN }
    }

    fn silent_for(&self, now: Duration) -> Duration {
        self.sent_at.map_or(Duration::MAX, |at| now.saturating_sub(at))
    }

    fn due(&self, now: Duration, leading: bool) -> bool {
        let since = self.silent_for(now);
        self.changed && since >= PROGRESS_INTERVAL
            || leading && since >= self.repeat_after && !crate::mutant!(NoRepeatsUp)
    }
}

impl Reporting {
    /// An entry was applied, by an agent of the region or (`own`) by this one.
    /// Returns the generation that is to be reported now, if one is.
    pub fn heed(&mut self, effect: &Effect, own: bool, region: &Region, now: Duration) -> Option<Subject> {
        let (barrier, n, urgent) = match effect {
            Effect::Changed { barrier, n, urgent } => (barrier, n, urgent),
            Effect::NameTaken { generation } => return own.then(|| (generation.barrier.clone(), generation.n)),
            _ => return None,
        };
        let subject = (barrier.clone(), *n);
        let schedule = self.open.entry(subject.clone()).or_insert_with(Schedule::new);
        schedule.repeat_after = REPEAT_MIN;
        let first = schedule.silent_for(now) >= PROGRESS_INTERVAL;
        // What another agent appended is that agent's to tell; should it die
        // first, the leader's repeats do.
        let at_once = own && (*urgent || first);
        if own && !at_once {
            schedule.changed = true;
        }
        // The end is told once, and then to whoever asks again.
        if region.generation(barrier, *n).is_none_or(|generation| generation.ended().is_some()) {
            self.open.remove(&subject);
        }
        at_once.then_some(subject)
    }

    /// The coordinator greeted back and may lack anything, or a snapshot put the
    /// region further on: all that is open is due, as if it had never been sent;
    /// with `ends`, all that has ended too.
    pub fn everything(&mut self, region: &Region, ends: bool) {
        self.open = region.to_report(false).map(|subject| (subject, Schedule::new())).collect();
        if ends {
            self.ends = region.to_report(true).filter(|subject| !self.open.contains_key(subject)).collect();
        }
    }

    /// Somebody says that a generation is open, and does not know that it ended
    /// here: its next report brings the end.
    pub fn lacks_end(&mut self, subject: &Subject, region: &Region) {
        if region.generation(&subject.0, subject.1).is_some_and(|generation| generation.ended().is_some()) {
            self.ends.insert(subject.clone());
        }
    }

    /// Whether the report of a generation must bring its end.
    #[must_use]
    pub fn brings_end(&self, subject: &Subject) -> bool {
        self.ends.contains(subject)
    }

    /// Whether all ends that were asked for were told.
    #[must_use]
    pub fn has_told_ends(&self) -> bool {
        self.ends.is_empty()
    }

    /// What is due now. A leader repeats what nothing came of; each such repeat
    /// doubles the pause until the next.
    pub fn due(&mut self, now: Duration, leading: bool) -> Vec<Subject> {
        let mut due: Vec<Subject> = self.ends.iter().cloned().collect();
        for (subject, schedule) in self.open.iter_mut().filter(|(_, schedule)| schedule.due(now, leading)) {
            due.push(subject.clone());
            if !schedule.changed {
                schedule.repeat_after = REPEAT_MAX.min(schedule.repeat_after * 2);
            }
        }
        due
    }

    /// A report was handed to the bus. One that found no room there stays due.
    pub fn sent(&mut self, subject: &Subject, now: Duration) {
        self.ends.remove(subject);
        if let Some(schedule) = self.open.get_mut(subject) {
            schedule.sent_at = Some(now);
            schedule.changed = false;
        }
    }
}

#[cfg(test)]
#[path = "reporting_tests.rs"]
mod tests;
