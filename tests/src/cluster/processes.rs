//! The service as processes of `muster`, on real etcd, Kafka and Postgres.
//!
//! Every cluster has an etcd prefix, topics and a database of its own, so that
//! tests beside each other do not meet. Its processes end with it, and with the
//! test program, however that ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};

use super::{Cluster, Part, SNAPSHOT_EVERY_ENTRIES, Shape};
use crate::database::Database;
use crate::links::{End, Links};
use crate::ports::Port;
use crate::services::{Services, members};
use crate::spawner::{mortal, spawn};
use crate::until::until;

/// Lines of each part's log that a failed test prints.
const LAST_LINES: usize = 60;
/// Shorter than in production: a test waits for what a dead agent held.
const LEASE_SECONDS: u64 = 4;

/// What is special about a cluster's processes.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Where traces go.
    pub otlp_endpoint: Option<String>,
    /// Leases and snapshots as an operator has them, not as a test in a hurry.
    pub unhurried: bool,
    /// Proxies between the parts, what they call, and who calls them.
    pub links: Option<Arc<Links>>,
    /// How many files a part may have open until it asks for more, if not as
    /// many as this program.
    pub open_files: Option<u64>,
    /// Parts that are not started with the others: until somebody starts them
    /// they have never lived.
    pub unborn: Vec<Part>,
}

/// The service as processes.
pub struct Processes {
    shape: Shape,
    services: Services,
    extras: Extras,
    name: String,
    bin: PathBuf,
    folder: PathBuf,
    database: Database,
    ports: BTreeMap<Part, Port>,
    /// Points at which something befalls a part, in its next life.
    failpoints: Mutex<BTreeMap<Part, String>>,
    running: Mutex<BTreeMap<Part, Child>>,
    failed: AtomicBool,
}

impl Processes {
    /// Starts everything on these services, and waits until it is ready.
    ///
    /// # Errors
    /// A part does not start, or does not become ready.
    pub async fn start(shape: Shape, services: Services, extras: Extras) -> anyhow::Result<Arc<Self>> {
        let cluster = Self::prepare(shape, services, extras).await?;
        cluster.start_all().await.inspect_err(|_| eprintln!("{}", cluster.last_words()))?;
        Ok(cluster)
    }

    /// Everything but the processes: ports, folder, a database at this build's
    /// schema.
    ///
    /// # Errors
    /// There is no `muster`, or Postgres refuses.
    pub async fn prepare(shape: Shape, services: Services, extras: Extras) -> anyhow::Result<Arc<Self>> {
        let name = format!("muster_test_{:016x}", rand::random::<u64>());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let ports = shape.parts().into_iter().map(|part| Ok((part, Port::reserve()?)));
        let ports = ports.collect::<anyhow::Result<_>>()?;
        let database = Database::create(&services.postgres, &name).await?;
        let bin = crate::services::muster_binary()?;
        let cluster = Self {
            shape,
            services,
            extras,
            name,
            bin,
            folder,
            database,
            ports,
            failpoints: Mutex::default(),
            running: Mutex::default(),
            failed: AtomicBool::new(false),
        };
        cluster.migrate().await?;
        if let Some(links) = &cluster.extras.links {
            for part in cluster.shape.parts() {
                links.open(&part, &cluster.listen(&part), &cluster.services, &cluster.shape).await?;
            }
        }
        Ok(Arc::new(cluster))
    }

    async fn start_all(&self) -> anyhow::Result<()> {
        let parts: Vec<Part> =
            self.shape.parts().into_iter().filter(|part| !self.extras.unborn.contains(part)).collect();
        for part in &parts {
            Cluster::start(self, part).await?;
        }
        for part in &parts {
            self.part_ready(part).await?;
        }
        Ok(())
    }

