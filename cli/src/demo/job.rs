//! What the demo and a worker tell each other, one JSON object a line: the
//! [`Job`] down the worker's standard input, [`Event`]s up its standard output.
//! The input stays open as long as the demo lives; its end is the worker's.

use std::ffi::OsString;
use std::time::Duration;

use muster_protocol::name::{Key, RegionName};
use serde::{Deserialize, Serialize};

use super::input::Slice;
use super::roster::{Phase, WorkerName};

/// What one worker has to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The run, and the key of its generations.
    pub(crate) key: Key,
    pub(crate) worker: WorkerName,
    /// Its place among all workers; it is also the reducer it sums for.
    pub(crate) place: usize,
    /// How many workers there are: as many mappers as reducers.
    pub(crate) workers: usize,
    /// The reducer it shuffles for.
    pub(crate) shuffles: usize,
    /// Its region's agents; it talks to nobody else.
    pub(crate) agents: Vec<String>,
    /// The run's folder.
    pub(crate) folder: OsString,
    /// Its share of the input.
    pub(crate) share: Vec<Slice>,
    /// How long it rests in the middle of map.
    pub(crate) rest: Duration,
    /// When it gives up, from its start.
    pub(crate) limit: Duration,
}

/// What a worker tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub(crate) enum Event {
    /// Half of its share is mapped.
    Halfway,
    /// It is done with a phase and sends its arrival.
    Arriving { phase: Phase, at: Instant },
    /// It heard the release.
    Woken { phase: Phase, at: Instant },
    /// It heard that the barrier is broken, in these words.
    Heard { phase: Phase, words: String },
}

/// Nanoseconds on a clock that all processes of this machine share and nobody
/// sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Instant(pub(crate) u64);

impl Instant {
    pub(crate) fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // Since the machine started: neither is negative, and 584 years fit.
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or_default();
        Self(seconds * 1_000_000_000 + nanoseconds)
    }

    /// Seconds since an earlier one; 0 when it was later.
    pub(crate) fn since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e9
    }
}

/// The reducer that the worker at `place` shuffles for: that of a worker in
/// another region where there are several, so that reading is safe for no other
/// reason than the barrier.
pub(crate) fn shuffles(place: usize, per_region: u32, regions: &[RegionName]) -> usize {
    let workers = regions.len() * per_region as usize;
    let shift = if regions.len() > 1 { per_region as usize } else { 1 };
    (place + shift) % workers.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines() {
        let at = Instant::now();
        for event in [
            Event::Halfway,
            Event::Arriving { phase: Phase::Map, at },
            Event::Heard { phase: Phase::Reduce, words: "a\nb".into() },
        ] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }

    #[test]
    fn every_reducer_is_shuffled_for_once_and_abroad() {
        let regions: Vec<RegionName> = ["a", "b", "c"].iter().map(|name| name.parse().unwrap()).collect();
        let mut found: Vec<usize> = (0..6).map(|place| shuffles(place, 2, &regions)).collect();
        assert!(found.iter().enumerate().all(|(place, reducer)| place / 2 != reducer / 2), "{found:?}");
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4, 5]);
        assert_eq!(shuffles(0, 1, &regions[..1]), 0);
        assert_eq!((0..3).map(|place| shuffles(place, 3, &regions[..1])).collect::<Vec<_>>(), [1, 2, 0]);
    }
}
