//! Arrivals, alone and in batches, and withdrawals.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::poll::{Pending, Wait};
use muster_http::{Answer, Failure, GenerationPath, Json, ParticipantPath, Query};
use muster_protocol::caps;
use muster_protocol::generation::GenerationId;
use muster_protocol::identity::SessionId;
use muster_protocol::name::{ParticipantId, RegionName};
use muster_protocol::region::{Arrive, Command, Region, Reply, Withdraw};
use muster_telemetry::{TraceContext, metrics};
use muster_wire::answer::{Arrived, BatchArrived, BatchItem};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request;
use serde::Deserialize;

use super::locate::{Place, Purpose};
use super::{Api, speak};
use crate::clock::wall_clock;
use crate::driver::NoAnswer;

/// Parameters of an arrival.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    wait: Option<Wait>,
    whole: Option<bool>,
    pending: Option<Pending>,
    region: Option<RegionName>,
}

/// Parameters of a withdrawal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WithdrawParameters {
    attempt: Option<u32>,
    region: Option<RegionName>,
}

pub(super) async fn arrive(
    State(api): State<Api>,
    path: ParticipantPath,
    Query(parameters): Query<Parameters>,
    Json(body): Json<request::Arrival>,
) -> Answer<Response> {
    api.own_region(parameters.region.as_ref())?;
    api.own_region(body.region.as_ref())?;
    let patience = parameters.wait.map(|wait| wait.0);
    // Checked first: what is refused must not open the generation it names.
    check(&path.participant, &body)?;
    let who = std::slice::from_ref(&path.participant);
    let id = api.arrivable(&path.barrier, &path.id, who, patience).await?;
    if body.session.is_some() {
        api.know_sessions(&id, std::iter::once((&path.participant, &body))).await;
    }
    let command = api.arrival(&id, path.participant, body);
    let reply = api.handle.submit(command.clone(), TraceContext::current()).await;
    let arrived = api.answer_arrival(&id, &command, reply)?;
    match patience {
        None => {
            let status = if arrived.first && !arrived.late { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, axum::Json(arrived)).into_response())
        }
        Some(patience) => {
            let waited = api.wait_for(&id, patience, parameters.whole.unwrap_or(false)).await;
            let released = waited.map_err(|failure| {
                // What is durable is said to be so, whatever became of the wait.
                Failure::from(Pending::apply(parameters.pending, failure.into_problem().with("arrived", true)))
            })?;
            Ok(axum::Json(released).into_response())
        }
    }
}

pub(super) async fn batch(
    State(api): State<Api>,
    path: GenerationPath,
    Query(parameters): Query<Parameters>,
    Json(body): Json<request::Arrivals>,
) -> Answer<Response> {
    api.own_region(parameters.region.as_ref())?;
    let count = body.arrivals.len();
    if count == 0 || count > caps::BATCH_ARRIVALS_MAX {
        let limit = caps::BATCH_ARRIVALS_MAX;
        let detail = format!("a batch holds 1 to {limit} arrivals, and this one has {count}");
        return Err(Problem::new(Code::BadRequest, detail).hint("send several batches").into());
    }
    let patience = parameters.wait.map(|wait| wait.0);
    let arrivals: Vec<_> = body.arrivals.into_iter().map(request::BatchArrival::split).collect();
    let checks: Vec<Answer<()>> = arrivals.iter().map(|(who, arrival)| check(who, arrival)).collect();
    let who: Vec<ParticipantId> =
        arrivals.iter().zip(&checks).filter(|(_, check)| check.is_ok()).map(|((who, _), _)| who.clone()).collect();
    if who.is_empty() {
        return answer_items(arrivals.into_iter().zip(checks).map(refused_item).collect(), patience);
    }
    let id = api.arrivable(&path.barrier, &path.id, &who, patience).await?;
    if arrivals.iter().any(|(_, arrival)| arrival.session.is_some()) {
        api.know_sessions(&id, arrivals.iter().map(|(who, arrival)| (who, arrival))).await;
    }
    let commands: Vec<Answer<Command>> = arrivals
        .iter()
        .zip(checks)
        .map(|((who, arrival), check)| check.map(|()| api.arrival(&id, who.clone(), arrival.clone())))
        .collect();
    let good: Vec<Command> = commands.iter().filter_map(|command| command.as_ref().ok().cloned()).collect();
    let mut replies = api.handle.submit_all(good, TraceContext::current()).await.into_iter();
    let items: Vec<BatchItem> = arrivals
        .into_iter()
        .zip(commands)
        .map(|((participant, _), command)| {
            let arrived = command.and_then(|command| {
                let reply = replies.next().unwrap_or(Err(NoAnswer::Unknown));
                api.answer_arrival(&id, &command, reply)
            });
            item(participant, arrived)
        })
        .collect();
    let Some(patience) = patience.filter(|_| items.iter().all(|item| item.problem.is_none())) else {
        return answer_items(items, patience);
    };
    let waited = api.wait_for(&id, patience, parameters.whole.unwrap_or(false)).await;
    let released = waited.map_err(|failure| {
        Failure::from(Pending::apply(parameters.pending, failure.into_problem().with("arrived", true)))
    })?;
    Ok(axum::Json(released).into_response())
}

