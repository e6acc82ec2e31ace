//! Sessions: who works for which participants, and what becomes of those whose
//! session falls silent.
//!
//! A session is owned by the agent that takes its heartbeats. When the agent
//! says that it fell silent, or when the agent is gone and nobody took the
//! session over in time, its participants are lost; what that means acts once
//! the time to rejoin has passed on the region clock.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{
    Arrival, ArrivalOutcome, Attempt, Effect, Generation, OpenSession, Refusal, Region, Reply, SessionOpened, Timer,
    Work,
};
use crate::caps;
use crate::identity::{SessionId, Timestamp, Writer};
use crate::lease::LeaseClock;
use crate::mutant;
use crate::name::{BarrierName, ParticipantId};
use crate::spec::{Liveness, OnLost, Slice};

/// A client's liveness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The agent that takes its heartbeats; `None` when that one is gone.
    pub owner: Option<Writer>,
    /// Counts its owners, from 1.
    pub attach: u32,
    /// Milliseconds it may be silent.
    pub ttl_ms: u64,
    /// Whom it works for.
    pub works: BTreeSet<Work>,
    /// When it was opened; for people.
    pub at: Timestamp,
}

/// A participant that a session works for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// The session, or the one that was lost.
    pub session: SessionId,
    /// The attempt it was given.
    pub attempt: u32,
    /// Since when the session is lost.
    pub lost: Option<Lost>,
}

/// When a session was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// On the region clock, in milliseconds.
    pub clock_ms: u64,
}

/// Why a participant is not expected any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Absence {
    /// It was lost, and that excludes.
    Excluded,
    /// Somebody waived it.
    Waived,
}

/// Milliseconds beyond its silence that a session without owner is left.
pub(super) const MARGIN_MS: u64 = LeaseClock::MARGIN.as_millis() as u64;

