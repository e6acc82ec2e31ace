//! Waiting for several generations in one call: for all, or for the first.

use std::sync::Arc;

use axum::extract::State;
use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use muster_http::poll::{Pending, WAIT_DEFAULT, Wait};
use muster_http::{Answer, Failure, Query};
use muster_protocol::name::{BarrierName, InvalidName};
use muster_wire::answer::Released;
use muster_wire::code::Code;
use muster_wire::reference::Reference;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::App;
use super::wait::{Waiting, wait};
use crate::coordinator::Coordinator;

/// Generations that one call waits for.
const SEVERAL_MAX: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    all: Option<String>,
    any: Option<String>,
    wait: Option<Wait>,
    whole: Option<bool>,
    pending: Option<Pending>,
}

type Name = (BarrierName, Reference);

/// GET /v1/wait
pub(super) async fn several(
    State(coordinator): App,
    Query(parameters): Query<Parameters>,
) -> Answer<axum::Json<Value>> {
    let deadline = Instant::now() + parameters.wait.map_or(WAIT_DEFAULT, |wait| wait.0);
    let waiting = Waiting { deadline, whole: parameters.whole.unwrap_or(false) };
    let waited = match (&parameters.all, &parameters.any) {
        (Some(list), None) => all(&coordinator, &named(list)?, waiting).await,
        (None, Some(list)) => any(&coordinator, &named(list)?, waiting).await.map(|released| vec![released]),
        _ => {
            let detail = "name what to wait for: all=ns/name@key,… or any=ns/name@key,…";
            return Err(Failure::new(Code::BadRequest, detail));
        }
    };
    let released =
        waited.map_err(|failure| Failure::from(Pending::apply(parameters.pending, failure.into_problem())))?;
    Ok(axum::Json(json!({ "released": released })))
}

/// Every one released; the first that will never be ends it.
async fn all(coordinator: &Arc<Coordinator>, names: &[Name], waiting: Waiting) -> Answer<Vec<Released>> {
    try_join_all(names.iter().map(|(barrier, id)| wait(coordinator, barrier, id, waiting))).await
}

/// The first one released. A break of some is a no only when all have one;
/// until then it is "not yet".
async fn any(coordinator: &Arc<Coordinator>, names: &[Name], waiting: Waiting) -> Answer<Released> {
    let mut waits: FuturesUnordered<_> =
        names.iter().map(|(barrier, id)| wait(coordinator, barrier, id, waiting)).collect();
    let mut no: Option<Failure> = None;
    while let Some(waited) = waits.next().await {
        let failure = match waited {
            Ok(released) => return Ok(released),
            Err(failure) => failure,
        };
        match failure.problem().code {
            Code::Broken | Code::NotWhole => {
                no.get_or_insert(failure);
            }
            Code::StillGathering | Code::NotOpenYet => no = Some(failure),
            // A wrong name, a stop: no use in waiting for the others.
            _ => return Err(failure),
        }
    }
    Err(no.unwrap_or_else(|| Failure::new(Code::BadRequest, "nothing to wait for was named")))
}

fn named(list: &str) -> Answer<Vec<Name>> {
    let items: Vec<&str> = list.split(',').filter(|item| !item.is_empty()).collect();
    if items.is_empty() || items.len() > SEVERAL_MAX {
        let detail = format!("one call waits for 1 to {SEVERAL_MAX} generations, and this one names {}", items.len());
        return Err(Failure::new(Code::BadRequest, detail));
    }
    let name = |item: &&str| {
        let (barrier, id) = item.split_once('@').ok_or_else(|| {
            let item: String = item.chars().take(160).collect();
            Failure::new(Code::GenerationRequired, format!("{item:?} names no generation; write ns/name@key"))
        })?;
        let barrier = barrier.parse();
        let barrier = barrier.map_err(|error: InvalidName| Failure::new(Code::InvalidName, error.to_string()))?;
        Ok((barrier, id.parse::<Reference>()?))
    };
    items.iter().map(name).collect()
}
