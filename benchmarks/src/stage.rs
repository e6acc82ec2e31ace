//! The service on real etcd, Kafka and Postgres, as an operator has it: for the
//! length of a run, with keys, topics and a database of its own.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, ensure};
use muster_client::Client;
use muster_protocol::name::RegionName;
use muster_tests::cluster::processes::{Extras, Processes};
use muster_tests::cluster::{Cluster, Part, Shape};
use muster_tests::raw::Request;
use muster_tests::services::{OwnServices, Services};
use muster_tests::until::until;

/// The service with what it runs on. Dropping it ends all of it.
pub(crate) struct Stage {
    // Its processes end before the services do.
    pub(crate) cluster: Arc<Processes>,
    pub(crate) services: Services,
    own: Option<OwnServices>,
}

impl Stage {
    /// Starts services, unless some are given, and the service on them.
    pub(crate) async fn set() -> anyhow::Result<Self> {
        let named = |kind| std::env::var_os(format!("MUSTER_TEST_{kind}")).is_some_and(|value| !value.is_empty());
        let own = match ["ETCD", "KAFKA", "POSTGRES"].into_iter().any(named) {
            true => None,
            false => Some(OwnServices::start().await.context("start etcd, Kafka and Postgres")?),
        };
        let services = own.as_ref().map_or_else(Services::given, |own| Ok(own.services.clone()))?;
        let extras = Extras { unhurried: true, ..Extras::default() };
        let cluster = Processes::start(Shape::default(), services.clone(), extras).await?;
        Ok(Self { cluster, services, own })
    }

    /// Whether the services were started for this run.
    pub(crate) fn has_own_services(&self) -> bool {
        self.own.is_some()
    }

    pub(crate) fn regions(&self) -> &[RegionName] {
        &self.cluster.shape().regions
    }

    /// The base URL of a region's agent.
    pub(crate) fn agent(&self, region: &RegionName) -> String {
        self.cluster.url(&Part::Agent(region.clone(), 0))
    }

    pub(crate) fn coordinator(&self) -> anyhow::Result<Client> {
        Ok(Client::new(self.cluster.coordinators())?)
    }
}

/// Waits until so many participants wait at an agent, by its own count.
pub(crate) async fn until_waiting(agent: &str, region: &RegionName, count: usize) -> anyhow::Result<()> {
    let name = format!("muster_waiters{{region=\"{region}\"}}");
    until(&format!("{count} wait in {region}"), || async {
        let waiting = gauge(agent, &name).await?;
        ensure!(waiting == Some(count as f64), "{waiting:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await
}

/// The value of one series of a service's metrics; none before it has one.
pub(crate) async fn gauge(base: &str, name: &str) -> anyhow::Result<Option<f64>> {
    let metrics = Request::new("GET", format!("{base}/metrics")).send().await.context("read metrics")?;
    ensure!(metrics.status == 200, "{base}/metrics answered {}", metrics.status);
    Ok(series(&metrics.body, name))
}

fn series(text: &str, name: &str) -> Option<f64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// Builds the `muster` beside this program, in its profile, unless `MUSTER_BIN`
/// names one.
pub(crate) fn build_muster() -> anyhow::Result<()> {
    if std::env::var_os("MUSTER_BIN").is_some() {
        return Ok(());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--locked", "-p", "muster"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    eprintln!("building muster…");
    let status = command.status().context("run cargo")?;
    ensure!(status.success(), "muster does not build");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_found_by_its_whole_name() {
        let text = "# HELP etcd_a x\netcd_ab 7\netcd_a 1.5e+06\nm{region=\"a\"} 3\n";
        assert_eq!(series(text, "etcd_a"), Some(1_500_000.0));
        assert_eq!(series(text, "m{region=\"a\"}"), Some(3.0));
        assert_eq!(series(text, "etcd"), None);
    }
}
