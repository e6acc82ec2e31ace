//! One participant as it is now: what the region's log says of it, and what
//! this agent alone can know of its session.

use muster_protocol::identity::SessionId;
use muster_protocol::name::ParticipantId;
use muster_protocol::region::{Absence, Arrival, ArrivalOutcome, Generation, Lost, Region};
use muster_protocol::spec::{OnLost, Slice};
use muster_wire::answer::{Participant, ParticipantState};
use muster_wire::time::rfc3339;

use crate::sessions::Sessions;

/// Where participants of one generation are told from.
pub(super) struct Roll<'a> {
    pub(super) region: &'a Region,
    pub(super) generation: &'a Generation,
    pub(super) slice: Option<&'a Slice>,
    pub(super) sessions: &'a Sessions,
}

impl Roll<'_> {
    /// How far one has come.
    pub(super) fn state(&self, id: &ParticipantId) -> ParticipantState {
        if let Some(arrival) = self.generation.arrival(id) {
            return self.arrived(arrival);
        }
        match (self.generation.absence(id), self.generation.worker(id)) {
            (Some(Absence::Excluded), _) => ParticipantState::Excluded,
            (Some(Absence::Waived), _) => ParticipantState::Waived,
            (None, Some(worker)) if worker.lost.is_some() => ParticipantState::Lost,
            (None, Some(_)) => ParticipantState::Working,
            (None, None) => ParticipantState::Missing,
        }
    }

    fn arrived(&self, arrival: &Arrival) -> ParticipantState {
        let attempts = self.slice.map_or(1, |slice| slice.attempts);
        match arrival.outcome {
            ArrivalOutcome::Ok => ParticipantState::Arrived,
            ArrivalOutcome::Failed if arrival.lost || arrival.attempt >= attempts => ParticipantState::Failed,
            ArrivalOutcome::Failed => ParticipantState::Retrying,
        }
    }

    /// All that is known of one.
    pub(super) fn participant(&self, id: &ParticipantId) -> Participant {
        let (arrival, worker) = (self.generation.arrival(id), self.generation.worker(id));
        let session = worker.map(|worker| worker.session).or(arrival.and_then(|arrival| arrival.session));
        let lives = session.filter(|session| self.region.session(*session).is_some());
        Participant {
            participant: format!("{}/{id}", self.region.name()),
            state: self.state(id),
            attempt: arrival.map(|arrival| arrival.attempt).or(worker.map(|worker| worker.attempt)),
            arrived_at: arrival.filter(|arrival| !arrival.lost).map(|arrival| rfc3339(arrival.at)),
            note: arrival.and_then(|arrival| arrival.note.clone()),
            withdrawn: self.generation.withdrawn(id),
            session: session.map(|session| session.to_string()),
            last_seen_seconds: lives.and_then(|session| self.last_seen(session)),
            rejoin_seconds: worker.and_then(|worker| self.rejoin(worker.lost?)),
            progress: lives.and_then(|session| self.sessions.progress(session)),
        }
    }

    fn last_seen(&self, session: SessionId) -> Option<f64> {
        self.sessions.last_seen(session).map(|silence| silence.as_secs_f64())
    }

    /// How long a lost one has to come back, on the region clock.
    fn rejoin(&self, lost: Lost) -> Option<f64> {
        let liveness = self.slice?.liveness.filter(|liveness| liveness.on_lost != OnLost::Wait)?;
        let gone_ms = self.region.clock_ms().saturating_sub(lost.clock_ms);
        Some(std::time::Duration::from_millis(liveness.rejoin_ms.saturating_sub(gone_ms)).as_secs_f64())
    }
}
