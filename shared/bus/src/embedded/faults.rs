//! Harm on request: a bus may drop, repeat and reorder, and tests of what
//! stands on it want to see that.

use super::Carried;

/// Which records to harm, by counting: `drop_every: 3` drops every third.
/// 0, the default, harms none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Every so manieth record is lost.
    pub drop_every: u32,
    /// Every so manieth record comes twice.
    pub duplicate_every: u32,
    /// Every so manieth record comes only after the next one.
    pub reorder_every: u32,
}

/// One direction's records, in the order they pass.
#[derive(Debug, Default)]
pub(super) struct Line {
    faults: Faults,
    passed: u32,
    held: Option<Carried>,
}

impl Line {
    /// Sets what is harmed from here on; counting starts anew.
    pub(super) fn set(&mut self, faults: Faults) {
        self.faults = faults;
        self.passed = 0;
    }

    /// What comes out when this record goes in.
    pub(super) fn pass(&mut self, carried: Carried) -> Vec<Carried> {
        self.passed = self.passed.wrapping_add(1);
        let Faults { drop_every, duplicate_every, reorder_every } = self.faults;
        let due = |every: u32| every != 0 && self.passed.is_multiple_of(every);
        let mut out = Vec::new();
        if due(reorder_every) {
            return self.held.replace(carried).into_iter().collect();
        }
        if due(duplicate_every) {
            out.push(carried.clone());
        }
        if !due(drop_every) {
            out.push(carried);
        }
        out.extend(self.held.take());
        out
    }
}
