//! What one region alone can answer: arrivals, and who its participants are.
//! The call is handed on to an agent of that region, one hop, unchanged.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::Uri;
use muster_http::{Answer, Call, Failure, GenerationPath, ParticipantPath, extract};
use muster_protocol::name::{BarrierName, RegionName};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request;

use super::generations::region as region_named;
use super::{App, refuse};
use crate::coordinator::Coordinator;
use crate::status::SILENT_AFTER_MS;
use crate::store::{AgentRow, RegionRow};

/// PUT, POST G/arrivals/{participant}: the region is in the query or the body.
pub(super) async fn arrival(State(coordinator): App, path: ParticipantPath, call: Call) -> Answer<Response> {
    let body: request::Arrival = extract::json(&call.body)?;
    let region = match (in_query(&call.uri)?, body.region) {
        (Some(query), Some(body)) if query != body => {
            let detail = format!("the query says region {query}, the body says region {body}; which is it?");
            return Err(Failure::new(Code::BadRequest, detail));
        }
        (Some(region), _) | (None, Some(region)) => region,
        (None, None) => return Err(region_required(&coordinator, &path.barrier).await),
    };
    hand_on(&coordinator, &path.barrier, &region, &call).await
}

/// POST G/arrivals: a batch is of one region.
pub(super) async fn batch(State(coordinator): App, path: GenerationPath, call: Call) -> Answer<Response> {
    to_region_in_query(&coordinator, &path.barrier, &call).await
}

/// GET, DELETE G/arrivals/{participant}
pub(super) async fn by_query(State(coordinator): App, path: ParticipantPath, call: Call) -> Answer<Response> {
    to_region_in_query(&coordinator, &path.barrier, &call).await
}

/// GET G/participants
pub(super) async fn participants(State(coordinator): App, path: GenerationPath, call: Call) -> Answer<Response> {
    to_region_in_query(&coordinator, &path.barrier, &call).await
}

async fn to_region_in_query(coordinator: &Coordinator, barrier: &BarrierName, call: &Call) -> Answer<Response> {
    match in_query(&call.uri)? {
        Some(region) => hand_on(coordinator, barrier, &region, call).await,
        None => Err(region_required(coordinator, barrier).await),
    }
}

/// The region in a query; everything else there is the agent's to read.
pub(super) fn in_query(uri: &Uri) -> Answer<Option<RegionName>> {
    let parameters: Vec<(String, String)> = extract::query(uri)?;
    let region = parameters.into_iter().find(|(name, _)| name == "region");
    region.map(|(_, region)| region_named(&region)).transpose()
}

async fn hand_on(
    coordinator: &Coordinator,
    barrier: &BarrierName,
    region: &RegionName,
    call: &Call,
) -> Answer<Response> {
    let row = declared(coordinator, region).await?;
    takes_part(coordinator, barrier, region).await?;
    coordinator.forwarder.forward(&addresses(&row), &format!("region {region}"), call).await
}

/// Hands a call on to an agent of a region.
pub(super) async fn to_region(coordinator: &Coordinator, region: &RegionName, call: &Call) -> Answer<Response> {
    let row = declared(coordinator, region).await?;
    coordinator.forwarder.forward(&addresses(&row), &format!("region {region}"), call).await
}

async fn declared(coordinator: &Coordinator, region: &RegionName) -> Answer<RegionRow> {
    let regions = coordinator.regions().await.map_err(refuse::store)?;
    let row = regions.get(region).cloned();
    row.ok_or_else(|| refuse::unknown_region(region.as_str(), regions.keys().map(RegionName::as_str)))
}

/// Whether the region has a part in the barrier as it is defined. Of a barrier
/// that is deleted or changed, only the region knows what it still has.
async fn takes_part(coordinator: &Coordinator, barrier: &BarrierName, region: &RegionName) -> Answer<()> {
    let known = coordinator.calls.barrier(barrier).await.map_err(refuse::store)?;
    let known = known.filter(|known| known.revision > 0).ok_or_else(|| refuse::not_defined(barrier))?;
    match known.spec() {
        Some(spec) if known.revision == 1 && !spec.regions.contains_key(region) => {
            let parts: Vec<&str> = spec.regions.keys().map(RegionName::as_str).collect();
            let detail = format!("{region} has no part in {barrier}; its regions are {}", parts.join(", "));
            Err(Problem::new(Code::WrongRegion, detail).with("expected", parts).into())
        }
        _ => Ok(()),
    }
}

async fn region_required(coordinator: &Coordinator, barrier: &BarrierName) -> Failure {
    let known = match coordinator.calls.barrier(barrier).await {
        Ok(known) => known,
        Err(error) => return refuse::store(error),
    };
    let Some(spec) = known.as_ref().and_then(|known| known.spec()) else { return refuse::not_defined(barrier) };
    let parts: Vec<&str> = spec.regions.keys().map(RegionName::as_str).collect();
    let list = parts.join(", ");
    Problem::new(Code::BadRequest, format!("a coordinator must be told the region: `?region=` one of {list}"))
        .hint("an agent of the region needs none: it is implied there")
        .with("expected", parts)
        .into()
}

/// Where the region's agents can be reached: those heard lately first, in
/// another order each time, then those that may have died.
pub(super) fn addresses(region: &RegionRow) -> Vec<String> {
    let silent = Duration::from_millis(u64::try_from(SILENT_AFTER_MS).unwrap_or(u64::MAX));
    let (mut live, mut rest): (Vec<&AgentRow>, Vec<&AgentRow>) =
        region.agents.iter().partition(|agent| agent.silence <= silent);
    rest.sort_by_key(|agent| agent.silence);
    if !live.is_empty() {
        let first = rand::random_range(0..live.len());
        live.rotate_left(first);
    }
    live.into_iter().chain(rest).map(|agent| agent.address.clone()).collect()
}
