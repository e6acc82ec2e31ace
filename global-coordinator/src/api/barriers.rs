//! Definitions: list, read, apply, delete.

use axum::extract::State;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use muster_http::etag::{IfMatch, if_match, tagged};
use muster_http::extract::NoParameters;
use muster_http::{Answer, BarrierPath, Call, Failure, Json, Query};
use muster_protocol::global::{self, Command, Expect, Refusal, Reply};
use muster_protocol::name::BarrierName;
use muster_protocol::outcome::Override;
use muster_protocol::spec::{Scope, Spec};
use muster_wire::answer::{Applied, Barrier, Deleted, Page};
use muster_wire::code::Code;
use muster_wire::definition::{self, Parsed, Succession};
use muster_wire::problem::Problem;
use muster_wire::refusal;
use serde::Deserialize;

use super::generations::page_limit;
use super::overrule::limited;
use super::{App, decide, refuse, regional};
use crate::coordinator::Coordinator;
use crate::store::Mode;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParameters {
    prefix: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ApplyParameters {
    dry_run: Option<bool>,
    replace: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteParameters {
    force: Option<bool>,
    reason: Option<String>,
}

/// GET /v1/barriers
pub(super) async fn list(
    State(coordinator): App,
    Query(parameters): Query<ListParameters>,
) -> Answer<axum::Json<Page<Barrier>>> {
    let ListParameters { prefix, limit, cursor } = parameters;
    let limit = page_limit(limit)?;
    let page = coordinator.calls.barriers(prefix.as_deref(), cursor, limit).await.map_err(refuse::store)?;
    let items = page.items.iter().filter_map(|barrier| Some(speak(barrier, barrier.spec()?))).collect();
    Ok(axum::Json(Page { items, cursor: page.next }))
}

/// GET B
pub(super) async fn one(
    State(coordinator): App,
    BarrierPath(name): BarrierPath,
    Query(NoParameters {}): Query<NoParameters>,
) -> Answer<Response> {
    let known = coordinator.calls.barrier(&name).await.map_err(refuse::store)?;
    match known.as_ref().and_then(|known| Some(speak(known, known.spec()?))) {
        Some(barrier) => Ok(tagged(barrier.revision, StatusCode::OK, barrier)),
        None => Err(refuse::not_defined(&name)),
    }
}

/// PUT B
pub(super) async fn apply(
    State(coordinator): App,
    BarrierPath(name): BarrierPath,
    Query(parameters): Query<ApplyParameters>,
    call: Call,
) -> Answer<Response> {
    let parsed = definition::parse(&name, &call.body)?;
    if parsed.spec.scope == Scope::Regional {
        return regional::define(&coordinator, &parsed.spec, call).await;
    }
    comes_after(&coordinator, &parsed.spec).await?;
    let replace = parameters.replace.unwrap_or(false);
    let expect = expectation(&coordinator, &name, &call.headers, replace).await?;
    let dry_run = parameters.dry_run.unwrap_or(false);
    let mode = if dry_run { Mode::DryRun } else { Mode::Commit };
    let command = Command::Define { spec: Box::new(parsed.spec.clone()), expect };
    let step = decide(&coordinator, &name, command, mode).await?;
    match step.reply {
        Ok(Reply::Defined { revision, created, changed }) => {
            // The definition that counts, and how many gather under it.
            let gathering = coordinator.calls.barrier(&name).await.map_err(refuse::store)?.map_or(0, |b| b.gathering);
            let effective = parsed.effective;
            let barrier = Barrier { name, revision, spec: definition::brief(&parsed.spec), effective, gathering };
            let status = if created && !dry_run { StatusCode::CREATED } else { StatusCode::OK };
            Ok(tagged(revision, status, Applied { barrier, created, changed, dry_run }))
        }
        Ok(reply) => Err(unexpected(&reply)),
        Err(Refusal::Conflict { current, revision }) => Err(conflict(&name, &current, &parsed, revision)),
        Err(refusal) => Err(refuse::refusal(&name, &refusal)),
    }
}

/// DELETE B
pub(super) async fn delete(
    State(coordinator): App,
    BarrierPath(name): BarrierPath,
    Query(parameters): Query<DeleteParameters>,
    Json(NoParameters {}): Json<NoParameters>,
) -> Answer<axum::Json<Deleted>> {
    let force = parameters.force.unwrap_or(false);
    let reason = parameters.reason.unwrap_or_default();
    if force && reason.trim().is_empty() {
        let detail = "deleting by force breaks what gathers; say why: `?force=true&reason=…`";
        return Err(Failure::new(Code::BadRequest, detail));
    }
    limited("reason", &reason)?;
    let by = Override { actor: None, reason };
    let step = decide(&coordinator, &name, Command::Delete { force, by }, Mode::Commit).await?;
    match step.reply {
        Ok(Reply::Deleted { changed, broken }) => {
            let broken = broken.iter().map(|id| id.label().to_string()).collect();
            Ok(axum::Json(Deleted { name, changed, broken }))
        }
        Ok(reply) => Err(unexpected(&reply)),
        Err(refusal) => Err(refuse::refusal(&name, &refusal)),
    }
}

/// Looks at the barriers that a definition comes after, as they are now.
async fn comes_after(coordinator: &Coordinator, spec: &Spec) -> Answer<()> {
    let mut next = spec.after.clone();
    for _ in 0..Succession::MAX {
        let Some(name) = next else { break };
        let known = coordinator.calls.barrier(&name).await.map_err(refuse::store)?;
        let Some(predecessor) = known.as_ref().and_then(global::Barrier::spec) else { break };
        Succession(spec).follows(predecessor)?;
        next = predecessor.after.clone();
    }
    Ok(())
}

/// What the caller believes of the present definition.
async fn expectation(
    coordinator: &Coordinator,
    name: &BarrierName,
    headers: &HeaderMap,
    replace: bool,
) -> Answer<Expect> {
    match if_match(headers)? {
        None => Ok(if replace { Expect::Anything } else { Expect::NewOrEqual }),
        Some(IfMatch::Revision(revision)) => Ok(Expect::Revision(revision)),
        Some(IfMatch::Any) => {
            let known = coordinator.calls.barrier(name).await.map_err(refuse::store)?;
            match known.filter(|known| known.spec().is_some()) {
                Some(known) => Ok(Expect::Revision(known.revision)),
                None => Err(refusal::precondition(name, 0).into()),
            }
        }
    }
}

fn conflict(name: &BarrierName, current: &Spec, new: &Parsed, revision: u64) -> Failure {
    let diff = definition::changes(&definition::effective(current), &new.effective);
    let fields: Vec<&str> = diff.iter().map(|change| change.field.as_str()).collect();
    let problem = refusal::conflict(name, revision);
    let detail = format!("{}; it differs in {}", problem.detail, fields.join(", "));
    let diff = serde_json::to_value(&diff).unwrap_or_default();
    Problem { detail, ..problem }.with("diff", diff).into()
}

/// A barrier for people.
fn speak(barrier: &global::Barrier, spec: &Spec) -> Barrier {
    Barrier {
        name: barrier.name.clone(),
        revision: barrier.revision,
        spec: definition::brief(spec),
        effective: definition::effective(spec),
        gathering: barrier.gathering,
    }
}

/// The machine answered something else than it was asked: a defect.
pub(super) fn unexpected(reply: &Reply) -> Failure {
    tracing::error!(?reply, "the machine answered something else than it was asked");
    Failure::new(Code::Internal, "the machine answered something else than it was asked; the log has it")
}
