//! What the world was told: decisions as they became durable, and outcomes as
//! clients heard them. One generation has one outcome everywhere.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::generation::GenerationId;
use muster_protocol::identity::Digest;
use muster_protocol::name::BarrierName;
use muster_protocol::outcome::{BreakReason, Outcome, Verdict};

use crate::sightings::{Sight, Sightings};

/// Outcomes by generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// As they became durable, at the coordinator or in the region that
    /// decides the barrier.
    decided: BTreeMap<(Option<usize>, BarrierName, u64), Vec<Digest>>,
    /// As clients of each region were told.
    heard: BTreeMap<(usize, BarrierName, u64), Digest>,
    /// The store lost transactions: what was decided may be decided anew.
    pub(crate) rolled_back: bool,
    /// Barriers of which it lost a definition, a collection, the first greeting of
    /// a region, or a number that may be given again: what regions know of them,
    /// the present ones may not fit.
    pub(crate) doubtful: BTreeSet<BarrierName>,
}

impl Told {
    /// An outcome became durable, in a region if that decides alone. Says what
    /// is wrong, if anything is.
    pub(crate) fn decided(
        &mut self,
        home: Option<usize>,
        outcome: &Outcome,
        seen: &mut Sightings,
    ) -> Result<(), String> {
        let sight = match &outcome.verdict {
            Verdict::Released(_) => Some(Sight::Released),
            Verdict::Broken(broken) => match broken.reason {
                BreakReason::Aborted => Some(Sight::BrokenAborted),
                BreakReason::Deleted => Some(Sight::BrokenDeleted),
                BreakReason::DeadlineExceeded => Some(Sight::BrokenDeadline),
                BreakReason::ParticipantFailed => Some(Sight::BrokenFailed),
                BreakReason::MaxFailuresExceeded => Some(Sight::BrokenMaxFailures),
                _ => None,
            },
        };
        sight.into_iter().for_each(|sight| seen.sight(sight));
        let (id, digest) = (&outcome.generation, outcome.digest());
        let before = self.decided.entry((home, id.barrier.clone(), id.n)).or_default();
        if before.contains(&digest) {
            return Ok(());
        }
        before.push(digest);
        match before.len() == 1 || self.rolled_back {
            true => Ok(()),
            false => Err(format!("{id} was decided in two ways")),
        }
    }

    /// Whether the store lost an end of a generation, and made another.
    pub(crate) fn was_decided_anew(&self, id: &GenerationId) -> bool {
        self.decided.get(&(None, id.barrier.clone(), id.n)).is_some_and(|ends| ends.len() > 1)
    }

    /// A client of a region was told an outcome, which that region decided
    /// alone if it is its `home`.
    pub(crate) fn heard(&mut self, region: usize, home: Option<usize>, outcome: &Outcome) -> Result<(), String> {
        let (id, digest) = (&outcome.generation, outcome.digest());
        let first = *self.heard.entry((region, id.barrier.clone(), id.n)).or_insert(digest);
        if first != digest {
            return Err(format!("clients of one region were told two outcomes of {id}"));
        }
        let decided = self.decided.get(&(home, id.barrier.clone(), id.n));
        if !decided.is_some_and(|decided| decided.contains(&digest)) {
            return Err(format!("a client was told an outcome of {id} that was never decided"));
        }
        Ok(())
    }
}
