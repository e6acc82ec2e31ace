//! Runs seeds against each known bug until one breaks a promise. A bug that
//! survives says that the simulator proves less than it seems to.

use std::fmt::Write as _;

use muster_protocol::mutant::{Mutant, switch};

use crate::run::run;
use crate::workload::Restored;

/// How often each is hunted, from other seeds; the median is what is published.
const HUNTS: u64 = 5;

/// How one bug was caught.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The bug.
    pub mutant: Mutant,
    /// Seeds each hunt took; `None` for one that failed.
    pub seeds: Vec<Option<u64>>,
    /// Which promise was broken first, in the first hunt.
    pub by: String,
}

impl Caught {
    /// The median, unless a hunt failed.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        let mut seeds: Vec<u64> = self.seeds.iter().copied().collect::<Option<_>>()?;
        seeds.sort_unstable();
        seeds.get(seeds.len() / 2).copied()
    }
}

/// What a seed is run with when all faults are wanted: mostly none of the data
/// comes from a backup, now and then a log or the store does.
fn mode(seed: u64) -> Restored {
    match seed % 8 {
        6 => Restored::Log,
        7 => Restored::Store,
        _ => Restored::Nothing,
    }
}

/// Hunts one bug; after so many seeds it counts as not caught.
#[must_use]
pub fn hunt(mutant: Mutant, seeds_max: u64) -> Caught {
    switch(Some(mutant));
    let mut caught = Caught { mutant, seeds: Vec::new(), by: String::new() };
    for hunt in 0..HUNTS {
        let from = hunt * 1_000_000;
        let found = (from..from + seeds_max).find_map(|seed| Some((seed, run(seed, mode(seed)).violation?)));
        if let (Some((_, violation)), true) = (&found, caught.by.is_empty()) {
            caught.by = violation.invariant.to_string();
        }
        caught.seeds.push(found.map(|(seed, _)| seed - from + 1));
        if caught.seeds.last() == Some(&None) {
            break;
        }
    }
    switch(None);
    caught
}

/// The results as JSON, for the documents that publish them.
#[must_use]
pub fn json(caught: &[Caught]) -> String {
    let mut text = String::from("[\n");
    for (at, one) in caught.iter().enumerate() {
        let comma = if at + 1 < caught.len() { "," } else { "" };
        let median = one.median().map_or_else(|| "null".to_owned(), |median| median.to_string());
        let _ = writeln!(
            text,
            "  {{\"name\": \"{}\", \"what\": \"{}\", \"breaks\": \"{}\", \"caughtBy\": \"{}\", \"seedsMedian\": {median}}}{comma}",
            one.mutant.name(),
            one.mutant.what(),
            one.mutant.breaks(),
            one.by,
        );
    }
    text.push_str("]\n");
    text
}
