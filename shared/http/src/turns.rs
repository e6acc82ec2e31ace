//! How many requests are served at once: a few connections of HTTP/2 can bring
//! any number. Those that wait are counted apart, so that they leave room for
//! what they wait for.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::Uri;
use muster_wire::code::Code;
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// The room there is.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    waits: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

impl Turns {
    pub(crate) fn new(waits_max: usize, others_max: usize) -> Self {
        let room = |max| Arc::new(Semaphore::new(max));
        Self { waits: room(waits_max), others: room(others_max) }
    }
}

/// Whether a request asks to be answered later.
fn waits(uri: &Uri) -> bool {
    uri.path().ends_with("/wait") || uri.query().is_some_and(|query| query.split('&').any(|p| p.starts_with("wait=")))
}

/// Serves a request if there is room for one of its kind.
pub(crate) async fn turn(State(turns): State<Turns>, request: Request, next: Next) -> Response {
    let (room, said) = match waits(request.uri()) {
        true => (&turns.waits, "as many calls wait as this service lets wait at once"),
        false => (&turns.others, "as many requests are served as this service serves at once"),
    };
    match room.try_acquire() {
        Ok(_turn) => next.run(request).await,
        Err(_) => Failure::new(Code::Busy, format!("{said}; nothing was done")).into_response(),
    }
}
