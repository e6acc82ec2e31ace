//! Agents as their callers see them: over HTTP, on one embedded log, while bus
//! and coordinator are away.

mod recovering;
mod regional;
mod sessions;
#[cfg(feature = "etcd")]
mod starting;

use std::sync::Arc;
use std::time::Duration;

use muster_bus::embedded::Embedded as Bus;
use muster_protocol::fact::{Fact, Opened};
use muster_protocol::generation::GenerationId;
use muster_protocol::identity::Timestamp;
use muster_protocol::name::RegionName;
use muster_protocol::participants::{IdSet, Participants};
use muster_protocol::region::{Command, MACHINE_VERSION, Region, Reply};
use muster_protocol::replica::Replica;
use muster_protocol::spec::{Liveness, OnLost, Slice};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::log::embedded::Embedded;
use crate::{Options, Service};

/// No step of these tests takes this long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(30);
/// Nobody listens there.
const AWAY: &str = "http://127.0.0.1:1";

pub(super) fn region() -> RegionName {
    "us-east".parse().unwrap()
}

/// A region on one log.
pub(super) struct World {
    pub(super) log: Embedded,
    client: reqwest::Client,
}

/// One agent of it.
pub(super) struct Agent {
    pub(super) service: Service,
    pub(super) stop: CancellationToken,
    client: reqwest::Client,
}

/// A status and a body.
pub(super) type Answer = (u16, Value);

impl World {
    pub(super) async fn new() -> Self {
        let client = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Self { log: Embedded::in_memory(&region()).await.unwrap(), client }
    }

    /// Starts an agent, and returns once the region runs the newest machine.
    pub(super) async fn agent(&self, name: &str) -> Agent {
        let options = Options {
            region: Some(region()),
            name: name.to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            coordinators: vec![AWAY.to_owned()],
            shutdown_seconds: 1,
            ..Options::default()
        };
        let (stop, log, bus) = (CancellationToken::new(), Arc::new(self.log.clone()), Arc::new(Bus::new(64)));
        let service = Service::start(&options, log, bus, stop.clone()).await.unwrap();
        let agent = Agent { service, stop, client: self.client.clone() };
        agent.until(|region| region.machine_version() == MACHINE_VERSION).await;
        agent
    }
}

impl Agent {
    /// Waits until the region is in a state.
    pub(super) async fn until(&self, state: impl Fn(&Region) -> bool) {
        let mut status = self.service.handle.status();
        let waiting = async {
            while !self.service.handle.read(&state) {
                status.changed().await.unwrap();
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.expect("the region comes to this state");
    }

    pub(super) fn call(&self, method: &str, path: &str, body: Value) -> impl Future<Output = Answer> + use<> {
        let url = format!("http://{}{}", self.service.addr, path);
        let mut request = self.client.request(method.parse().unwrap(), url);
        if !body.is_null() {
            request = request.body(body.to_string());
        }
        async move {
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default())
        }
    }

    pub(super) fn get(&self, path: &str) -> impl Future<Output = Answer> + use<> {
        self.call("GET", path, Value::Null)
    }

    pub(super) async fn submit(&self, command: Command) -> Reply {
        self.service.handle.submit(command, None).await.unwrap()
    }

    /// A generation of a barrier of the coordinator's opens.
    pub(super) async fn open(&self, n: u64, slice: Slice) {
        let opened = Opened {
            generation: GenerationId { barrier: "etl/map".parse().unwrap(), n, key: None, round: 0 },
            region: region(),
            spec: slice.digest(),
            slice: Some(slice),
            opened_at: Timestamp(1),
            carry: None,
        };
        assert_eq!(self.submit(Command::Fact(Fact::Opened(opened))).await, Reply::Done { changed: true });
    }

    /// Takes its registration away, as a lease that runs out does.
    pub(super) async fn expel(&self, world: &World) {
        let writer = self.service.handle.replica(Replica::writer).unwrap();
        assert!(world.log.expel(writer).await);
    }

    pub(super) async fn stopped(self) {
        self.stop.cancel();
        self.service.stopped().await;
    }
}

pub(super) fn slice(set: &str) -> Slice {
    Slice {
        participants: Participants::Set(IdSet::parse([set]).unwrap()),
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: 1_024,
        deadline_ms: None,
        retention_ms: 1_000_000_000,
    }
}

/// Whoever is silent for 3 s is lost, and for good an hour later.
pub(super) fn watched(set: &str) -> Slice {
    let liveness = Liveness { ttl_ms: 3_000, rejoin_ms: 3_600_000, on_lost: OnLost::Fail };
    Slice { liveness: Some(liveness), attempts: 3, ..slice(set) }
}

pub(super) fn code((status, body): &Answer) -> (u16, &str) {
    (*status, body["code"].as_str().unwrap_or_default())
}
