//! The service: its parts started, watched and stopped together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use muster_bus::Bus;
use muster_http::listen::{self, ListenError};
use muster_http::{Forwarder, Hosts};
use muster_protocol::name::RegionName;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::coordinator::Coordinator;
use crate::options::Options;
use crate::repeats::Greetings;
use crate::store::Store;
use crate::{aggregation, api, collection, deadlines, following, gauges, repeats};

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Nothing can listen on the address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The address that was bound can't be read.
    #[error("read the address that was bound")]
    Address(#[source] std::io::Error),
    /// The HTTP client for calls that are handed on can't be made.
    #[error("prepare to hand calls on")]
    Forwarder(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A coordinator.
pub struct Service;

/// A coordinator that runs.
#[derive(Debug)]
pub struct Handle {
    local_addr: SocketAddr,
    join: JoinHandle<()>,
}

impl Handle {
    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Returns when it has stopped.
    pub async fn join(self) {
        if let Err(error) = self.join.await {
            tracing::error!(%error, "the coordinator ended in a panic");
        }
    }
}

impl Service {
    /// Starts a coordinator on a bus and a store. It returns as soon as it
    /// listens: a bus or a store that does not answer yet is waited for, and
    /// `/readyz` says so. It stops when `shutdown` is cancelled.
    ///
    /// # Errors
    /// See [`StartError`]; none of them is cured by waiting.
    pub async fn start(
        options: Options,
        bus: Arc<dyn Bus>,
        store: Arc<dyn Store>,
        shutdown: CancellationToken,
    ) -> Result<Handle, StartError> {
        let listener = listen::bind(options.listen, options.allow_remote, "listen").await?;
        let local_addr = listener.local_addr().map_err(StartError::Address)?;
        let forwarder = Forwarder::new().map_err(|error| StartError::Forwarder(Box::new(error)))?;
        let coordinator = Coordinator::new(bus, store, forwarder, options.waits_max, shutdown);
        start_loops(&coordinator, options.regions.clone());
        tracing::info!(%local_addr, "the coordinator listens");
        let join = tokio::spawn(serve(coordinator, listener, options));
        Ok(Handle { local_addr, join })
    }
}

fn start_loops(coordinator: &Arc<Coordinator>, regions: Vec<RegionName>) {
    let (greetings, greeted) = Greetings::new();
    // The aggregation ends its batch before it stops; the others may be cut
    // anywhere, for all they do is read again by the next that runs.
    coordinator.tasks.spawn(aggregation::run(Arc::clone(coordinator), greetings));
    until_stop(coordinator, declare(Arc::clone(coordinator), regions));
    until_stop(coordinator, repeats::run(Arc::clone(coordinator), greeted));
    until_stop(coordinator, deadlines::run(Arc::clone(coordinator)));
    until_stop(coordinator, collection::run(Arc::clone(coordinator)));
    until_stop(coordinator, following::run(Arc::clone(coordinator)));
    until_stop(coordinator, gauges::run(Arc::clone(coordinator)));
}

fn until_stop(coordinator: &Arc<Coordinator>, run: impl Future<Output = ()> + Send + 'static) {
    let shutdown = coordinator.shutdown.clone();
    coordinator.tasks.spawn(async move {
        tokio::select! {
            () = run => {}
            () = shutdown.cancelled() => {}
        }
    });
}

/// Declares the configured regions, however long the store takes to answer.
async fn declare(coordinator: Arc<Coordinator>, regions: Vec<RegionName>) {
    for region in regions {
        let mut backoff = Backoff::short();
        while let Err(error) = coordinator.declare(&region).await {
            tracing::warn!(error = %muster_telemetry::chain(&error), %region, "declare a configured region; trying on");
            backoff.pause().await;
        }
    }
}

async fn serve(coordinator: Arc<Coordinator>, listener: TcpListener, options: Options) {
    let deadline = Duration::from_secs(options.shutdown_deadline_seconds);
    let hosts = Hosts::new(Some(&options.advertise).filter(|address| !address.is_empty()));
    let http = muster_http::Options {
        hosts,
        connections_max: options.connections_max,
        shutdown_deadline: deadline,
        ..muster_http::Options::default()
    };
    let router = api::router(Arc::clone(&coordinator));
    muster_http::serve(listener, router, http, coordinator.shutdown.clone()).await;
    coordinator.tasks.close();
    if tokio::time::timeout(deadline, coordinator.tasks.wait()).await.is_err() {
        tracing::warn!("stopped before everything had ended; what is missing is done by whoever runs next");
    }
}
