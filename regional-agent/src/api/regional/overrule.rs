//! What somebody decides that participants had not, of a regional barrier:
//! abort, forced release, waiver, retry.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::{Answer, Call, Failure, GenerationPath, extract};
use muster_protocol::caps;
use muster_protocol::generation::{GenerationId, State as Progress};
use muster_protocol::global::{Command, Reply};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Override;
use muster_protocol::region::Region;
use muster_wire::answer::Overruled;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use muster_wire::refusal;
use muster_wire::request::{self, Keep};
use muster_wire::selection::selection;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::Api;
use super::super::locate::find;
use super::status::{Seen, status};
use crate::clock::wall_clock;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Parameters {
    dry_run: Option<bool>,
    region: Option<RegionName>,
}

/// POST G/abort
pub(in super::super) async fn abort(State(api): State<Api>, path: GenerationPath, call: Call) -> Answer<Response> {
    overrule(&api, path, call, "an abort", |body: request::Override, id| {
        Ok((body.reason, Box::new(move |by| Command::Abort { n: id.n, by })))
    })
    .await
}

/// POST G/release
pub(in super::super) async fn release(State(api): State<Api>, path: GenerationPath, call: Call) -> Answer<Response> {
    overrule(&api, path, call, "a release by force", |body: request::Release, id| {
        if !body.force {
            let detail = "releasing before everybody has arrived lets everybody pass, those too who wait for the rest";
            return Err(Problem::new(Code::BadRequest, detail).hint("if that is meant, send {\"force\": true}").into());
        }
        Ok((body.reason, Box::new(move |by| Command::Release { n: id.n, by })))
    })
    .await
}

/// POST G/waive
pub(in super::super) async fn waive(State(api): State<Api>, path: GenerationPath, call: Call) -> Answer<Response> {
    overrule(&api, path, call, "a waiver", |body: request::Waive, id| {
        let request::Waive { region, participants, reason } = body;
        let participants = participants.as_deref().map(selection).transpose()?;
        Ok((reason, Box::new(move |by| Command::Waive { n: id.n, region, participants, by })))
    })
    .await
}

/// POST G/retry
pub(in super::super) async fn retry(State(api): State<Api>, mut path: GenerationPath, call: Call) -> Answer<Response> {
    if let Some(before) = api.handle.read(|region| retried(region, &path.barrier, &path.id)) {
        path.id = before;
    }
    overrule(&api, path, call, "a retry", |body: request::Retry, id| {
        let keep = body.keep == Keep::Ok;
        Ok((body.reason, Box::new(move |by| Command::Retry { n: id.n, key: id.key, keep, by })))
    })
    .await
}

/// A key means its latest round. When that is a retry which has not broken, the
/// round before it is what was meant: asking for that again changes nothing.
fn retried(region: &Region, barrier: &BarrierName, reference: &Reference) -> Option<Reference> {
    let id = find(region, barrier, reference)?;
    let state = region.generation(barrier, id.n)?.state();
    let again = reference.round().is_none() && id.round > 0 && state != Progress::Broken;
    again.then(|| Some(Reference::Key(id.key?, Some(id.round - 1)))).flatten()
}

/// Why, and the command that somebody gives for that.
type Order = (String, Box<dyn FnOnce(Override) -> Command + Send>);

async fn overrule<T: DeserializeOwned>(
    api: &Api,
    path: GenerationPath,
    call: Call,
    what: &str,
    order: impl FnOnce(T, GenerationId) -> Answer<Order>,
) -> Answer<Response> {
    let name = &path.barrier;
    if let Some(response) = api.unless_regional(name, api.coordinator.forward(&call)).await? {
        return Ok(response);
    }
    let Parameters { dry_run, region } = extract::query(&call.uri)?;
    api.own_region(region.as_ref())?;
    let body: T = extract::json(&call.body)?;
    let id = api.handle.read(|region| Api::meant(region, name, &path.id))?;
    let (reason, command) = order(body, id.clone())?;
    if reason.trim().is_empty() {
        return Err(Failure::new(Code::BadRequest, format!("{what} needs a reason: send {{\"reason\": \"…\"}}")));
    }
    limited(&reason)?;
    let dry_run = dry_run.unwrap_or(false);
    let said = api.say(name, command(Override { actor: None, reason }), dry_run).await?;
    let (id, changed, created) = match &said.reply {
        Ok(Reply::Ended { changed, .. } | Reply::Waived { changed, .. }) => (id, *changed, false),
        Ok(Reply::Opened { generation, created, .. }) => (generation.clone(), *created, *created),
        Ok(reply) => return Err(unexpected(reply)),
        Err(refused) => return Err(refusal::problem(name, refused).into()),
    };
    let waiting = api.handle.waiters().count(name, id.n);
    let now = said.read(api, |region| {
        let generation = region.generation(name, id.n)?;
        Seen::of(region, generation, waiting, wall_clock()).map(|seen| status(&seen))
    });
    let Some(status) = now else {
        return Err(Failure::new(Code::Expired, format!("{id} ended and is past its retention")));
    };
    let code = if created && !dry_run { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, axum::Json(Overruled { status, changed, dry_run })).into_response())
}

/// Refuses a reason that is over its limit.
pub(super) fn limited(reason: &str) -> Answer<()> {
    let (bytes, limit) = (reason.len(), caps::TEXT_BYTES_MAX);
    if bytes > limit {
        return Err(Failure::new(Code::BadRequest, format!("reason: {bytes} bytes are over the limit of {limit}")));
    }
    Ok(())
}

/// The machine answered something else than it was asked: a defect.
pub(super) fn unexpected(reply: &Reply) -> Failure {
    tracing::error!(?reply, "the machine answered something else than it was asked");
    Failure::new(Code::Internal, "the machine answered something else than it was asked; the log has it")
}
