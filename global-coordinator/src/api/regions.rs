//! Regions: declared, listed, looked at.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::extract::NoParameters;
use muster_http::{Answer, Json, Query, RegionPath};
use muster_protocol::name::RegionName;
use muster_wire::answer::{Agent, Page, Region};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request;
use muster_wire::time::rfc3339;

use super::{App, refuse, to_its_end};
use crate::coordinator::Coordinator;
use crate::status::link;
use crate::store::RegionRow;

/// GET /v1/regions
pub(super) async fn list(
    State(coordinator): App,
    Query(NoParameters {}): Query<NoParameters>,
) -> Answer<axum::Json<Page<Region>>> {
    let regions = coordinator.calls.regions().await.map_err(refuse::store)?;
    Ok(axum::Json(Page { items: regions.into_iter().map(speak).collect(), cursor: None }))
}

/// GET /v1/regions/{region}
pub(super) async fn one(
    State(coordinator): App,
    RegionPath(name): RegionPath,
    Query(NoParameters {}): Query<NoParameters>,
) -> Answer<axum::Json<Region>> {
    read(&coordinator, &name).await.map(axum::Json)
}

/// PUT /v1/regions/{region}
pub(super) async fn declare(
    State(coordinator): App,
    RegionPath(name): RegionPath,
    Query(NoParameters {}): Query<NoParameters>,
    Json(request::Region { labels }): Json<request::Region>,
) -> Answer<Response> {
    if !labels.is_empty() {
        let problem = Problem::new(Code::NotYet, "labels of regions are not supported by this version yet");
        return Err(problem.hint("declare it without").into());
    }
    let (doing, region) = (Arc::clone(&coordinator), name.clone());
    let new = to_its_end(async move { doing.declare(&region).await.map_err(refuse::store) }).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(read(&coordinator, &name).await?)).into_response())
}

async fn read(coordinator: &Coordinator, name: &RegionName) -> Answer<Region> {
    let regions = coordinator.calls.regions().await.map_err(refuse::store)?;
    let names: Vec<RegionName> = regions.iter().map(|region| region.name.clone()).collect();
    let found = regions.into_iter().find(|region| region.name == *name);
    found.map(speak).ok_or_else(|| refuse::unknown_region(name.as_str(), names.iter().map(RegionName::as_str)))
}

fn speak(region: RegionRow) -> Region {
    Region {
        link: link(&region),
        name: region.name,
        history: region.history.map(|history| history.to_string()),
        index: region.history.map(|_| region.index),
        last_heard_at: region.heard_at.map(rfc3339),
        agents: region
            .agents
            .into_iter()
            .map(|agent| Agent {
                name: agent.name,
                instance: agent.instance,
                address: agent.address,
                last_heard_at: rfc3339(agent.heard_at),
            })
            .collect(),
    }
}
