//! The service's parts in this process, on embedded adapters.
//!
//! Each part lives on a runtime of its own. To kill it is to end that runtime:
//! every task of the part stops where it stands, its sockets close, and nobody
//! says anything. Logs, bus and store are outside of it, as servers are, and
//! live on.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use async_trait::async_trait;
use muster_bus::Bus;
use muster_global_coordinator::{self as coordinator, store};
use muster_protocol::name::RegionName;
use muster_regional_agent::{self as agent, log, log::RegionLog};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Cluster, Part, Shape};
use crate::ports::Port;
use crate::until::until;

const BUS_CAPACITY: usize = 4_096;
/// How long what a killed part left on a thread may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The service in this process.
pub struct InProcess {
    shape: Shape,
    ports: BTreeMap<Part, Port>,
    /// Where logs and store are when they must outlive a restart.
    folder: Option<PathBuf>,
    servers: Mutex<Servers>,
    running: Mutex<BTreeMap<Part, Running>>,
}

/// What the parts talk to.
#[derive(Clone)]
struct Servers {
    bus: Arc<dyn Bus>,
    store: store::embedded::Embedded,
    logs: BTreeMap<RegionName, log::embedded::Embedded>,
}

/// One living part.
struct Running {
    runtime: Runtime,
    shutdown: CancellationToken,
    service: Service,
}

enum Service {
    Coordinator(coordinator::Handle),
    Agent(agent::Service),
}

impl InProcess {
    /// Starts everything, and waits until it is ready.
    ///
    /// # Errors
    /// A part does not start, or does not become ready.
    pub async fn start(shape: Shape) -> anyhow::Result<Self> {
        let folder =
            shape.durable.then(|| std::env::temp_dir().join(format!("muster-test-{:016x}", rand::random::<u64>())));
        let servers = Servers::start(shape.clone(), folder.clone()).await?;
        let ports = shape.parts().into_iter().map(|part| Ok((part, Port::reserve()?)));
        let ports = ports.collect::<anyhow::Result<_>>()?;
        let cluster = Self { shape, ports, folder, servers: Mutex::new(servers), running: Mutex::default() };
        for part in cluster.shape.parts() {
            Cluster::start(&cluster, &part).await?;
        }
        cluster.ready().await?;
        Ok(cluster)
    }

    fn listen(&self, part: &Part) -> SocketAddr {
        let port = self.ports.get(part).map_or(0, |port| port.number);
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    async fn service(&self, part: &Part, runtime: &Runtime, shutdown: CancellationToken) -> anyhow::Result<Service> {
        let servers = self.servers.lock().await.clone();
        let (bus, listen) = (servers.bus, self.listen(part));
        match part.clone() {
            Part::Coordinator(_) => {
                let regions = self.shape.regions.clone();
                let options = coordinator::Options { listen, regions, ..coordinator::Options::default() };
                let store = Arc::new(servers.store);
                let start = async move { coordinator::Service::start(options, bus, store, shutdown).await };
                Ok(Service::Coordinator(runtime.spawn(start).await??))
            }
            Part::Agent(region, number) => {
                let options = agent::Options {
                    region: Some(region.clone()),
                    name: format!("agent-{number}"),
                    listen,
                    coordinators: self.coordinators(),
                    snapshot_every_entries: super::SNAPSHOT_EVERY_ENTRIES,
                    ..agent::Options::default()
                };
                let log: Arc<dyn RegionLog> = match servers.logs.get(&region) {
                    Some(log) => Arc::new(log.clone()),
                    None => bail!("there is no region {region}"),
                };
                let start = async move { agent::Service::start(&options, log, bus, shutdown).await };
                Ok(Service::Agent(runtime.spawn(start).await??))
            }
        }
    }

    async fn take(&self, part: &Part) -> anyhow::Result<Running> {
        self.running.lock().await.remove(part).ok_or_else(|| anyhow!("{part} does not run"))
    }

    /// The embedded log knows no leases; whoever died is struck off here, as
    /// etcd does when a lease runs out.
    async fn strike_off(&self, part: &Part) -> anyhow::Result<()> {
        let Part::Agent(region, _) = part else { return Ok(()) };
        let Some(log) = self.servers.lock().await.logs.get(region).cloned() else { return Ok(()) };
        let address = self.url(part);
        for registration in log.registrations().await? {
            if registration.address == address {
                log.expel(registration.writer).await;
            }
        }
        Ok(())
    }
}

impl Servers {
    async fn start(shape: Shape, folder: Option<PathBuf>) -> anyhow::Result<Self> {
        // The compiler can't see that sqlx's futures may move between threads.
        tokio::task::spawn_blocking(move || Handle::current().block_on(Self::open(&shape, folder.as_ref())))
            .await
            .context("open logs and store")?
    }

