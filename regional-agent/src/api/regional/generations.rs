//! Lists of a region's own generations, and opening one ahead.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::{Answer, BarrierPath, Call, Failure, extract};
use muster_protocol::generation::State as Progress;
use muster_protocol::global::{Command, Reply};
use muster_protocol::name::RegionName;
use muster_protocol::region::{Generation, Region};
use muster_wire::answer::{GenerationRow, Opened, Page};
use muster_wire::code::Code;
use muster_wire::refusal;
use muster_wire::request::Open;
use serde::Deserialize;

use super::super::Api;
use super::super::read::page_limit;
use super::overrule::unexpected;
use super::status::{Seen, row};
use crate::clock::wall_clock;

/// Rows of one page, when the caller does not say.
const LIMIT_DEFAULT: usize = 100;
/// Rows of one page at most.
const LIMIT_MAX: usize = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryParameters {
    state: Option<String>,
    limit: Option<usize>,
    cursor: Option<u64>,
    region: Option<RegionName>,
}

/// What of the coordinator's parameters a region's own list knows.
#[derive(Debug, Default, Deserialize)]
struct ListParameters {
    scope: Option<String>,
    state: Option<String>,
    prefix: Option<String>,
}

/// GET /v1/generations: of the coordinator, or with `scope=regional` those of
/// the region that are open.
pub(in super::super) async fn list(State(api): State<Api>, call: Call) -> Answer<Response> {
    let ListParameters { scope, state, prefix } = extract::query(&call.uri)?;
    if scope.as_deref() != Some("regional") {
        return api.coordinator.forward(&call).await;
    }
    let states = state.as_deref().map_or(Ok(vec![Progress::Gathering]), states)?;
    let prefix = prefix.unwrap_or_default();
    let items: Vec<GenerationRow> = api.handle.read(|region| {
        let names = region.regional_barriers().map(|barrier| &barrier.name);
        let barriers = names.filter(|name| name.as_str().starts_with(&prefix)).filter_map(|name| region.barrier(name));
        let generations = barriers.flat_map(|barrier| barrier.generations().rev());
        generations.filter(|one| wanted(one, &states)).filter_map(|one| seen(region, one)).take(LIMIT_MAX).collect()
    });
    Ok(axum::Json(Page { items, cursor: None }).into_response())
}

/// GET B/generations: all that is kept, the latest first.
pub(in super::super) async fn history(
    State(api): State<Api>,
    BarrierPath(name): BarrierPath,
    call: Call,
) -> Answer<Response> {
    if let Some(response) = api.unless_regional(&name, api.coordinator.forward(&call)).await? {
        return Ok(response);
    }
    let HistoryParameters { state, limit, cursor, region } = extract::query(&call.uri)?;
    api.own_region(region.as_ref())?;
    let states = state.as_deref().map_or(Ok(Vec::new()), states)?;
    let limit = page_limit(limit, LIMIT_DEFAULT, LIMIT_MAX)?;
    let mut items: Vec<GenerationRow> = api.handle.read(|region| {
        let generations = region.barrier(&name).into_iter().flat_map(|barrier| barrier.generations().rev());
        let older = generations.filter(|one| cursor.is_none_or(|cursor| one.id().n < cursor));
        older.filter(|one| wanted(one, &states)).filter_map(|one| seen(region, one)).take(limit + 1).collect()
    });
    let more = items.len() > limit;
    items.truncate(limit);
    let cursor = items.last().filter(|_| more).map(|last| last.n.to_string());
    Ok(axum::Json(Page { items, cursor }).into_response())
}

fn wanted(generation: &Generation, states: &[Progress]) -> bool {
    states.is_empty() || states.contains(&generation.state())
}

fn seen(region: &Region, generation: &Generation) -> Option<GenerationRow> {
    Seen::of(region, generation, 0, wall_clock()).map(|seen| row(&seen))
}

/// POST B/generations: opens a key ahead, or finds what is open.
pub(in super::super) async fn open(
    State(api): State<Api>,
    BarrierPath(name): BarrierPath,
    call: Call,
) -> Answer<Response> {
    if let Some(response) = api.unless_regional(&name, api.coordinator.forward(&call)).await? {
        return Ok(response);
    }
    let Open { key } = extract::json(&call.body)?;
    match api.say(&name, Command::Open { key }, false).await?.reply {
        Ok(Reply::Opened { generation, created, outcome }) => {
            let state = match outcome {
                None => Progress::Gathering,
                Some(outcome) if outcome.verdict.is_released() => Progress::Released,
                Some(_) => Progress::Broken,
            };
            let status = if created { StatusCode::CREATED } else { StatusCode::OK };
            let (label, n, round) = (generation.label().to_string(), generation.n, generation.round);
            let opened = Opened { barrier: name, generation: label, n, round, created, state };
            Ok((status, axum::Json(opened)).into_response())
        }
        Ok(reply) => Err(unexpected(&reply)),
        Err(refused) => Err(refusal::problem(&name, &refused).into()),
    }
}

/// `gathering,broken`, or `all`.
fn states(list: &str) -> Answer<Vec<Progress>> {
    const ALL: [Progress; 4] = [Progress::Gathering, Progress::Releasing, Progress::Released, Progress::Broken];
    if list == "all" {
        return Ok(Vec::new());
    }
    let state = |name: &str| {
        ALL.into_iter().find(|state| state.as_str() == name).ok_or_else(|| {
            let name: String = name.chars().take(40).collect();
            let known = ALL.map(Progress::as_str).join(", ");
            Failure::new(Code::BadRequest, format!("state: {name:?} is not one of {known}, all"))
        })
    };
    list.split(',').map(state).collect()
}
