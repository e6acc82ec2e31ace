//! Arrivals and withdrawals.

use alloc::vec::Vec;

use super::{Arrival, ArrivalOutcome, Arrive, Arrived, Counts, Effect, Generation, Refusal, Region, Reply, Withdraw};
use crate::caps;
use crate::mutant;
use crate::name::{BarrierName, ParticipantId};
use crate::spec::Slice;

/// How many of the latest arrivals a refusal for lack of room names.
const LATEST_NAMED: usize = 3;

impl Region {
    pub(super) fn arrive(&mut self, arrive: &Arrive, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        let (index, watched) = (self.index, self.machine_version >= 2);
        let (generation, slice) = self.generation_mut(&arrive.barrier, arrive.n)?;
        let before = generation.report_key();
        let arrived = generation.arrive(index, slice, arrive, watched)?;
        let after = generation.report_key();
        self.changed(&arrive.barrier, arrive.n, before, after, effects);
        Ok(Reply::Arrived(arrived))
    }

    pub(super) fn withdraw(&mut self, withdraw: &Withdraw, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        let (generation, slice) = self.generation_mut(&withdraw.barrier, withdraw.n)?;
        let before = generation.report_key();
        generation.withdraw(slice, withdraw)?;
        let after = generation.report_key();
        self.changed(&withdraw.barrier, withdraw.n, before, after, effects);
        Ok(Reply::Withdrawn)
    }

    pub(super) fn generation_mut(
        &mut self,
        barrier: &BarrierName,
        n: u64,
    ) -> Result<(&mut Generation, Option<&Slice>), Refusal> {
        let barrier = self.barriers.get_mut(barrier).ok_or(Refusal::NoSuchGeneration)?;
        if barrier.has_forgotten(n) {
            return Err(Refusal::Expired);
        }
        let n = if mutant!(ArrivesAtLatest) { barrier.generations.keys().last().copied().unwrap_or(n) } else { n };
        let generation = barrier.generations.get_mut(&n).ok_or(Refusal::NoSuchGeneration)?;
        let slice = generation.spec.and_then(|spec| barrier.slices.get(&spec));
        Ok((generation, slice))
    }

    /// Tells what a command changed of a generation, if it is worth telling.
    pub(super) fn changed(
        &mut self,
        barrier: &BarrierName,
        n: u64,
        before: ReportKey,
        after: ReportKey,
        effects: &mut Vec<Effect>,
    ) {
        if before == after {
            return;
        }
        let urgent = (before.promises, before.over, before.waiver) != (after.promises, after.over, after.waiver);
        effects.push(Effect::Changed { barrier: barrier.clone(), n, urgent });
        if urgent || before.counts == Counts::default() {
            self.tell_decider(barrier, n, effects);
        }
    }
}

/// What of a generation makes a report worth sending when it changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ReportKey {
    counts: Counts,
    promises: usize,
    over: bool,
    waiver: u32,
    workers: usize,
}

impl Generation {
    pub(super) fn report_key(&self) -> ReportKey {
        let zones = self.zones.values().filter(|zone| zone.completed.is_some()).count();
        ReportKey {
            counts: self.counts,
            promises: zones + usize::from(self.completed.is_some()),
            over: self.counts.failed > 0,
            waiver: self.waiver,
            workers: self.workers.len(),
        }
    }

    fn arrive(
        &mut self,
        index: u64,
        slice: Option<&Slice>,
        arrive: &Arrive,
        watched: bool,
    ) -> Result<Arrived, Refusal> {
        let id = &arrive.participant;
        if self.closed {
            return Err(Refusal::Expired);
        }
        if slice.is_some_and(|slice| !slice.participants.admits(id)) {
            return Err(Refusal::NotExpected);
        }
        if let Some(ended) = &self.ended {
            return match ended.outcome.verdict.is_released() {
                true => self.arrive_late(slice, arrive),
                false => Err(Refusal::Broken),
            };
        }
        let slice = slice.ok_or(Refusal::NoSuchGeneration)?;
        // Done stays done, whoever says it again.
        let done = self.arrivals.get(id).is_some_and(|known| known.outcome == ArrivalOutcome::Ok);
        if watched && !(done && slice.keep_arrivals) {
            self.is_its_worker(arrive)?;
        }
        if let Some(known) = self.arrivals.get(id) {
            let sealed = known.outcome == ArrivalOutcome::Ok || self.is_sealed(slice, id);
            if arrive.attempt < known.attempt {
                return Err(Refusal::StaleAttempt { known: known.attempt });
            }
            if arrive.attempt == known.attempt || sealed {
                return Ok(self.arrived(slice, known, false, false));
            }
        }
        if let Some(&through) = self.withdrawn.get(id)
            && arrive.attempt <= through
            && !mutant!(NoAttemptNumber)
        {
            return Err(Refusal::Withdrawn { through });
        }
        self.count_arrival(index, slice, arrive)
    }

    /// Of two sessions of one participant the later wins, and an arrival under
    /// the earlier one is nobody's.
    fn is_its_worker(&self, arrive: &Arrive) -> Result<(), Refusal> {
        let worker = self.workers.get(&arrive.participant);
        let Some(session) = arrive.session else {
            return match worker {
                Some(worker) if worker.attempt > arrive.attempt => Err(Refusal::StaleAttempt { known: worker.attempt }),
                _ => Ok(()),
            };
        };
        let repeated = self.arrivals.get(&arrive.participant).is_some_and(|known| known.session == Some(session));
        match worker {
            Some(worker) if worker.session != session && !mutant!(FencedArrives) => Err(Refusal::Fenced),
            Some(worker) if worker.lost.is_none() || repeated => Ok(()),
            None if repeated => Ok(()),
            Some(_) | None => Err(Refusal::SessionLost),
        }
    }

