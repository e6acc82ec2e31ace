//! Regions: declared, listed, looked at.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::extract::NoParameters;
use muster_http::{Answer, Failure, Json, Query, RegionPath};
use muster_protocol::generation;
use muster_protocol::global::Command;
use muster_protocol::name::RegionName;
use muster_protocol::outcome::Override;
use muster_wire::answer::{Agent, Drained, Page, Region};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request;
use muster_wire::time::{parse_duration, parse_rfc3339, rfc3339};

use super::overrule::because;
use super::{App, refuse, to_its_end};
use crate::coordinator::Coordinator;
use crate::status::link;
use crate::store::{GenerationFilter, Mode, Overruled, RegionRow, Until};

/// Generations in which a region is waived in one transaction.
const WAIVED_AT_ONCE: u32 = 100;

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

/// POST /v1/regions/{region}/drain
pub(super) async fn drain(
    State(coordinator): App,
    RegionPath(name): RegionPath,
    Query(NoParameters {}): Query<NoParameters>,
    Json(request::Drain { until, open, reason }): Json<request::Drain>,
) -> Answer<axum::Json<Region>> {
    let by = because("a drain", reason)?;
    let until = read_until(&until)?;
    let (doing, region) = (Arc::clone(&coordinator), name.clone());
    to_its_end(async move {
        let done = doing.store.drain(&region, Some(until), &by).await.map_err(refuse::store)?;
        overruled(&doing, &region, done).await?;
        match open {
            request::DrainOpen::Keep => Ok(()),
            request::DrainOpen::Waive => waive_everywhere(&doing, &region, &by).await,
        }
    })
    .await?;
    read(&coordinator, &name).await.map(axum::Json)
}

/// POST /v1/regions/{region}/resume
pub(super) async fn resume(
    State(coordinator): App,
    RegionPath(name): RegionPath,
    Query(NoParameters {}): Query<NoParameters>,
    Json(request::Override { reason }): Json<request::Override>,
) -> Answer<axum::Json<Region>> {
    let by = because("the end of a drain", reason)?;
    let (doing, region) = (Arc::clone(&coordinator), name.clone());
    to_its_end(async move {
        let done = doing.store.drain(&region, None, &by).await.map_err(refuse::store)?;
        overruled(&doing, &region, done).await
    })
    .await?;
    read(&coordinator, &name).await.map(axum::Json)
}

/// POST /v1/regions/{region}/adopt
pub(super) async fn adopt(
    State(coordinator): App,
    RegionPath(name): RegionPath,
    Query(NoParameters {}): Query<NoParameters>,
    Json(request::Adopt { history, reason }): Json<request::Adopt>,
) -> Answer<axum::Json<Region>> {
    let by = because("taking another log for a region's", reason)?;
    let (doing, region) = (Arc::clone(&coordinator), name.clone());
    to_its_end(async move {
        let done = doing.store.adopt(&region, history, &by).await.map_err(refuse::store)?;
        overruled(&doing, &region, done).await
    })
    .await?;
    read(&coordinator, &name).await.map(axum::Json)
}

fn read_until(text: &str) -> Answer<Until> {
    let read = parse_rfc3339(text).map(Until::At).or_else(|| parse_duration(text).ok().map(Until::In));
    read.ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        let detail = format!("until: {text:?} is neither an instant (2026-10-07T12:00:00Z) nor a time from now (2h)");
        Failure::new(Code::BadRequest, detail)
    })
}

/// What became of it, to whoever asked.
async fn overruled(coordinator: &Coordinator, region: &RegionName, done: Overruled) -> Answer<()> {
    match done {
        Overruled::Done { .. } => {
            coordinator.regions_changed().await;
            Ok(())
        }
        Overruled::Undeclared => {
            let regions = coordinator.calls.regions().await.map_err(refuse::store)?;
            Err(refuse::unknown_region(region.as_str(), regions.iter().map(|row| row.name.as_str())))
        }
        Overruled::Past => Err(Failure::new(Code::BadRequest, "until: a drain must end in the future")),
        Overruled::NeverGreeted(known) => {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            let list = if known.is_empty() { "none did".to_owned() } else { known.join(", ") };
            let detail = format!("no agent of {region} greeted with that history; those that greeted have: {list}");
            let problem = Problem::new(Code::Conflict, detail).with("histories", known);
            Err(problem.hint("start an agent on the log that is to count, then adopt it").into())
        }
    }
}

/// Waives a region in everything that gathers with it.
async fn waive_everywhere(coordinator: &Arc<Coordinator>, region: &RegionName, by: &Override) -> Answer<()> {
    let filter = GenerationFilter {
        states: vec![generation::State::Gathering],
        region: Some(region.clone()),
        ..GenerationFilter::default()
    };
    let mut cursor = None;
    loop {
        let page = coordinator.calls.generations(&filter, cursor, WAIVED_AT_ONCE).await.map_err(refuse::store)?;
        let waive = |row: &crate::store::GenerationRow| {
            let (n, region, by) = (row.generation.id.n, region.clone(), by.clone());
            (row.generation.id.barrier.clone(), Command::Waive { n, region, participants: None, by })
        };
        let steps = coordinator.decide(&*coordinator.calls, page.items.iter().map(waive).collect(), Mode::Commit).await;
        for step in steps.map_err(refuse::store)? {
            // What was decided meanwhile needs no waiver.
            if let Err(refusal) = &step.reply {
                tracing::info!(%region, ?refusal, "a generation keeps a region that is drained");
            }
            coordinator.publish(step.facts);
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
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
        drained: region.drained.map(|drained| Drained {
            until: rfc3339(drained.until),
            actor: drained.by.actor,
            reason: drained.by.reason,
        }),
        unknown_histories: region.unknown_histories.iter().map(ToString::to_string).collect(),
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
