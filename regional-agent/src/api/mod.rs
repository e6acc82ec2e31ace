//! The agent's HTTP API (`docs/api.md`). What the region knows is answered
//! here; everything else is handed on to the coordinator, one hop.

mod arrive;
mod locate;
mod participant;
mod read;
mod regional;
mod session;
mod speak;
#[cfg(test)]
mod tests;
mod wait;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{any, delete, get, post, put};
use muster_http::extract::body_limit;
use muster_http::{Answer, Call, ready, routes};
use muster_protocol::caps;
use muster_protocol::name::RegionName;
use muster_wire::answer::{Check, Version};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::coordinator::Coordinator;
use crate::downlink::Link;
use crate::driver::{Handle, machine_version};
use crate::sessions::Sessions;

/// What every handler has.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) handle: Handle,
    pub(crate) region: RegionName,
    pub(crate) coordinator: Coordinator,
    pub(crate) link: watch::Receiver<Link>,
    pub(crate) sessions: Sessions,
    pub(crate) shutdown: CancellationToken,
    pub(crate) questions: Arc<locate::Questions>,
}

impl Api {
    pub(crate) fn new(
        handle: Handle,
        coordinator: Coordinator,
        link: watch::Receiver<Link>,
        sessions: Sessions,
        shutdown: CancellationToken,
    ) -> Self {
        let region = handle.read(|region| region.name().clone());
        Self { handle, region, coordinator, link, sessions, shutdown, questions: Arc::default() }
    }

    pub(crate) fn router(self) -> Router {
        let version = Version {
            service: "regional-agent".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine_version: machine_version(),
        };
        let generation = "/v1/barriers/{namespace}/{name}/generations/{id}";
        let below = |path: &str| format!("{generation}{path}");
        // Without a generation in the path: the only one of a single barrier.
        let barrier = "/v1/barriers/{namespace}/{name}";
        let single = Router::new()
            .route(&format!("{barrier}/arrivals"), post(arrive::batch).layer(body_limit(caps::BATCH_BODY_BYTES_MAX)))
            .route(
                &format!("{barrier}/arrivals/{{participant}}"),
                put(arrive::arrive).post(arrive::arrive).delete(arrive::withdraw),
            )
            .route(&format!("{barrier}/wait"), get(wait::one));
        Router::new()
            .merge(single)
            .merge(regional::routes())
            .route(&below("/arrivals"), post(arrive::batch).layer(body_limit(caps::BATCH_BODY_BYTES_MAX)))
            .route(
                &below("/arrivals/{participant}"),
                put(arrive::arrive).post(arrive::arrive).delete(arrive::withdraw).get(read::arrival),
            )
            .route(&below("/wait"), get(wait::one))
            .route("/v1/wait", get(wait::several))
            .route(&below("/participants"), get(read::participants))
            .route("/v1/sessions", post(session::open).layer(body_limit(caps::BATCH_BODY_BYTES_MAX)))
            .route("/v1/sessions/{session}", delete(session::close))
            .route("/v1/sessions/{session}/heartbeat", put(session::heartbeat).post(session::heartbeat))
            .route("/v1/regions", get(forward))
            .route("/v1/regions/{region}", any(forward))
            .route("/v1/regions/{region}/{act}", post(forward))
            .route("/readyz", get(readyz))
            .merge(routes::common(version))
            .with_state(self)
    }
}

/// What is not the region's own.
async fn forward(State(api): State<Api>, call: Call) -> Answer<Response> {
    api.coordinator.forward(&call).await
}

/// An agent stays ready for local work while bus or coordinator are away.
async fn readyz(
    State(api): State<Api>,
    muster_http::Query(parameters): muster_http::Query<ready::Parameters>,
) -> Response {
    let status = api.handle.status().borrow().clone();
    let log = match (&status.stopped, status.following) {
        (Some(stop), _) => Some(stop.to_string()),
        (None, false) => Some("catching up with the region's log, or not registered on it".to_owned()),
        (None, true) => None,
    };
    let link = match &*api.link.borrow() {
        Link::Up => None,
        Link::Greeting => Some("no coordinator has answered the greeting yet".to_owned()),
        Link::BusAway(why) | Link::Refused(why) => Some(why.clone()),
    };
    // The bus can be up while nobody reads it; asking is cheap, and only done
    // for those who want to know of the world.
    let link = match link {
        None if parameters.need == Some(ready::Need::Global) => api.coordinator.answers().await.err(),
        link => link,
    };
    let check = |name: &str, required, detail: Option<String>| Check {
        name: name.to_owned(),
        ok: detail.is_none(),
        required,
        detail,
    };
    // Every agent of the region is as full, and reads and waits go on.
    let room = status.full.then(|| {
        "the region's log had no room for the last entry; make some (etcd: compact, defragment, disarm the alarm), \
         and it goes on by itself"
            .to_owned()
    });
    let lease = match api.handle.proven_for().is_zero() {
        true => Some("the lease on the region's log is not proven to live".to_owned()),
        false => None,
    };
    let draining = api.shutdown.is_cancelled().then(|| "this agent is stopping".to_owned());
    let checks = vec![
        check("log", true, log),
        check("room", false, room),
        check("lease", true, lease),
        check("coordinator", false, link),
        check("serving", true, draining),
    ];
    ready::answer(&parameters, checks)
}
