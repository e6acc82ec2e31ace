//! What somebody decides that participants had not: abort, forced release,
//! waiver, retry. Each takes the same lock as the last arrival, and can be
//! said again.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};

use super::apply::{Opening, Work, asked};
use super::{Action, Audit, Change, Refusal, Reply, View, Waiver};
use crate::fact::{Fact, Waived};
use crate::generation::GenerationId;
use crate::name::{Key, RegionName};
use crate::outcome::{Break, BreakReason, Outcome, Override, Verdict};
use crate::participants::{IdSet, Participants};
use crate::spec::{Generations, Slice};

impl Work<'_> {
    pub(super) fn abort(&mut self, n: u64, by: &Override) -> Result<Reply, Refusal> {
        if let Some(outcome) = self.outcome(n)? {
            return match outcome.verdict.is_released() {
                true => Err(Refusal::AlreadyDecided { outcome }),
                false => Ok(Reply::Ended { outcome, changed: false }),
            };
        }
        self.may_decide(n)?;
        self.audit(Action::Abort, Some(n), by, "");
        let outcome = self.end(n, Verdict::Broken(asked(BreakReason::Aborted, by)))?;
        Ok(Reply::Ended { outcome: Box::new(outcome), changed: true })
    }

    pub(super) fn release(&mut self, n: u64, by: &Override) -> Result<Reply, Refusal> {
        if let Some(outcome) = self.outcome(n)? {
            return match outcome.verdict.is_released() {
                true => Ok(Reply::Ended { outcome, changed: false }),
                false => Err(Refusal::AlreadyDecided { outcome }),
            };
        }
        self.may_decide(n)?;
        let release = self.view(n)?.release(Some(by.clone()));
        self.audit(Action::Release, Some(n), by, "");
        let outcome = self.end(n, Verdict::Released(release))?;
        Ok(Reply::Ended { outcome: Box::new(outcome), changed: true })
    }

    pub(super) fn waive(
        &mut self,
        n: u64,
        region: &RegionName,
        participants: Option<&IdSet>,
        by: &Override,
    ) -> Result<Reply, Refusal> {
        if let Some(outcome) = self.outcome(n)? {
            return Err(Refusal::AlreadyDecided { outcome });
        }
        self.may_decide(n)?;
        let View { generation, spec, .. } = self.view(n)?;
        let slice = spec.regions.get(region);
        let slice = slice.ok_or_else(|| Refusal::NotInBarrier { regions: spec.regions.keys().cloned().collect() })?;
        let known = generation.waived.get(region);
        let Some(participants) = widened(known, slice, participants)? else {
            return Ok(Reply::Waived { changed: false, outcome: None });
        };
        let revision = known.map_or(1, |known| known.revision + 1);
        let waiver = Waiver { revision, participants, by: by.clone() };
        let id = generation.id.clone();
        if let Some(participants) = waiver.participants.clone() {
            let fact = Waived { generation: id, region: region.clone(), revision, participants };
            self.facts.push(Fact::Waived(fact));
        }
        let object = waiver.participants.as_ref().map_or_else(|| region.to_string(), |ids| format!("{region}/{ids}"));
        self.audit(Action::Waive, Some(n), by, &object);
        self.changes.push(Change::Waived { n, region: region.clone(), waiver: waiver.clone() });
        if let Some(generation) = self.barrier.generations.get_mut(&n) {
            generation.waived.insert(region.clone(), waiver);
        }
        self.evaluate(n)?;
        Ok(Reply::Waived { changed: true, outcome: self.outcome(n)? })
    }

    pub(super) fn retry(&mut self, n: u64, key: Option<&Key>, keep: bool, by: &Override) -> Result<Reply, Refusal> {
        let (generation, _) = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?;
        let decided = generation.decided.as_ref().ok_or(Refusal::NotBroken)?;
        if decided.outcome.verdict.is_released() {
            return Err(Refusal::AlreadyDecided { outcome: Box::new(decided.outcome.clone()) });
        }
        // Whoever asks loads the rounds of a key by its name.
        if generation.id.key.as_ref() != key {
            return Err(Refusal::NoSuchGeneration);
        }
        let (closed, round) = (generation.closed, generation.id.round);
        let spec = self.barrier.spec().ok_or(Refusal::NotDefined)?;
        let newer = match spec.generations {
            Generations::Cyclic => {
                let next = self.barrier.generations.values().next_back();
                return Err(Refusal::GoesOn { next: next.map(|next| next.id.clone()).filter(|id| id.n > n) });
            }
            Generations::Single => self.barrier.generations.values().next_back().filter(|latest| latest.id.n > n),
            Generations::Keyed { .. } => self.latest_round(key).filter(|latest| latest.id.n > n),
        };
        if let Some(newer) = newer {
            let outcome = newer.decided.as_ref().map(|decided| Box::new(decided.outcome.clone()));
            return Ok(Reply::Opened { generation: newer.id.clone(), created: false, outcome });
        }
        if keep && closed {
            return Err(Refusal::Expired);
        }
        self.has_room()?;
        self.all_are_heard(spec)?;
        let mut next = self.new_generation(key, round + 1, Opening::Asked);
        next.carry = keep.then_some(n);
        let id = next.id.clone();
        self.audit(Action::Retry, Some(n), by, &id.label().to_string());
        self.insert(next);
        Ok(Reply::Opened { generation: id, created: true, outcome: None })
    }

    /// A job's barriers go down together.
    pub(super) fn predecessor_broke(&mut self, n: u64, predecessor: &GenerationId) -> Result<Reply, Refusal> {
        if let Some(outcome) = self.outcome(n)? {
            return Ok(Reply::Ended { outcome, changed: false });
        }
        self.may_decide(n)?;
        let message = format!("{predecessor}, which it comes after, is broken");
        let cause =
            Break { reason: BreakReason::PredecessorBroken, region: None, failed: [].into(), actor: None, message };
        let outcome = self.end(n, Verdict::Broken(cause))?;
        Ok(Reply::Ended { outcome: Box::new(outcome), changed: true })
    }

    /// Whether the generation may be decided at all.
    pub(super) fn may_decide(&self, n: u64) -> Result<(), Refusal> {
        let behind = self.view(n)?.behind();
        behind.map_or(Ok(()), |region| Err(Refusal::RegionBehind { region: region.clone() }))
    }

    /// How a generation ended, if it has.
    fn outcome(&self, n: u64) -> Result<Option<Box<Outcome>>, Refusal> {
        let (generation, _) = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?;
        Ok(generation.decided.as_ref().map(|decided| Box::new(decided.outcome.clone())))
    }

    pub(super) fn audit(&mut self, action: Action, n: Option<u64>, by: &Override, object: &str) {
        let generation = n.and_then(|n| self.barrier.generations.get(&n)).map(|generation| generation.id.clone());
        self.changes.push(Change::Audited(Box::new(Audit {
            at: self.context.at,
            action,
            barrier: self.barrier.name.clone(),
            generation,
            by: by.clone(),
            object: String::from(object),
        })));
    }
}

/// Who is waived once these are too: `None` when they were before, `Some(None)`
/// for the whole region.
fn widened(
    known: Option<&Waiver>,
    slice: &Slice,
    participants: Option<&IdSet>,
) -> Result<Option<Option<IdSet>>, Refusal> {
    if known.is_some_and(Waiver::is_whole) {
        return Ok(None);
    }
    let Some(participants) = participants else { return Ok(Some(None)) };
    if matches!(slice.participants, Participants::Count(_)) {
        return Err(Refusal::NoNames);
    }
    if let Some(participant) = participants.first_not(|id| slice.participants.admits(id)) {
        return Err(Refusal::NotExpected { participant });
    }
    let Some(before) = known.and_then(|known| known.participants.as_ref()) else {
        return Ok(Some(Some(participants.clone())));
    };
    match participants.first_not(|id| before.contains(id)) {
        None => Ok(None),
        // As many as are expected fit, and both are of them.
        Some(participant) => {
            let all = before.union(participants).map_err(|_| Refusal::NotExpected { participant })?;
            Ok(Some(Some(all)))
        }
    }
}

impl Waiver {
    /// Whether the whole region is waived.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.participants.is_none()
    }
}
