//! What a figure depends on beside the code: the machine, the services, the
//! revision. Without it a figure of last month says nothing.

use std::process::Command;

use anyhow::Context;
use muster_tests::raw::Request;
use muster_tests::services::Services;
use serde::Serialize;
use sqlx::Connection;

/// The machine, as far as it matters to a figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    cores: usize,
    cpu: String,
    memory_bytes: u64,
    kernel: String,
    /// Of the last minute, when the run began: others may share the machine.
    load_before: f64,
}

impl Machine {
    pub(crate) fn look() -> anyhow::Result<Self> {
        let cpu = field(&read("/proc/cpuinfo")?, "model name").unwrap_or_else(|| "unknown".to_owned());
        let memory = kibibytes(&read("/proc/meminfo")?, "MemTotal").context("find the memory's size")?;
        let load = read("/proc/loadavg")?;
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            cpu,
            memory_bytes: memory * 1_024,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load_before: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default(),
        })
    }
}

/// Which code was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Revision {
    revision: String,
    /// Whether files differ from it, results of earlier runs aside.
    changed: bool,
}

impl Revision {
    pub(crate) fn look() -> anyhow::Result<Self> {
        let revision = git(&["rev-parse", "HEAD"])?;
        let changes = git(&["status", "--porcelain", "--", ":/", ":(top,exclude)benchmarks/results"])?;
        Ok(Self { revision, changed: !changes.is_empty() })
    }
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.context("run git")?;
    anyhow::ensure!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The versions of the services.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Versions {
    etcd: String,
    kafka: String,
    postgres: String,
}

impl Versions {
    /// Asks the services. Kafka's protocol does not tell; for services of our
    /// own the script that provisions them does.
    pub(crate) async fn ask(services: &Services, own: bool) -> anyhow::Result<Self> {
        let etcd = services.etcd.first().context("no etcd is given")?;
        let etcd = Request::new("GET", format!("{etcd}/version")).send().await.context("ask etcd for its version")?;
        let etcd = etcd.json()["etcdserver"].as_str().unwrap_or("unknown").to_owned();
        let mut postgres = sqlx::PgConnection::connect(&services.postgres).await.context("connect to Postgres")?;
        let version: (String,) = sqlx::query_as("show server_version").fetch_one(&mut postgres).await?;
        postgres.close().await.ok();
        let kafka = if own { provisioned_kafka()? } else { "unknown: it was given".to_owned() };
        Ok(Self { etcd, kafka, postgres: version.0 })
    }
}

fn provisioned_kafka() -> anyhow::Result<String> {
    let script = read(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/services/provision.sh"))?;
    let version = script.lines().find_map(|line| line.strip_prefix("kafka_version="));
    Ok(format!("{} or newer", version.context("deploy/services/provision.sh names no kafka_version")?))
}

/// A process's resident memory, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = read(&format!("/proc/{pid}/status"))?;
    Ok(kibibytes(&status, "VmRSS").with_context(|| format!("process {pid} has no memory"))? * 1_024)
}

fn read(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {path}"))
}

/// The value behind the first line that has this name.
fn field(text: &str, name: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn kibibytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let text = "Name:\tmuster\nVmRSS:\t   1234 kB\nmodel name\t: A: B\n";
        assert_eq!(kibibytes(text, "VmRSS"), Some(1_234));
        assert_eq!(kibibytes(text, "VmSwap"), None);
        assert_eq!(field(text, "model name").as_deref(), Some("A: B"));
        assert!(provisioned_kafka().unwrap().ends_with(" or newer"));
        assert!(resident_bytes(std::process::id()).unwrap() > 100_000);
    }
}
