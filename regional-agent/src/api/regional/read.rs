//! Looking at a regional generation: its status, with blocking reads; why it
//! is not released; what participants left; who overruled it.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE};
use muster_http::poll::{WAIT_DEFAULT, Wait};
use muster_http::{Answer, Call, Failure, GenerationPath, extract};
use muster_protocol::generation::{GenerationId, State as Progress};
use muster_protocol::global::Audit;
use muster_protocol::identity::History;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::region::Region;
use muster_wire::answer::{AuditRow, Page, Status};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::refusal;
use muster_wire::time::rfc3339;
use muster_wire::verdict;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::super::locate::find;
use super::super::{Api, read, speak};
use super::absent;
use super::explain::explain as explanation;
use super::status::{Seen, status as document};
use crate::clock::wall_clock;

/// How long a read waits for a state it knows of from elsewhere.
const BEHIND_DEFAULT: Duration = Duration::from_secs(5);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Parameters {
    index: Option<String>,
    wait: Option<Wait>,
    at_least: Option<String>,
    consistent: Option<bool>,
    region: Option<RegionName>,
}

/// A place in this region's log, and what a generation was there.
struct Place<'a> {
    index: u64,
    what: Option<&'a str>,
}

/// Reads an index of this region's history; another's is no reason to wait.
fn place(index: &str, history: History) -> Option<Place<'_>> {
    let place = index.strip_prefix(&history.to_string())?.strip_prefix(':')?;
    let (index, what) = place.split_once('.').map_or((place, None), |(index, what)| (index, Some(what)));
    Some(Place { index: index.parse().ok()?, what })
}

/// GET G
pub(in super::super) async fn status(State(api): State<Api>, path: GenerationPath, call: Call) -> Answer<Response> {
    if let Some(response) = api.unless_regional(&path.barrier, read::status(&api, &path, &call)).await? {
        return Ok(response);
    }
    let parameters: Parameters = extract::query(&call.uri)?;
    api.own_region(parameters.region.as_ref())?;
    if parameters.consistent.unwrap_or(false) {
        api.handle.fresh().await.map_err(speak::no_answer)?;
    }
    if let Some(at_least) = &parameters.at_least {
        api.come_to(at_least, parameters.wait.map_or(BEHIND_DEFAULT, |wait| wait.0)).await?;
    }
    let deadline = Instant::now() + parameters.wait.map_or(WAIT_DEFAULT, |wait| wait.0);
    let mut seen = api.seen(&path)?;
    if let Some(index) = &parameters.index {
        let mut progress = api.handle.waiters().for_progress(&path.barrier, seen.n);
        let mut opening = api.handle.waiters().for_opening(&path.barrier);
        loop {
            seen = api.seen(&path)?;
            if api.is_newer(&seen, index) {
                break;
            }
            tokio::select! {
                () = progress.changed() => {}
                // `latest` moves, and a generation may end without an arrival.
                () = opening.changed() => {}
                () = tokio::time::sleep_until(deadline) => break,
                () = api.shutdown.cancelled() => break,
            }
        }
    }
    Ok(axum::Json(seen).into_response())
}

/// GET G/explain
pub(in super::super) async fn explain(State(api): State<Api>, path: GenerationPath, call: Call) -> Answer<Response> {
    if let Some(response) = api.unless_regional(&path.barrier, api.coordinator.forward(&call)).await? {
        return Ok(response);
    }
    let found = api.handle.read(|region| {
        let id = found(region, &path)?;
        let seen = seen(region, &id, api.handle.waiters().count(&id.barrier, id.n));
        Ok::<_, Failure>(seen.map(|seen| explanation(region, &api.sessions, &seen)))
    })?;
    found.map(|body| axum::Json(body).into_response()).ok_or_else(|| refusal::not_defined(&path.barrier).into())
}

