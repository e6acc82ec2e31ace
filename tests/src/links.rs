//! The links of a cluster: who calls a part, and what the part calls, each
//! through a proxy of its own that can cut or trouble it (toxiproxy).
//!
//! ```text
//! callers ──Callers──▶ part ──Database──▶ etcd of its region, or Postgres
//!                        └────Broker────▶ Kafka, on a listener of its own
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::cluster::{Part, Shape};
use crate::ports::Port;
use crate::services::{OwnServices, Services};

/// What is at the other end of a part's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Participants, people, and agents that call a coordinator.
    Callers,
    /// An agent's etcd, a coordinator's Postgres.
    Database,
    /// Kafka.
    Broker,
}

impl End {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Callers, Self::Database, Self::Broker];
}

/// One way of a link, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From whoever opens connections: what is asked does not come through.
    Ask,
    /// To whoever opens connections: what is answered does not come through.
    Answer,
    /// Neither.
    Both,
}

impl Way {
    fn streams(self) -> &'static [&'static str] {
        match self {
            Self::Ask => &["upstream"],
            Self::Answer => &["downstream"],
            Self::Both => &["upstream", "downstream"],
        }
    }
}

/// What befalls a link until it is healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing comes through; what was sent arrives once it is healed, as TCP
    /// repeats it.
    Cut(Way),
    /// Nothing comes through, and nobody hears that the connection is gone
    /// before it is healed.
    HalfOpen(Way),
    /// Connections break off, and new ones are refused.
    Refused,
    /// Whoever says something is reset.
    Reset,
    /// Everything takes this long, give or take half of it.
    Slow(Duration),
    /// So many KiB a second come through.
    Throttled(u32),
}

/// The proxies of a cluster's links. They end with the services they are
/// started with.
#[derive(Debug)]
pub struct Links {
    http: Client,
    ports: BTreeMap<(Part, End), Port>,
    /// Where Kafka listens for each part.
    listeners: BTreeMap<Part, Port>,
    api: String,
}

impl Links {
    /// Starts services of a test's own for a cluster of this shape, and a proxy
    /// for every link of its parts.
    ///
    /// # Errors
    /// They can't be provisioned or do not start.
    pub async fn start(shape: &Shape) -> anyhow::Result<(Self, OwnServices)> {
        let parts = shape.parts();
        let mut ports = BTreeMap::new();
        let mut listeners = BTreeMap::new();
        for part in &parts {
            listeners.insert(part.clone(), Port::reserve()?);
            for end in End::ALL {
                ports.insert((part.clone(), end), Port::reserve()?);
            }
        }
        let told = parts.iter().map(|part| {
            let (listener, proxy) = (&listeners[part], &ports[&(part.clone(), End::Broker)]);
            format!("{}=127.0.0.1:{}", listener.number, proxy.number)
        });
        let own = OwnServices::start_behind(&shape.regions, told).await?;
        let api = own.services.toxiproxy.clone().context("no toxiproxy was started")?;
        // It answers at once, or hangs.
        let http = Client::builder().no_proxy().timeout(Duration::from_secs(10)).build()?;
        Ok((Self { http, ports, listeners, api }, own))
    }

    /// Where a part finds what is at the end of its link, or callers find it:
    /// `host:port`.
    #[must_use]
    pub fn address(&self, part: &Part, end: End) -> String {
        let port = self.ports.get(&(part.clone(), end)).map_or(0, |port| port.number);
        format!("127.0.0.1:{port}")
    }

    /// Opens a part's links; `listens` is where it listens itself.
    ///
    /// # Errors
    /// The proxy refuses.
    pub async fn open(&self, part: &Part, listens: &str, services: &Services, shape: &Shape) -> anyhow::Result<()> {
        for end in End::ALL {
            let upstream = match end {
                End::Callers => listens.to_owned(),
                End::Broker => format!("127.0.0.1:{}", self.listeners.get(part).map_or(0, |port| port.number)),
                End::Database => host_and_port(services.database(part, shape))?,
            };
            let name = name(part, end);
            let proxy = json!({"name": name, "listen": self.address(part, end), "upstream": upstream, "enabled": true});
            self.call(Method::POST, "/proxies", Some(proxy)).await?;
        }
        Ok(())
    }

    /// Something befalls a link.
    ///
    /// # Errors
    /// The proxy refuses.
    pub async fn trouble(&self, part: &Part, end: End, trouble: Trouble) -> anyhow::Result<()> {
        // "A long time", in ms: what is held is let go when the toxic is.
        let held = json!({"latency": 86_400_000, "jitter": 0});
        let (kind, way, attributes) = match trouble {
            Trouble::Refused => return self.enable(part, end, false).await,
            Trouble::Cut(way) => ("latency", way, held),
            Trouble::HalfOpen(way) => ("timeout", way, json!({"timeout": 0})),
            Trouble::Reset => ("reset_peer", Way::Ask, json!({"timeout": 0})),
            Trouble::Slow(by) => {
                let ms = u64::try_from(by.as_millis())?;
                ("latency", Way::Both, json!({"latency": ms, "jitter": ms / 2}))
            }
            Trouble::Throttled(rate) => ("bandwidth", Way::Both, json!({"rate": rate})),
        };
        let path = format!("/proxies/{}/toxics", name(part, end));
        for stream in way.streams() {
            let toxic = json!({"name": stream, "type": kind, "stream": stream, "attributes": attributes});
            self.call(Method::POST, &path, Some(toxic)).await?;
        }
        Ok(())
    }

    /// Ends all trouble of a link.
    ///
    /// # Errors
    /// The proxy refuses.
    pub async fn heal(&self, part: &Part, end: End) -> anyhow::Result<()> {
        let path = format!("/proxies/{}/toxics", name(part, end));
        let toxics = self.call(Method::GET, &path, None).await?;
        for toxic in toxics.as_array().into_iter().flatten() {
            let toxic = toxic["name"].as_str().context("a toxic has no name")?;
            self.call(Method::DELETE, &format!("{path}/{toxic}"), None).await?;
        }
        self.enable(part, end, true).await
    }

    async fn enable(&self, part: &Part, end: End, enabled: bool) -> anyhow::Result<()> {
        let path = format!("/proxies/{}", name(part, end));
        self.call(Method::POST, &path, Some(json!({"enabled": enabled}))).await.map(drop)
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<Value> {
        let what = format!("toxiproxy: {method} {path}");
        let mut request = self.http.request(method, format!("{}{path}", self.api));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = request.send().await.with_context(|| what.clone())?;
        let (status, text) = (answer.status(), answer.text().await.with_context(|| what.clone())?);
        ensure!(status.is_success(), "{what}: {status} {text}");
        Ok(if text.is_empty() { Value::Null } else { serde_json::from_str(&text).context(what)? })
    }
}

fn name(part: &Part, end: End) -> String {
    format!("{part}-{end:?}")
}

fn host_and_port(url: &str) -> anyhow::Result<String> {
    let url = reqwest::Url::parse(url).with_context(|| format!("read {url}"))?;
    let (host, port) = (url.host_str(), url.port());
    host.zip(port).map(|(host, port)| format!("{host}:{port}")).with_context(|| format!("{url} has no host or port"))
}
