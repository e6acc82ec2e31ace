//! Barriers of scope regional: their region's log alone knows them. What is
//! asked of one here is handed on to an agent of its region.

use axum::extract::{FromRequest, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::PathAndQuery;
use http::{Method, Uri};
use muster_http::extract::body_limit;
use muster_http::{Answer, BarrierPath, Call, Failure};
use muster_protocol::caps;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::spec::Spec;
use muster_wire::code::Code;
use muster_wire::problem::Problem;

use super::handing_on::{in_query, to_region};
use super::{App, refuse};
use crate::coordinator::Coordinator;

/// Everything below a barrier: a call that names a region and means no global
/// barrier is that region's.
pub(super) async fn hand_on(
    State(coordinator): App,
    BarrierPath(barrier): BarrierPath,
    request: Request,
    next: Next,
) -> Response {
    match of_region(&coordinator, &barrier, request.uri()).await {
        Ok(None) => next.run(request).await,
        Ok(Some(region)) => pass(&coordinator, &region, request).await.into_response(),
        Err(failure) => failure.into_response(),
    }
}

async fn of_region(coordinator: &Coordinator, barrier: &BarrierName, uri: &Uri) -> Answer<Option<RegionName>> {
    let Some(region) = in_query(uri)? else { return Ok(None) };
    Ok((!is_global(coordinator, barrier).await?).then_some(region))
}

/// Whether a definition of this name is in force here.
async fn is_global(coordinator: &Coordinator, barrier: &BarrierName) -> Answer<bool> {
    let known = coordinator.calls.barrier(barrier).await.map_err(refuse::store)?;
    Ok(known.is_some_and(|known| known.spec().is_some()))
}

async fn pass(coordinator: &Coordinator, region: &RegionName, mut request: Request) -> Answer<Response> {
    // The routes' own limits are not read yet.
    let path = request.uri().path();
    let limit = match (path.ends_with("/arrivals"), request.method()) {
        (true, _) => caps::BATCH_BODY_BYTES_MAX,
        (false, &Method::PUT) => caps::DEFINITION_BYTES_MAX,
        _ => caps::BODY_BYTES_MAX,
    };
    request.extensions_mut().insert(body_limit(limit).0);
    let call = Call::from_request(request, &()).await?;
    to_region(coordinator, region, &without_region(call)).await
}

/// Defines a barrier of one region, there.
pub(super) async fn define(coordinator: &Coordinator, spec: &Spec, call: Call) -> Answer<Response> {
    let name = &spec.name;
    let Some(region) = spec.regions.keys().next() else {
        return Err(Failure::new(Code::InvalidDefinition, "regions: a barrier of scope regional has one region"));
    };
    if is_global(coordinator, name).await? {
        let detail = format!("{name} is defined with scope global, and a name is global or regional everywhere");
        return Err(Problem::new(Code::Conflict, detail)
            .hint("use another name; one that is deleted keeps its scope")
            .into());
    }
    to_region(coordinator, region, &without_region(call)).await
}

/// At an agent the region is implied: the parameter is for us.
pub(super) fn without_region(mut call: Call) -> Call {
    let Some(query) = call.uri.query() else { return call };
    let rest: Vec<&str> = query.split('&').filter(|pair| pair.split('=').next() != Some("region")).collect();
    let path = match rest.is_empty() {
        true => call.uri.path().to_owned(),
        false => format!("{}?{}", call.uri.path(), rest.join("&")),
    };
    // Parts of a URI that was one.
    if let Ok(path) = path.parse::<PathAndQuery>() {
        let mut parts = call.uri.into_parts();
        parts.path_and_query = Some(path.clone());
        call.uri = Uri::from_parts(parts).unwrap_or_else(|_| Uri::from(path));
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_region_is_taken_out_of_a_query() {
        for (uri, expected) in [
            ("/v1/x", "/v1/x"),
            ("/v1/x?region=us-east", "/v1/x"),
            ("/v1/x?wait=1s&region=us-east&attempt=2", "/v1/x?wait=1s&attempt=2"),
            ("/v1/x?regions=1", "/v1/x?regions=1"),
        ] {
            let call = Call {
                method: Method::GET,
                uri: uri.parse().unwrap(),
                headers: http::HeaderMap::new(),
                body: Default::default(),
            };
            assert_eq!(without_region(call).uri.to_string(), expected);
        }
    }
}
