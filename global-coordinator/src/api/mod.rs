//! The coordinator's HTTP API (`docs/api.md`). What one region alone knows is
//! handed on to an agent of that region, one hop.

mod audit;
mod barriers;
mod generations;
mod handing_on;
mod lookup;
mod overrule;
mod readiness;
mod refuse;
mod regional;
mod regions;
mod sessions;
mod several;
mod silent;
mod status;
mod wait;

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};
use muster_http::extract::body_limit;
use muster_http::{Answer, Failure, routes};
use muster_protocol::caps;
use muster_protocol::global::{Command, Step};
use muster_protocol::name::BarrierName;
use muster_protocol::region::MACHINE_VERSION;
use muster_wire::answer::Version;
use muster_wire::code::Code;
use tracing::Instrument;

use crate::backoff::Backoff;
use crate::coordinator::Coordinator;
use crate::store::{Mode, StoreError};

/// What every handler has.
type App = axum::extract::State<Arc<Coordinator>>;

/// How often a transaction is tried that keeps losing against others.
const TRIES_MAX: u32 = 5;

/// All routes of the coordinator.
pub(crate) fn router(coordinator: Arc<Coordinator>) -> Router {
    let version = Version {
        service: "global-coordinator".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine_version: MACHINE_VERSION,
    };
    let barrier = "/v1/barriers/{namespace}/{name}";
    let generation = format!("{barrier}/generations/{{id}}");
    let below = |path: &str| format!("{generation}{path}");
    let of_barriers = Router::new()
        .route(
            barrier,
            get(barriers::one)
                .put(barriers::apply)
                .delete(barriers::delete)
                .layer(body_limit(caps::DEFINITION_BYTES_MAX)),
        )
        .route(&format!("{barrier}/generations"), get(generations::history).post(generations::open))
        .route(&generation, get(status::status))
        .route(&below("/explain"), get(status::explain))
        .route(&below("/outputs"), get(status::outputs))
        .route(&below("/wait"), get(wait::one))
        .route(&below("/abort"), post(overrule::abort))
        .route(&below("/release"), post(overrule::release))
        .route(&below("/waive"), post(overrule::waive))
        .route(&below("/retry"), post(overrule::retry))
        .route(&below("/arrivals"), post(handing_on::batch).layer(body_limit(caps::BATCH_BODY_BYTES_MAX)))
        .route(
            &below("/arrivals/{participant}"),
            put(handing_on::arrival).post(handing_on::arrival).get(handing_on::by_query).delete(handing_on::by_query),
        )
        .route(&below("/participants"), get(handing_on::participants))
        // Without a generation in the path: the only one of a single barrier.
        .route(&format!("{barrier}/arrivals"), post(handing_on::batch).layer(body_limit(caps::BATCH_BODY_BYTES_MAX)))
        .route(
            &format!("{barrier}/arrivals/{{participant}}"),
            put(handing_on::arrival).post(handing_on::arrival).delete(handing_on::by_query),
        )
        .route(&format!("{barrier}/wait"), get(wait::one))
        .route(&format!("{barrier}/abort"), post(overrule::abort))
        .route(&format!("{barrier}/release"), post(overrule::release))
        .route(&format!("{barrier}/waive"), post(overrule::waive))
        .route(&format!("{barrier}/retry"), post(overrule::retry))
        .route_layer(from_fn_with_state(Arc::clone(&coordinator), regional::hand_on));
    Router::new()
        .merge(of_barriers)
        .route("/v1/barriers", get(barriers::list))
        .route("/v1/generations", get(generations::list))
        .route("/v1/wait", get(several::several))
        .route("/v1/sessions", post(sessions::open).layer(body_limit(caps::BATCH_BODY_BYTES_MAX)))
        .route("/v1/sessions/{session}", delete(sessions::of_query))
        .route("/v1/sessions/{session}/heartbeat", put(sessions::of_query).post(sessions::of_query))
        .route("/v1/regions", get(regions::list))
        .route("/v1/regions/{region}", get(regions::one).put(regions::declare))
        .route("/v1/regions/{region}/drain", post(regions::drain))
        .route("/v1/regions/{region}/resume", post(regions::resume))
        .route("/v1/regions/{region}/adopt", post(regions::adopt))
        .route("/v1/audit", get(audit::list))
        .route("/readyz", get(readiness::readyz))
        .merge(routes::common(version))
        .with_state(coordinator)
}

/// Does something to its end, though the caller may hang up meanwhile.
async fn to_its_end<T: Send + 'static>(work: impl Future<Output = Answer<T>> + Send + 'static) -> Answer<T> {
    match tokio::spawn(work.in_current_span()).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::error!(%error, "a call ended in a panic");
            Err(Failure::new(Code::Internal, "the call met a defect of Muster; whether it was done is not known"))
        }
    }
}

/// Decides one command, and tells the regions when it is durable.
async fn decide(coordinator: &Arc<Coordinator>, barrier: &BarrierName, command: Command, mode: Mode) -> Answer<Step> {
    let (coordinator, barrier) = (Arc::clone(coordinator), barrier.clone());
    to_its_end(async move {
        let mut backoff = Backoff::short();
        let mut tries = 0;
        loop {
            tries += 1;
            match coordinator.decide(&*coordinator.calls, vec![(barrier.clone(), command.clone())], mode).await {
                Ok(steps) => {
                    let step = steps.into_iter().next();
                    let mut step = step.ok_or_else(|| Failure::new(Code::Internal, "the store gave no answer"))?;
                    let facts = std::mem::take(&mut step.facts);
                    if mode == Mode::Commit {
                        coordinator.publish(facts);
                    }
                    return Ok(step);
                }
                Err(StoreError::Contended(_)) if tries < TRIES_MAX => backoff.pause().await,
                Err(error) => return Err(refuse::store(error)),
            }
        }
    })
    .await
}
