//! Waiting for a release: 2xx if and only if the generation is released. A
//! wait at a coordinator ends when it is decided.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use muster_http::poll::{Pending, WAIT_DEFAULT, Wait};
use muster_http::{Answer, Failure, GenerationPath, Query};
use muster_protocol::name::BarrierName;
use muster_wire::answer::Released;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use muster_wire::verdict;
use serde::Deserialize;
use tokio::time::Instant;

use super::App;
use super::lookup::{Found, Words, named};
use crate::coordinator::Coordinator;
use crate::status::{self, View};
use crate::store::GenerationRow;

/// How often a generation that is not open yet is looked for.
const OPENING_LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    wait: Option<Wait>,
    whole: Option<bool>,
    pending: Option<Pending>,
}

/// What one call waits for.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    /// When it is told "not yet".
    pub(super) deadline: Instant,
    /// Whether a release that is not whole is a no.
    pub(super) whole: bool,
}

/// GET G/wait
pub(super) async fn one(
    State(coordinator): App,
    path: GenerationPath,
    Query(parameters): Query<Parameters>,
) -> Answer<axum::Json<Released>> {
    let deadline = Instant::now() + parameters.wait.map_or(WAIT_DEFAULT, |wait| wait.0);
    let waiting = Waiting { deadline, whole: parameters.whole.unwrap_or(false) };
    let waited = wait(&coordinator, &path.barrier, &path.id, waiting).await;
    waited.map(axum::Json).map_err(|failure| Pending::apply(parameters.pending, failure.into_problem()).into())
}

/// Waits for one generation, from before it is open if need be.
pub(super) async fn wait(
    coordinator: &Arc<Coordinator>,
    barrier: &BarrierName,
    id: &Reference,
    waiting: Waiting,
) -> Answer<Released> {
    let row = opened(coordinator, barrier, id, waiting.deadline).await?;
    let mut seen = coordinator.hub.subscribe(Arc::new(row), true)?;
    loop {
        let row = seen.take();
        if let Some(verdict) = verdict(&row, waiting.whole) {
            return verdict;
        }
        tokio::select! {
            () = seen.changed() => {}
            () = tokio::time::sleep_until(waiting.deadline) => {
                let words = Words::read(coordinator).await?;
                return Err(still_gathering(&words.view(coordinator, &row)));
            }
            () = coordinator.shutdown.cancelled() => return Err(draining()),
        }
    }
}

/// Waits until the generation is open.
async fn opened(
    coordinator: &Coordinator,
    barrier: &BarrierName,
    id: &Reference,
    deadline: Instant,
) -> Answer<GenerationRow> {
    let mut openings = coordinator.hub.openings();
    loop {
        let not_yet = match named(coordinator, barrier, id).await? {
            Found::Row(row) => return Ok(*row),
            Found::NotYet(not_yet) => not_yet,
        };
        tokio::select! {
            _ = openings.changed() => {}
            () = tokio::time::sleep(OPENING_LOOK) => {}
            () = tokio::time::sleep_until(deadline) => return Err(not_yet),
            () = coordinator.shutdown.cancelled() => return Err(draining()),
        }
    }
}

/// The answer to whoever waits, once there is one.
pub(super) fn verdict(row: &GenerationRow, whole: bool) -> Option<Answer<Released>> {
    let outcome = &row.generation.decided.as_ref()?.outcome;
    if let Some(broken) = verdict::broken(outcome) {
        return Some(Err(broken.into()));
    }
    let released = status::released(row)?;
    Some(if whole && !released.whole { Err(verdict::not_whole(outcome).into()) } else { Ok(released) })
}

/// Time is up; who is missing stands in the answer.
pub(super) fn still_gathering(view: &View<'_>) -> Failure {
    let id = &view.row.generation.id;
    let message = status::status(view).message;
    let problem = Problem::new(Code::StillGathering, format!("{id} is not released yet: {message}"))
        .hint("the same call again waits on; `muster why` tells more");
    let members = status::gathering_members(view);
    members.into_iter().fold(problem, |problem, (name, value)| problem.with(name, value)).into()
}

fn draining() -> Failure {
    Problem::new(Code::Draining, "this coordinator is stopping")
        .hint("send the same call to another coordinator, or again in a moment")
        .into()
}
