//! Definitions of regional barriers: read, apply, delete.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::etag::{IfMatch, if_match, tagged};
use muster_http::extract::{self, NoParameters};
use muster_http::{Answer, BarrierPath, Call, Failure};
use muster_protocol::global::{self, Command, Expect, Refusal, Reply};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Override;
use muster_protocol::region::Region;
use muster_protocol::spec::{Scope, Spec};
use muster_wire::answer::{Applied, Barrier, Deleted, Page};
use muster_wire::code::Code;
use muster_wire::definition::{self, Parsed, Succession, brief, effective};
use muster_wire::problem::Problem;
use muster_wire::refusal;
use serde::Deserialize;

use super::super::Api;
use super::overrule::{limited, unexpected};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ApplyParameters {
    dry_run: Option<bool>,
    replace: Option<bool>,
    region: Option<RegionName>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteParameters {
    force: Option<bool>,
    reason: Option<String>,
    region: Option<RegionName>,
}

#[derive(Debug, Default, Deserialize)]
struct ListParameters {
    scope: Option<String>,
    prefix: Option<String>,
}

/// GET /v1/barriers: of the coordinator, or with `scope=regional` of the region.
pub(in super::super) async fn list(State(api): State<Api>, call: Call) -> Answer<Response> {
    let ListParameters { scope, prefix } = extract::query(&call.uri)?;
    if scope.as_deref() != Some("regional") {
        return api.coordinator.forward(&call).await;
    }
    let prefix = prefix.unwrap_or_default();
    let items: Vec<Barrier> = api.handle.read(|region| {
        let barriers = region.regional_barriers().filter(|barrier| barrier.name.as_str().starts_with(&prefix));
        barriers.filter_map(speak).collect()
    });
    Ok(axum::Json(Page { items, cursor: None }).into_response())
}

/// GET B
pub(in super::super) async fn read(
    State(api): State<Api>,
    BarrierPath(name): BarrierPath,
    call: Call,
) -> Answer<Response> {
    if let Some(response) = api.unless_regional(&name, api.coordinator.forward(&call)).await? {
        return Ok(response);
    }
    match api.handle.read(|region| region.regional_barrier(&name).and_then(speak)) {
        Some(barrier) => Ok(tagged(barrier.revision, StatusCode::OK, barrier)),
        None => Err(refusal::not_defined(&name).into()),
    }
}

/// PUT B
pub(in super::super) async fn apply(
    State(api): State<Api>,
    BarrierPath(name): BarrierPath,
    call: Call,
) -> Answer<Response> {
    let parsed = match definition::parse(&name, &call.body) {
        Ok(parsed) => parsed,
        // A newer coordinator may read what this build does not.
        Err(problem) => return api.coordinator.forward(&call).await.or(Err(problem.into())),
    };
    if parsed.spec.scope == Scope::Global {
        let handed_on = api.unless_regional(&name, api.coordinator.forward(&call)).await?;
        return handed_on.ok_or_else(|| api.taken(&name, "regional").into());
    }
    if let Some(other) = parsed.spec.regions.keys().find(|region| **region != api.region) {
        let detail = format!("{name} is to be decided in {other} alone, and this is an agent of {}", api.region);
        let hint = format!("send it to an agent of {other}, or to the coordinator");
        return Err(Problem::new(Code::WrongRegion, detail).hint(hint).into());
    }
    define(&api, &name, parsed, &call).await
}

async fn define(api: &Api, name: &BarrierName, parsed: Parsed, call: &Call) -> Answer<Response> {
    let parameters: ApplyParameters = extract::query(&call.uri)?;
    api.own_region(parameters.region.as_ref())?;
    let dry_run = parameters.dry_run.unwrap_or(false);
    let expect = match if_match(&call.headers)? {
        Some(IfMatch::Revision(revision)) => Expect::Revision(revision),
        Some(IfMatch::Any) => Expect::Revision(api.revision(name)?),
        None if parameters.replace.unwrap_or(false) => Expect::Anything,
        None => Expect::NewOrEqual,
    };
    api.handle.read(|region| comes_after(region, &parsed.spec))?;
    let said = api.say(name, Command::Define { spec: Box::new(parsed.spec.clone()), expect }, dry_run).await?;
    match &said.reply {
        Ok(Reply::Defined { revision, created, changed }) => {
            let (revision, created, changed) = (*revision, *created, *changed);
            let gathering = said.read(api, |region| region.regional_barrier(name).map_or(0, |known| known.gathering));
            let spec = brief(&parsed.spec);
            let barrier = Barrier { name: name.clone(), revision, spec, effective: parsed.effective, gathering };
            let status = if created && !dry_run { StatusCode::CREATED } else { StatusCode::OK };
            Ok(tagged(revision, status, Applied { barrier, created, changed, dry_run }))
        }
        Ok(reply) => Err(unexpected(reply)),
        Err(Refusal::Conflict { current, revision }) => Err(conflict(name, current, &parsed, *revision)),
        Err(refused) => Err(refusal::problem(name, refused).into()),
    }
}

/// Looks at the barriers that a definition comes after, as they are now.
fn comes_after(region: &Region, spec: &Spec) -> Result<(), Problem> {
    let mut next = spec.after.as_ref();
    for _ in 0..Succession::MAX {
        let Some(name) = next else { break };
        let Some(known) = region.regional_barrier(name) else {
            return if region.barrier(name).is_some() { Succession(spec).crosses_scopes() } else { Ok(()) };
        };
        let Some(predecessor) = known.spec() else { break };
        Succession(spec).follows(predecessor)?;
        next = predecessor.after.as_ref();
    }
    Ok(())
}

/// DELETE B
pub(in super::super) async fn delete(
    State(api): State<Api>,
    BarrierPath(name): BarrierPath,
    call: Call,
) -> Answer<Response> {
    if let Some(response) = api.unless_regional(&name, api.coordinator.forward(&call)).await? {
        return Ok(response);
    }
    let DeleteParameters { force, reason, region } = extract::query(&call.uri)?;
    let NoParameters {} = extract::json(&call.body)?;
    api.own_region(region.as_ref())?;
    let (force, reason) = (force.unwrap_or(false), reason.unwrap_or_default());
    if force && reason.trim().is_empty() {
        let detail = "deleting by force breaks what gathers; say why: `?force=true&reason=…`";
        return Err(Failure::new(Code::BadRequest, detail));
    }
    limited(&reason)?;
    let by = Override { actor: None, reason };
    match api.say(&name, Command::Delete { force, by }, false).await?.reply {
        Ok(Reply::Deleted { changed, broken }) => {
            let broken = broken.iter().map(|id| id.label().to_string()).collect();
            Ok(axum::Json(Deleted { name, changed, broken }).into_response())
        }
        Ok(reply) => Err(unexpected(&reply)),
        Err(refused) => Err(refusal::problem(&name, &refused).into()),
    }
}

impl Api {
    /// The revision in force; a caller that says "any" means that there is one.
    fn revision(&self, name: &BarrierName) -> Answer<u64> {
        let known = self.handle.read(|region| {
            let barrier = region.regional_barrier(name)?;
            barrier.spec().map(|_| barrier.revision)
        });
        known.ok_or_else(|| refusal::precondition(name, 0).into())
    }
}

fn conflict(name: &BarrierName, current: &Spec, new: &Parsed, revision: u64) -> Failure {
    let diff = definition::changes(&effective(current), &new.effective);
    let fields: Vec<&str> = diff.iter().map(|change| change.field.as_str()).collect();
    let problem = refusal::conflict(name, revision);
    let detail = format!("{}; it differs in {}", problem.detail, fields.join(", "));
    let diff = serde_json::to_value(&diff).unwrap_or_default();
    Problem { detail, ..problem }.with("diff", diff).into()
}

/// A barrier for people, while it is defined.
fn speak(barrier: &global::Barrier) -> Option<Barrier> {
    let spec = barrier.spec()?;
    Some(Barrier {
        name: barrier.name.clone(),
        revision: barrier.revision,
        spec: brief(spec),
        effective: effective(spec),
        gathering: barrier.gathering,
    })
}
