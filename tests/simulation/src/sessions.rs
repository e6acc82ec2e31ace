//! What is true of a region's sessions, against what their clients believe: a
//! client knows of a loss by its own clock before the region gives its place
//! away, of two sessions of one participant only the later arrives, and a loss
//! acts no sooner than it may.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_protocol::identity::{SessionId, Writer};
use muster_protocol::invariant::Invariant;
use muster_protocol::name::{BarrierName, ParticipantId};
use muster_protocol::region::{Absence, Command, Effect, Generation, Region, Reply};
use muster_protocol::spec::Slice;

use crate::sightings::{Sight, Sightings};

type Findings = Vec<(Invariant, String)>;
/// A participant of a generation.
type Place = (BarrierName, u64, ParticipantId);

/// The sessions of one region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    pulses: BTreeMap<SessionId, Pulse>,
    open: BTreeSet<SessionId>,
    /// The latest session of each participant.
    latest: BTreeMap<Place, SessionId>,
    /// Who is lost, with which session, since when.
    lost: BTreeMap<Place, (SessionId, Duration)>,
    /// Whose loss has acted, and with which attempt.
    acted: BTreeSet<(Place, u32)>,
}

/// One session, from both ends.
#[derive(Clone, Copy, Debug, Default)]
struct Pulse {
    /// Until when its client holds it for alive.
    until: Duration,
    /// When the region gave it up.
    lost_at: Option<Duration>,
}

/// Owners of sessions that an entry says are silent, before it is applied.
pub(crate) type Owners = BTreeMap<SessionId, (Option<Writer>, u32)>;

pub(crate) fn owners(region: &Region, commands: &[Command]) -> Owners {
    let expire = commands.iter().filter_map(|command| match command {
        Command::ExpireSession { session, .. } => Some(*session),
        _ => None,
    });
    expire.filter_map(|id| region.session(id).map(|session| (id, (session.owner, session.attach)))).collect()
}

impl Sessions {
    /// A client was told that its session lives, for so long by its own clock.
    pub(crate) fn alive(&mut self, id: SessionId, until: Duration) -> Result<(), String> {
        let pulse = self.pulses.entry(id).or_default();
        pulse.until = pulse.until.max(until);
        pulse.check(id)
    }

    /// Its client ends it, or stops believing in it.
    pub(crate) fn given_up(&mut self, id: SessionId) {
        self.pulses.remove(&id);
    }

    /// A command was applied, and answered.
    pub(crate) fn replied(
        &mut self,
        by: Writer,
        owners: &Owners,
        command: &Command,
        reply: &Reply,
        findings: &mut Findings,
        seen: &mut Sightings,
    ) {
        match (command, reply) {
            (Command::OpenSession(open), Reply::SessionOpened(_)) if self.open.insert(open.id) => {
                self.pulses.entry(open.id).or_default().lost_at = None;
                for work in &open.works {
                    let place = (work.barrier.clone(), work.n, work.participant.clone());
                    self.latest.insert(place, open.id);
                }
            }
            (Command::AttachSession(_), Reply::Done { changed: true }) => seen.sight(Sight::SessionMoved),
            (Command::CloseSession(id), Reply::Done { .. }) => drop(self.open.remove(id)),
            (Command::ExpireSession { session, attach }, Reply::Done { .. }) => {
                self.open.remove(session);
                seen.sight(Sight::SessionLost);
                if owners.get(session).is_some_and(|owner| *owner != (Some(by), *attach)) {
                    let what = format!("{by} gave up a session that another agent hears: {session}");
                    findings.push((Invariant::NothingAcknowledgedIsLost, what));
                }
            }
            (Command::Arrive(arrive), Reply::Arrived(arrived)) if arrived.first && !arrived.late => {
                let place = (arrive.barrier.clone(), arrive.n, arrive.participant.clone());
                let latest = self.latest.get(&place);
                if let (Some(session), Some(latest)) = (arrive.session, latest)
                    && session != *latest
                {
                    let what = format!("{session} arrived for {place:?} after {latest} had taken its place");
                    findings.push((Invariant::RefusalsAreFinal, what));
                }
            }
            _ => {}
        }
    }