/// GET G/outputs: what participants left, once it is released.
pub(in super::super) async fn outputs(State(api): State<Api>, path: GenerationPath, call: Call) -> Answer<Response> {
    if let Some(response) = api.unless_regional(&path.barrier, api.coordinator.forward(&call)).await? {
        return Ok(response);
    }
    let (id, outcome) = api.handle.read(|region| {
        let id = found(region, &path)?;
        let ended = region.generation(&id.barrier, id.n).and_then(|generation| generation.ended());
        Ok::<_, Failure>((id, ended.map(|ended| ended.outcome.clone())))
    })?;
    let outcome = outcome.ok_or_else(|| api.still_gathering(&id))?;
    if let Some(broken) = verdict::broken(&outcome) {
        return Err(broken.into());
    }
    let outputs = verdict::released(&outcome, Progress::Released).map(|released| released.outputs).unwrap_or_default();
    let lines = call.headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes() == b"application/x-ndjson");
    if !lines {
        let body =
            json!({ "barrier": id.barrier, "generation": id.label().to_string(), "n": id.n, "outputs": outputs });
        return Ok(axum::Json(body).into_response());
    }
    let line = |(participant, output)| format!("{}\n", json!({ "participant": participant, "output": output }));
    let body: String = outputs.iter().map(line).collect();
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

#[derive(Debug, Default, Deserialize)]
struct AuditParameters {
    scope: Option<String>,
    barrier: Option<BarrierName>,
    actor: Option<String>,
}

/// GET /v1/audit: the coordinator's, or with `scope=regional` the region's own,
/// the latest first.
pub(in super::super) async fn audit(State(api): State<Api>, call: Call) -> Answer<Response> {
    let AuditParameters { scope, barrier, actor } = extract::query(&call.uri)?;
    if scope.as_deref() != Some("regional") {
        return api.coordinator.forward(&call).await;
    }
    let items: Vec<AuditRow> = api.handle.read(|region| {
        let of = region.audit().rev().filter(|row| barrier.as_ref().is_none_or(|barrier| *barrier == row.barrier));
        of.filter(|row| actor.is_none() || actor == row.by.actor).map(audit_row).collect()
    });
    Ok(axum::Json(Page { items, cursor: None }).into_response())
}

fn audit_row(row: &Audit) -> AuditRow {
    AuditRow {
        at: rfc3339(row.at),
        action: row.action.as_str().to_owned(),
        barrier: Some(row.barrier.to_string()),
        generation: row.generation.as_ref().map(|id| id.label().to_string()),
        actor: row.by.actor.clone(),
        reason: row.by.reason.clone(),
        object: row.object.clone(),
    }
}

fn seen<'a>(region: &'a Region, id: &GenerationId, waiting: usize) -> Option<Seen<'a>> {
    Seen::of(region, region.generation(&id.barrier, id.n)?, waiting, wall_clock())
}

fn found(region: &Region, path: &GenerationPath) -> Answer<GenerationId> {
    let decider = region.regional_barrier(&path.barrier).ok_or_else(|| refusal::not_defined(&path.barrier))?;
    find(region, &path.barrier, &path.id).ok_or_else(|| absent(region, decider, &path.id).into())
}

impl Api {
    fn seen(&self, path: &GenerationPath) -> Answer<Status> {
        let status = self.handle.read(|region| {
            let id = found(region, path)?;
            let waiting = self.handle.waiters().count(&id.barrier, id.n);
            Ok::<_, Failure>(seen(region, &id, waiting).map(|seen| document(&seen)))
        })?;
        status.ok_or_else(|| refusal::not_defined(&path.barrier).into())
    }

    fn is_newer(&self, seen: &Status, index: &str) -> bool {
        let history = self.handle.read(Region::history);
        let (Some(known), Some(now)) = (place(index, history), place(&seen.index, history)) else { return true };
        match known.what {
            Some(what) => now.what != Some(what),
            None => now.index > known.index,
        }
    }

    /// Waits until this replica has come to an index of its own history.
    async fn come_to(&self, index: &str, patience: Duration) -> Answer<()> {
        let history = self.handle.read(Region::history);
        let Some(Place { index: wanted, .. }) = place(index, history) else { return Ok(()) };
        let mut status = self.handle.status();
        let came = status.wait_for(|status| status.index >= wanted);
        match tokio::time::timeout(patience, came).await {
            Ok(_) => Ok(()),
            Err(_) => {
                let detail = format!("this agent has not come as far as the index {index}");
                Err(Problem::new(Code::Behind, detail).hint("send the same call again").into())
            }
        }
    }
}
