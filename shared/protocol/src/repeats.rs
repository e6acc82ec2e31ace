//! When the coordinator says again what no region has answered: 1 s after it
//! was first seen, then at doubling intervals up to 30 s, and at once to a
//! region that greets.
//!
//! What is unanswered is read from the store at each look, so a fact that was
//! never sent, lost, or sent by a coordinator that died is repeated like any
//! other. Instants are what the caller reads off a clock that never steps
//! back, since its zero.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::fact::Fact;
use crate::name::{BarrierName, RegionName};

/// The first pause before a fact is repeated.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest pause between repeats of a fact.
pub const LONGEST: Duration = Duration::from_secs(30);

/// What owes an answer: a region, for the opening or the end of a generation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Debt {
    region: RegionName,
    barrier: BarrierName,
    n: u64,
    decided: bool,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Duration,
    interval: Duration,
    look: u64,
}

/// What is due when.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    due: BTreeMap<Debt, Due>,
    look: u64,
}

impl Repeats {
    /// Of a page of what is unanswered, the facts to send now. `greeted` are
    /// the regions that are told at once.
    pub fn page(
        &mut self,
        unanswered: Vec<(RegionName, Fact)>,
        greeted: &BTreeSet<RegionName>,
        now: Duration,
    ) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut ends = BTreeSet::new();
        for (region, fact) in unanswered {
            let (barrier, n) = (fact.generation().barrier.clone(), fact.generation().n);
            let decided = matches!(fact, Fact::Decided(_));
            let greeted = greeted.contains(&region);
            let due = self.is_due(Debt { region, barrier: barrier.clone(), n, decided }, now, greeted);
            // An end is heard by every region: once is enough for all that lack it.
            if due && (!decided || ends.insert((barrier, n))) {
                facts.push(fact);
            }
        }
        facts
    }

    /// Whether a debt is to be repeated now.
    fn is_due(&mut self, debt: Debt, now: Duration, greeted: bool) -> bool {
        let first = Due { at: now + FIRST, interval: FIRST, look: self.look };
        let due = self.due.entry(debt).or_insert(first);
        due.look = self.look;
        if greeted {
            *due = first;
            return true;
        }
        if now < due.at || crate::mutant!(NoRepeatsDown) {
            return false;
        }
        due.interval = (due.interval * 2).min(LONGEST);
        due.at = now + due.interval;
        true
    }

    /// Forgets what was not seen since the last call: it was answered.
    pub fn end_look(&mut self) {
        let look = self.look;
        self.due.retain(|_, due| due.look == look);
        self.look += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt() -> Debt {
        Debt { region: "us-east".parse().unwrap(), barrier: "etl/map".parse().unwrap(), n: 1, decided: false }
    }

    const fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn intervals_double_up_to_the_limit() {
        let mut repeats = Repeats::default();
        let mut sent = Vec::new();
        for second in 0..120 {
            if repeats.is_due(debt(), at(second), false) {
                sent.push(second);
            }
            repeats.end_look();
        }
        assert_eq!(sent, [1, 3, 7, 15, 31, 61, 91]);
    }

    #[test]
    fn a_greeting_begins_anew() {
        let mut repeats = Repeats::default();
        assert!(!repeats.is_due(debt(), at(0), false));
        assert!(repeats.is_due(debt(), at(20), false));
        assert!(repeats.is_due(debt(), at(21), true), "who greets is told at once");
        assert!(repeats.is_due(debt(), at(22), false), "and again a second later");
    }

    #[test]
    fn what_was_answered_is_forgotten() {
        let mut repeats = Repeats::default();
        repeats.is_due(debt(), at(0), false);
        repeats.end_look();
        assert_eq!(repeats.due.len(), 1);
        repeats.end_look();
        assert!(repeats.due.is_empty());
    }
}
