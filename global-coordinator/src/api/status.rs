//! The status document, with blocking reads; explanations; outputs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use muster_http::extract::NoParameters;
use muster_http::poll::{WAIT_DEFAULT, Wait};
use muster_http::{Answer, Failure, GenerationPath, Query};
use muster_protocol::name::BarrierName;
use muster_wire::answer::{Explanation, Released, Status};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::lookup::{Words, generation};
use super::wait::verdict;
use super::{App, silent};
use crate::coordinator::Coordinator;
use crate::status;
use crate::store::GenerationRow;

/// How often `latest` is looked up anew while a read of it blocks.
const LATEST_LOOK: Duration = Duration::from_secs(1);
/// How long a read waits for a state it knows of from elsewhere.
const BEHIND_DEFAULT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Parameters {
    index: Option<String>,
    wait: Option<Wait>,
    at_least: Option<String>,
    /// Every read of a coordinator is.
    #[serde(rename = "consistent")]
    _consistent: Option<bool>,
}

/// GET G
pub(super) async fn status(
    State(coordinator): App,
    path: GenerationPath,
    Query(parameters): Query<Parameters>,
) -> Answer<axum::Json<Status>> {
    let mut row = Arc::new(generation(&coordinator, &path.barrier, &path.id).await?);
    let words = Words::read(&coordinator).await?;
    if let Some(index) = &parameters.at_least
        && !status::is_at_least(words.era(), &row, index)
    {
        let reached = |row: &GenerationRow| status::is_at_least(words.era(), row, index);
        let patience = parameters.wait.map_or(BEHIND_DEFAULT, |wait| wait.0);
        row = Reader { coordinator: &coordinator, barrier: &path.barrier, id: &path.id }
            .until(row, reached, patience)
            .await?;
        if !reached(&row) {
            let detail = format!("{} has not come as far as the index {index}", row.generation.id);
            return Err(Problem::new(Code::Behind, detail).hint("send the same call again").into());
        }
    }
    if let Some(index) = &parameters.index {
        let newer = |row: &GenerationRow| status::is_newer(words.era(), row, index);
        let patience = parameters.wait.map_or(WAIT_DEFAULT, |wait| wait.0);
        row = Reader { coordinator: &coordinator, barrier: &path.barrier, id: &path.id }
            .until(row, newer, patience)
            .await?;
    }
    // Regions were read before a wait: read again what is said of them.
    let words = Words::read(&coordinator).await?;
    Ok(axum::Json(status::status(&words.view(&coordinator, &row))))
}

/// A read that blocks.
struct Reader<'a> {
    coordinator: &'a Coordinator,
    barrier: &'a BarrierName,
    id: &'a Reference,
}

impl Reader<'_> {
    /// The first row that satisfies, or the last one when time is up or the
    /// service stops: the caller is told what is so, never nothing.
    async fn until(
        &self,
        first: Arc<GenerationRow>,
        satisfies: impl Fn(&GenerationRow) -> bool,
        patience: Duration,
    ) -> Answer<Arc<GenerationRow>> {
        let deadline = Instant::now() + patience;
        let mut openings = self.coordinator.hub.openings();
        let mut seen = self.coordinator.hub.subscribe(first, false)?;
        loop {
            let row = seen.take();
            if satisfies(&row) {
                return Ok(row);
            }
            tokio::select! {
                () = seen.changed() => {}
                () = self.another(&row, &mut openings) => {
                    let latest = generation(self.coordinator, self.barrier, self.id).await?;
                    seen = self.coordinator.hub.subscribe(Arc::new(latest), false)?;
                }
                () = tokio::time::sleep_until(deadline) => return Ok(row),
                () = self.coordinator.shutdown.cancelled() => return Ok(row),
            }
        }
    }

    /// Returns when the name may mean another generation: only `latest` moves.
    async fn another(&self, row: &GenerationRow, openings: &mut tokio::sync::watch::Receiver<u64>) {
        loop {
            if *self.id != Reference::Latest {
                std::future::pending::<()>().await;
            }
            let latest = self.coordinator.calls.generation(self.barrier, self.id).await;
            if latest.is_ok_and(|latest| latest.is_some_and(|latest| latest.generation.id.n != row.generation.id.n)) {
                return;
            }
            tokio::select! {
                _ = openings.changed() => {}
                () = tokio::time::sleep(LATEST_LOOK) => {}
            }
        }
    }
}

/// GET G/explain
pub(super) async fn explain(
    State(coordinator): App,
    path: GenerationPath,
    Query(NoParameters {}): Query<NoParameters>,
) -> Answer<axum::Json<Explanation>> {
    let row = generation(&coordinator, &path.barrier, &path.id).await?;
    let words = Words::read(&coordinator).await?;
    let heard = silent::heard(&coordinator, words.regions(), &row).await;
    Ok(axum::Json(status::explain(&words.view(&coordinator, &row), &heard)))
}

/// GET G/outputs: what participants left, once it is released.
pub(super) async fn outputs(
    State(coordinator): App,
    path: GenerationPath,
    headers: HeaderMap,
    Query(NoParameters {}): Query<NoParameters>,
) -> Answer<Response> {
    let row = generation(&coordinator, &path.barrier, &path.id).await?;
    let words = Words::read(&coordinator).await?;
    let released = match verdict(&row, false) {
        Some(released) => released?,
        None => return Err(still_gathering(&words, &coordinator, &row)),
    };
    let lines = headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes() == b"application/x-ndjson");
    if !lines {
        let Released { barrier, generation, n, outputs, .. } = released;
        let body = json!({ "barrier": barrier, "generation": generation, "n": n, "outputs": outputs });
        return Ok(axum::Json(body).into_response());
    }
    let line = |(participant, output)| format!("{}\n", json!({ "participant": participant, "output": output }));
    let body: String = released.outputs.iter().map(line).collect();
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

fn still_gathering(words: &Words, coordinator: &Coordinator, row: &GenerationRow) -> Failure {
    super::wait::still_gathering(&words.view(coordinator, row))
}
