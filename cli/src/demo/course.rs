//! The course of one run: what every worker told, and what the coordinator
//! said of each barrier. Pure: news in, questions answered.

use muster_protocol::generation::State;
use muster_wire::answer::Status;

use super::crew::Ending;
use super::job::{Event, Instant};
use super::roster::Phase;

/// One worker at one barrier.
#[derive(Clone, Copy, Debug, Default)]
struct Crossing {
    sent: Option<Instant>,
    woken: Option<Instant>,
}

/// What is known of a run.
#[derive(Debug)]
pub(crate) struct Course {
    /// By worker, then by phase.
    crossings: Vec<[Crossing; Phase::ALL.len()]>,
    endings: Vec<Option<Ending>>,
    statuses: [Option<Status>; Phase::ALL.len()],
    /// Where it broke, in the words that workers heard.
    heard: Option<(Phase, String)>,
}

impl Course {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            crossings: vec![Default::default(); workers],
            endings: vec![None; workers],
            statuses: Default::default(),
            heard: None,
        }
    }

    /// A worker told something.
    pub(crate) fn event(&mut self, worker: usize, event: Event) {
        match event {
            Event::Halfway => {}
            Event::Arriving { phase, at } => self.crossings[worker][phase as usize].sent = Some(at),
            Event::Woken { phase, at } => self.crossings[worker][phase as usize].woken = Some(at),
            Event::Heard { phase, words } => self.heard = Some((phase, words)),
        }
    }

    /// A worker is gone.
    pub(crate) fn ended(&mut self, worker: usize, ending: Ending) {
        self.endings[worker] = Some(ending);
    }

    /// The coordinator said how far a barrier has come.
    pub(crate) fn status(&mut self, phase: Phase, status: Status) {
        self.statuses[phase as usize] = Some(status);
    }

    pub(crate) fn status_of(&self, phase: Phase) -> Option<&Status> {
        self.statuses[phase as usize].as_ref()
    }

    /// Whether every worker is gone.
    pub(crate) fn all_ended(&self) -> bool {
        self.endings.iter().all(Option::is_some)
    }

    /// Whether every worker did all of its work.
    pub(crate) fn all_done(&self) -> bool {
        self.count(&Ending::Done) == self.endings.len()
    }

    /// How many workers ended so.
    pub(crate) fn count(&self, ending: &Ending) -> usize {
        self.endings.iter().filter(|found| found.as_ref() == Some(ending)).count()
    }

    /// How many workers did not die.
    pub(crate) fn living(&self) -> usize {
        self.endings.iter().filter(|ending| !matches!(ending, Some(Ending::Died(_)))).count()
    }

    /// Where and why it broke.
    pub(crate) fn broken(&self) -> Option<(Phase, &str)> {
        let by_status = Phase::ALL.into_iter().find_map(|phase| {
            let status = self.status_of(phase).filter(|status| status.state == State::Broken)?;
            Some((phase, status.message.as_str()))
        });
        by_status.or_else(|| self.heard.as_ref().map(|(phase, words)| (*phase, words.as_str())))
    }

    /// Whether the coordinator has said how every barrier ended that can end by
    /// itself: all of them, or those before the one that broke.
    pub(crate) fn told(&self) -> bool {
        for phase in Phase::ALL {
            match self.status_of(phase).map(|status| status.state) {
                Some(State::Broken) => return true,
                Some(State::Released) => {}
                _ => return false,
            }
        }
        true
    }

    /// Those that have not ended, as far as is known.
    pub(crate) fn open(&self) -> Vec<Phase> {
        let ended = |phase: &Phase| {
            self.status_of(*phase).is_some_and(|status| matches!(status.state, State::Released | State::Broken))
        };
        Phase::ALL.into_iter().filter(|phase| !ended(phase)).collect()
    }

    /// Seconds from the first arrival to the last, as their senders began to
    /// send them. `None` until all have.
    pub(crate) fn skew_seconds(&self, phase: Phase) -> Option<f64> {
        let sent = self.all(phase, |crossing| crossing.sent)?;
        Some(sent.iter().max()?.since(*sent.iter().min()?))
    }

    /// Seconds from the moment the last worker began to send its arrival to the
    /// moment the last worker had its release. `None` until all have.
    pub(crate) fn release_seconds(&self, phase: Phase) -> Option<f64> {
        let sent = self.all(phase, |crossing| crossing.sent)?;
        let woken = self.all(phase, |crossing| crossing.woken)?;
        Some(woken.iter().max()?.since(*sent.iter().max()?))
    }

    fn all(&self, phase: Phase, instant: impl Fn(&Crossing) -> Option<Instant>) -> Option<Vec<Instant>> {
        self.crossings.iter().map(|phases| instant(&phases[phase as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arriving(phase: Phase, ms: u64) -> Event {
        Event::Arriving { phase, at: Instant(ms * 1_000_000) }
    }

    fn woken(phase: Phase, ms: u64) -> Event {
        Event::Woken { phase, at: Instant(ms * 1_000_000) }
    }

    #[test]
    fn times_are_known_once_all_have_told() {
        let mut course = Course::new(2);
        course.event(0, arriving(Phase::Map, 100));
        course.event(1, arriving(Phase::Map, 2_100));
        assert_eq!(course.skew_seconds(Phase::Map), Some(2.0));
        course.event(0, woken(Phase::Map, 2_130));
        assert_eq!(course.release_seconds(Phase::Map), None);
        course.event(1, woken(Phase::Map, 2_125));
        assert_eq!(course.release_seconds(Phase::Map), Some(0.03));
        assert_eq!(course.skew_seconds(Phase::Shuffle), None);
    }

    #[test]
    fn a_run_is_done_when_every_worker_is() {
        let mut course = Course::new(2);
        course.ended(0, Ending::Done);
        assert!(!course.all_ended());
        course.ended(1, Ending::Died("signal 9".into()));
        assert!(course.all_ended() && !course.all_done());
        course.ended(1, Ending::Done);
        assert!(course.all_done());
        assert_eq!(course.open(), Phase::ALL);
        assert!(!course.told() && course.broken().is_none());
        course.event(0, Event::Heard { phase: Phase::Shuffle, words: "why".into() });
        assert_eq!(course.broken(), Some((Phase::Shuffle, "why")));
    }
}