/// An answer for each arrival of a batch; a no to a call that would have
/// waited for all of them.
fn answer_items(items: Vec<BatchItem>, patience: Option<std::time::Duration>) -> Answer<Response> {
    if patience.is_none() {
        return Ok(axum::Json(BatchArrived { arrivals: items }).into_response());
    }
    let failed: Vec<Code> = items.iter().filter_map(|item| Some(item.problem.as_ref()?.code)).collect();
    let detail = format!("{} of {} arrivals were not done, so there is no wait", failed.len(), items.len());
    // Where all failed for one reason, it is the reason of the call: a batch
    // for a broken generation is told so, and what is unknown is safe to repeat.
    let code = match failed.split_first() {
        Some((first, rest)) if rest.iter().all(|code| code == first) => *first,
        _ => Code::BadRequest,
    };
    let items = serde_json::to_value(items).unwrap_or_default();
    Err(Problem::new(code, detail).hint("`arrivals` has an answer for each").with("arrivals", items).into())
}

fn refused_item(((participant, _), check): ((ParticipantId, request::Arrival), Answer<()>)) -> BatchItem {
    let refused = check.and(Err(Failure::new(Code::Internal, "nothing was wrong")));
    item(participant, refused)
}

pub(super) async fn withdraw(
    State(api): State<Api>,
    path: ParticipantPath,
    Query(parameters): Query<WithdrawParameters>,
) -> Answer<StatusCode> {
    api.own_region(parameters.region.as_ref())?;
    let Place::Here(id) = api.locate(&path.barrier, &path.id, Purpose::Withdraw, &[], None).await? else {
        return Err(api.no_part(&path.barrier));
    };
    let attempt = parameters.attempt.unwrap_or(1);
    let participant = path.participant;
    let command =
        Command::Withdraw(Withdraw { barrier: id.barrier.clone(), n: id.n, participant: participant.clone(), attempt });
    match api.handle.submit(command, TraceContext::current()).await {
        Ok(Reply::Withdrawn) => Ok(StatusCode::NO_CONTENT),
        Ok(Reply::Refused(refusal)) => {
            let about = speak::About { id: &id, region: &api.region, participant: &participant, attempt };
            Err(api.handle.read(|region| speak::refused(region, &about, &refusal)))
        }
        Ok(other) => Err(Failure::new(Code::Internal, format!("unexpected reply to a withdrawal: {other:?}"))),
        Err(none) => Err(speak::no_answer(none)),
    }
}

impl Api {
    /// The region is implied here; naming another one is a mistake.
    pub(super) fn own_region(&self, named: Option<&RegionName>) -> Answer<()> {
        match named.filter(|region| **region != self.region) {
            None => Ok(()),
            Some(other) => Err(Problem::new(
                Code::WrongRegion,
                format!("this is an agent of {}, and the call is for {other}", self.region),
            )
            .hint(format!("send it to an agent of {other}, or to the coordinator"))
            .into()),
        }
    }

    pub(super) fn no_part(&self, barrier: &muster_protocol::name::BarrierName) -> Failure {
        Problem::new(Code::WrongRegion, format!("{} has no part in {barrier}", self.region))
            .hint("the definition lists its regions: muster ls -o yaml")
            .into()
    }

    pub(super) async fn arrivable(
        &self,
        barrier: &muster_protocol::name::BarrierName,
        id: &muster_wire::reference::Reference,
        who: &[ParticipantId],
        patience: Option<std::time::Duration>,
    ) -> Answer<GenerationId> {
        match self.locate(barrier, id, Purpose::Arrive, who, patience).await? {
            Place::Here(id) => Ok(id),
            Place::Elsewhere => Err(self.no_part(barrier)),
        }
    }

