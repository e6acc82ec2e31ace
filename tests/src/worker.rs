//! A participant: a client whose every call goes into the history.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use muster_client::{Client, Error, Session, Target};
use muster_protocol::name::{ParticipantId, RegionName};
use muster_protocol::region::ArrivalOutcome;
use muster_wire::answer::{Arrived, BatchItem, Participant, ParticipantState, Released};
use muster_wire::code::{Code, Retry};
use muster_wire::request::{Arrival, BatchArrival, OpenSession, SessionParticipant};

use crate::history::{Answer, Call, History, What};
use crate::until::DEADLINE;

/// One participant of one region.
#[derive(Clone, Debug)]
pub struct Worker {
    /// A client of the region's agents.
    pub client: Client,
    /// Its region.
    pub region: RegionName,
    /// Who it is.
    pub id: ParticipantId,
    history: History,
    patience: Duration,
}

impl Worker {
    /// A participant that calls with `client`.
    #[must_use]
    pub fn new(client: Client, region: RegionName, id: ParticipantId, history: History) -> Self {
        // Whoever is away comes back: that is what the scenarios are about.
        Self { client: client.patience(DEADLINE), region, id, history, patience: DEADLINE }
    }

    /// The same participant, who bears it for so long that nobody answers or
    /// nothing is released.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self { client: self.client.patience(patience), patience, ..self }
    }

    /// The same participant, calling with another client.
    #[must_use]
    pub fn with(&self, client: Client) -> Self {
        Self::new(client, self.region.clone(), self.id.clone(), self.history.clone())
    }

    /// In full, `region/id`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.region, self.id)
    }

    /// Arrives ok with the first attempt.
    pub async fn arrive(&self, target: &Target) -> Result<Arrived, Error> {
        self.arrive_as(target, Arrival::default()).await
    }

    /// Arrives.
    pub async fn arrive_as(&self, target: &Target, arrival: Arrival) -> Result<Arrived, Error> {
        let what = What::Arrive { attempt: arrival.attempt.unwrap_or(1), outcome: arrival.outcome.unwrap_or_default() };
        let start = Instant::now();
        let arrived = self.client.arrive(target, &self.id, &arrival).await;
        let answer = match &arrived {
            Ok(arrived) => Answer::Arrived { attempt: arrived.attempt, outcome: arrived.outcome },
            Err(error) => not_done(error),
        };
        // A late arrival is told the outcome; nothing of it is kept.
        if !arrived.as_ref().is_ok_and(|arrived| arrived.late) {
            self.record(target, what, start, answer);
        }
        arrived
    }

    /// Arrives, and hangs up after so long, whatever came of it.
    pub async fn arrive_and_hang_up(&self, target: &Target, after: Duration) {
        let what = What::Arrive { attempt: 1, outcome: ArrivalOutcome::default() };
        let start = Instant::now();
        let _ = tokio::time::timeout(after, self.client.arrive(target, &self.id, &Arrival::default())).await;
        self.record(target, what, start, Answer::Unknown("nobody stayed for the answer".to_owned()));
    }

    /// Many of one region arrive in one request, by the first one's client.
    /// Returns those that have to call again.
    pub async fn arrive_together(workers: &[Self], target: &Target, arrival: &Arrival) -> Result<Vec<Self>, Error> {
        let Some(first) = workers.first() else { return Ok(Vec::new()) };
        let what = What::Arrive { attempt: arrival.attempt.unwrap_or(1), outcome: arrival.outcome.unwrap_or_default() };
        let batch = workers.iter().map(|worker| BatchArrival {
            participant: worker.id.clone(),
            attempt: arrival.attempt,
            outcome: arrival.outcome,
            note: arrival.note.clone(),
            output: arrival.output.clone(),
            session: arrival.session,
        });
        let start = Instant::now();
        let arrived = first.client.arrive_all(target, batch.collect()).await;
        let mut again = Vec::new();
        for (number, worker) in workers.iter().enumerate() {
            let answer = match &arrived {
                Err(error) => not_done(error),
                Ok(batch) => match answer_of(&batch.arrivals[number]) {
                    Some(answer) => answer,
                    None => continue,
                },
            };
            if matches!(&answer, Answer::Unknown(_))
                || matches!(&answer, Answer::Refused(code) if matches!(code.retry(), Retry::Same | Retry::Later))
            {
                again.push(worker.clone());
            }
            worker.record(target, what, start, answer);
        }
        arrived.map(|_| again)
    }

    /// Reads how far all of one region have come, by the first one's client.
    pub async fn look_together(workers: &[Self], target: &Target) -> Result<Vec<Participant>, Error> {
        let Some(first) = workers.first() else { return Ok(Vec::new()) };
        let start = Instant::now();
        let seen = first.client.participants(target, None, None).await?;
        let by_name: BTreeMap<&str, &Participant> = seen.iter().map(|one| (one.participant.as_str(), one)).collect();
        for worker in workers {
            let answer = Answer::Seen { arrived: by_name.get(worker.name().as_str()).and_then(|seen| arrived(seen)) };
            worker.record(target, What::Look, start, answer);
        }
        Ok(seen)
    }

    /// Waits for the release, for as long as a state may take.
    pub async fn wait(&self, target: &Target) -> Result<Released, Error> {
        self.wait_for(target, self.patience).await
    }

    /// Waits for the release.
    pub async fn wait_for(&self, target: &Target, patience: Duration) -> Result<Released, Error> {
        let start = Instant::now();
        let waited = self.client.wait(target, Some((start + patience).into())).await;
        self.record(target, What::Wait, start, told(&waited));
        waited
    }

    /// Arrives, then waits in another call.
    pub async fn cross(&self, target: &Target) -> Result<Released, Error> {
        self.arrive(target).await?;
        self.wait(target).await
    }

    /// Arrives and waits in one call.
    pub async fn arrive_and_wait(&self, target: &Target, arrival: Arrival) -> Result<Released, Error> {
        let what = What::Arrive { attempt: arrival.attempt.unwrap_or(1), outcome: arrival.outcome.unwrap_or_default() };
        let start = Instant::now();
        let until = Some((start + self.patience).into());
        let waited = self.client.arrive_and_wait(target, &self.id, &arrival, until).await;
        // Two in one: whether the arrival stands is not told apart from the
        // wait, so it counts as one that may have been done.
        let stands = match &waited {
            Err(error @ Error::Refused(problem)) if problem.code != Code::Broken => not_done(error),
            _ => Answer::Unknown("answered by its wait".to_owned()),
        };
        self.record(target, what, start, stands);
        self.record(target, What::Wait, start, told(&waited));
        waited
    }

    /// Takes back all attempts up to this one.
    pub async fn withdraw(&self, target: &Target, attempt: u32) -> Result<(), Error> {
        let start = Instant::now();
        let withdrawn = self.client.withdraw(target, &self.id, Some(attempt), None).await;
        let answer = match &withdrawn {
            Ok(()) => Answer::Withdrawn,
            Err(error) => not_done(error),
        };
        self.record(target, What::Withdraw { attempt }, start, answer);
        withdrawn
    }

    /// Says that its session falls silent or ends from now on, so that its
    /// arrivals may go with it where they do not outlive it.
    pub fn falls_silent(&self, target: &Target) {
        self.record(target, What::FallSilent, Instant::now(), Answer::Unknown("nobody is called".to_owned()));
    }

    /// Opens a session for this participant alone, and keeps it alive.
    pub async fn session(&self, target: &Target, ttl: Option<&str>) -> Result<Session, Error> {
        self.client.session(self.opening(target, ttl)).await
    }

    /// What a session for this participant alone is opened with.
    #[must_use]
    pub fn opening(&self, target: &Target, ttl: Option<&str>) -> OpenSession {
        let generation = target.generation.as_ref().map(ToString::to_string);
        let work = SessionParticipant { barrier: target.barrier.clone(), generation, id: self.id.clone() };
        OpenSession { ttl: ttl.map(ToOwned::to_owned), participants: vec![work], ..OpenSession::default() }
    }

    /// Reads how far it has come itself.
    pub async fn look(&self, target: &Target) -> Result<Participant, Error> {
        let start = Instant::now();
        let seen = self.client.arrival(target, &self.id, None).await;
        let answer = match &seen {
            Ok(seen) => Answer::Seen { arrived: arrived(seen) },
            Err(error) => not_done(error),
        };
        self.record(target, What::Look, start, answer);
        seen
    }

    fn record(&self, target: &Target, what: What, start: Instant, answer: Answer) {
        let (generation, participant) = (target.to_string(), self.name());
        self.history.record(Call { generation, participant, what, start, end: Instant::now(), answer });
    }
}

