//! One append, until a follower of another process has it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use muster_protocol::fact::AgentId;
use muster_protocol::name::RegionName;
use muster_protocol::region::MACHINE_VERSION;
use muster_regional_agent::log::etcd::{Etcd, EtcdOptions};
use muster_regional_agent::log::{Appended, NewRegistration, RegionLog, Registered};
use tokio::sync::mpsc;

/// A writer of a region's log, and a follower with a connection of its own.
pub(super) struct Line {
    log: Etcd,
    registered: Box<dyn Registered>,
    seq: u64,
    seen: mpsc::UnboundedReceiver<(u64, Instant)>,
}

impl Line {
    pub(super) async fn lay(etcd: &str, name: &str, region: &RegionName) -> anyhow::Result<Self> {
        let open = || {
            let (endpoints, prefix) = (vec![etcd.to_owned()], format!("/{name}"));
            Etcd::open(EtcdOptions { endpoints, prefix, ..EtcdOptions::default() }, region)
        };
        let (log, other) = (open().await?, open().await?);
        let registration = NewRegistration {
            agent: AgentId { name: "bench".to_owned(), instance: format!("{:016x}", rand::random::<u64>()) },
            address: "http://127.0.0.1:7171".to_owned(),
            machine_version: MACHINE_VERSION,
            lease_ttl: Duration::from_secs(10),
        };
        let registered = log.register(registration).await?;
        let mut follow = other.follow(other.catch_up(0).await?.position).await?;
        let (told, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            // It ends with the one who listens, and an error shows there.
            while let Ok(entries) = follow.next().await {
                let at = Instant::now();
                if entries.iter().any(|entry| told.send((entry.index, at)).is_err()) {
                    return;
                }
            }
        });
        Ok(Self { log, registered, seq: 0, seen })
    }

    pub(super) async fn append(&mut self, bytes: &[u8]) -> anyhow::Result<Duration> {
        self.seq += 1;
        let started = Instant::now();
        let index = match self.log.append(self.registered.writer(), self.seq, bytes).await {
            Appended::Landed { index } => index,
            other => bail!("the entry did not land: {other:?}"),
        };
        loop {
            let (seen, at) = self.seen.recv().await.context("the follower of the log is over")?;
            if seen == index {
                return Ok(at - started);
            }
        }
    }
}
