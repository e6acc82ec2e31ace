//! The audit log: who decided what participants had not.

use axum::extract::State;
use muster_http::{Answer, Failure, Query};
use muster_protocol::identity::Timestamp;
use muster_protocol::name::{BarrierName, InvalidName};
use muster_wire::answer::{AuditRow, Page};
use muster_wire::code::Code;
use muster_wire::time::{parse_duration, parse_rfc3339, rfc3339};
use serde::Deserialize;

use super::generations::page_limit;
use super::{App, refuse};
use crate::coordinator::now;
use crate::store::{self, AuditFilter};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    actor: Option<String>,
    barrier: Option<String>,
    since: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

/// GET /v1/audit: the latest first.
pub(super) async fn list(
    State(coordinator): App,
    Query(parameters): Query<Parameters>,
) -> Answer<axum::Json<Page<AuditRow>>> {
    let Parameters { actor, barrier, since, limit, cursor } = parameters;
    let barrier = barrier.map(|name| name.parse::<BarrierName>()).transpose();
    let filter = AuditFilter {
        actor,
        barrier: barrier.map_err(|error: InvalidName| Failure::new(Code::InvalidName, error.to_string()))?,
        since: since.as_deref().map(instant).transpose()?,
    };
    let page = coordinator.calls.audit(&filter, cursor, page_limit(limit)?).await.map_err(refuse::store)?;
    Ok(axum::Json(Page { items: page.items.into_iter().map(speak).collect(), cursor: page.next }))
}

/// An instant, or a time before now.
fn instant(text: &str) -> Answer<Timestamp> {
    let ago = |ms: u128| Timestamp(now().0.saturating_sub(u64::try_from(ms).unwrap_or(u64::MAX)));
    let read = parse_rfc3339(text).or_else(|| parse_duration(text).ok().map(|time| ago(time.as_millis())));
    read.ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        let detail = format!("since: {text:?} is neither an instant (2026-10-07T12:00:00Z) nor a time from now (24h)");
        Failure::new(Code::BadRequest, detail)
    })
}

fn speak(row: store::AuditRow) -> AuditRow {
    AuditRow {
        at: rfc3339(row.at),
        action: row.action,
        barrier: row.barrier.map(|name| name.to_string()),
        generation: row.generation,
        actor: row.by.actor,
        reason: row.by.reason,
        object: row.object,
    }
}
