//! Until the region's log answers: say what is missing, on the log once and
//! over HTTP to whoever asks, and keep trying.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use muster_http::{Failure, Hosts, Query, ready, routes, serve};
use muster_protocol::name::RegionName;
use muster_wire::answer::{Check, Version};
use muster_wire::code::Code;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::driver::machine_version;
use crate::log::{Identity, RegionLog};
use crate::service::StartError;

/// Pauses between two tries, doubling.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long calls that were answered meanwhile may take to end.
const HAND_OVER: Duration = Duration::from_secs(1);

/// Who the log is, once it answers.
pub(crate) async fn identity(
    region: &RegionName,
    log: &Arc<dyn RegionLog>,
    listener: &TcpListener,
    hosts: Hosts,
    shutdown: &CancellationToken,
) -> Result<Identity, StartError> {
    let trouble = match log.identity().await {
        Ok(identity) => return Ok(identity),
        Err(error) => error,
    };
    warn!(%region, error = %muster_telemetry::chain(&trouble), "open the region's log; trying again until it answers");
    let why = Arc::new(Mutex::new(muster_telemetry::chain(&trouble).to_string()));
    let ready = CancellationToken::new();
    let waiting = tokio::spawn(serve(
        second(listener).map_err(StartError::Address)?,
        router(why.clone()),
        muster_http::Options { hosts, shutdown_deadline: HAND_OVER, ..Default::default() },
        ready.clone(),
    ));
    let mut pause = PAUSE_MIN;
    let identity = loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.cancelled() => break Err(StartError::Stopped),
        }
        pause = PAUSE_MAX.min(pause * 2);
        match log.identity().await {
            Ok(identity) => break Ok(identity),
            Err(error) => {
                *why.lock().unwrap_or_else(PoisonError::into_inner) = muster_telemetry::chain(&error).to_string()
            }
        }
    };
    ready.cancel();
    if let Err(error) = waiting.await {
        warn!(%error, "the server of the start ended abnormally");
    }
    if identity.is_ok() {
        info!(%region, "the region's log answers");
    }
    identity
}

/// The same socket once more, so that no caller is turned away when the
/// agent's own routes take over.
fn second(listener: &TcpListener) -> std::io::Result<TcpListener> {
    use std::os::fd::AsFd;
    let socket = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

fn router(why: Arc<Mutex<String>>) -> Router {
    let version = Version {
        service: "regional-agent".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine_version: machine_version(),
    };
    let say = move || why.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let checks = say.clone();
    let readyz = get(move |Query(parameters): Query<ready::Parameters>| async move {
        let log = Check { name: "log".to_owned(), ok: false, required: true, detail: Some(checks()) };
        ready::answer(&parameters, vec![log])
    });
    let starting = move || async move {
        Failure::new(Code::Unavailable, format!("this agent is starting; nothing was done. {}", say()))
    };
    Router::new()
        .route("/readyz", readyz)
        .route("/v1/{*path}", axum::routing::any(starting))
        .merge(routes::common(version))
}
