//! A coordinator on embedded adapters, and regions that say what a test has
//! them say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_bus::embedded::Embedded as EmbeddedBus;
use muster_bus::{Bus, Down, Headers};
use muster_protocol::fact::{AgentId, Fact, Heartbeat, Hello, Welcome};
use muster_protocol::generation::GenerationId;
use muster_protocol::identity::{Digest, Era, History, Stamp, Timestamp};
use muster_protocol::name::RegionName;
use muster_protocol::report::{Missing, RegionReport};
use muster_wire::problem::Problem;
use muster_wire::record::{Downward, Upward};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::options::Options;
use crate::service::{Handle, Service};
use crate::store::Store;
use crate::store::embedded::Embedded as EmbeddedStore;

/// No step takes this long unless it hangs.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// Awaits with the deadline of every step.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("{what} did not happen in time"))
}

pub(super) struct World {
    pub(super) bus: Arc<EmbeddedBus>,
    pub(super) store: Arc<dyn Store>,
    pub(super) shutdown: CancellationToken,
    handle: Handle,
    http: reqwest::Client,
}

impl World {
    /// A coordinator with these regions declared.
    pub(super) async fn start(regions: &[&str]) -> Self {
        let bus = Arc::new(EmbeddedBus::new(1_024));
        let store = EmbeddedStore::in_memory().await.unwrap();
        Self::on(bus, Arc::new(store), regions).await
    }

    /// A coordinator on a bus and a store that others use as well.
    pub(super) async fn on(bus: Arc<EmbeddedBus>, store: Arc<dyn Store>, regions: &[&str]) -> Self {
        let options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            regions: regions.iter().map(|name| name.parse().unwrap()).collect(),
            shutdown_deadline_seconds: 5,
            ..Options::default()
        };
        for region in &options.regions {
            store.declare(region).await.unwrap();
        }
        let shutdown = CancellationToken::new();
        let handle = Service::start(options, bus.clone(), store.clone(), shutdown.clone()).await.unwrap();
        let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Self { bus, store, shutdown, handle, http }
    }

    pub(super) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let url = format!("http://{}{path}", self.handle.local_addr());
        self.http.request(method.parse().unwrap(), url)
    }

    /// A call with its status and its body.
    pub(super) async fn call(&self, method: &str, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let response = self.request(method, path).body(body).send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{method} {path}: {status} {text:?}")))
    }

    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, "").await
    }

    /// A call that is refused.
    pub(super) async fn refused(&self, method: &str, path: &str, body: &str) -> Problem {
        let response = self.request(method, path).body(body.to_owned()).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{method} {path}");
        response.json().await.unwrap()
    }

    /// Defines a barrier of these regions, of two participants each.
    pub(super) async fn define(&self, name: &str, regions: &[&str], more: &str) {
        let list = serde_json::to_string(regions).unwrap();
        let body = format!(r#"{{"regions": {list}, "participants": "[0-1]"{more}}}"#);
        let (status, answer) = self.call("PUT", &format!("/v1/barriers/{name}"), body).await;
        assert_eq!(status, 201, "{answer}");
    }

    /// A region that follows and has greeted.
    pub(super) async fn region(&self, name: &str) -> FakeRegion {
        let mut region = FakeRegion::new(&self.bus, name, "http://127.0.0.1:1").await;
        region.greet().await;
        region
    }

    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        soon("the stop", self.handle.join()).await;
    }
}

/// A region without a log: it says what a test has it say.
pub(super) struct FakeRegion {
    pub(super) name: RegionName,
    bus: Arc<EmbeddedBus>,
    down: Box<dyn Down>,
    index: u64,
    pub(super) history: History,
    pub(super) address: String,
    pub(super) era: Option<Era>,
}

impl FakeRegion {
    pub(super) async fn new(bus: &Arc<EmbeddedBus>, name: &str, address: &str) -> Self {
        let down = bus.follow_down().await.unwrap();
        let (name, address) = (name.parse().unwrap(), address.to_owned());
        Self { name, bus: Arc::clone(bus), down, index: 0, history: History(rand::random()), address, era: None }
    }

    fn agent(&self) -> AgentId {
        AgentId { name: "agent-1".to_owned(), instance: "a".to_owned() }
    }

