//! Facts from the coordinator. The first of a kind that a region applies for a
//! generation stays; a different second one is an alarm, never applied (I2).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Barrier, Counts, Effect, Ended, Generation, Refusal, Region, Reply};
use crate::fact::{Closed, Decided, Fact, Next, Opened};
use crate::generation::GenerationId;
use crate::identity::{Digest, Timestamp};
use crate::mutant;

impl Region {
    pub(super) fn fact(&mut self, fact: &Fact, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        let changed = match fact {
            Fact::Opened(opened) => self.opened(opened, effects)?,
            Fact::Decided(decided) => self.decided(decided, effects)?,
            Fact::Closed(closed) => self.closed(closed)?,
        };
        Ok(Reply::Done { changed })
    }

    fn opened(&mut self, opened: &Opened, effects: &mut Vec<Effect>) -> Result<bool, Refusal> {
        let (index, clock_ms) = (self.index, self.clock_ms);
        let id = &opened.generation;
        let barrier = self.barriers.entry(id.barrier.clone()).or_default();
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
        if let Some((broken, slice)) =
            opened.carry.and_then(|n| barrier.generations.get(&n)).zip(barrier.slices.get(&opened.spec))
        {
            generation.carry_over(index, broken, slice);
        }
        barrier.insert(generation);
        effects.push(Effect::Opened { barrier: id.barrier.clone(), n: id.n });
        effects.push(Effect::Changed { barrier: id.barrier.clone(), n: id.n, urgent: true });
        Ok(true)
    }

    fn decided(&mut self, decided: &Decided, effects: &mut Vec<Effect>) -> Result<bool, Refusal> {
        let (index, clock_ms) = (self.index, self.clock_ms);
        let outcome = &decided.outcome;
        let id = &outcome.generation;
        let digest = outcome.digest();
        let barrier = self.barriers.entry(id.barrier.clone()).or_default();
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
        let spec = generation.spec;
        effects.push(Effect::Ended { barrier: id.barrier.clone(), n: id.n });
        effects.push(Effect::Changed { barrier: id.barrier.clone(), n: id.n, urgent: true });
        if let Some(next) = decided.next.as_ref().filter(|next| next.same_spec) {
            self.open_next(next, spec, effects);
        }
        Ok(true)
    }

    /// A cyclic generation's end opens the next in the same step, so that
    /// nobody who passes can be too early for it.
    fn open_next(&mut self, next: &Next, spec: Option<Digest>, effects: &mut Vec<Effect>) {
        let id = &next.generation;
        let Some(barrier) = self.barriers.get_mut(&id.barrier) else { return };
        let known = barrier.generations.contains_key(&id.n);
        let Some(spec) = spec.filter(|spec| !known && barrier.slices.contains_key(spec)) else { return };
        barrier.insert(Generation::new(id.clone(), Some(spec), next.opened_at, self.clock_ms));
        effects.push(Effect::Opened { barrier: id.barrier.clone(), n: id.n });
        effects.push(Effect::Changed { barrier: id.barrier.clone(), n: id.n, urgent: true });
    }

    fn closed(&mut self, closed: &Closed) -> Result<bool, Refusal> {
        let id = &closed.generation;
        let Some(barrier) = self.barriers.get_mut(&id.barrier) else { return Ok(false) };
        let Some(generation) = barrier.generations.get_mut(&id.n) else { return Ok(false) };
        // Only what has ended can lose its details.
        if generation.ended.is_none() || generation.closed {
            return Ok(false);
        }
        generation.closed = true;
        generation.arrivals = BTreeMap::new();
        generation.withdrawn = BTreeMap::new();
        barrier.forget_slices();
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

    /// Keeps the slices that generations with details use, and the newest.
    fn forget_slices(&mut self) {
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
    fn new(id: GenerationId, spec: Option<Digest>, opened_at: Timestamp, opened_clock_ms: u64) -> Self {
        Self {
            id,
            spec,
            opened_at,
            opened_clock_ms,
            arrivals: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            counts: Counts::default(),
            outputs_bytes: 0,
            first_arrival_at: None,
            last_arrival_at: None,
            completed: None,
            ended: None,
            closed: false,
        }
    }
}