    /// An entry is applied.
    pub(crate) fn landed(
        &mut self,
        region: &Region,
        effects: &[Effect],
        ticked: bool,
        now: Duration,
        findings: &mut Findings,
        seen: &mut Sightings,
    ) {
        for effect in effects {
            let Effect::SessionEnded { session, fenced } = effect else { continue };
            self.open.remove(session);
            seen.sight_if(*fenced, Sight::SessionFenced);
            seen.sight_if(!*fenced && ticked, Sight::OrphanExpired);
            if !*fenced {
                let pulse = self.pulses.entry(*session).or_default();
                pulse.lost_at = Some(now);
                if let Err(what) = pulse.check(*session) {
                    findings.push((Invariant::NothingAcknowledgedIsLost, what));
                }
            }
        }
        self.losses(region, now, findings, seen);
    }

    /// Who is lost, and whose loss acts.
    fn losses(&mut self, region: &Region, now: Duration, findings: &mut Findings, seen: &mut Sightings) {
        let mut acted = BTreeSet::new();
        for (name, barrier) in region.barriers() {
            for generation in barrier.generations() {
                let n = generation.id().n;
                let Some(slice) = barrier.slice(generation).filter(|slice| slice.liveness.is_some()) else { continue };
                let counts = generation.counts();
                let gathers = generation.ended().is_none() && generation.completed().is_some();
                if gathers && counts.excluded > 0 && counts.ok == 0 {
                    let what = format!("{name} {n} is complete, and nobody arrived");
                    findings.push((Invariant::ReleasedOnlyWhenComplete, what));
                }
                for (who, arrival) in generation.arrivals().filter(|(_, arrival)| arrival.lost) {
                    let place = (name.clone(), n, who.clone());
                    if self.acts(&place, arrival.attempt, slice, now, findings) {
                        seen.sight(Sight::LossFailed);
                    }
                    acted.insert((place, arrival.attempt));
                }
                for (who, _) in generation.absences().filter(|(_, absence)| *absence == Absence::Excluded) {
                    let place = (name.clone(), n, who.clone());
                    if self.acts(&place, 0, slice, now, findings) {
                        seen.sight(Sight::LossExcluded);
                    }
                    acted.insert((place, 0));
                }
                // After a loss that acted somebody may have begun anew at once.
                self.workers(name, generation, now, seen);
            }
        }
        self.acted = acted;
    }

    /// Who is lost, and who is not any more.
    fn workers(&mut self, name: &BarrierName, generation: &Generation, now: Duration, seen: &mut Sightings) {
        for (who, worker) in generation.workers() {
            let place = (name.clone(), generation.id().n, who.clone());
            match (worker.lost, self.lost.get(&place)) {
                (Some(_), Some((session, _))) if *session == worker.session => {}
                (Some(_), _) => drop(self.lost.insert(place, (worker.session, now))),
                (None, Some(_)) => {
                    seen.sight(Sight::RejoinedInTime);
                    self.lost.remove(&place);
                }
                (None, None) => {}
            }
        }
    }

    /// Whether a loss acts just now; it must not do so early.
    fn acts(&mut self, place: &Place, attempt: u32, slice: &Slice, now: Duration, findings: &mut Findings) -> bool {
        if self.acted.contains(&(place.clone(), attempt)) {
            return false;
        }
        let since = self.lost.remove(place).map_or(now, |(_, since)| since);
        let rejoin = Duration::from_millis(slice.liveness.map_or(0, |liveness| liveness.rejoin_ms));
        if since + rejoin > now {
            let what = format!("the loss of {place:?} acts {:?} after it, before {rejoin:?}", now - since);
            findings.push((Invariant::RefusalsAreFinal, what));
        }
        true
    }
}

impl Pulse {
    /// What the region gives up, its client has given up before.
    fn check(self, id: SessionId) -> Result<(), String> {
        match self.lost_at {
            Some(lost_at) if lost_at < self.until => Err(format!(
                "session {id} was given up at {lost_at:?}, and its client holds it for alive until {:?}",
                self.until
            )),
            _ => Ok(()),
        }
    }
}
