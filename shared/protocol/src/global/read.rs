//! What can be asked of the coordinator's state, and what is still unanswered.

use alloc::vec::Vec;

use super::{Barrier, Generation, Waiver};
use crate::fact::{Fact, Opened, Waived};
use crate::generation::{GenerationId, State};
use crate::name::RegionName;
use crate::spec::Spec;

impl Barrier {
    /// A loaded generation with the spec it was opened with.
    #[must_use]
    pub fn loaded(&self, n: u64) -> Option<(&Generation, &Spec)> {
        let generation = self.generations.get(&n)?;
        Some((generation, self.specs.get(&generation.revision)?))
    }
}

impl Barrier {
    /// The generation of this barrier that belongs to one of another: of the
    /// same key, the latest round, or of the same number.
    #[must_use]
    pub fn counterpart(&self, of: &GenerationId) -> Option<&Generation> {
        match &of.key {
            None => self.generations.get(&of.n).filter(|generation| generation.id.key.is_none()),
            Some(key) => {
                let rounds = self.generations.values().filter(|generation| generation.id.key.as_ref() == Some(key));
                rounds.max_by_key(|generation| generation.id.round)
            }
        }
    }
}

impl Generation {
    /// How far it has come.
    #[must_use]
    pub fn state(&self) -> State {
        match &self.decided {
            None => State::Gathering,
            Some(decided) if !decided.outcome.verdict.is_released() => State::Broken,
            Some(_) if self.settled => State::Released,
            Some(_) => State::Releasing,
        }
    }

    /// Whether a whole region is no longer expected.
    #[must_use]
    pub fn waives(&self, region: &RegionName) -> bool {
        self.waived.get(region).is_some_and(Waiver::is_whole)
    }

    /// Whether one region has applied the end.
    #[must_use]
    pub fn applied(&self, region: &RegionName) -> bool {
        let applied = self.reports.get(region).and_then(|report| report.applied);
        self.decided.as_ref().is_some_and(|decided| applied == Some(decided.outcome.digest()))
    }

    /// Whether every region has applied the end.
    #[must_use]
    pub fn applied_everywhere(&self, spec: &Spec) -> bool {
        self.decided.as_ref().is_some_and(|decided| {
            let digest = decided.outcome.digest();
            let applied = |region| self.reports.get(region).and_then(|report| report.applied) == Some(digest);
            crate::mutant!(SettlesEarly) && spec.regions.keys().any(applied) || spec.regions.keys().all(applied)
        })
    }

    /// The opening as one region hears it.
    #[must_use]
    pub fn opened(&self, spec: &Spec, region: &RegionName, with_slice: bool) -> Option<Opened> {
        let slice = spec.regions.get(region)?;
        Some(Opened {
            generation: self.id.clone(),
            region: region.clone(),
            spec: slice.digest(),
            slice: with_slice.then(|| slice.clone()),
            opened_at: self.opened_at,
            carry: self.carry,
        })
    }

    /// The fact that one region has not answered, slice and all: its opening
    /// until it reports, a waiver until it reports that, its end until it has
    /// applied it. One that has applied an end which is not known here is told
    /// the opening again, and answers with that end.
    #[must_use]
    pub fn unanswered(&self, spec: &Spec, region: &RegionName) -> Option<Fact> {
        if let Some(decided) = &self.decided {
            return (!self.applied(region)).then(|| Fact::Decided(decided.clone()));
        }
        let Some(report) = self.reports.get(region) else {
            return self.opened(spec, region, true).map(Fact::Opened);
        };
        if report.lacks_end() {
            return self.opened(spec, region, true).map(Fact::Opened);
        }
        let waiver = self.waived.get(region).filter(|waiver| waiver.revision > report.apart.waiver)?;
        Some(Fact::Waived(Waived {
            generation: self.id.clone(),
            region: region.clone(),
            revision: waiver.revision,
            participants: waiver.participants.clone()?,
        }))
    }

    /// The regions that owe an answer.
    #[must_use]
    pub fn unanswered_regions<'a>(&self, spec: &'a Spec) -> Vec<&'a RegionName> {
        spec.regions.keys().filter(|region| self.unanswered(spec, region).is_some()).collect()
    }
}
