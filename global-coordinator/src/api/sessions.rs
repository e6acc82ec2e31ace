//! Sessions live in a region: they are opened, kept alive and closed at an
//! agent of it, to which these calls are handed on.

use axum::extract::State;
use axum::response::Response;
use muster_http::{Answer, Call, Failure, extract};
use muster_protocol::name::RegionName;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request::OpenSession;

use super::handing_on::{in_query, to_region};
use super::regional::without_region;
use super::{App, refuse};
use crate::coordinator::Coordinator;

/// POST /v1/sessions: the region is in the query or the body.
pub(super) async fn open(State(coordinator): App, call: Call) -> Answer<Response> {
    let body: OpenSession = extract::json(&call.body)?;
    match (in_query(&call.uri)?, body.region) {
        (Some(query), Some(body)) if query != body => {
            let detail = format!("the query says region {query}, the body says region {body}; which is it?");
            Err(Failure::new(Code::BadRequest, detail))
        }
        (Some(region), _) | (None, Some(region)) => to_region(&coordinator, &region, &without_region(call)).await,
        (None, None) => Err(region_required(&coordinator).await),
    }
}

/// PUT, POST /v1/sessions/{session}/heartbeat, DELETE /v1/sessions/{session}
pub(super) async fn of_query(State(coordinator): App, call: Call) -> Answer<Response> {
    match in_query(&call.uri)? {
        Some(region) => to_region(&coordinator, &region, &without_region(call)).await,
        None => Err(region_required(&coordinator).await),
    }
}

async fn region_required(coordinator: &Coordinator) -> Failure {
    let regions = match coordinator.regions().await {
        Ok(regions) => regions,
        Err(error) => return refuse::store(error),
    };
    let names: Vec<&str> = regions.keys().map(RegionName::as_str).collect();
    let list = names.join(", ");
    let detail = format!("a coordinator must be told the session's region: `?region=` one of {list}");
    Problem::new(Code::BadRequest, detail)
        .hint("an agent of the region needs none: it is implied there")
        .with("expected", names)
        .into()
}
