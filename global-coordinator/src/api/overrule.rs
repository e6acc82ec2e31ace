//! What somebody decides that participants had not: abort, forced release,
//! waiver, retry. Each names its generation and says why, can be tried first,
//! and changes nothing when it is said again.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_http::{Answer, Failure, GenerationPath, Json, Query};
use muster_protocol::caps;
use muster_protocol::global::{Change, Command, Reply, Step};
use muster_protocol::outcome::Override;
use muster_wire::answer::Overruled;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use muster_wire::request::{self, Keep};
use muster_wire::selection::selection;
use serde::Deserialize;

use super::barriers::unexpected;
use super::lookup::{Found, Words, generation, named};
use super::{App, decide, refuse};
use crate::coordinator::Coordinator;
use crate::hub::reference;
use crate::status;
use crate::store::{GenerationRow, Mode};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Parameters {
    dry_run: Option<bool>,
}

impl Parameters {
    fn mode(&self) -> Mode {
        if self.dry_run.unwrap_or(false) { Mode::DryRun } else { Mode::Commit }
    }
}

/// POST G/abort
pub(super) async fn abort(
    State(coordinator): App,
    path: GenerationPath,
    Query(parameters): Query<Parameters>,
    Json(request::Override { reason }): Json<request::Override>,
) -> Answer<Response> {
    let by = because("an abort", reason)?;
    let row = found(&coordinator, &path).await?;
    let n = row.generation.id.n;
    overrule(&coordinator, row, Command::Abort { n, by }, parameters.mode()).await
}

/// POST G/release
pub(super) async fn release(
    State(coordinator): App,
    path: GenerationPath,
    Query(parameters): Query<Parameters>,
    Json(request::Release { force, reason }): Json<request::Release>,
) -> Answer<Response> {
    let by = because("a release by force", reason)?;
    if !force {
        let detail = "releasing before everybody has arrived lets everybody pass, those too who wait for the rest";
        return Err(Problem::new(Code::BadRequest, detail).hint("if that is meant, send {\"force\": true}").into());
    }
    let row = found(&coordinator, &path).await?;
    let n = row.generation.id.n;
    overrule(&coordinator, row, Command::Release { n, by }, parameters.mode()).await
}

/// POST G/waive
pub(super) async fn waive(
    State(coordinator): App,
    path: GenerationPath,
    Query(parameters): Query<Parameters>,
    Json(request::Waive { region, participants, reason }): Json<request::Waive>,
) -> Answer<Response> {
    let by = because("a waiver", reason)?;
    let participants = participants.as_deref().map(selection).transpose()?;
    let row = found(&coordinator, &path).await?;
    let n = row.generation.id.n;
    let command = Command::Waive { n, region, participants, by };
    overrule(&coordinator, row, command, parameters.mode()).await
}

/// POST G/retry
pub(super) async fn retry(
    State(coordinator): App,
    path: GenerationPath,
    Query(parameters): Query<Parameters>,
    Json(request::Retry { keep, reason }): Json<request::Retry>,
) -> Answer<Response> {
    let by = because("a retry", reason)?;
    let row = retried(&coordinator, &path, found(&coordinator, &path).await?).await?;
    let id = &row.generation.id;
    let command = Command::Retry { n: id.n, key: id.key.clone(), keep: keep == Keep::Ok, by };
    overrule(&coordinator, row, command, parameters.mode()).await
}

/// A key means its latest round. When that is a retry which has not broken,
/// the round before it is what was meant: it has been retried, and asking for
/// that again changes nothing.
async fn retried(coordinator: &Coordinator, path: &GenerationPath, row: GenerationRow) -> Answer<GenerationRow> {
    let id = &row.generation.id;
    let broken = row.generation.decided.as_ref().is_some_and(|decided| !decided.outcome.verdict.is_released());
    let (Some(key), None, false) = (&id.key, path.id.round(), broken || id.round == 0) else { return Ok(row) };
    let before = Reference::Key(key.clone(), Some(id.round - 1));
    let before = coordinator.calls.generation(&path.barrier, &before).await.map_err(refuse::store)?;
    Ok(before.unwrap_or(row))
}