fn told(waited: &Result<Released, Error>) -> Answer {
    match waited {
        Ok(released) => Answer::Released { digest: released.digest.clone(), whole: released.whole },
        Err(error) => not_done(error),
    }
}

fn not_done(error: &Error) -> Answer {
    match error {
        Error::Refused(problem) if problem.code == Code::Broken => Answer::Broken,
        Error::Refused(problem) => Answer::Refused(problem.code),
        Error::TimedOut { .. } => Answer::TimedOut,
        other => Answer::Unknown(other.to_string()),
    }
}

/// An answer of a batch; none to a late arrival, of which nothing is kept.
fn answer_of(item: &BatchItem) -> Option<Answer> {
    match (&item.arrived, &item.problem) {
        (Some(arrived), _) if arrived.late => None,
        (Some(arrived), _) => Some(Answer::Arrived { attempt: arrived.attempt, outcome: arrived.outcome }),
        (None, Some(problem)) if problem.code == Code::Broken => Some(Answer::Broken),
        (None, Some(problem)) if problem.code == Code::OutcomeUnknown => Some(Answer::Unknown(problem.detail.clone())),
        (None, Some(problem)) => Some(Answer::Refused(problem.code)),
        (None, None) => Some(Answer::Unknown(format!("{item:?}"))),
    }
}

/// The attempt that is reported to stand.
pub(crate) fn arrived(seen: &Participant) -> Option<(u32, ArrivalOutcome)> {
    let outcome = match seen.state {
        ParticipantState::Arrived => ArrivalOutcome::Ok,
        ParticipantState::Failed | ParticipantState::Retrying => ArrivalOutcome::Failed,
        _ => return None,
    };
    Some((seen.attempt.unwrap_or(0), outcome))
}