    async fn open(shape: &Shape, folder: Option<&PathBuf>) -> anyhow::Result<Self> {
        let mut logs = BTreeMap::new();
        for region in &shape.regions {
            logs.insert(region.clone(), open_log(region, folder).await?);
        }
        let store = match folder {
            Some(folder) => store::embedded::Embedded::open(&folder.join("coordinator.db")).await?,
            None => store::embedded::Embedded::in_memory().await?,
        };
        Ok(Self { bus: Arc::new(muster_bus::embedded::Embedded::new(BUS_CAPACITY)), store, logs })
    }
}

async fn open_log(region: &RegionName, folder: Option<&PathBuf>) -> anyhow::Result<log::embedded::Embedded> {
    let Some(folder) = folder else { return Ok(log::embedded::Embedded::in_memory(region).await?) };
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(log::embedded::Embedded::open(region, &folder.join(format!("{region}.db"))).await?)
}

/// Ends a runtime with all that runs on it.
async fn end(runtime: Runtime) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(move || runtime.shutdown_timeout(END_TIMEOUT)).await.context("end a part's runtime")
}

#[async_trait]
impl Cluster for InProcess {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn url(&self, part: &Part) -> String {
        format!("http://{}", self.listen(part))
    }

    async fn kill(&self, part: &Part) -> anyhow::Result<()> {
        let Running { runtime, service, shutdown: _ } = self.take(part).await?;
        end(runtime).await?;
        drop(service);
        self.strike_off(part).await
    }

    async fn stop(&self, part: &Part) -> anyhow::Result<()> {
        let Running { runtime, service, shutdown } = self.take(part).await?;
        shutdown.cancel();
        let stopped = async move {
            match service {
                Service::Coordinator(handle) => handle.join().await,
                Service::Agent(service) => service.stopped().await,
            }
        };
        tokio::time::timeout(crate::until::DEADLINE, stopped).await.with_context(|| format!("{part} does not stop"))?;
        end(runtime).await
    }

    async fn start(&self, part: &Part) -> anyhow::Result<()> {
        if self.running.lock().await.contains_key(part) {
            bail!("{part} runs already");
        }
        let thread = part.to_string();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name(thread).enable_all().build()?;
        // The sockets of its last life may take a moment to close.
        let started = until(&format!("{part} starts"), || async {
            let shutdown = CancellationToken::new();
            let service = self.service(part, &runtime, shutdown.clone()).await;
            service.map(|service| (service, shutdown)).map_err(|error| format!("{error:#}"))
        })
        .await;
        match started {
            Ok((service, shutdown)) => {
                self.running.lock().await.insert(part.clone(), Running { runtime, shutdown, service });
                Ok(())
            }
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    async fn restart_everything(&self) -> anyhow::Result<()> {
        for part in self.shape.parts() {
            self.kill(&part).await?;
        }
        {
            let mut servers = self.servers.lock().await;
            // A file that one has open is refused to another, so the old ones
            // go before the new ones come.
            *servers = Servers::start(self.shape.clone(), None).await?;
            *servers = until("log and store open again", || async {
                Servers::start(self.shape.clone(), self.folder.clone()).await.map_err(|error| format!("{error:#}"))
            })
            .await?;
        }
        for part in self.shape.parts() {
            Cluster::start(self, &part).await?;
        }
        self.ready().await
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        for (_, running) in std::mem::take(self.running.get_mut()) {
            running.runtime.shutdown_background();
        }
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
