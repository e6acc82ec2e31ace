//! Lists of generations, and opening one ahead.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::extract::NoParameters;
use muster_http::{Answer, BarrierPath, Failure, Json, Query};
use muster_protocol::generation;
use muster_protocol::global::{Command, Refusal, Reply};
use muster_protocol::name::RegionName;
use muster_wire::answer::{GenerationRow, Opened, Page};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request::Open;
use serde::Deserialize;

use super::barriers::unexpected;
use super::lookup::Words;
use super::{App, decide, refuse};
use crate::coordinator::Coordinator;
use crate::status::list_row;
use crate::store::{GenerationFilter, Mode};

/// Rows of one page, when the caller does not say.
const LIMIT_DEFAULT: u32 = 100;
/// Rows of one page at most.
const LIMIT_MAX: u32 = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParameters {
    state: Option<String>,
    attention: Option<String>,
    prefix: Option<String>,
    region: Option<String>,
    label: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryParameters {
    state: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// GET /v1/generations: what is open, unless other states are asked for.
pub(super) async fn list(
    State(coordinator): App,
    Query(parameters): Query<ListParameters>,
) -> Answer<axum::Json<Page<GenerationRow>>> {
    if parameters.attention.is_some() {
        let problem = Problem::new(Code::BadRequest, "`attention` is not supported by this version yet");
        return Err(problem.hint("list the open generations and look at `reason`").into());
    }
    let open = vec![generation::State::Gathering, generation::State::Releasing];
    let filter = GenerationFilter {
        barrier: None,
        prefix: parameters.prefix,
        states: parameters.state.as_deref().map_or(Ok(open), states)?,
        label: parameters.label.as_deref().map(label).transpose()?,
        region: parameters.region.as_deref().map(region).transpose()?,
    };
    page(&coordinator, &filter, parameters.cursor, parameters.limit).await
}

/// GET B/generations: all that is kept, the latest first.
pub(super) async fn history(
    State(coordinator): App,
    BarrierPath(name): BarrierPath,
    Query(parameters): Query<HistoryParameters>,
) -> Answer<axum::Json<Page<GenerationRow>>> {
    let known = coordinator.calls.barrier(&name).await.map_err(refuse::store)?;
    if known.is_none_or(|known| known.revision == 0) {
        return Err(refuse::not_defined(&name));
    }
    let states = parameters.state.as_deref().map_or(Ok(Vec::new()), states)?;
    let filter = GenerationFilter { barrier: Some(name), states, ..GenerationFilter::default() };
    page(&coordinator, &filter, parameters.cursor, parameters.limit).await
}

async fn page(
    coordinator: &Coordinator,
    filter: &GenerationFilter,
    cursor: Option<String>,
    limit: Option<u32>,
) -> Answer<axum::Json<Page<GenerationRow>>> {
    let limit = page_limit(limit)?;
    let page = coordinator.calls.generations(filter, cursor, limit).await.map_err(refuse::store)?;
    let words = Words::read(coordinator).await?;
    let items = page.items.iter().map(|row| list_row(&words.view(coordinator, row))).collect();
    Ok(axum::Json(Page { items, cursor: page.next }))
}

/// POST B/generations: opens a key ahead, or finds what is open.
pub(super) async fn open(
    State(coordinator): App,
    BarrierPath(name): BarrierPath,
    Query(NoParameters {}): Query<NoParameters>,
    Json(Open { key }): Json<Open>,
) -> Answer<Response> {
    let step = decide(&coordinator, &name, Command::Open { key }, Mode::Commit).await?;
    match step.reply {
        Ok(Reply::Opened { generation, created, outcome }) => {
            let state = match outcome {
                None => generation::State::Gathering,
                Some(outcome) if outcome.verdict.is_released() => generation::State::Releasing,
                Some(_) => generation::State::Broken,
            };
            let status = if created { StatusCode::CREATED } else { StatusCode::OK };
            let opened = Opened {
                barrier: name,
                generation: generation.label().to_string(),
                n: generation.n,
                round: generation.round,
                created,
                state,
            };
            Ok((status, axum::Json(opened)).into_response())
        }
        Ok(reply) => Err(unexpected(&reply)),
        Err(Refusal::RegionBehind { region }) => Err(refuse::behind(Code::CannotOpen, &region)),
        Err(refusal) => Err(refuse::refusal(&name, &refusal)),
    }
}

/// How many rows a page has.
pub(super) fn page_limit(limit: Option<u32>) -> Answer<u32> {
    match limit.unwrap_or(LIMIT_DEFAULT) {
        0 => Err(Failure::new(Code::BadRequest, "limit: a page has at least 1 row")),
        limit if limit > LIMIT_MAX => {
            let detail = format!("limit: {limit} rows are over the limit of {LIMIT_MAX} a page; follow `cursor`");
            Err(Failure::new(Code::BadRequest, detail))
        }
        limit => Ok(limit),
    }
}

/// `gathering,broken`, or `all`.
fn states(list: &str) -> Answer<Vec<generation::State>> {
    use generation::State;
    const ALL: [State; 4] = [State::Gathering, State::Releasing, State::Released, State::Broken];
    if list == "all" {
        return Ok(Vec::new());
    }
    list.split(',')
        .map(|name| {
            ALL.into_iter().find(|state| state.as_str() == name).ok_or_else(|| {
                let name: String = name.chars().take(40).collect();
                let known = ALL.map(State::as_str).join(", ");
                Failure::new(Code::BadRequest, format!("state: {name:?} is not one of {known}, all"))
            })
        })
        .collect()
}

fn label(text: &str) -> Answer<(String, String)> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| {
        let text: String = text.chars().take(80).collect();
        Failure::new(Code::BadRequest, format!("label: {text:?} is not of the form name=value"))
    })
}

/// A region in a query.
pub(super) fn region(text: &str) -> Answer<RegionName> {
    let parsed: Result<RegionName, _> = text.parse();
    parsed.map_err(|error| Failure::new(Code::InvalidName, error.to_string()))
}