/// The generation that is meant; one that is not open has nothing to decide.
async fn found(coordinator: &Coordinator, path: &GenerationPath) -> Answer<GenerationRow> {
    match named(coordinator, &path.barrier, &path.id).await? {
        Found::Row(row) => Ok(*row),
        Found::NotYet(_) => {
            let detail = format!("{}@{} is not open, so there is nothing to decide about it", path.barrier, path.id);
            Err(Failure::new(Code::NoSuchGeneration, detail))
        }
    }
}

/// Decides it, and says what came of it, or would.
async fn overrule(
    coordinator: &Arc<Coordinator>,
    row: GenerationRow,
    command: Command,
    mode: Mode,
) -> Answer<Response> {
    let barrier = row.generation.id.barrier.clone();
    let step = decide(coordinator, &barrier, command, mode).await?;
    let (changed, opened) = match &step.reply {
        Ok(Reply::Ended { changed, .. } | Reply::Waived { changed, .. }) => (*changed, None),
        Ok(Reply::Opened { generation, created, .. }) => (*created, Some(generation.clone())),
        Ok(reply) => return Err(unexpected(reply)),
        Err(refusal) => return Err(refuse::refusal(&barrier, refusal)),
    };
    let dry_run = mode == Mode::DryRun;
    let row = match (dry_run && changed, opened.as_ref()) {
        (true, _) => foreseen(coordinator, row, &step).await?,
        (false, Some(next)) => generation(coordinator, &barrier, &reference(next)).await?,
        (false, None) => generation(coordinator, &barrier, &reference(&row.generation.id)).await?,
    };
    let words = Words::read(coordinator).await?;
    let status = status::status(&words.view(coordinator, &row));
    let created = opened.is_some() && changed && !dry_run;
    let code = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, axum::Json(Overruled { status, changed, dry_run })).into_response())
}

/// The generation as a step that was only tried would leave it; of a retry,
/// the next round.
async fn foreseen(coordinator: &Coordinator, mut row: GenerationRow, step: &Step) -> Answer<GenerationRow> {
    let of = row.generation.id.n;
    for change in &step.changes {
        match change {
            Change::Decided { n, decided } if *n == of => row.generation.decided = Some((**decided).clone()),
            Change::Waived { n, region, waiver } if *n == of => {
                row.generation.waived.insert(region.clone(), waiver.clone());
            }
            // The end of a cyclic generation opens another one: not the one that is meant.
            Change::Opened(next) if matches!(step.reply, Ok(Reply::Opened { .. })) => {
                let barrier = &next.id.barrier;
                let known = coordinator.calls.barrier(barrier).await.map_err(refuse::store)?;
                if let Some(spec) = known.as_ref().and_then(|known| known.spec()) {
                    row.spec = spec.clone();
                }
                row.generation = (**next).clone();
                row.report_ages.clear();
            }
            _ => {}
        }
    }
    Ok(row)
}

/// Why, which every override must say.
pub(super) fn because(what: &str, reason: String) -> Answer<Override> {
    if reason.trim().is_empty() {
        let detail = format!("{what} needs a reason: send {{\"reason\": \"…\"}}");
        return Err(Failure::new(Code::BadRequest, detail));
    }
    limited("reason", &reason)?;
    Ok(Override { actor: None, reason })
}

/// Refuses a text that is over its limit.
pub(super) fn limited(what: &str, text: &str) -> Answer<()> {
    let limit = caps::TEXT_BYTES_MAX;
    if text.len() > limit {
        let detail = format!("{what}: {} bytes are over the limit of {limit}", text.len());
        return Err(Failure::new(Code::BadRequest, detail));
    }
    Ok(())
}
