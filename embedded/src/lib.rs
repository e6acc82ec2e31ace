//! The whole service in one process: one coordinator and an agent for each
//! region, on embedded adapters (SQLite, channels). It runs the code that
//! production runs; only the adapters behind the three ports differ.
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use muster_bus::Bus;
use muster_global_coordinator as coordinator;
use muster_protocol::name::RegionName;
use muster_regional_agent as agent;
use tokio_util::sync::CancellationToken;

/// Records on their way between the services, at most.
const BUS_CAPACITY: usize = 4_096;

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The coordinator's port; the agents take the next ones. 0 takes any free
    /// ones.
    pub port: u16,
    /// The regions, in the order of their ports.
    pub regions: Vec<RegionName>,
    /// Where definitions, arrivals and outcomes are kept; nothing is stored
    /// when left out.
    pub data_dir: Option<PathBuf>,
}

/// A running service.
pub struct Embedded {
    /// The coordinator's base URL.
    pub coordinator: String,
    /// Each region's agent's base URL.
    pub agents: BTreeMap<RegionName, String>,
    coordinator_service: coordinator::Handle,
    agent_services: Vec<agent::Service>,
    /// Held while it runs: two services on one folder would each take the
    /// other's arrivals for their own.
    _lock: Option<File>,
}

impl Embedded {
    /// Starts everything; it stops when `shutdown` is cancelled.
    pub async fn start(options: &Options, shutdown: CancellationToken) -> anyhow::Result<Self> {
        if options.regions.is_empty() {
            bail!("no regions: name at least one");
        }
        if let Some(dir) = &options.data_dir {
            std::fs::create_dir_all(dir).with_context(|| format!("create the data folder {}", dir.display()))?;
        }
        let lock = options.data_dir.as_deref().map(lock).transpose()?;
        let bus: Arc<dyn Bus> = Arc::new(muster_bus::embedded::Embedded::new(BUS_CAPACITY));
        let (coordinator_service, coordinator) = start_coordinator(options, bus.clone(), &shutdown).await?;
        let mut agents = BTreeMap::new();
        let mut agent_services = Vec::new();
        for (position, region) in options.regions.iter().enumerate() {
            let service = start_agent(options, position, region, &coordinator, bus.clone(), &shutdown).await?;
            agents.insert(region.clone(), format!("http://{}", service.addr));
            agent_services.push(service);
        }
        Ok(Self { coordinator, agents, coordinator_service, agent_services, _lock: lock })
    }

    /// Returns when every part has stopped.
    pub async fn stopped(self) {
        for service in self.agent_services {
            service.stopped().await;
        }
        self.coordinator_service.join().await;
    }
}

/// Makes a data folder this process's own. The system gives it back however
/// the process ends.
fn lock(dir: &Path) -> anyhow::Result<File> {
    let path = dir.join("lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("the data folder {} is in use by another process: stop it, or name another folder", dir.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

async fn start_coordinator(
    options: &Options,
    bus: Arc<dyn Bus>,
    shutdown: &CancellationToken,
) -> anyhow::Result<(coordinator::Handle, String)> {
    use coordinator::store::embedded::Embedded as Store;
    let store = match &options.data_dir {
        Some(dir) => Store::open(&dir.join("coordinator.db")).await.context("open the coordinator's store")?,
        None => Store::in_memory().await.context("set up the coordinator's store in memory")?,
    };
    let service_options = coordinator::Options {
        listen: loopback(options.port),
        regions: options.regions.clone(),
        ..coordinator::Options::default()
    };
    let service = coordinator::Service::start(service_options, bus, Arc::new(store), shutdown.clone()).await?;
    let url = format!("http://{}", service.local_addr());
    Ok((service, url))
}

async fn start_agent(
    options: &Options,
    position: usize,
    region: &RegionName,
    coordinator: &str,
    bus: Arc<dyn Bus>,
    shutdown: &CancellationToken,
) -> anyhow::Result<agent::Service> {
    use agent::log::embedded::Embedded as Log;
    let log = match &options.data_dir {
        Some(dir) => {
            let file = dir.join(format!("region-{region}.db"));
            Log::open(region, &file).await.with_context(|| format!("open the log of {region}"))?
        }
        None => Log::in_memory(region).await.with_context(|| format!("set up the log of {region} in memory"))?,
    };
    let port = match options.port {
        0 => 0,
        port => u16::try_from(usize::from(port) + 1 + position).context("the agents' ports end at 65535")?,
    };
    let service_options = agent::Options {
        region: Some(region.clone()),
        listen: loopback(port),
        coordinators: vec![coordinator.to_owned()],
        ..agent::Options::default()
    };
    Ok(agent::Service::start(&service_options, Arc::new(log), bus, shutdown.clone()).await?)
}
