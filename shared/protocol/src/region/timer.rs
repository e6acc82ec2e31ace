//! What the region clock does when it comes to a time: sessions without an
//! agent are lost, losses act, regional deadlines pass, details of finished
//! generations go. The clock is moved by commands only; a timer says when to
//! look, and what it finds decides.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Barrier, Effect, Generation, Refusal, Region, Reply, Work};
use crate::caps;
use crate::identity::{Epoch, SessionId, Timestamp};
use crate::mutant;
use crate::name::BarrierName;

/// What there is to look at when the region clock comes to a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// A session whose agent is gone.
    Orphan {
        /// The session.
        session: SessionId,
        /// The owner it had, by count.
        attach: u32,
    },
    /// A participant that was lost.
    Rejoin {
        /// The session that worked for it.
        session: SessionId,
        /// Whom.
        work: Work,
    },
    /// A generation of regional scope.
    Deadline {
        /// The barrier.
        barrier: BarrierName,
        /// The generation.
        n: u64,
    },
}

impl Region {
    pub(super) fn tick(
        &mut self,
        epoch: Epoch,
        from_ms: u64,
        to_ms: u64,
        at: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Refusal> {
        let reply = self.advance_clock(epoch, from_ms, to_ms)?;
        let ripe = if mutant!(CountsOnItsWay) { self.armed.len() } else { self.ripe as usize };
        let unripe = self.armed.split_off(ripe.min(self.armed.len()));
        for (after_ms, timer) in &unripe {
            self.count_from_here(*after_ms, timer);
        }
        for (after_ms, timer) in core::mem::replace(&mut self.armed, unripe) {
            self.count_from_here(after_ms, &timer);
            self.timers.insert((self.clock_ms.saturating_add(after_ms), timer));
        }
        while let Some((due_ms, _)) = self.timers.first()
            && *due_ms <= self.clock_ms
            && let Some((_, timer)) = self.timers.pop_first()
        {
            match timer {
                Timer::Orphan { session, attach } => self.orphan_is_due(session, attach, effects),
                Timer::Rejoin { session, work } => self.rejoin_is_due(session, &work, effects),
                Timer::Deadline { barrier, n } => self.deadline_is_due(&barrier, n, at, effects),
            }
        }
        while let Some((due_ms, ..)) = self.retentions.first()
            && *due_ms <= self.clock_ms
            && let Some((_, barrier, n)) = self.retentions.pop_first()
        {
            self.close(&barrier, n);
        }
        // Whoever counts next has applied this.
        self.ripe = u32::try_from(self.armed.len()).unwrap_or(u32::MAX);
        Ok(reply)
    }

    /// Whoever may look at the time of what waits before it is due finds it not
    /// over.
    fn count_from_here(&mut self, after_ms: u64, timer: &Timer) {
        match timer {
            Timer::Deadline { barrier, n } => self.set_deadline(barrier, *n, self.clock_ms.saturating_add(after_ms)),
            Timer::Rejoin { session, work } => self.count_rejoin(*session, work),
            Timer::Orphan { .. } => {}
        }
    }

    /// When a session, a loss or a deadline waits for the region clock next, in
    /// milliseconds on it. Retention is in no hurry.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        let next = self.timers.first().map(|(due_ms, _)| *due_ms);
        // What is armed counts from the next times the clock moves: now.
        if self.armed.is_empty() { next } else { Some(self.clock_ms) }
    }

    /// A generation ended: its details go when their time has passed, or when
    /// as many newer ones are there as may have details.
    pub(super) fn retain(&mut self, barrier: &BarrierName, n: u64) {
        if self.machine_version < 2 {
            return;
        }
        let Some(known) = self.barriers.get(barrier) else { return };
        let newest = known.generations.keys().next_back().copied().unwrap_or(n);
        let keeps = newest.saturating_sub(u64::from(caps::RETENTION_GENERATIONS_MAX));
        if n > keeps
            && let Some(due) = known.retention_due(n)
        {
            self.retentions.insert((due, barrier.clone(), n));
        }
        let late = core::iter::once(n).filter(|n| *n <= keeps);
        for old in known.ended_through(keeps).chain(late).collect::<BTreeSet<u64>>() {
            let due = self.barriers.get(barrier).and_then(|known| known.retention_due(old));
            if let Some(due) = due {
                self.retentions.remove(&(due, barrier.clone(), old));
            }
            self.close(barrier, old);
        }
        self.forget_regional(barrier, newest);
    }

