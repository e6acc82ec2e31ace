//! How an agent is configured. Field names are those of the file and, in upper
//! case behind `MUSTER_AGENT__`, of the environment.

use std::net::SocketAddr;
use std::time::Duration;

use muster_protocol::name::RegionName;
use serde::{Deserialize, Serialize};

/// The configuration of one agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The region this agent belongs to. Required.
    pub region: Option<RegionName>,
    /// The agent's name, one of its own for each agent of a region.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Listen where other machines can reach it, although there is no access
    /// control: everybody who reaches it may do everything.
    pub allow_remote: bool,
    /// The URL under which coordinators and clients reach this agent; what it
    /// listens on, when left out.
    pub advertise: Option<String>,
    /// Base URLs of the coordinators.
    pub coordinators: Vec<String>,
    /// Seconds that the agent's lease on the region's log lives without being
    /// kept alive.
    pub lease_seconds: u64,
    /// Entries of the region's log that a snapshot takes the place of, at least.
    pub snapshot_every_entries: u64,
    /// Seconds that requests may go on after the stop began.
    pub shutdown_seconds: u64,
    /// The region's etcd.
    #[cfg(feature = "etcd")]
    pub etcd: crate::log::etcd::EtcdOptions,
    /// The bus.
    #[cfg(feature = "kafka")]
    pub kafka: muster_bus::kafka::KafkaOptions,
    /// Base URL of an OTLP/HTTP receiver of traces; none sends none.
    pub otlp_endpoint: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            region: None,
            name: "agent-1".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 7171)),
            allow_remote: false,
            advertise: None,
            coordinators: vec!["http://127.0.0.1:7170".to_owned()],
            lease_seconds: 10,
            snapshot_every_entries: 4_096,
            shutdown_seconds: 10,
            #[cfg(feature = "etcd")]
            etcd: crate::log::etcd::EtcdOptions::default(),
            #[cfg(feature = "kafka")]
            kafka: muster_bus::kafka::KafkaOptions::default(),
            otlp_endpoint: None,
        }
    }
}

impl Options {
    /// How long the lease lives.
    #[must_use]
    pub fn lease_ttl(&self) -> Duration {
        Duration::from_secs(self.lease_seconds)
    }
}
