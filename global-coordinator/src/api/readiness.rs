//! `/readyz`: whether calls may be sent here, and what is missing.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use muster_http::{Query, ready};
use muster_wire::answer::Check;

use super::App;
use crate::store::StoreError;

/// How long something may take to answer that it is there.
const PATIENCE: Duration = Duration::from_secs(2);

/// GET /readyz. A coordinator without its bus still answers and decides what
/// people ask; the facts go out when the bus is back.
pub(super) async fn readyz(State(coordinator): App, Query(parameters): Query<ready::Parameters>) -> Response {
    let (store, bus) = tokio::join!(
        tokio::time::timeout(PATIENCE, coordinator.check(&*coordinator.calls)),
        tokio::time::timeout(PATIENCE, coordinator.bus.check()),
    );
    let late = || format!("no answer within {} s", PATIENCE.as_secs());
    let (store, schema) = match store {
        Ok(Ok(_)) => (None, None),
        Ok(Err(error @ StoreError::Schema { .. })) => (None, Some(error.to_string())),
        Ok(Err(error)) => (Some(error.to_string()), None),
        Err(_) => (Some(late()), None),
    };
    let bus = match bus {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(late()),
    };
    let draining = coordinator.shutdown.is_cancelled().then(|| "this coordinator is stopping".to_owned());
    let check = |name: &str, required, detail: Option<String>| Check {
        name: name.to_owned(),
        ok: detail.is_none(),
        required,
        detail,
    };
    let checks = vec![
        check("store", true, store),
        check("schema", true, schema),
        check("bus", false, bus),
        check("serving", true, draining),
    ];
    ready::answer(&parameters, checks)
}
