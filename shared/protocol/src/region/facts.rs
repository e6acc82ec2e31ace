//! Facts from the coordinator. The first of a kind that a region applies for a
//! generation stays; a different second one is an alarm, never applied (I2).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Absence, ArrivalOutcome, Barrier, Counts, Effect, Ended, Generation, Refusal, Region, Reply};
use crate::fact::{Closed, Decided, Fact, Next, Opened, Waived};
use crate::generation::GenerationId;
use crate::identity::{Digest, Timestamp};
use crate::mutant;

impl Region {
    pub(super) fn fact(&mut self, fact: &Fact, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        let id = fact.generation();
        if self.regional.contains_key(&id.barrier) {
            return Ok(Reply::Done { changed: self.name_is_taken(fact, effects) });
        }
        let changed = match fact {
            Fact::Opened(opened) => self.opened(opened, effects)?,
            Fact::Decided(decided) => self.decided(decided, effects)?,
            Fact::Closed(closed) => self.closed(closed, effects),
            Fact::Waived(waived) => self.waived(waived, effects)?,
        };
        Ok(Reply::Done { changed })
    }

    /// The coordinator speaks of a barrier whose name is regional here: it is
    /// told so, and breaks it.
    fn name_is_taken(&mut self, fact: &Fact, effects: &mut Vec<Effect>) -> bool {
        let id = fact.generation();
        let known = (id.barrier.clone(), id.n);
        match fact {
            Fact::Opened(_) | Fact::Decided(_) => {
                let applied = match fact {
                    Fact::Decided(decided) => Some(decided.outcome.digest()),
                    _ => None,
                };
                let before = self.taken.get(&known).map(|(_, applied)| *applied);
                let changed = before.is_none_or(|before| before.is_none() && applied.is_some());
                if changed {
                    self.taken.insert(known, (id.clone(), applied));
                }
                effects.push(Effect::NameTaken { generation: id.clone() });
                changed
            }
            Fact::Closed(closed) => {
                self.taken.retain(|(barrier, n), _| *barrier != id.barrier || *n > closed.generation.n);
                false
            }
            Fact::Waived(_) => false,
        }
    }

    pub(super) fn opened(&mut self, opened: &Opened, effects: &mut Vec<Effect>) -> Result<bool, Refusal> {
        let (index, clock_ms, watched) = (self.index, self.clock_ms, self.machine_version >= 2);
        let id = &opened.generation;
        let barrier = self.barriers.entry(id.barrier.clone()).or_default();
        if barrier.has_forgotten(id.n) && !mutant!(ForgottenComesBack) {
            return Ok(false);
        }
        if let Some(known) = barrier.generations.get(&id.n) {
            // Heard after its end, an opening says nothing new.
            if known.ended.is_some() || known.spec == Some(opened.spec) && known.id == *id {
                return Ok(false);
            }
            effects.push(Effect::Conflict { barrier: id.barrier.clone(), n: id.n });
            return Err(Refusal::Conflict);
        }
        match &opened.slice {
            Some(slice) => {
                barrier.slices.insert(opened.spec, slice.clone());
            }
            None if !barrier.slices.contains_key(&opened.spec) => {
                return Err(Refusal::SliceUnknown { spec: opened.spec });
            }
            None => {}
        }
        let mut generation = Generation::new(id.clone(), Some(opened.spec), opened.opened_at, clock_ms);
        if let Some(slice) = barrier.slices.get(&opened.spec).filter(|_| watched) {
            generation.count_zones(index, slice);
        }
        if let Some((broken, slice)) =
            opened.carry.and_then(|n| barrier.generations.get(&n)).zip(barrier.slices.get(&opened.spec))
        {
            generation.carry_over(index, broken, slice, watched);
        }
        barrier.insert(generation);
        effects.push(Effect::Opened { barrier: id.barrier.clone(), n: id.n });
        effects.push(Effect::Changed { barrier: id.barrier.clone(), n: id.n, urgent: true });
        Ok(true)
    }

    pub(super) fn decided(&mut self, decided: &Decided, effects: &mut Vec<Effect>) -> Result<bool, Refusal> {
        let (index, clock_ms, watched) = (self.index, self.clock_ms, self.machine_version >= 2);
        let outcome = &decided.outcome;
        let id = &outcome.generation;
        let digest = outcome.digest();
        let barrier = self.barriers.entry(id.barrier.clone()).or_default();
        if barrier.has_forgotten(id.n) {
            return Ok(false);
        }
        if !barrier.generations.contains_key(&id.n) {
            barrier.insert(Generation::new(id.clone(), None, outcome.decided_at, clock_ms));
        }
        let Some(generation) = barrier.generations.get_mut(&id.n) else { unreachable!("inserted above") };
        match &generation.ended {
            Some(known) if known.digest == digest => return Ok(false),
            Some(_) if !mutant!(SecondOutcomeOverwrites) => {
                effects.push(Effect::Conflict { barrier: id.barrier.clone(), n: id.n });
                return Err(Refusal::Conflict);
            }
            _ => generation.ended = Some(Ended { outcome: outcome.clone(), digest, index }),
        }
        // Version 1 of the machine kept no such time, nor writes it.
        generation.ended_clock_ms = if watched { clock_ms } else { 0 };
        let spec = generation.spec;
        effects.push(Effect::Ended { barrier: id.barrier.clone(), n: id.n });
        effects.push(Effect::Changed { barrier: id.barrier.clone(), n: id.n, urgent: true });
        if let Some(next) = decided.next.as_ref().filter(|next| next.same_spec) {
            self.open_next(next, spec, effects);
        }
        self.retain(&id.barrier, id.n);
        Ok(true)
    }