    /// Everybody passed before this one came: it gets the recorded outcome and
    /// changes nothing.
    fn arrive_late(&self, slice: Option<&Slice>, arrive: &Arrive) -> Result<Arrived, Refusal> {
        let expected = slice.map_or(0, |slice| slice.participants.expected());
        let known = self.arrivals.get(&arrive.participant);
        if known.is_none() && slice.is_some() && self.arrivals.len() as u64 >= u64::from(expected) {
            return Err(self.full());
        }
        Ok(Arrived {
            attempt: known.map_or(arrive.attempt, |known| known.attempt),
            outcome: known.map_or(arrive.outcome, |known| known.outcome),
            first: known.is_none(),
            late: known.is_none(),
            arrived: self.counts.ok,
            expected,
        })
    }

    fn count_arrival(&mut self, index: u64, slice: &Slice, arrive: &Arrive) -> Result<Arrived, Refusal> {
        let id = &arrive.participant;
        let replaced = self.arrivals.get(id);
        if self.absent.contains_key(id) {
            // The region has promised without it.
            if self.is_sealed(slice, id) {
                return Err(Refusal::Sealed);
            }
        } else if replaced.is_none() && !self.has_room(slice) {
            return Err(self.full());
        }
        let output_bytes = |output: Option<&alloc::string::String>| output.map_or(0, |text| text.len() as u32);
        let outputs = self.outputs_bytes - output_bytes(replaced.and_then(|arrival| arrival.output.as_ref()))
            + output_bytes(arrive.output.as_ref());
        if outputs > slice.outputs_bytes_max {
            return Err(Refusal::OutputsFull { limit: slice.outputs_bytes_max });
        }
        let arrival = Arrival {
            attempt: arrive.attempt,
            outcome: arrive.outcome,
            note: arrive.note.clone(),
            output: arrive.output.clone(),
            session: arrive.session,
            at: arrive.at,
            lost: false,
        };
        self.put(slice, id, arrival.clone());
        if slice.keep_arrivals || arrive.session.is_none() {
            // Done stays done: nobody watches whoever has arrived.
            self.workers.remove(id);
        }
        self.promise(index, slice);
        Ok(self.arrived(slice, &arrival, true, false))
    }

    fn withdraw(&mut self, slice: Option<&Slice>, withdraw: &Withdraw) -> Result<(), Refusal> {
        let id = &withdraw.participant;
        match &self.ended {
            Some(ended) if ended.outcome.verdict.is_released() => return Err(Refusal::AlreadyReleased),
            Some(_) => return Err(Refusal::Broken),
            None => {}
        }
        let slice = slice.ok_or(Refusal::NoSuchGeneration)?;
        if !slice.participants.admits(id) {
            return Err(Refusal::NotExpected);
        }
        if self.withdrawn.get(id).is_some_and(|through| withdraw.attempt <= *through) {
            return Ok(());
        }
        // Completion is a promise: the region told the coordinator, or will.
        if self.is_sealed(slice, id) && !mutant!(WithdrawAfterComplete) {
            return Err(Refusal::Sealed);
        }
        let room = slice.participants.expected() as usize + caps::WITHDRAWN_EXTRA_MAX;
        if self.withdrawn.len() >= room && !self.withdrawn.contains_key(id) {
            return Err(Refusal::TooManyWithdrawn);
        }
        let known = self.arrivals.get(id);
        if let Some(known) = known.filter(|known| known.attempt > withdraw.attempt) {
            return Err(Refusal::StaleAttempt { known: known.attempt });
        }
        self.withdrawn.insert(id.clone(), withdraw.attempt);
        self.take(slice, id);
        Ok(())
    }

    /// Takes the ok arrivals of a round that broke, as far as they are expected
    /// here: what is done stays done. What failed there needs a new attempt
    /// here, so that nobody of the old round arrives in this one.
    pub(super) fn carry_over(&mut self, index: u64, broken: &Self, slice: &Slice, watched: bool) {
        if watched {
            self.withdrawn = broken.withdrawn.clone();
        }
        for (id, worker) in &broken.workers {
            let used = self.withdrawn.entry(id.clone()).or_default();
            *used = worker.attempt.max(*used);
        }
        for (id, arrival) in broken.arrivals.iter().filter(|(id, _)| slice.participants.admits(id)) {
            if arrival.outcome == ArrivalOutcome::Ok && self.has_room(slice) {
                self.withdrawn.remove(id);
                self.put(slice, id, arrival.clone());
            } else if arrival.outcome == ArrivalOutcome::Failed && watched {
                let used = self.withdrawn.entry(id.clone()).or_default();
                *used = arrival.attempt.max(*used);
            }
        }
        self.promise(index, slice);
    }

    fn arrived(&self, slice: &Slice, arrival: &Arrival, first: bool, late: bool) -> Arrived {
        Arrived {
            attempt: arrival.attempt,
            outcome: arrival.outcome,
            first,
            late,
            arrived: self.counts.ok,
            expected: slice.participants.expected(),
        }
    }

    pub(super) fn full(&self) -> Refusal {
        let mut latest: Vec<(&ParticipantId, &Arrival)> = self.arrivals.iter().collect();
        latest.sort_by(|(a, x), (b, y)| (y.at, a).cmp(&(x.at, b)));
        Refusal::Full { latest: latest.into_iter().take(LATEST_NAMED).map(|(id, _)| id.clone()).collect() }
    }
}
