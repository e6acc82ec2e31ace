//! The real services a test runs on: those that were given, or a set of its
//! own that it may hurt.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use muster_protocol::name::RegionName;
use sqlx::{Connection, Executor, PgConnection};

use crate::cluster::{Part, Shape};

/// Where etcd, Kafka and Postgres are.
#[derive(Clone, Debug)]
pub struct Services {
    /// One for each region, in their order: the URLs of its [`members`].
    pub etcd: Vec<String>,
    /// The brokers to begin with.
    pub kafka: String,
    /// A database in which others may be made.
    pub postgres: String,
}

impl Services {
    /// The etcd of an agent's region, the Postgres of a coordinator.
    #[must_use]
    pub fn database(&self, part: &Part, shape: &Shape) -> &str {
        match part {
            Part::Coordinator(_) => &self.postgres,
            Part::Agent(region, _) => {
                let place = shape.regions.iter().position(|known| known == region).unwrap_or(0);
                &self.etcd[place % self.etcd.len()]
            }
        }
    }

    /// The services that were given to this run.
    ///
    /// # Errors
    /// One was not: a test that needs it fails.
    pub fn given() -> anyhow::Result<Self> {
        Self::read(|name| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty());
            value.with_context(|| {
                format!(
                    "{name} is not set, and this test needs the real services: run tests/run, or start some with \
                     `deploy/services/services start --dir DIR` and export what DIR/env says"
                )
            })
        })
    }

    fn read(value: impl Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<Self> {
        let etcd = value("MUSTER_TEST_ETCD")?.split(',').map(ToOwned::to_owned).collect();
        Ok(Self { etcd, kafka: value("MUSTER_TEST_KAFKA")?, postgres: value("MUSTER_TEST_POSTGRES")? })
    }
}

/// The URLs of the members of a region's etcd.
#[must_use]
pub fn members(etcd: &str) -> Vec<&str> {
    etcd.split('+').collect()
}

/// A set of services of a test's own, which it may stop and start.
#[derive(Debug)]
pub struct OwnServices {
    /// Where they are.
    pub services: Services,
    folder: PathBuf,
    /// What is another's, as the environment names it.
    given: Vec<(&'static str, String)>,
}

impl OwnServices {
    /// Starts a set.
    ///
    /// # Errors
    /// They can't be provisioned or do not start.
    pub async fn start() -> anyhow::Result<Self> {
        Self::beside(Vec::new(), &[]).await
    }

    /// Starts a set for these regions, with listeners of the broker that are
    /// reached through proxies (`PORT=HOST:PORT`).
    ///
    /// # Errors
    /// They can't be provisioned or do not start.
    pub async fn start_behind(regions: &[RegionName], listeners: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let regions: Vec<&str> = regions.iter().map(RegionName::as_str).collect();
        let mut arguments = vec!["--regions".to_owned(), regions.join(",")];
        arguments.extend(listeners.flat_map(|listener| ["--kafka-listener".to_owned(), listener]));
        Self::beside(Vec::new(), &arguments).await
    }

    /// Starts a set that has databases of its own and shares a broker, which
    /// takes longest to start.
    ///
    /// # Errors
    /// They can't be provisioned or do not start.
    pub async fn start_databases(kafka: String) -> anyhow::Result<Self> {
        Self::beside(vec![("MUSTER_TEST_KAFKA", kafka)], &[]).await
    }

    /// Starts an etcd of one region, with options of `services`, in place of
    /// the first one of those that were given; all else is shared.
    ///
    /// # Errors
    /// It can't be provisioned or does not start.
    pub async fn start_etcd(given: Services, region: &RegionName, options: &[&str]) -> anyhow::Result<Self> {
        let shared = vec![("MUSTER_TEST_KAFKA", given.kafka), ("MUSTER_TEST_POSTGRES", given.postgres)];
        let arguments = [&["--regions", region.as_str()], options].concat();
        let arguments: Vec<String> = arguments.into_iter().map(ToOwned::to_owned).collect();
        let mut own = Self::beside(shared, &arguments).await?;
        own.services.etcd.extend(given.etcd.into_iter().skip(1));
        Ok(own)
    }

    async fn beside(given: Vec<(&'static str, String)>, more: &[String]) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("muster-services-{:016x}", rand::random::<u64>()));
        let nowhere = Services { etcd: Vec::new(), kafka: String::new(), postgres: String::new() };
        // From here on whatever was started is ended.
        let mut own = Self { services: nowhere, folder, given };
        let arguments: Vec<&str> = ["start"].into_iter().chain(more.iter().map(String::as_str)).collect();
        own.run(&arguments).await?;
        let path = own.folder.join("env");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        own.services = Services::read(|name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.map(ToOwned::to_owned).with_context(|| format!("{} has no {name}", path.display()))
        })?;
        Ok(own)
    }