    /// A cyclic generation's end opens the next in the same step, so that
    /// nobody who passes can be too early for it.
    fn open_next(&mut self, next: &Next, spec: Option<Digest>, effects: &mut Vec<Effect>) {
        let id = &next.generation;
        let Some(barrier) = self.barriers.get_mut(&id.barrier) else { return };
        let known = barrier.generations.contains_key(&id.n);
        let Some(spec) = spec.filter(|spec| !known && barrier.slices.contains_key(spec)) else { return };
        let mut generation = Generation::new(id.clone(), Some(spec), next.opened_at, self.clock_ms);
        if let Some(slice) = barrier.slices.get(&spec).filter(|_| self.machine_version >= 2) {
            generation.count_zones(self.index, slice);
        }
        barrier.insert(generation);
        effects.push(Effect::Opened { barrier: id.barrier.clone(), n: id.n });
        effects.push(Effect::Changed { barrier: id.barrier.clone(), n: id.n, urgent: true });
    }

    fn closed(&mut self, closed: &Closed, effects: &mut Vec<Effect>) -> bool {
        let (id, watched) = (&closed.generation, self.machine_version >= 2);
        let Some(barrier) = self.barriers.get_mut(&id.barrier) else { return false };
        // It says all that an earlier one said, and more.
        if id.n <= barrier.forgotten {
            return false;
        }
        // What was forgotten here stays so, though a database that lost its
        // collection keeps it: it could end in a second way.
        let kept = closed.kept.iter().copied().filter(|n| !watched || !barrier.has_forgotten(*n)).collect();
        barrier.forgotten = id.n;
        barrier.kept = kept;
        let gone: Vec<u64> = barrier.generations.range(..=id.n).map(|(n, _)| *n).collect();
        for n in gone.into_iter().filter(|n| !closed.kept.contains(n)) {
            // Its end never came here: whoever waits for it must look again.
            if barrier.generations[&n].ended.is_none() {
                effects.push(Effect::Ended { barrier: id.barrier.clone(), n });
            }
            barrier.forget(n);
        }
        barrier.forget_slices();
        true
    }

    pub(super) fn waived(&mut self, waived: &Waived, effects: &mut Vec<Effect>) -> Result<bool, Refusal> {
        let (id, index) = (&waived.generation, self.index);
        let (generation, slice) = self.generation_mut(&id.barrier, id.n)?;
        let Some(slice) = slice.filter(|_| generation.ended.is_none() && waived.revision > generation.waiver) else {
            return Ok(false);
        };
        let before = generation.report_key();
        generation.waiver = waived.revision;
        for participant in waived.participants.iter() {
            // Who has arrived has arrived; who failed is forgiven.
            let arrived = generation.arrivals.get(&participant).map(|arrival| arrival.outcome);
            let expected = slice.participants.admits(&participant) && arrived != Some(ArrivalOutcome::Ok);
            if expected && !generation.is_sealed(slice, &participant) {
                generation.put_absence(slice, &participant, Absence::Waived);
            }
        }
        generation.promise(index, slice);
        let after = generation.report_key();
        self.changed(&id.barrier, id.n, before, after, effects);
        Ok(true)
    }
}

impl Barrier {
    fn insert(&mut self, generation: Generation) {
        if let Some(key) = &generation.id.key {
            self.rounds.insert((key.clone(), generation.id.round), generation.id.n);
        }
        self.generations.insert(generation.id.n, generation);
        self.forget_slices();
    }

    /// Whether a generation was here, or may have been, and is no more.
    #[must_use]
    pub fn has_forgotten(&self, n: u64) -> bool {
        n <= self.forgotten && !self.kept.contains(&n) && !self.generations.contains_key(&n)
    }

    pub(super) fn forget(&mut self, n: u64) {
        if let Some(generation) = self.generations.remove(&n)
            && let Some(key) = generation.id.key
        {
            self.rounds.remove(&(key, generation.id.round));
        }
    }

    /// Keeps the slices that generations with details use, and the newest.
    pub(super) fn forget_slices(&mut self) {
        if self.slices.len() < 2 {
            return;
        }
        let newest = self.generations.values().rev().find_map(|generation| generation.spec);
        let used: Vec<Digest> =
            self.generations.values().filter(|generation| !generation.closed).filter_map(|g| g.spec).collect();
        self.slices.retain(|spec, _| used.contains(spec) || newest == Some(*spec));
    }
}

impl Generation {
    pub(super) fn new(id: GenerationId, spec: Option<Digest>, opened_at: Timestamp, opened_clock_ms: u64) -> Self {
        Self {
            id,
            spec,
            opened_at,
            opened_clock_ms,
            arrivals: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            counts: Counts::default(),
            zones: BTreeMap::new(),
            outputs_bytes: 0,
            first_arrival_at: None,
            last_arrival_at: None,
            completed: None,
            absent: BTreeMap::new(),
            waiver: 0,
            workers: BTreeMap::new(),
            ended: None,
            ended_clock_ms: 0,
            closed: false,
        }
    }
}