    /// Leaves the bare verdict of a finished generation.
    fn close(&mut self, barrier: &BarrierName, n: u64) {
        if let Some(barrier) = self.barriers.get_mut(barrier) {
            barrier.close(n);
        }
        let decider = self.regional.get_mut(barrier).and_then(|barrier| barrier.generations.get_mut(&n));
        if let Some(generation) = decider.filter(|generation| generation.decided.is_some()) {
            generation.closed = true;
            generation.reports.clear();
        }
    }

    /// Nobody above says what of a regional barrier is to be forgotten: its
    /// verdicts go when as many newer ones are there as may be.
    fn forget_regional(&mut self, barrier: &BarrierName, newest: u64) {
        let kept = u64::from(caps::RETENTION_GENERATIONS_MAX * caps::VERDICTS_FACTOR);
        let through = newest.saturating_sub(kept);
        let (Some(decider), Some(known)) = (self.regional.get_mut(barrier), self.barriers.get_mut(barrier)) else {
            return;
        };
        known.forget_ended(through);
        decider.generations.retain(|n, _| *n > through || known.generations.contains_key(n));
    }

    /// Everything that ended before the region's machine kept any retention:
    /// its time begins now.
    pub(super) fn retain_all(&mut self) {
        let clock_ms = self.clock_ms;
        let generations = self.barriers.values_mut().flat_map(|barrier| barrier.generations.values_mut());
        for generation in generations.filter(|generation| generation.ended.is_some()) {
            generation.ended_clock_ms = clock_ms;
        }
        let ended = self.barriers.iter().flat_map(|(name, barrier)| {
            let ended = barrier.generations.values().filter(|generation| generation.ended.is_some());
            ended.map(move |generation| (name.clone(), generation.id.n))
        });
        for (barrier, n) in ended.collect::<Vec<_>>() {
            self.retain(&barrier, n);
        }
    }
}

impl Barrier {
    /// Ended generations with details, up to a number.
    fn ended_through(&self, n: u64) -> impl Iterator<Item = u64> + '_ {
        let old = self.generations.range(..=n).rev().take_while(|(_, generation)| !generation.closed);
        old.filter(|(_, generation)| generation.ended.is_some()).map(|(n, _)| *n)
    }

    /// Forgets what has ended up to a number.
    fn forget_ended(&mut self, through: u64) {
        if through <= self.forgotten {
            return;
        }
        let old: Vec<u64> = self.generations.range(..=through).map(|(n, _)| *n).collect();
        let (ended, kept) = old.into_iter().partition::<Vec<u64>, _>(|n| self.generations[n].ended.is_some());
        ended.into_iter().for_each(|n| self.forget(n));
        self.forgotten = through;
        self.kept = kept.into_iter().collect();
    }

    /// When a generation's details go, on the region clock.
    fn retention_due(&self, n: u64) -> Option<u64> {
        let generation = self.generations.get(&n).filter(|generation| generation.ended.is_some())?;
        let slice = self.slices.get(&generation.spec?)?;
        Some(generation.ended_clock_ms.saturating_add(slice.retention_ms))
    }

    /// Leaves the bare verdict of a finished generation.
    pub(super) fn close(&mut self, n: u64) {
        let Some(generation) = self.generations.get_mut(&n).filter(|generation| generation.ended.is_some()) else {
            return;
        };
        generation.close();
        self.forget_slices();
    }
}

impl Generation {
    fn close(&mut self) {
        self.closed = true;
        self.arrivals.clear();
        self.withdrawn.clear();
        self.absent.clear();
        self.workers.clear();
        self.zones.clear();
    }
}
