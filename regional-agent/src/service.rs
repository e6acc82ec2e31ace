//! One agent, put together: log, replica, leader, reporter, downlink, API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use muster_bus::Bus;
use muster_http::{Forwarder, Hosts, listen, serve};
use muster_protocol::region::Region;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::Api;
use crate::coordinator::Coordinator;
use crate::downlink::Downlink;
use crate::driver::{self, Handle, Settings, new_instance};
use crate::leadership::{Leadership, Leading};
use crate::log::RegionLog;
use crate::options::Options;
use crate::reporter::Reporter;
use crate::sessions::Sessions;
use crate::startup;

/// Questions that wait for the reporter.
const ASKS_MAX: usize = 1_024;

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Nobody said which region it belongs to.
    #[error("`region` is not set: say which region this agent belongs to")]
    NoRegion,
    /// It can't listen.
    #[error(transparent)]
    Listen(#[from] listen::ListenError),
    /// The address it listens on can't be read.
    #[error("read the address it listens on")]
    Address(#[source] std::io::Error),
    /// The region's log can't be opened with these options.
    #[cfg(feature = "etcd")]
    #[error("open the region's log")]
    Log(#[from] crate::log::etcd::InvalidOptions),
    /// The bus can't be used with these options.
    #[cfg(feature = "kafka")]
    #[error("set up the bus")]
    Bus(#[from] muster_bus::BusError),
    /// It was told to stop before it had started.
    #[error("stopped before the region's log answered")]
    Stopped,
    /// The HTTP client refuses its own settings.
    #[error("set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// A running agent.
pub struct Service {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Its replica.
    pub handle: Handle,
    serving: JoinHandle<()>,
}

impl Service {
    /// Starts an agent on its region's etcd and on Kafka.
    ///
    /// # Errors
    /// See [`StartError`]: none of them is cured by waiting. Services that do
    /// not answer yet are waited for.
    #[cfg(all(feature = "etcd", feature = "kafka"))]
    pub async fn connect(options: &Options, shutdown: CancellationToken) -> Result<Self, StartError> {
        let region = options.region.as_ref().ok_or(StartError::NoRegion)?;
        let log = crate::log::etcd::Etcd::open(options.etcd.clone(), region).await?;
        let bus = muster_bus::kafka::Kafka::new(options.kafka.clone())?;
        Self::start(options, Arc::new(log), Arc::new(bus), shutdown).await
    }

    /// Binds its port, so that a taken one is said at once, then starts; the
    /// log, the bus and the coordinator may come later.
    pub async fn start(
        options: &Options,
        log: Arc<dyn RegionLog>,
        bus: Arc<dyn Bus>,
        shutdown: CancellationToken,
    ) -> Result<Self, StartError> {
        let region = options.region.clone().ok_or(StartError::NoRegion)?;
        let listener = listen::bind(options.listen, options.allow_remote, "listen").await?;
        let addr = listener.local_addr().map_err(StartError::Address)?;
        let address = options.advertise.clone().unwrap_or_else(|| format!("http://{addr}"));
        let hosts = Hosts::new(options.advertise.iter());
        let identity = startup::identity(&region, &log, &listener, hosts.clone(), &shutdown).await?;
        let settings = Settings {
            region: region.clone(),
            agent_name: options.name.clone(),
            address: address.clone(),
            lease_ttl: options.lease_ttl(),
        };
        let blank = Region::new(region, identity.history, identity.shard);
        // The parts stop after the API: a call that is being answered may
        // still need the log.
        let parts = CancellationToken::new();
        let (handle, news, driver) = driver::start(settings, log.clone(), blank, parts.clone());
        let leading = Leading::default();
        let (asks, asked) = mpsc::channel(ASKS_MAX);
        let reporter = Reporter::new(handle.clone(), bus.clone(), leading.clone());
        let told = reporter.told();
        let agent = new_instance(&options.name);
        let downlink = Downlink::new(handle.clone(), bus.clone(), leading.clone(), agent, address.clone(), asks, told);
        let link = downlink.link();
        let leadership = Leadership::new(handle.clone(), log, leading, options.snapshot_every_entries);
        let background = tokio::spawn({
            let parts = parts.clone();
            async move {
                tokio::join!(
                    reporter.run(news, asked, parts.clone()),
                    downlink.run(parts.clone()),
                    leadership.run(parts)
                );
            }
        });
        let sessions = Sessions::new(handle.clone());
        let watching = tokio::spawn(sessions.clone().run(shutdown.clone()));
        let forwarder = Forwarder::new().map_err(StartError::Client)?;
        let coordinator = Coordinator::new(forwarder, options.coordinators.clone());
        let api = Api::new(handle.clone(), coordinator, link, sessions, shutdown.clone());
        let serve_options = muster_http::Options {
            hosts,
            shutdown_deadline: Duration::from_secs(options.shutdown_seconds),
            ..muster_http::Options::default()
        };
        info!(%addr, %address, "the agent listens");
        let serving =
            tokio::spawn(run(listener, api, serve_options, shutdown, parts, vec![watching, background, driver]));
        Ok(Self { addr, handle, serving })
    }

    /// Returns when the agent has stopped.
    pub async fn stopped(self) {
        if let Err(error) = self.serving.await {
            warn!(%error, "the agent ended abnormally");
        }
    }
}

async fn run(
    listener: TcpListener,
    api: Api,
    options: muster_http::Options,
    shutdown: CancellationToken,
    parts: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
) {
    serve(listener, api.router(), options, shutdown).await;
    parts.cancel();
    for task in tasks {
        if let Err(error) = task.await {
            warn!(%error, "a part of the agent ended abnormally");
        }
    }
}
