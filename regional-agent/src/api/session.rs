//! Sessions over HTTP: open one, keep it alive, end it.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::{Answer, Failure, Json, Query, SessionPath};
use muster_protocol::caps;
use muster_protocol::generation::GenerationId;
use muster_protocol::identity::SessionId;
use muster_protocol::name::{BarrierName, ParticipantId, RegionName};
use muster_protocol::region::{Command, Generation, OpenSession, Refusal, Region, Reply, SessionOpened, Work};
use muster_wire::answer::{HeartbeatTaken, Session, SessionWork};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use muster_wire::request;
use muster_wire::time::{format_duration, parse_duration};
use serde::Deserialize;

use super::locate::draining;
use super::{Api, speak};
use crate::clock::wall_clock;
use crate::sessions::{End, Heartbeat};

/// Milliseconds a session may be silent when neither its client nor a barrier
/// says.
const TTL_MS_DEFAULT: u64 = 30_000;
/// Heartbeats that are sent in a session's time.
const HEARTBEATS: u32 = 3;

/// The region is implied here; naming it is allowed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegionParameter {
    region: Option<RegionName>,
}

/// POST /v1/sessions
pub(super) async fn open(
    State(api): State<Api>,
    Query(parameters): Query<RegionParameter>,
    Json(body): Json<request::OpenSession>,
) -> Answer<Response> {
    api.own_region(parameters.region.as_ref())?;
    api.own_region(body.region.as_ref())?;
    let asked = body.ttl.as_deref().map(ttl_ms).transpose()?;
    let count = body.participants.len();
    if count == 0 || count > caps::SESSION_PARTICIPANTS_MAX {
        let limit = caps::SESSION_PARTICIPANTS_MAX;
        let detail = format!("a session works for 1 to {limit} participants, and this one names {count}");
        return Err(Problem::new(Code::BadRequest, detail).hint("open several sessions").with("limit", limit).into());
    }
    let id = body.id.unwrap_or_else(|| SessionId(rand::random()));
    let works = api.works(&body.participants).await?;
    let ttl_ms = asked.unwrap_or_else(|| api.handle.read(|region| ttl_when_silent(region, &works)));
    let open =
        OpenSession { id, ttl_ms, works: works.iter().map(|(_, work)| work.clone()).collect(), at: wall_clock() };
    match api.sessions.submit(Command::OpenSession(open)).await {
        Ok(Reply::SessionOpened(opened)) => {
            Ok((StatusCode::CREATED, axum::Json(speak_session(id, works, &opened))).into_response())
        }
        Ok(Reply::Refused(refusal)) => Err(api.handle.read(|region| refused(region, &works, &refusal))),
        Ok(other) => Err(Failure::new(Code::Internal, format!("unexpected reply to opening a session: {other:?}"))),
        Err(none) => Err(speak::no_answer(none)),
    }
}

/// PUT /v1/sessions/{session}/heartbeat
pub(super) async fn heartbeat(
    State(api): State<Api>,
    SessionPath(session): SessionPath,
    Query(parameters): Query<RegionParameter>,
    Json(body): Json<request::Heartbeat>,
) -> Answer<axum::Json<HeartbeatTaken>> {
    api.own_region(parameters.region.as_ref())?;
    let (bytes, limit) = (body.progress.as_ref().map_or(0, String::len), caps::NOTE_BYTES_MAX);
    if bytes > limit {
        let detail = format!("progress has {bytes} bytes, over the limit of {limit}");
        return Err(Problem::new(Code::TooLarge, detail).with("limit", limit).into());
    }
    if api.shutdown.is_cancelled() {
        return Err(draining());
    }
    match api.sessions.heartbeat(session, body.progress).await {
        Heartbeat::Taken { ttl } => {
            Ok(axum::Json(HeartbeatTaken { session: session.to_string(), ttl_seconds: ttl.as_secs_f64() }))
        }
        Heartbeat::Over(end) => Err(over(session, end)),
        Heartbeat::Unsure => Err(Problem::new(
            Code::Unavailable,
            "this agent can't tell now whether it is the one that hears the session; the heartbeat does not count",
        )
        .hint("send it again, or to another agent of the region")
        .into()),
        Heartbeat::NoAnswer(none) => Err(speak::no_answer(none)),
    }
}

/// DELETE /v1/sessions/{session}
pub(super) async fn close(
    State(api): State<Api>,
    SessionPath(session): SessionPath,
    Query(parameters): Query<RegionParameter>,
) -> Answer<axum::Json<serde_json::Value>> {
    api.own_region(parameters.region.as_ref())?;
    match api.sessions.submit(Command::CloseSession(session)).await {
        Ok(Reply::Done { changed }) => {
            Ok(axum::Json(serde_json::json!({ "session": session.to_string(), "changed": changed })))
        }
        Ok(Reply::Refused(Refusal::VersionTooLow)) => Err(speak::version_too_low(&api.region).into()),
        Ok(other) => Err(Failure::new(Code::Internal, format!("unexpected reply to ending a session: {other:?}"))),
        Err(none) => Err(speak::no_answer(none)),
    }
}

