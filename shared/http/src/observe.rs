//! A span and a measurement for every request, and no panic that ends more
//! than its own request.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::Method;
use muster_telemetry::{TraceContext, metrics};
use muster_wire::code::Code;
use tracing::Instrument;
use tracing::field::Empty;

use crate::failure::Failure;

/// What stands for a path that no route has: paths are not labels.
const UNMATCHED: &str = "unmatched";

/// Runs a request in a span, which continues its caller's trace.
pub(crate) async fn observe(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = known(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or(UNMATCHED, MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
    );
    if let Some(caller) = TraceContext::from_headers(request.headers()) {
        caller.set_parent(&span);
    }
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    metrics::http_request_duration(method, route, status.as_str().to_owned()).record(began.elapsed());
    response
}

/// A label has few values, whatever a caller makes up.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Turns a panic into a problem, so that the connection lives on.
pub(crate) async fn contain(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            tracing::error!(panic = what, "a request ended in a panic");
            Failure::new(Code::Internal, "the request met a defect of Muster; whether it was done is not known")
                .into_response()
        }
    }
}
