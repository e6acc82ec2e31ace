//! What every process of a run stands on: time, chance, the network, the truth
//! that is checked, and the story that is told of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use muster_protocol::identity::Timestamp;
use muster_protocol::invariant::Invariant;

use crate::chance::Chance;
use crate::event::Event;
use crate::network::{Link, Network, Way};
use crate::sightings::{Sight, Sightings};
use crate::told::Told;
use crate::truth::Truth;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// How.
    pub what: String,
    /// When, in simulated time.
    pub at: Duration,
}

struct Due {
    at: Duration,
    /// Orders what is due at the same instant, differently for each seed.
    tie: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.tie).cmp(&(other.at, other.tie))
    }
}

/// The ground of a run.
pub(crate) struct Scene {
    pub(crate) now: Duration,
    queue: BinaryHeap<Reverse<Due>>,
    pub(crate) chance: Chance,
    pub(crate) network: Network,
    pub(crate) seen: Sightings,
    /// One for each region.
    pub(crate) truth: Vec<Truth>,
    pub(crate) told: Told,
    pub(crate) calm: bool,
    pub(crate) violation: Option<Violation>,
    story: Option<Vec<String>>,
    calls: u64,
    pub(crate) steps: u64,
}

impl Scene {
    pub(crate) fn new(seed: u64, network: Network, truth: Vec<Truth>, recorded: bool) -> Self {
        Self {
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            chance: Chance::new(seed),
            network,
            seen: Sightings::default(),
            truth,
            told: Told::default(),
            calm: false,
            violation: None,
            story: recorded.then(Vec::new),
            calls: 0,
            steps: 0,
        }
    }

    /// The database's clock, and that of everybody's stamps.
    pub(crate) fn clock(&self) -> Timestamp {
        Timestamp(1_000_000 + self.now.as_millis() as u64)
    }

    /// A number no call of this run has had.
    pub(crate) fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    pub(crate) fn after(&mut self, pause: Duration, event: Event) {
        self.at(self.now + pause, event);
    }

    pub(crate) fn at(&mut self, at: Duration, event: Event) {
        let tie = self.chance.next();
        self.queue.push(Reverse(Due { at, tie, event }));
    }

    /// The next event, if it is due by then.
    pub(crate) fn next(&mut self, end: Duration) -> Option<Event> {
        if self.queue.peek().is_none_or(|Reverse(due)| due.at > end) {
            return None;
        }
        let Reverse(due) = self.queue.pop()?;
        self.now = due.at;
        self.steps += 1;
        Some(due.event)
    }

    /// Sends a message; chance says when it arrives, and how often. `false` if
    /// it never does.
    pub(crate) fn send(&mut self, link: Link, way: Way, event: Event) -> bool {
        let fate = self.network.fate(&mut self.chance, link, way, self.now);
        match fate.arrivals.as_slice() {
            [] => self.note(|| format!("        lost on {link:?} {way:?}: {}", brief(&event))),
            [once] => self.after(*once, event),
            [once, again, ..] => {
                self.seen.sight(Sight::DoubledMessage);
                self.after(*again, event.clone());
                self.after(*once, event);
            }
        }
        !fate.arrivals.is_empty()
    }

    /// Adds a line to the story, if one is told.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(story) = &mut self.story {
            story.push(format!("{:>9.3}s  {}", now.as_secs_f64(), line()));
        }
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.story.is_some()
    }

    pub(crate) fn into_story(self) -> Vec<String> {
        self.story.unwrap_or_default()
    }

    /// A promise is broken: the first one ends the run.
    pub(crate) fn violated(&mut self, invariant: Invariant, what: String) {
        self.note(|| format!("!!      {invariant} is broken: {what}"));
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, what, at: self.now });
        }
    }

    pub(crate) fn check(&mut self, holds: bool, invariant: Invariant, what: impl FnOnce() -> String) {
        if !holds {
            self.violated(invariant, what());
        }
    }
}

/// An event in few words.
pub(crate) fn brief(event: &Event) -> String {
    let mut text = format!("{event:?}");
    if text.len() > 300 {
        let mut end = 300;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
