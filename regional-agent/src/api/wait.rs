//! Waiting: a call answers 2xx if and only if the generation is released.

use std::time::Duration;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use muster_http::poll::{Pending, WAIT_DEFAULT, Wait};
use muster_http::{Answer, Call, Failure, extract};
use muster_protocol::generation::{GenerationId, State};
use muster_protocol::name::BarrierName;
use muster_protocol::region::Region;
use muster_telemetry::metrics;
use muster_wire::answer::Released;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use muster_wire::verdict;
use serde::Deserialize;
use tokio::time::Instant;

use super::Api;
use super::locate::{Place, Purpose, draining};

/// Generations that one call may wait for.
const SEVERAL_MAX: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    wait: Option<Wait>,
    whole: Option<bool>,
    pending: Option<Pending>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeveralParameters {
    all: Option<String>,
    any: Option<String>,
    wait: Option<Wait>,
    whole: Option<bool>,
    pending: Option<Pending>,
}

pub(super) async fn one(Shared(api): Shared<Api>, path: muster_http::GenerationPath, call: Call) -> Answer<Response> {
    let parameters: Parameters = extract::query(&call.uri)?;
    let patience = parameters.wait.map_or(WAIT_DEFAULT, |wait| wait.0);
    let started = Instant::now();
    let waited = match api.locate(&path.barrier, &path.id, Purpose::Wait, &[], Some(patience)).await {
        // Where the region has no part, the coordinator is who knows.
        Ok(Place::Elsewhere) => return api.coordinator.forward(&call).await,
        Ok(Place::Here(id)) => {
            let left = patience.saturating_sub(started.elapsed());
            api.wait_for(&id, left, parameters.whole.unwrap_or(false)).await
        }
        Err(failure) => Err(failure),
    };
    let released =
        waited.map_err(|failure| Failure::from(Pending::apply(parameters.pending, failure.into_problem())))?;
    Ok(axum::Json(released).into_response())
}

/// Waits for all of several generations, or for the first of them.
pub(super) async fn several(Shared(api): Shared<Api>, call: Call) -> Answer<Response> {
    let parameters: SeveralParameters = extract::query(&call.uri)?;
    let (list, any) = match (&parameters.all, &parameters.any) {
        (Some(list), None) => (list, false),
        (None, Some(list)) => (list, true),
        _ => {
            let detail = "name what to wait for: all=ns/name@key,… or any=ns/name@key,…";
            return Err(Failure::new(Code::BadRequest, detail));
        }
    };
    let named = named(list)?;
    let patience = parameters.wait.map_or(WAIT_DEFAULT, |wait| wait.0);
    let waits = named.iter().map(|(barrier, reference)| {
        let api = &api;
        let whole = parameters.whole.unwrap_or(false);
        Box::pin(async move {
            match api.locate(barrier, reference, Purpose::Wait, &[], Some(patience)).await? {
                Place::Here(id) => api.wait_for(&id, patience, whole).await,
                Place::Elsewhere => Err(api.no_part(barrier)),
            }
        })
    });
    let waited: Answer<Vec<Released>> = match any {
        // The first release is a yes; a break is a no only when all have one.
        true => futures::future::select_ok(waits).await.map(|(released, _)| vec![released]),
        false => futures::future::try_join_all(waits).await,
    };
    let released =
        waited.map_err(|failure| Failure::from(Pending::apply(parameters.pending, failure.into_problem())))?;
    Ok(axum::Json(serde_json::json!({ "released": released })).into_response())
}

fn named(list: &str) -> Answer<Vec<(BarrierName, Reference)>> {
    let items: Vec<&str> = list.split(',').filter(|item| !item.is_empty()).collect();
    if items.is_empty() || items.len() > SEVERAL_MAX {
        let detail = format!("one call waits for 1 to {SEVERAL_MAX} generations, and this one names {}", items.len());
        return Err(Failure::new(Code::BadRequest, detail));
    }
    items
        .into_iter()
        .map(|item| {
            let (barrier, reference) = item.split_once('@').ok_or_else(|| {
                Failure::new(Code::GenerationRequired, format!("{item:?} names no generation; write ns/name@key"))
            })?;
            let barrier = barrier.parse().map_err(|error: muster_protocol::name::InvalidName| {
                Failure::new(Code::InvalidName, error.to_string())
            })?;
            Ok((barrier, reference.parse::<Reference>()?))
        })
        .collect()
}

impl Api {
    /// Waits until this region has applied the end of a generation.
    pub(super) async fn wait_for(&self, id: &GenerationId, patience: Duration, whole: bool) -> Answer<Released> {
        let started = Instant::now();
        let deadline = started + patience;
        let mut waiter = self.handle.waiters().for_end(&id.barrier, id.n);
        loop {
            let over = deadline <= Instant::now();
            if let Some(ended) = self.handle.read(|region| ended(region, id, whole)) {
                if let Some(cause) = waiter.cause() {
                    cause.link(&tracing::Span::current());
                }
                metrics::barrier_wait().record(started.elapsed().as_secs_f64());
                return ended;
            }
            if self.handle.status().borrow().stopped.is_some() {
                let detail = "this agent has stopped replaying the region's log; /readyz says why";
                return Err(Failure::new(Code::Unavailable, detail));
            }
            if over {
                return Err(self.still_gathering(id));
            }
            tokio::select! {
                () = waiter.changed() => {}
                // One more look: what is said then is so then.
                () = tokio::time::sleep_until(deadline) => {}
                () = self.shutdown.cancelled() => return Err(draining()),
            }
        }
    }

    pub(super) fn still_gathering(&self, id: &GenerationId) -> Failure {
        let report = self.handle.read(|region| region.report(&id.barrier, id.n));
        let region = &self.region;
        let (detail, missing) = match report {
            Some(report) if report.complete => {
                (format!("{id} is not decided yet; {region} is complete and waits for other regions"), None)
            }
            Some(report) => {
                let names = &report.missing.names;
                let named = if names.is_empty() { String::new() } else { format!(": {names}") };
                let detail = format!(
                    "{id} is not released yet; in {region} {} of {} have arrived, {} missing{named}",
                    report.arrived, report.expected, report.missing.count
                );
                (detail, Some(report.missing.names))
            }
            None => (format!("{id} is not released yet"), None),
        };
        let mut problem = Problem::new(Code::StillGathering, detail)
            .hint("send the same call again, or ask why: `muster why`")
            .with("generation", id.label().to_string());
        if let Some(missing) = missing {
            problem = problem.with("missing", missing);
        }
        problem.into()
    }
}

/// How a generation ended, if this region has applied its end.
fn ended(region: &Region, id: &GenerationId, whole: bool) -> Option<Answer<Released>> {
    if region.barrier(&id.barrier).is_some_and(|barrier| barrier.has_forgotten(id.n)) {
        let detail = format!("{id} ended and is past its retention");
        return Some(Err(Failure::new(Code::Expired, detail)));
    }
    let outcome = &region.generation(&id.barrier, id.n)?.ended()?.outcome;
    if let Some(broken) = verdict::broken(outcome) {
        return Some(Err(broken.into()));
    }
    let released = verdict::released(outcome, State::Released)?;
    Some(if whole && !released.whole { Err(verdict::not_whole(outcome).into()) } else { Ok(released) })
}
