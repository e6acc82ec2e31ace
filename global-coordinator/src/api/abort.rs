//! Ending a generation without a release.

use axum::extract::State;
use muster_http::{Answer, Failure, GenerationPath, Json, Query};
use muster_protocol::caps;
use muster_protocol::global::{Command, Reply};
use muster_wire::answer::Aborted;
use muster_wire::code::Code;
use muster_wire::request::Override;
use serde::Deserialize;

use super::barriers::unexpected;
use super::lookup::{Found, Words, generation, named};
use super::{App, decide, refuse};
use crate::hub;
use crate::status;
use crate::store::Mode;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Parameters {
    dry_run: Option<bool>,
}

/// POST G/abort
pub(super) async fn abort(
    State(coordinator): App,
    path: GenerationPath,
    Query(parameters): Query<Parameters>,
    Json(Override { reason }): Json<Override>,
) -> Answer<axum::Json<Aborted>> {
    if reason.trim().is_empty() {
        return Err(Failure::new(Code::BadRequest, "an abort needs a reason: send {\"reason\": \"…\"}"));
    }
    limited("reason", &reason)?;
    let row = match named(&coordinator, &path.barrier, &path.id).await? {
        Found::Row(row) => row,
        Found::NotYet(_) => return Err(not_open(&path)),
    };
    let n = row.generation.id.n;
    let mode = if parameters.dry_run.unwrap_or(false) { Mode::DryRun } else { Mode::Commit };
    let step = decide(&coordinator, &path.barrier, Command::Abort { n, actor: None, reason }, mode).await?;
    match step.reply {
        Ok(Reply::Ended { changed, .. }) => {
            let row = generation(&coordinator, &path.barrier, &hub::reference(&row.generation.id)).await?;
            let words = Words::read(&coordinator).await?;
            Ok(axum::Json(Aborted { status: status::status(&words.view(&coordinator, &row)), changed }))
        }
        Ok(reply) => Err(unexpected(&reply)),
        Err(refusal) => Err(refuse::refusal(&path.barrier, refusal)),
    }
}

fn not_open(path: &GenerationPath) -> Failure {
    let detail = format!("{}@{} is not open, so there is nothing to abort", path.barrier, path.id);
    Failure::new(Code::NoSuchGeneration, detail)
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