impl Region {
    pub(super) fn open_session(
        &mut self,
        by: Writer,
        open: &OpenSession,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Refusal> {
        if let Some(known) = self.sessions.get(&open.id) {
            // The same command again: its first answer was lost.
            return Ok(Reply::SessionOpened(self.opened_session(open, known.attach, known.ttl_ms)));
        }
        if self.sessions.len() >= caps::SESSIONS_PER_REGION_MAX {
            return Err(Refusal::TooManySessions);
        }
        let mut ttl_ms = open.ttl_ms;
        for work in &open.works {
            let (generation, slice) = self.generation_mut(&work.barrier, work.n)?;
            ttl_ms = generation.may_be_worked_for(slice, work)?.map_or(ttl_ms, |limit| limit.min(ttl_ms));
        }
        let works: BTreeSet<Work> = open.works.iter().cloned().collect();
        let session = Session { owner: Some(by), attach: 1, ttl_ms, works: works.clone(), at: open.at };
        self.sessions.insert(open.id, session);
        for work in &works {
            self.work_for(open.id, work, effects);
        }
        Ok(Reply::SessionOpened(self.opened_session(open, 1, ttl_ms)))
    }

    fn opened_session(&self, open: &OpenSession, attach: u32, ttl_ms: u64) -> SessionOpened {
        let attempt = |work: &Work| {
            let generation = self.generation(&work.barrier, work.n);
            let worker = generation.and_then(|generation| generation.workers.get(&work.participant));
            let arrival = generation.and_then(|generation| generation.arrivals.get(&work.participant));
            let done = arrival.is_some_and(|arrival| arrival.outcome == ArrivalOutcome::Ok);
            let known = arrival.map(|arrival| arrival.attempt);
            Attempt { attempt: worker.map(|worker| worker.attempt).or(known).unwrap_or(1), done }
        };
        SessionOpened { attach, ttl_ms, attempts: open.works.iter().map(attempt).collect() }
    }

    /// Gives a participant to a session; an earlier one loses it.
    fn work_for(&mut self, id: SessionId, work: &Work, effects: &mut Vec<Effect>) {
        let Ok((generation, Some(slice))) = self.generation_mut(&work.barrier, work.n) else { return };
        let before = generation.report_key();
        let fenced = generation.take_on(slice, id, &work.participant);
        let after = generation.report_key();
        self.changed(&work.barrier, work.n, before, after, effects);
        if let Some(fenced) = fenced.filter(|fenced| *fenced != id) {
            self.unwork(fenced, work, effects);
        }
    }

    /// A session works for one participant less; without any it is over.
    fn unwork(&mut self, id: SessionId, work: &Work, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.works.remove(work);
        if session.works.is_empty() {
            self.sessions.remove(&id);
            effects.push(Effect::SessionEnded { session: id, fenced: true });
        }
    }

    pub(super) fn attach_session(&mut self, by: Writer, id: SessionId) -> Result<Reply, Refusal> {
        let session = self.sessions.get_mut(&id).ok_or(Refusal::SessionLost)?;
        let changed = session.owner != Some(by);
        if changed {
            session.owner = Some(by);
            session.attach += 1;
        }
        Ok(Reply::Done { changed })
    }

    /// A client leaves. Nobody is lost: whoever it worked for is missing again.
    pub(super) fn close_session(&mut self, id: SessionId, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        let Some(session) = self.sessions.remove(&id) else { return Ok(Reply::Done { changed: false }) };
        for work in &session.works {
            self.stop_work(id, work, false, effects);
        }
        Ok(Reply::Done { changed: true })
    }

    /// Its owner heard nothing of it for too long.
    pub(super) fn expire_session(
        &mut self,
        by: Writer,
        id: SessionId,
        attach: u32,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Refusal> {
        let session = self.sessions.get(&id).ok_or(Refusal::SessionLost)?;
        if (session.owner != Some(by) || session.attach != attach) && !mutant!(ExpiryWithoutOwner) {
            return Err(Refusal::NotOwner);
        }
        self.lose_session(id, effects);
        Ok(Reply::Done { changed: true })
    }

    fn lose_session(&mut self, id: SessionId, effects: &mut Vec<Effect>) {
        let Some(session) = self.sessions.remove(&id) else { return };
        for work in &session.works {
            self.stop_work(id, work, true, effects);
        }
        effects.push(Effect::SessionEnded { session: id, fenced: false });
    }

    /// The agent that took a session's heartbeats is gone. Its clients may move
    /// to another one for as long as they may be silent.
    pub(super) fn orphan_sessions(&mut self, owner: Writer) {
        let orphans = self.sessions.iter_mut().filter(|(_, session)| session.owner == Some(owner));
        for (id, session) in orphans {
            session.owner = None;
            let timer = Timer::Orphan { session: *id, attach: session.attach };
            self.armed.push((session.ttl_ms + MARGIN_MS, timer));
        }
    }

    /// Nobody took the session over in time.
    pub(super) fn orphan_is_due(&mut self, id: SessionId, attach: u32, effects: &mut Vec<Effect>) {
        let orphan = self.sessions.get(&id).is_some_and(|s| s.owner.is_none() && s.attach == attach);
        if orphan {
            self.lose_session(id, effects);
        }
    }

    fn stop_work(&mut self, id: SessionId, work: &Work, lost: bool, effects: &mut Vec<Effect>) {
        let clock_ms = self.clock_ms;
        let Ok((generation, Some(slice))) = self.generation_mut(&work.barrier, work.n) else { return };
        let before = generation.report_key();
        let rejoin_ms = generation.stop_work(slice, id, &work.participant, lost.then_some(clock_ms));
        let after = generation.report_key();
        if let Some(rejoin_ms) = rejoin_ms {
            self.armed.push((rejoin_ms, Timer::Rejoin { session: id, work: work.clone() }));
        }
        if before == after && lost {
            effects.push(Effect::Changed { barrier: work.barrier.clone(), n: work.n, urgent: false });
        }
        self.changed(&work.barrier, work.n, before, after, effects);
    }

    /// The time to rejoin counts from when the region clock moved after the
    /// loss.
    pub(super) fn count_rejoin(&mut self, id: SessionId, work: &Work) {
        let clock_ms = self.clock_ms;
        let Ok((generation, _)) = self.generation_mut(&work.barrier, work.n) else { return };
        let worker = generation.workers.get_mut(&work.participant).filter(|worker| worker.session == id);
        if let Some(lost) = worker.and_then(|worker| worker.lost.as_mut()) {
            lost.clock_ms = clock_ms;
        }
    }

    /// The time to rejoin has passed: the loss acts. A session that was lost,
    /// came back and is lost again has its whole time again.
    pub(super) fn rejoin_is_due(&mut self, id: SessionId, work: &Work, effects: &mut Vec<Effect>) {
        let (index, clock_ms) = (self.index, self.clock_ms);
        let Ok((generation, Some(slice))) = self.generation_mut(&work.barrier, work.n) else { return };
        let before = generation.report_key();
        let lost = generation.workers.get(&work.participant).and_then(|worker| worker.lost);
        let rejoin_ms = slice.liveness.map_or(0, rejoin_ms);
        if lost.is_none_or(|lost| lost.clock_ms.saturating_add(rejoin_ms) > clock_ms) {
            return;
        }
        generation.lose(index, slice, id, &work.participant);
        let after = generation.report_key();
        self.changed(&work.barrier, work.n, before, after, effects);
    }
}

fn rejoin_ms(liveness: Liveness) -> u64 {
    if mutant!(LossEarly) { 0 } else { liveness.rejoin_ms }
}

impl Generation {
    /// Whether a session may work for a participant, and how long it may be
    /// silent.
    fn may_be_worked_for(&self, slice: Option<&Slice>, work: &Work) -> Result<Option<u64>, Refusal> {
        let id = &work.participant;
        if self.closed {
            return Err(Refusal::Expired);
        }
        if let Some(ended) = &self.ended {
            return Err(if ended.outcome.verdict.is_released() { Refusal::AlreadyReleased } else { Refusal::Broken });
        }
        let slice = slice.ok_or(Refusal::NoSuchGeneration)?;
        if !slice.participants.admits(id) {
            return Err(Refusal::NotExpected);
        }
        let known = self.arrivals.contains_key(id) || self.absent.contains_key(id) || self.workers.contains_key(id);
        if !known && !self.has_room(slice) {
            return Err(self.full());
        }
        Ok(slice.liveness.map(|liveness| liveness.ttl_ms))
    }

    /// Gives a participant to a session, with the next attempt; returns the
    /// session that had it.
    fn take_on(&mut self, slice: &Slice, session: SessionId, id: &ParticipantId) -> Option<SessionId> {
        let arrival = self.arrivals.get_mut(id);
        let done = arrival.as_ref().is_some_and(|arrival| arrival.outcome == ArrivalOutcome::Ok);
        if done && slice.keep_arrivals {
            return None;
        }
        let worker = self.workers.get(id);
        let used = [
            worker.map(|worker| worker.attempt),
            arrival.as_ref().map(|arrival| arrival.attempt),
            self.withdrawn.get(id).copied(),
        ];
        let used = used.into_iter().flatten().max().unwrap_or(0);
        // What is done is not done again: the new session stands for it.
        let attempt = if done { used } else { used.saturating_add(1) };
        if let Some(arrival) = arrival.filter(|_| done) {
            arrival.session = Some(session);
        }
        self.workers.insert(id.clone(), Worker { session, attempt, lost: None }).map(|fenced| fenced.session)
    }

    /// A session no longer works for a participant; how long that one has to
    /// rejoin if it is lost.
    fn stop_work(&mut self, slice: &Slice, session: SessionId, id: &ParticipantId, lost: Option<u64>) -> Option<u64> {
        let its_own = self.workers.get(id).is_some_and(|worker| worker.session == session);
        if !its_own || self.ended.is_some() {
            return None;
        }
        let sealed = self.is_sealed(slice, id);
        if !slice.keep_arrivals && !sealed {
            self.take(slice, id);
        }
        let (Some(clock_ms), Some(liveness)) = (lost, slice.liveness) else {
            self.workers.remove(id);
            return None;
        };
        let worker = self.workers.get_mut(id)?;
        worker.lost = Some(Lost { clock_ms });
        (liveness.on_lost != OnLost::Wait).then(|| rejoin_ms(liveness))
    }

    /// Who did not come back has failed, or is no longer expected.
    fn lose(&mut self, index: u64, slice: &Slice, session: SessionId, id: &ParticipantId) {
        let gone = self.workers.get(id).filter(|worker| worker.session == session && worker.lost.is_some());
        let (Some(worker), Some(liveness)) = (gone, slice.liveness) else { return };
        if self.ended.is_some() {
            return;
        }
        // A withdrawn attempt never counts again, not even as a failed one.
        let withdrawn = self.withdrawn.get(id).copied();
        let attempt = withdrawn.map_or(worker.attempt, |through| worker.attempt.max(through.saturating_add(1)));
        let has_place = self.arrivals.contains_key(id) || self.absent.contains_key(id);
        if !has_place && !self.has_room(slice) {
            // Where only a number is expected, others have taken every place.
            self.workers.remove(id);
            return;
        }
        match liveness.on_lost {
            OnLost::Fail => {
                self.workers.remove(id);
                let arrival = Arrival {
                    attempt,
                    outcome: ArrivalOutcome::Failed,
                    note: Some(String::from("its session fell silent")),
                    output: None,
                    session: Some(session),
                    at: self.last_arrival_at.unwrap_or(self.opened_at),
                    lost: true,
                };
                self.put(slice, id, arrival);
            }
            // What was promised with it counted in stays promised.
            OnLost::Exclude if !self.is_sealed(slice, id) => self.put_absence(slice, id, Absence::Excluded),
            OnLost::Exclude | OnLost::Wait => drop(self.workers.remove(id)),
        }
        self.promise(index, slice);
    }

    /// All whom a session works for, or worked for until it was lost.
    pub fn workers(&self) -> impl Iterator<Item = (&ParticipantId, &Worker)> {
        self.workers.iter()
    }

    /// Who works for a participant, or worked for it until it was lost.
    #[must_use]
    pub fn worker(&self, id: &ParticipantId) -> Option<&Worker> {
        self.workers.get(id)
    }
}

impl Region {
    /// One session.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// All sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (&SessionId, &Session)> {
        self.sessions.iter()
    }

    /// Whether a session may still arrive for a participant.
    #[must_use]
    pub fn works_for(&self, session: SessionId, barrier: &BarrierName, n: u64, id: &ParticipantId) -> bool {
        let worker = self.generation(barrier, n).and_then(|generation| generation.workers.get(id));
        worker.is_some_and(|worker| worker.session == session)
    }
}
