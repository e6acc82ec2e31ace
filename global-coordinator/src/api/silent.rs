//! Who fell silent, and how long ago: agents alone hear sessions, so one of
//! each region concerned is asked. What does not answer at once is left out.

use std::time::Duration;

use axum::body::to_bytes;
use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderMap, Method, Uri};
use muster_http::Call;
use muster_protocol::name::RegionName;
use muster_wire::answer::{Page, Participant};

use super::handing_on::addresses;
use crate::coordinator::{Coordinator, Regions};
use crate::store::GenerationRow;

/// How long an explanation waits for agents.
const PATIENCE: Duration = Duration::from_secs(1);
/// Participants that one region is asked for.
const ASKED_MAX: u32 = 20;
/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Lost participants of a generation as their agents know them.
pub(super) async fn heard(coordinator: &Coordinator, regions: &Regions, row: &GenerationRow) -> Vec<Participant> {
    if row.generation.decided.is_some() {
        return Vec::new();
    }
    let reports = row.generation.reports.values().filter(|report| report.apart.lost > 0);
    let asked = reports.map(|report| tokio::time::timeout(PATIENCE, ask(coordinator, regions, row, &report.region)));
    join_all(asked).await.into_iter().filter_map(Result::ok).flatten().flatten().collect()
}

async fn ask(
    coordinator: &Coordinator,
    regions: &Regions,
    row: &GenerationRow,
    region: &RegionName,
) -> Option<Vec<Participant>> {
    let id = &row.generation.id;
    let path = format!(
        "/v1/barriers/{}/generations/{}/participants?state=lost&limit={ASKED_MAX}&region={region}",
        id.barrier,
        id.label()
    );
    let uri: Uri = path.parse().ok()?;
    let call = Call { method: Method::GET, uri, headers: HeaderMap::new(), body: Bytes::new() };
    let addresses = addresses(regions.get(region)?);
    let answer = coordinator.forwarder.forward(&addresses, &format!("region {region}"), &call).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    let bytes = to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await.ok()?;
    Some(serde_json::from_slice::<Page<Participant>>(&bytes).ok()?.items)
}