    /// Greets until it is welcomed: nobody may listen yet.
    pub(super) async fn greet(&mut self) -> Welcome {
        soon("a welcome", async {
            loop {
                let hello = Hello {
                    region: self.name.clone(),
                    agent: self.agent(),
                    history: self.history,
                    shard: 0,
                    head: self.index,
                    machine_version: 1,
                    address: self.address.clone(),
                    era: self.era.clone(),
                };
                self.say(Upward::Hello(hello)).await;
                let welcomed = tokio::time::timeout(Duration::from_millis(500), self.welcome()).await;
                if let Ok(welcome) = welcomed {
                    self.era.clone_from(&welcome.era);
                    return welcome;
                }
            }
        })
        .await
    }

    pub(super) async fn welcome(&mut self) -> Welcome {
        loop {
            match self.down.next().await.unwrap().content.unwrap() {
                Downward::Welcome(welcome) if welcome.region == self.name && welcome.history == self.history => {
                    return welcome;
                }
                _ => {}
            }
        }
    }

    pub(super) async fn beat(&self) {
        let beat = Heartbeat {
            region: self.name.clone(),
            agent: self.agent(),
            history: self.history,
            shard: 0,
            index: self.index,
            address: self.address.clone(),
            era: self.era.clone(),
        };
        self.say(Upward::Heartbeat(beat)).await;
    }

    async fn say(&self, word: Upward) {
        self.bus.send_up(&word, Headers::new()).await.unwrap();
    }

    /// The next fact that this region must heed and a test looks for.
    pub(super) async fn fact<T>(&mut self, what: &str, mut wanted: impl FnMut(&Fact) -> Option<T>) -> T {
        soon(what, async {
            loop {
                let Downward::Fact(fact) = self.down.next().await.unwrap().content.unwrap() else { continue };
                if fact.concerns(&self.name)
                    && let Some(found) = wanted(&fact)
                {
                    return found;
                }
            }
        })
        .await
    }

    /// The opening of a barrier's generation.
    pub(super) async fn opened(&mut self, barrier: &str) -> GenerationId {
        self.fact("an opening", |fact| match fact {
            Fact::Opened(opened) if opened.generation.barrier.as_str() == barrier => Some(opened.generation.clone()),
            _ => None,
        })
        .await
    }

    /// The digest of a barrier's next end.
    pub(super) async fn decided(&mut self, barrier: &str) -> Digest {
        self.fact("a decision", |fact| match fact {
            Fact::Decided(decided) if decided.outcome.generation.barrier.as_str() == barrier => {
                Some(decided.outcome.digest())
            }
            _ => None,
        })
        .await
    }

    /// What the region says of a generation when so many of two have arrived.
    pub(super) fn report(&mut self, generation: &GenerationId, arrived: u32) -> RegionReport {
        self.index += 1;
        let at = (arrived > 0).then_some(Timestamp(1_791_374_400_000));
        let missing = match arrived {
            0 => "[0-1]",
            1 => "1",
            _ => "",
        };
        RegionReport {
            region: self.name.clone(),
            stamp: Stamp { history: self.history, shard: 0, index: self.index },
            generation: generation.clone(),
            expected: 2,
            arrived,
            failed: 0,
            retrying: 0,
            complete: arrived == 2,
            over_failures: false,
            missing: Missing { count: 2 - arrived, names: missing.to_owned() },
            failures: Vec::new(),
            outputs: BTreeMap::new(),
            first_arrival_at: at,
            last_arrival_at: at,
            applied: None,
            name_taken: false,
            spec: None,
            era: self.era.clone(),
            outcome: None,
            apart: muster_protocol::report::Apart::default(),
            zones: BTreeMap::new(),
        }
    }

    pub(super) async fn reports(&mut self, generation: &GenerationId, arrived: u32) {
        let report = self.report(generation, arrived);
        self.tell(report).await;
    }

    pub(super) async fn tell(&self, report: RegionReport) {
        self.say(Upward::Report(report)).await;
    }

    pub(super) async fn applies(&mut self, generation: &GenerationId, digest: Digest) {
        let report = RegionReport { applied: Some(digest), ..self.report(generation, 2) };
        self.tell(report).await;
    }
}
