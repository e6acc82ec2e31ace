//! The links of a cluster: who calls a part, and what the part calls, each
//! through a proxy of its own that can cut or trouble it.
//!
//! ```text
//! callers ──Callers──▶ part ──Database──▶ etcd of its region, or Postgres
//!                        └────Broker────▶ Kafka, on a listener of its own
//! ```

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;

use crate::cluster::{Part, Shape};
use crate::ports::Port;
use crate::proxy::{Conduct, Flow, Proxy};
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

impl Trouble {
    fn conduct(self) -> Conduct {
        let each = |way: Way, flow| match way {
            Way::Ask => Conduct { ask: flow, ..Conduct::default() },
            Way::Answer => Conduct { answer: flow, ..Conduct::default() },
            Way::Both => Conduct { ask: flow, answer: flow, ..Conduct::default() },
        };
        match self {
            Self::Cut(way) => each(way, Flow::Held),
            Self::HalfOpen(way) => each(way, Flow::Lost),
            Self::Refused => Conduct { refused: true, ..Conduct::default() },
            Self::Reset => Conduct { reset: true, ..Conduct::default() },
            Self::Slow(by) => each(Way::Both, Flow::Slow(by)),
            Self::Throttled(rate) => each(Way::Both, Flow::Throttled(rate)),
        }
    }
}

/// The proxies of a cluster's links.
#[derive(Debug)]
pub struct Links {
    ports: BTreeMap<(Part, End), Port>,
    /// Where Kafka listens for each part.
    listeners: BTreeMap<Part, Port>,
    proxies: Mutex<BTreeMap<(Part, End), Proxy>>,
}

impl Links {
    /// Starts services of a test's own for a cluster of this shape, whose links
    /// can then be opened.
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
        Ok((Self { ports, listeners, proxies: Mutex::default() }, own))
    }

    fn port(&self, part: &Part, end: End) -> u16 {
        self.ports.get(&(part.clone(), end)).map_or(0, |port| port.number)
    }

    /// Where a part finds what is at the end of its link, or callers find it:
    /// `host:port`.
    #[must_use]
    pub fn address(&self, part: &Part, end: End) -> String {
        format!("127.0.0.1:{}", self.port(part, end))
    }

    /// Opens a part's links; `listens` is where it listens itself.
    ///
    /// # Errors
    /// A port is somebody else's.
    pub async fn open(&self, part: &Part, listens: &str, services: &Services, shape: &Shape) -> anyhow::Result<()> {
        for end in End::ALL {
            let upstream = match end {
                End::Callers => listens.to_owned(),
                End::Broker => format!("127.0.0.1:{}", self.listeners.get(part).map_or(0, |port| port.number)),
                End::Database => host_and_port(services.database(part, shape))?,
            };
            let proxy = Proxy::start(self.port(part, end), upstream).await?;
            self.proxies.lock().unwrap_or_else(PoisonError::into_inner).insert((part.clone(), end), proxy);
        }
        Ok(())
    }

    /// Something befalls a link, in place of what befell it before.
    pub fn trouble(&self, part: &Part, end: End, trouble: Trouble) {
        self.conduct(part, end, trouble.conduct());
    }

    /// Ends the trouble of a link.
    pub fn heal(&self, part: &Part, end: End) {
        self.conduct(part, end, Conduct::default());
    }

    fn conduct(&self, part: &Part, end: End, conduct: Conduct) {
        let proxies = self.proxies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(proxy) = proxies.get(&(part.clone(), end)) {
            proxy.conduct(conduct);
        }
    }
}

fn host_and_port(url: &str) -> anyhow::Result<String> {
    let url = reqwest::Url::parse(url).with_context(|| format!("read {url}"))?;
    let (host, port) = (url.host_str(), url.port());
    host.zip(port).map(|(host, port)| format!("{host}:{port}")).with_context(|| format!("{url} has no host or port"))
}
