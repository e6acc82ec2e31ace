//! The routes that every service has.

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use muster_telemetry::metrics;
use muster_wire::answer::Version;

/// `/livez`, `/metrics`, `/version` and `/v1/limits`. A service adds its own
/// `/readyz` with [`ready`](crate::ready).
pub fn common<S: Clone + Send + Sync + 'static>(version: Version) -> Router<S> {
    // Instruments taken before this stay silent.
    metrics::install();
    Router::new()
        .route("/livez", get(|| async { axum::Json(serde_json::json!({ "live": true })) }))
        .route("/metrics", get(|| async { ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::render()) }))
        .route("/version", get(|| async move { axum::Json(version) }))
        .route("/v1/limits", get(|| async { axum::Json(crate::limits::document()) }))
}