    /// Sees to it that sessions which were opened at another agent are known
    /// here, where arrivals leave their attempt to them.
    async fn know_sessions<'a>(
        &self,
        id: &GenerationId,
        mut arrivals: impl Iterator<Item = (&'a ParticipantId, &'a request::Arrival)>,
    ) {
        let unknown = self.handle.read(|region| {
            arrivals.any(|(who, arrival)| match (arrival.session, arrival.attempt) {
                (Some(session), None) => attempt_of(region, id, who, session).is_none(),
                _ => false,
            })
        });
        if unknown {
            // Without an answer the machine refuses what it does not know.
            let _ = self.handle.fresh().await;
        }
    }

    fn arrival(&self, id: &GenerationId, participant: ParticipantId, body: request::Arrival) -> Command {
        let given = |session| self.handle.read(|region| attempt_of(region, id, &participant, session));
        let attempt = body.attempt.or_else(|| given(body.session?)).unwrap_or(1);
        Command::Arrive(Arrive {
            barrier: id.barrier.clone(),
            n: id.n,
            participant,
            attempt,
            outcome: body.outcome.unwrap_or_default(),
            note: body.note,
            output: body.output,
            session: body.session,
            at: wall_clock(),
        })
    }

    fn answer_arrival(&self, id: &GenerationId, command: &Command, reply: Result<Reply, NoAnswer>) -> Answer<Arrived> {
        let Command::Arrive(arrive) = command else {
            return Err(Failure::new(Code::Internal, "not an arrival"));
        };
        let (result, answer) = match reply {
            Ok(Reply::Arrived(arrived)) => {
                let result = if arrived.first { "first" } else { "repeat" };
                (result, Ok(self.handle.read(|region| speak::arrived(region, id, &arrive.participant, &arrived))))
            }
            Ok(Reply::Refused(refusal)) => {
                let about = speak::About {
                    id,
                    region: &self.region,
                    participant: &arrive.participant,
                    attempt: arrive.attempt,
                };
                ("refused", Err(self.handle.read(|region| speak::refused(region, &about, &refusal))))
            }
            Ok(other) => {
                ("error", Err(Failure::new(Code::Internal, format!("unexpected reply to an arrival: {other:?}"))))
            }
            Err(none) => ("unavailable", Err(speak::no_answer(none))),
        };
        metrics::arrivals(self.region.as_str().to_owned(), result).increment(1);
        answer
    }
}

/// What can be refused without knowing the generation; the machine checks the
/// rest.
fn check(participant: &ParticipantId, body: &request::Arrival) -> Answer<()> {
    let size = |what: &str, text: Option<&String>, limit: usize| match text.map_or(0, String::len) {
        bytes if bytes > limit => {
            let detail = format!("the {what} of {participant} has {bytes} bytes, over the limit of {limit}");
            Err(Failure::from(Problem::new(Code::TooLarge, detail).with("limit", limit)))
        }
        _ => Ok(()),
    };
    size("note", body.note.as_ref(), caps::NOTE_BYTES_MAX)?;
    size("output", body.output.as_ref(), caps::OUTPUT_BYTES_MAX)?;
    if body.attempt == Some(0) {
        return Err(Failure::new(Code::BadRequest, "attempt counts from 1"));
    }
    Ok(())
}

/// The attempt that a session was given for a participant, if this state knows
/// of it.
fn attempt_of(region: &Region, id: &GenerationId, who: &ParticipantId, session: SessionId) -> Option<u32> {
    let generation = region.generation(&id.barrier, id.n)?;
    let worker = generation.worker(who).filter(|worker| worker.session == session).map(|worker| worker.attempt);
    let arrival = generation.arrival(who).filter(|arrival| arrival.session == Some(session));
    worker.or(arrival.map(|arrival| arrival.attempt))
}

fn item(participant: ParticipantId, arrived: Answer<Arrived>) -> BatchItem {
    match arrived {
        Ok(arrived) => {
            let status = if arrived.first && !arrived.late { 201 } else { 200 };
            BatchItem { participant, status, arrived: Some(arrived), problem: None }
        }
        Err(failure) => {
            let problem = failure.into_problem();
            BatchItem { participant, status: problem.status, arrived: None, problem: Some(problem) }
        }
    }
}