    async fn migrate(&self) -> anyhow::Result<()> {
        let mut command = tokio::process::Command::new(&self.bin);
        let output = command.args(["migrate", "--postgres", &self.database.url]).output().await;
        let output = output.with_context(|| format!("run {}", self.bin.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => bail!("muster migrate: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// The part dies at this point when its next life comes to it, as if it
    /// were killed there.
    pub fn arm(&self, part: &Part, failpoint: &str) {
        self.lock(&self.failpoints).insert(part.clone(), format!("{failpoint}=panic"));
    }

    /// In its next life an agent is of a build that runs this version of the
    /// region's machine.
    pub fn make_older(&self, agent: &Part, machine_version: u16) {
        let runs = format!("agent.machine_version=return({machine_version})");
        self.lock(&self.failpoints).insert(agent.clone(), runs);
    }

    /// In a part's next life its clock on the wall is an hour fast or slow,
    /// whenever it looks.
    pub fn make_clock_jump(&self, part: &Part) {
        let jumps = "clock.wall=50%return(3600000)->return(-3600000)".to_owned();
        self.lock(&self.failpoints).insert(part.clone(), jumps);
    }

    /// Its next life has no such point, and is of this build.
    pub fn disarm(&self, part: &Part) {
        self.lock(&self.failpoints).remove(part);
    }

    /// Stops a part where it stands, with its sockets open, as a machine that
    /// is out of breath does.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self, part: &Part) -> anyhow::Result<()> {
        self.signal(part, Signal::STOP)
    }

    /// Lets a paused part go on.
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&self, part: &Part) -> anyhow::Result<()> {
        self.signal(part, Signal::CONT)
    }

    /// Asks a part to stop, without waiting for it.
    ///
    /// # Errors
    /// It does not run.
    pub fn terminate(&self, part: &Part) -> anyhow::Result<()> {
        self.signal(part, Signal::TERM)
    }

    /// Waits until a part has died by itself.
    ///
    /// # Errors
    /// It lives on.
    pub async fn until_dead(&self, part: &Part) -> anyhow::Result<std::process::ExitStatus> {
        let status = until(&format!("{part} dies"), || async {
            match self.lock(&self.running).get_mut(part).map(Child::try_wait) {
                Some(Ok(Some(status))) => Ok(status),
                Some(Ok(None)) => Err("it lives".to_owned()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
        self.lock(&self.running).remove(part);
        Ok(status)
    }

    /// Whether a part has died.
    #[must_use]
    pub fn is_dead(&self, part: &Part) -> bool {
        self.lock(&self.running).get_mut(part).is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// What a part has said so far, in all its lives.
    #[must_use]
    pub fn log(&self, part: &Part) -> String {
        std::fs::read_to_string(self.log_path(part)).unwrap_or_default()
    }

    /// Runs `muster` with these arguments and the configuration of a part.
    ///
    /// # Errors
    /// It fails; the error is what it said.
    pub async fn with_configuration(&self, part: &Part, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = tokio::process::Command::new(&self.bin);
        command.args(arguments).arg("--config").arg(self.configure(part)?);
        let output = command.output().await.with_context(|| format!("run {}", self.bin.display()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => bail!("muster {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// What its topics begin with, and its database is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What all keys of a region's etcd begin with.
    #[must_use]
    pub fn etcd_prefix(&self) -> String {
        format!("/{}", self.name)
    }

    /// The database of the coordinators, whatever lies between them and it.
    #[must_use]
    pub fn postgres(&self) -> &str {
        &self.database.url
    }

    fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> std::sync::MutexGuard<'a, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_path(&self, part: &Part) -> PathBuf {
        self.folder.join(format!("{part}.log"))
    }

    fn listen(&self, part: &Part) -> String {
        format!("127.0.0.1:{}", self.ports.get(part).map_or(0, |port| port.number))
    }

    fn signal(&self, part: &Part, signal: Signal) -> anyhow::Result<()> {
        let running = self.lock(&self.running);
        let child = running.get(part).ok_or_else(|| anyhow!("{part} does not run"))?;
        kill_process(pid(child)?, signal).with_context(|| format!("signal {part}"))
    }

    fn take(&self, part: &Part) -> anyhow::Result<Child> {
        self.lock(&self.running).remove(part).ok_or_else(|| anyhow!("{part} does not run"))
    }

    /// Where a part finds its database: the URL, through its link if it has one.
    fn database(&self, part: &Part) -> anyhow::Result<String> {
        let url = match part {
            Part::Coordinator(_) => &self.database.url,
            Part::Agent(..) => self.services.database(part, &self.shape),
        };
        let Some(links) = &self.extras.links else { return Ok(url.to_owned()) };
        let mut url = reqwest::Url::parse(url)?;
        let proxy = links.address(part, End::Database);
        let port = proxy.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        url.set_port(port).map_err(|()| anyhow!("{url} has no port"))?;
        Ok(url.as_str().trim_end_matches('/').to_owned())
    }

    /// The part's configuration, in a file.
    fn configure(&self, part: &Part) -> anyhow::Result<PathBuf> {
        let (listen, name) = (self.listen(part), &self.name);
        let links = self.extras.links.as_ref();
        let broker = links.map_or_else(|| self.services.kafka.clone(), |links| links.address(part, End::Broker));
        let kafka = format!("[kafka]\nbootstrap = \"{broker}\"\nprefix = \"{name}\"\n");
        let database = self.database(part)?;
        let text = match part {
            Part::Coordinator(_) => {
                let regions = serde_json::to_string(&self.shape.regions)?;
                let otlp = self.extras.otlp_endpoint.iter();
                let otlp: String = otlp.map(|url| format!("[telemetry]\notlp_endpoint = \"{url}\"\n")).collect();
                format!("listen = \"{listen}\"\nregions = {regions}\n[store]\npostgres = \"{database}\"\n{kafka}{otlp}")
            }
            Part::Agent(region, number) => {
                let coordinators = serde_json::to_string(&self.coordinators())?;
                let otlp = self.extras.otlp_endpoint.iter();
                let otlp: String = otlp.map(|url| format!("otlp_endpoint = \"{url}\"\n")).collect();
                let hurry = match self.extras.unhurried {
                    true => String::new(),
                    false => {
                        format!("lease_seconds = {LEASE_SECONDS}\nsnapshot_every_entries = {SNAPSHOT_EVERY_ENTRIES}\n")
                    }
                };
                let endpoints = serde_json::to_string(&members(&database))?;
                format!(
                    "region = \"{region}\"\nname = \"{region}-{number}\"\nlisten = \"{listen}\"\n\
                     coordinators = {coordinators}\n{hurry}{otlp}\
                     [etcd]\nendpoints = {endpoints}\nprefix = \"/{name}\"\n{kafka}"
                )
            }
        };
        let path = self.folder.join(format!("{part}.toml"));
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Starts the process, without waiting for anything.
    ///
    /// # Errors
    /// It runs already, or can't be started.
    pub fn launch(&self, part: &Part) -> anyhow::Result<()> {
        let mut running = self.lock(&self.running);
        if running.contains_key(part) {
            bail!("{part} runs already");
        }
        let log = File::options().create(true).append(true).open(self.log_path(part))?;
        let kind = if matches!(part, Part::Coordinator(_)) { "coordinator" } else { "agent" };
        let mut command = mortal(&self.bin);
        if let Some(files) = self.extras.open_files {
            let mut limited = Command::new("prlimit");
            limited.arg(format!("--nofile={files}:")).arg("--").arg(command.get_program()).args(command.get_args());
            command = limited;
        }
        command.arg(kind).arg("--config").arg(self.configure(part)?);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        match self.lock(&self.failpoints).get(part) {
            Some(failpoint) => command.env("FAILPOINTS", failpoint),
            None => command.env_remove("FAILPOINTS"),
        };
        running.insert(part.clone(), spawn(command)?);
        Ok(())
    }
}

fn pid(child: &Child) -> anyhow::Result<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process has no pid")
}

#[async_trait]
impl Cluster for Processes {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn url(&self, part: &Part) -> String {
        let links = self.extras.links.as_ref();
        let address = links.map_or_else(|| self.listen(part), |links| links.address(part, End::Callers));
        format!("http://{address}")
    }

    async fn kill(&self, part: &Part) -> anyhow::Result<()> {
        let mut child = self.take(part)?;
        child.kill().with_context(|| format!("kill {part}"))?;
        tokio::task::spawn_blocking(move || child.wait()).await?.with_context(|| format!("wait for {part}"))?;
        Ok(())
    }

    async fn stop(&self, part: &Part) -> anyhow::Result<()> {
        self.terminate(part)?;
        let status = self.until_dead(part).await?;
        match status.success() {
            true => Ok(()),
            false => bail!("{part} was asked to stop and ended with {status}"),
        }
    }

    async fn start(&self, part: &Part) -> anyhow::Result<()> {
        self.launch(part)?;
        let addr = self.listen(part);
        let listens = until(&format!("{part} listens"), || async {
            if self.is_dead(part) {
                return Ok(false);
            }
            tokio::net::TcpStream::connect(&addr).await.map(|_| true)
        })
        .await?;
        // What is armed to die may do so at once.
        if !listens && !self.lock(&self.failpoints).contains_key(part) {
            bail!("{part} died at its start: {}", tail(&self.log(part)));
        }
        Ok(())
    }

    async fn restart_everything(&self) -> anyhow::Result<()> {
        for part in self.shape.parts() {
            self.kill(&part).await?;
        }
        self.start_all().await
    }

    fn last_words(&self) -> String {
        self.failed.store(true, Ordering::Relaxed);
        let mut words = format!("logs are in {}\n", self.folder.display());
        for part in self.shape.parts() {
            let _ = writeln!(words, "---- {part}\n{}", tail(&self.log(&part)));
        }
        words
    }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

impl Drop for Processes {
    fn drop(&mut self) {
        let mut running = std::mem::take(self.running.get_mut().unwrap_or_else(PoisonError::into_inner));
        for child in running.values_mut() {
            let _ = child.kill();
        }
        for child in running.values_mut() {
            let _ = child.wait();
        }
        if !self.failed.load(Ordering::Relaxed) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
