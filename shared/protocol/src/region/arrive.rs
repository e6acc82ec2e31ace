//! Arrivals and withdrawals.

use alloc::vec::Vec;

use super::{
    Arrival, ArrivalOutcome, Arrive, Arrived, Completed, Counts, Effect, Generation, Refusal, Region, Reply, Withdraw,
};
use crate::caps;
use crate::mutant;
use crate::name::{BarrierName, ParticipantId};
use crate::spec::Slice;

/// How many of the latest arrivals a refusal for lack of room names.
const LATEST_NAMED: usize = 3;

impl Region {
    pub(super) fn arrive(&mut self, arrive: &Arrive, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        let index = self.index;
        let (generation, slice) = self.generation_mut(&arrive.barrier, arrive.n)?;
        let before = generation.report_key();
        let arrived = generation.arrive(index, slice, arrive)?;
        let after = generation.report_key();
        if before != after {
            let urgent = (before.complete, before.over) != (after.complete, after.over);
            effects.push(Effect::Changed { barrier: arrive.barrier.clone(), n: arrive.n, urgent });
        }
        Ok(Reply::Arrived(arrived))
    }

    pub(super) fn withdraw(&mut self, withdraw: &Withdraw, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        let (generation, slice) = self.generation_mut(&withdraw.barrier, withdraw.n)?;
        if generation.withdraw(slice, withdraw)? {
            effects.push(Effect::Changed { barrier: withdraw.barrier.clone(), n: withdraw.n, urgent: false });
        }
        Ok(Reply::Withdrawn)
    }

    fn generation_mut(&mut self, barrier: &BarrierName, n: u64) -> Result<(&mut Generation, Option<&Slice>), Refusal> {
        let barrier = self.barriers.get_mut(barrier).ok_or(Refusal::NoSuchGeneration)?;
        let n = if mutant!(ArrivesAtLatest) { barrier.generations.keys().last().copied().unwrap_or(n) } else { n };
        let generation = barrier.generations.get_mut(&n).ok_or(Refusal::NoSuchGeneration)?;
        let slice = generation.spec.and_then(|spec| barrier.slices.get(&spec));
        Ok((generation, slice))
    }
}

/// What of a generation makes a report worth sending when it changes.
#[derive(PartialEq, Eq)]
struct ReportKey {
    counts: Counts,
    complete: bool,
    over: bool,
}

impl Generation {
    fn report_key(&self) -> ReportKey {
        ReportKey { counts: self.counts, complete: self.completed.is_some(), over: self.counts.failed > 0 }
    }

    fn arrive(&mut self, index: u64, slice: Option<&Slice>, arrive: &Arrive) -> Result<Arrived, Refusal> {
        if self.closed {
            return Err(Refusal::Expired);
        }
        if slice.is_some_and(|slice| !slice.participants.admits(&arrive.participant)) {
            return Err(Refusal::NotExpected);
        }
        if let Some(ended) = &self.ended {
            return match ended.outcome.verdict.is_released() {
                true => self.arrive_late(slice, arrive),
                false => Err(Refusal::Broken),
            };
        }
        let slice = slice.ok_or(Refusal::NoSuchGeneration)?;
        if let Some(known) = self.arrivals.get(&arrive.participant) {
            let sealed = known.outcome == ArrivalOutcome::Ok || self.completed.is_some();
            if arrive.attempt < known.attempt {
                return Err(Refusal::StaleAttempt { known: known.attempt });
            }
            if arrive.attempt == known.attempt || sealed {
                return Ok(self.arrived(slice, known, false, false));
            }
        }
        if let Some(&through) = self.withdrawn.get(&arrive.participant)
            && arrive.attempt <= through
            && !mutant!(NoAttemptNumber)
        {
            return Err(Refusal::Withdrawn { through });
        }
        self.count_arrival(index, slice, arrive)
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
        let replaced = self.arrivals.get(&arrive.participant);
        if replaced.is_none() && self.arrivals.len() as u64 >= u64::from(slice.participants.expected()) {
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
        };
        if let Some(replaced) = self.arrivals.insert(arrive.participant.clone(), arrival.clone()) {
            *self.counts.of(slice, &replaced) -= 1;
        }
        *self.counts.of(slice, &arrival) += 1;
        self.outputs_bytes = outputs;
        self.first_arrival_at = Some(self.first_arrival_at.map_or(arrive.at, |first| first.min(arrive.at)));
        self.last_arrival_at = Some(self.last_arrival_at.map_or(arrive.at, |last| last.max(arrive.at)));
        if self.counts.complete(slice) {
            self.completed = Some(Completed { index, at: arrive.at });
        }
        Ok(self.arrived(slice, &arrival, true, false))
    }