fn over(session: SessionId, end: End) -> Failure {
    match end {
        End::Fenced => Problem::new(Code::Fenced, format!("a later session works for the participants of {session}"))
            .hint("stop working: another worker has taken the place"),
        End::Lost => Problem::new(Code::SessionLost, format!("there is no session {session} any more"))
            .hint("it fell silent, was ended, or never was: stop working; open a new session to begin again"),
    }
    .into()
}

fn ttl_ms(text: &str) -> Answer<u64> {
    let bad = |detail: String| Failure::new(Code::BadRequest, format!("ttl: {detail}"));
    let ttl = parse_duration(text).map_err(|error| bad(error.to_string()))?;
    let limit = |ms| format_duration(Duration::from_millis(ms));
    let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    match ms {
        ms if ms < caps::SESSION_TTL_MS_MIN => {
            Err(bad(format!("{text} is less than the least, {}", limit(caps::SESSION_TTL_MS_MIN))))
        }
        ms if ms > caps::SESSION_TTL_MS_MAX => {
            Err(bad(format!("{text} is over the limit of {}", limit(caps::SESSION_TTL_MS_MAX))))
        }
        ms => Ok(ms),
    }
}

/// The machine takes the shortest time of the session's barriers, if that is
/// shorter than what is asked for.
fn ttl_when_silent(region: &Region, works: &[(GenerationId, Work)]) -> u64 {
    let watched = works.iter().any(|(_, work)| {
        let barrier = region.barrier(&work.barrier);
        let slice = barrier.and_then(|barrier| barrier.slice(barrier.generation(work.n)?));
        slice.is_some_and(|slice| slice.liveness.is_some())
    });
    if watched { caps::SESSION_TTL_MS_MAX } else { TTL_MS_DEFAULT }
}

fn speak_session(id: SessionId, works: Vec<(GenerationId, Work)>, opened: &SessionOpened) -> Session {
    let ttl = Duration::from_millis(opened.ttl_ms);
    let work = |((generation, work), attempt): ((GenerationId, Work), &muster_protocol::region::Attempt)| SessionWork {
        barrier: work.barrier,
        generation: generation.label().to_string(),
        n: work.n,
        id: work.participant,
        attempt: attempt.attempt,
        done: attempt.done,
    };
    Session {
        session: id.to_string(),
        ttl_seconds: ttl.as_secs_f64(),
        heartbeat_seconds: (ttl / HEARTBEATS).as_secs_f64(),
        participants: works.into_iter().zip(&opened.attempts).map(work).collect(),
    }
}

/// A session is refused as a whole: says for whom it could not be opened.
fn refused(region: &Region, works: &[(GenerationId, Work)], refusal: &Refusal) -> Failure {
    let Some((id, work)) = works.iter().find(|(_, work)| refuses(region, work, refusal)).or(works.first()) else {
        return Failure::new(Code::Internal, "a session without participants was refused");
    };
    let released = || {
        let detail = format!("{id} was released; there is nothing left to work for");
        Problem::new(Code::AlreadyDecided, detail).with("generation", id.label().to_string()).into()
    };
    match refusal {
        Refusal::AlreadyReleased => released(),
        refusal => {
            let about = speak::About { id, region: region.name(), participant: &work.participant, attempt: 1 };
            speak::refused(region, &about, refusal)
        }
    }
}

/// Whether this is the participant that the refusal is about.
fn refuses(region: &Region, work: &Work, refusal: &Refusal) -> bool {
    let generation = region.generation(&work.barrier, work.n);
    let ended = generation.is_some_and(|generation| generation.ended().is_some());
    match refusal {
        Refusal::Expired => generation.is_none_or(Generation::is_closed),
        Refusal::NoSuchGeneration => generation.is_none(),
        Refusal::AlreadyReleased | Refusal::Broken => ended,
        Refusal::NotExpected => {
            let slice = region.barrier(&work.barrier).and_then(|barrier| barrier.slice(generation?));
            slice.is_some_and(|slice| !slice.participants.admits(&work.participant))
        }
        Refusal::Full { .. } => generation.is_some_and(|known| known.arrival(&work.participant).is_none() && !ended),
        _ => true,
    }
}

impl Api {
    /// The generations that a session is to work in, found or opened like an
    /// arrival's: one look for all participants of each.
    async fn works(&self, participants: &[request::SessionParticipant]) -> Answer<Vec<(GenerationId, Work)>> {
        let mut asked: BTreeMap<(&BarrierName, Option<&str>), Vec<ParticipantId>> = BTreeMap::new();
        for one in participants {
            asked.entry((&one.barrier, one.generation.as_deref())).or_default().push(one.id.clone());
        }
        let mut found = BTreeMap::new();
        for (name, who) in asked {
            let (barrier, generation) = name;
            let reference = generation.map_or(Ok(Reference::Latest), str::parse::<Reference>)?;
            found.insert(name, self.arrivable(barrier, &reference, &who, None).await?);
        }
        let work = |one: &request::SessionParticipant| {
            let id = found.get(&(&one.barrier, one.generation.as_deref()))?.clone();
            let work = Work { barrier: one.barrier.clone(), n: id.n, participant: one.id.clone() };
            Some((id, work))
        };
        Ok(participants.iter().filter_map(work).collect())
    }
}
