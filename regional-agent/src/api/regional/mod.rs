//! Barriers of scope regional, which the region's log decides alone: defined,
//! opened, overruled and told here, while bus and coordinator may be away.
//! Everything that is not regional here is handed on.

mod define;
mod explain;
mod generations;
mod overrule;
mod read;
mod status;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use muster_http::extract::body_limit;
use muster_http::{Answer, Failure};
use muster_protocol::caps;
use muster_protocol::entry::{Body, Entry};
use muster_protocol::generation::GenerationId;
use muster_protocol::global::{self, Barrier};
use muster_protocol::identity::Writer;
use muster_protocol::name::BarrierName;
use muster_protocol::region::{Command, Refusal, Region, Regional, Reply};
use muster_protocol::spec::Generations;
use muster_telemetry::TraceContext;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use muster_wire::refusal;

use super::locate::{find, generation_required};
use super::{Api, speak};
use crate::clock::wall_clock;

/// The routes of what may be regional.
pub(super) fn routes() -> Router<Api> {
    let barrier = "/v1/barriers/{namespace}/{name}";
    let generation = format!("{barrier}/generations/{{id}}");
    let mut router = Router::new()
        .route(
            barrier,
            get(define::read).put(define::apply).delete(define::delete).layer(body_limit(caps::DEFINITION_BYTES_MAX)),
        )
        .route(&format!("{barrier}/generations"), get(generations::history).post(generations::open))
        .route(&generation, get(read::status))
        .route(&format!("{generation}/explain"), get(read::explain))
        .route(&format!("{generation}/outputs"), get(read::outputs))
        .route("/v1/barriers", get(define::list))
        .route("/v1/generations", get(generations::list))
        .route("/v1/audit", get(read::audit));
    // Without a generation in the path: the only one of a single barrier.
    for of in [generation.as_str(), barrier] {
        router = router
            .route(&format!("{of}/abort"), post(overrule::abort))
            .route(&format!("{of}/release"), post(overrule::release))
            .route(&format!("{of}/waive"), post(overrule::waive))
            .route(&format!("{of}/retry"), post(overrule::retry));
    }
    router
}

/// What a regional barrier answered, and the region as it would be if it had
/// only been asked what would happen.
struct Said {
    reply: Result<global::Reply, global::Refusal>,
    would_be: Option<Box<Region>>,
}

impl Said {
    /// Reads the region as it is now, or would be.
    fn read<T>(&self, api: &Api, read: impl FnOnce(&Region) -> T) -> T {
        match &self.would_be {
            Some(region) => read(region),
            None => api.handle.read(read),
        }
    }
}

impl Api {
    /// What `others` say of a barrier, unless it is one of this region's own, by
    /// a state that is not older than the question.
    async fn unless_regional(
        &self,
        barrier: &BarrierName,
        others: impl Future<Output = Answer<Response>>,
    ) -> Answer<Option<Response>> {
        let regional = || self.handle.read(|region| region.regional_barrier(barrier).is_some());
        if regional() {
            return Ok(None);
        }
        let fresh = self.handle.fresh().await;
        if regional() {
            return Ok(None);
        }
        let response = others.await?;
        match fresh {
            // What no coordinator knows may be this region's own.
            Err(why) if response.status() == StatusCode::NOT_FOUND => Err(speak::no_answer(why)),
            _ => Ok(Some(response)),
        }
    }

    /// Says something to a regional barrier, or finds what it would answer.
    async fn say(&self, barrier: &BarrierName, command: global::Command, dry_run: bool) -> Answer<Said> {
        let regional = Regional { barrier: barrier.clone(), command, at: wall_clock() };
        let command = Command::Regional(Box::new(regional));
        let (reply, would_be) = match dry_run {
            true => {
                self.handle.fresh().await.map_err(speak::no_answer)?;
                let mut region = Box::new(self.handle.read(Region::clone));
                (tried(&mut region, command), Some(region))
            }
            false => {
                let reply = self.handle.submit(command, TraceContext::current()).await;
                (reply.map_err(speak::no_answer)?, None)
            }
        };
        match reply {
            Reply::Regional(reply) => Ok(Said { reply: *reply, would_be }),
            Reply::Refused(Refusal::NameTaken) => Err(self.taken(barrier, "global").into()),
            Reply::Refused(Refusal::VersionTooLow) => Err(speak::version_too_low(&self.region).into()),
            other => Err(Failure::new(Code::Internal, format!("unexpected reply of a regional barrier: {other:?}"))),
        }
    }

    /// One name space: a name is of one scope everywhere.
    fn taken(&self, barrier: &BarrierName, scope: &str) -> Problem {
        let detail = format!("{barrier} is a barrier of scope {scope} in {}; a name has one scope", self.region);
        Problem::new(Code::Conflict, detail).hint("use another name; one that is deleted keeps its scope")
    }

    /// Opens a key of a regional barrier, or finds the one that is open.
    pub(super) async fn open_regional(&self, barrier: &BarrierName, command: global::Command) -> Answer<global::Reply> {
        let said = self.say(barrier, command, false).await?;
        said.reply.map_err(|refused| refusal::problem(barrier, &refused).into())
    }

    /// The generation that a call which acts means.
    fn meant(region: &Region, barrier: &BarrierName, reference: &Reference) -> Answer<GenerationId> {
        let decider = region.regional_barrier(barrier).ok_or_else(|| refusal::not_defined(barrier))?;
        let single = decider.spec().is_none_or(|spec| spec.generations == Generations::Single);
        if *reference == Reference::Latest && !single {
            return Err(generation_required(region, barrier));
        }
        find(region, barrier, reference).ok_or_else(|| absent(region, decider, reference).into())
    }
}

/// Why a regional barrier has no such generation.
pub(super) fn absent(region: &Region, decider: &Barrier, reference: &Reference) -> Problem {
    let name = &decider.name;
    let forgotten = |n| n > 0 && region.barrier(name).is_some_and(|known| known.has_forgotten(n));
    match decider.spec() {
        Some(spec) if !spec.generations.are_keyed() && reference.number().is_some_and(forgotten) => {
            Problem::new(Code::Expired, format!("{name}@{reference} ended and is past its retention"))
        }
        None if decider.revision == 0 => refusal::not_defined(name),
        None => Problem::new(Code::Deleted, format!("{name} was deleted, and {reference} is not kept")),
        Some(_) => {
            let problem = Problem::new(Code::NoSuchGeneration, format!("{name}@{reference} is not open"));
            problem.hint("a key opens with its first arrival, or `muster open`")
        }
    }
}

/// What a command would come to, on a state of its own.
fn tried(region: &mut Region, command: Command) -> Reply {
    let witness = muster_protocol::entry::Witness { index: 0, hash: muster_protocol::identity::Digest([0; 32]) };
    let body = Body { witness, commands: vec![command] };
    // No registered writer has this number.
    let entry = Entry { index: region.index() + 1, writer: Writer(u64::MAX), seq: 1, body };
    let mut replies = region.apply(&entry, &mut Vec::new());
    replies.pop().unwrap_or(Reply::Done { changed: false })
}