    /// Stops one: `etcd-REGION`, `etcd-REGION@2` of several members, `kafka` or
    /// `postgres`.
    ///
    /// # Errors
    /// It does not end.
    pub async fn stop(&self, name: &str) -> anyhow::Result<()> {
        self.run(&["one", "stop", name]).await
    }

    /// Kills one.
    ///
    /// # Errors
    /// It does not end.
    pub async fn kill(&self, name: &str) -> anyhow::Result<()> {
        self.run(&["one", "kill", name]).await
    }

    /// Stops one where it stands, with its sockets open.
    ///
    /// # Errors
    /// It does not run.
    pub async fn pause(&self, name: &str) -> anyhow::Result<()> {
        self.run(&["one", "pause", name]).await
    }

    /// Lets one that is paused go on.
    ///
    /// # Errors
    /// It does not run.
    pub async fn resume(&self, name: &str) -> anyhow::Result<()> {
        self.run(&["one", "resume", name]).await
    }

    /// Starts one again, on its port and its data.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_again(&self, name: &str) -> anyhow::Result<()> {
        self.run(&["one", "start", name]).await
    }

    /// Leaves no room on the disk of one that has its own.
    ///
    /// # Errors
    /// It has none.
    pub async fn fill(&self, name: &str) -> anyhow::Result<()> {
        self.run(&["one", "fill", name]).await
    }

    /// Gives the room back that was [filled](Self::fill).
    ///
    /// # Errors
    /// It has no disk of its own.
    pub async fn free(&self, name: &str) -> anyhow::Result<()> {
        self.run(&["one", "free", name]).await
    }

    /// Keeps a copy of the data of one, which is stopped for that long.
    ///
    /// # Errors
    /// It does not end or start, or can't be copied.
    pub async fn back_up(&self, name: &str) -> anyhow::Result<()> {
        self.stop(name).await?;
        self.run(&["one", "save", name]).await?;
        self.start_again(name).await
    }

    /// Brings back what was backed up of one. Postgres is promoted from there,
    /// to another timeline.
    ///
    /// # Errors
    /// It does not end or start, or nothing was backed up.
    pub async fn restore(&self, name: &str) -> anyhow::Result<()> {
        self.stop(name).await?;
        self.run(&["one", "restore", name]).await?;
        self.start_again(name).await?;
        if name == "postgres" {
            let mut connection = PgConnection::connect(&self.services.postgres).await?;
            connection.execute("select pg_promote()").await.context("promote the restored Postgres")?;
            connection.close().await?;
        }
        Ok(())
    }

    /// Deletes all data of one, as a new machine in its place has none.
    ///
    /// # Errors
    /// It does not end or start.
    pub async fn empty(&self, name: &str) -> anyhow::Result<()> {
        self.stop(name).await?;
        self.run(&["one", "empty", name]).await?;
        self.start_again(name).await
    }

    /// Copies what the services said to where the run of tests keeps it if one
    /// fails.
    fn keep_logs(&self) {
        let Some(kept) = std::env::var_os("MUSTER_TEST_LOGS") else { return };
        let Some(kept) = self.folder.file_name().map(|name| Path::new(&kept).join(name)) else { return };
        let Ok(files) = std::fs::read_dir(&self.folder) else { return };
        let logs = files.flatten().filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
        let _ = std::fs::create_dir_all(&kept);
        for log in logs {
            let _ = std::fs::copy(log.path(), kept.join(log.file_name()));
        }
    }

    async fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = tokio::process::Command::new(script());
        command.args(arguments).arg("--dir").arg(&self.folder);
        // Those that were given are not ours to hurt.
        for kind in ["ETCD", "KAFKA", "POSTGRES"] {
            command.env_remove(format!("MUSTER_TEST_{kind}"));
        }
        command.envs(self.given.iter().map(|(name, value)| (name, value)));
        let output = command.output().await.context("run deploy/services/services")?;
        match output.status.success() {
            true => Ok(()),
            false => bail!("services {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

impl Drop for OwnServices {
    fn drop(&mut self) {
        self.keep_logs();
        let mut command = std::process::Command::new(script());
        command.args(["stop", "--wipe", "--dir"]).arg(&self.folder).stdout(std::process::Stdio::null());
        if !command.status().is_ok_and(|status| status.success()) {
            eprintln!("services in {} may still run", self.folder.display());
        }
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/services/services")
}

/// The `muster` to test: `MUSTER_BIN`, else the one beside this program.
///
/// # Errors
/// There is none.
pub fn muster_binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("MUSTER_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("find this program")?;
    let beside = own.ancestors().skip(1).map(|folder| folder.join("muster")).find(|path| path.is_file());
    beside.with_context(|| {
        format!(
            "there is no muster near {}: build it with `cargo build -p muster --features muster/failpoints`",
            own.display()
        )
    })
}
