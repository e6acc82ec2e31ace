//! All chance of a run, from its seed: the same seed gives the same run on
//! every machine and with every version of every library, which is why this is
//! written out here (PCG XSL RR 128/64; O'Neill, "PCG: A Family of Simple Fast
//! Space-Efficient Statistically Good Algorithms", 2014).

use std::ops::RangeInclusive;

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
const INCREMENT: u128 = 0x5851_f42d_4c95_7f2d_1405_7b7e_f767_814f;

/// A stream of chance.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u128);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Self(u128::from(seed).wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT));
        chance.next();
        chance.next();
        chance
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
        let folded = (self.0 >> 64) as u64 ^ self.0 as u64;
        folded.rotate_right((self.0 >> 122) as u32)
    }

    /// A number of the range; the bias of the remainder does not matter here.
    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let width = range.end() - range.start() + 1;
        range.start() + self.next() % width
    }

    /// True so many times in a thousand.
    pub(crate) fn permille(&mut self, permille: u64) -> bool {
        permille > 0 && self.next() % 1_000 < permille
    }

    /// An index below `len`, which is not 0.
    pub(crate) fn below(&mut self, len: usize) -> usize {
        (self.next() % len as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut chance = Chance::new(7);
        let drawn: Vec<u64> = (0..3).map(|_| chance.next()).collect();
        let mut again = Chance::new(7);
        assert_eq!(drawn, (0..3).map(|_| again.next()).collect::<Vec<_>>());
        assert_ne!(drawn[0], Chance::new(8).next());
    }
}