    fn withdraw(&mut self, slice: Option<&Slice>, withdraw: &Withdraw) -> Result<bool, Refusal> {
        match &self.ended {
            Some(ended) if ended.outcome.verdict.is_released() => return Err(Refusal::AlreadyReleased),
            Some(_) => return Err(Refusal::Broken),
            None => {}
        }
        let slice = slice.ok_or(Refusal::NoSuchGeneration)?;
        if !slice.participants.admits(&withdraw.participant) {
            return Err(Refusal::NotExpected);
        }
        if self.withdrawn.get(&withdraw.participant).is_some_and(|through| withdraw.attempt <= *through) {
            return Ok(false);
        }
        // Completion is a promise: the region told the coordinator, or will.
        if self.completed.is_some() && !mutant!(WithdrawAfterComplete) {
            return Err(Refusal::Sealed);
        }
        let room = slice.participants.expected() as usize + caps::WITHDRAWN_EXTRA_MAX;
        if self.withdrawn.len() >= room && !self.withdrawn.contains_key(&withdraw.participant) {
            return Err(Refusal::TooManyWithdrawn);
        }
        let known = self.arrivals.get(&withdraw.participant);
        if let Some(known) = known.filter(|known| known.attempt > withdraw.attempt) {
            return Err(Refusal::StaleAttempt { known: known.attempt });
        }
        self.withdrawn.insert(withdraw.participant.clone(), withdraw.attempt);
        let Some(removed) = self.arrivals.remove(&withdraw.participant) else { return Ok(false) };
        *self.counts.of(slice, &removed) -= 1;
        self.outputs_bytes -= removed.output.as_ref().map_or(0, |text| text.len() as u32);
        Ok(true)
    }

    /// Takes the ok arrivals of a round that broke, as far as they are expected
    /// here: what is done stays done.
    pub(super) fn carry_over(&mut self, index: u64, broken: &Self, slice: &Slice) {
        let expected = slice.participants.expected() as usize;
        let ok = broken
            .arrivals
            .iter()
            .filter(|(id, arrival)| arrival.outcome == ArrivalOutcome::Ok && slice.participants.admits(id));
        self.arrivals = ok.take(expected).map(|(id, arrival)| (id.clone(), arrival.clone())).collect();
        self.counts.ok = self.arrivals.len() as u32;
        self.outputs_bytes =
            self.arrivals.values().filter_map(|arrival| Some(arrival.output.as_ref()?.len() as u32)).sum();
        self.first_arrival_at = self.arrivals.values().map(|arrival| arrival.at).min();
        self.last_arrival_at = self.arrivals.values().map(|arrival| arrival.at).max();
        if self.counts.complete(slice) {
            self.completed = self.last_arrival_at.map(|at| Completed { index, at });
        }
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

    fn full(&self) -> Refusal {
        let mut latest: Vec<(&ParticipantId, &Arrival)> = self.arrivals.iter().collect();
        latest.sort_by(|(a, x), (b, y)| (y.at, a).cmp(&(x.at, b)));
        Refusal::Full { latest: latest.into_iter().take(LATEST_NAMED).map(|(id, _)| id.clone()).collect() }
    }
}

impl Counts {
    fn of(&mut self, slice: &Slice, arrival: &Arrival) -> &mut u32 {
        match arrival.outcome {
            ArrivalOutcome::Ok => &mut self.ok,
            ArrivalOutcome::Failed if arrival.attempt >= slice.attempts => &mut self.failed,
            ArrivalOutcome::Failed => &mut self.retrying,
        }
    }

    /// Everybody has spoken, and no more failed than may.
    fn complete(self, slice: &Slice) -> bool {
        self.ok + self.failed == slice.participants.expected() && self.failed <= slice.failures_max
    }

    /// More failed than may.
    pub(super) fn over_failures(self, slice: &Slice) -> bool {
        self.failed > slice.failures_max
    }
}
