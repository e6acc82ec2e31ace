//! The Rust client of Muster.
//!
//! Every call is safe to repeat, and is repeated: at the next address when one
//! refuses connections or is stopping, later when it is busy, with the same
//! identity when an answer was lost. What comes back keeps three outcomes
//! apart: done, not done ([`Error::Refused`], [`Error::TimedOut`],
//! [`Error::Unreachable`]) and unknown ([`Error::Unknown`]).
//!
//! Fail closed: [`Released`](muster_wire::answer::Released) is only returned
//! for a status 200 whose body says `released` or `releasing`. Whatever a
//! proxy, a captive portal or another service answers is never a release.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use muster_client::{Client, Target};
//!
//! let client = Client::new(["http://127.0.0.1:7171", "http://127.0.0.1:7172"])?;
//! let target: Target = "etl/map@2026-10-07".parse()?;
//! client.arrive(&target, &"17".parse()?, &Default::default()).await?;
//! let release = client.wait(&target, None).await?;
//! # let _ = release; Ok(()) }
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod arrivals;
mod backoff;
mod call;
#[cfg(test)]
mod canned;
mod definitions;
mod error;
mod generations;
mod overrides;
mod regions;
mod repeat;
mod session;
#[cfg(test)]
mod session_tests;
mod target;
#[cfg(test)]
mod tests;
mod wait;

pub use address::InvalidAddress;
pub use definitions::Apply;
pub use error::Error;
pub use generations::Filter;
pub use regions::AuditFilter;
pub use session::{Session, SessionState};
pub use target::Target;
pub use wait::Waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

/// How long a call without a deadline keeps trying when nobody answers.
const PATIENCE_DEFAULT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Something went wrong on the way, and the call is repeated.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// Whom the call was sent to.
    pub address: String,
    /// What happened.
    pub why: String,
    /// When it is repeated.
    pub again_in: Duration,
}

type Listener = Arc<dyn Fn(&Trouble) + Send + Sync>;

/// A client of one region's agents, or of coordinators. Cheap to clone;
/// connections are shared and kept.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    addresses: Arc<[String]>,
    /// The address that answered last.
    preferred: Arc<AtomicUsize>,
    headers: HeaderMap,
    patience: Duration,
    deadline: Option<Instant>,
    listener: Option<Listener>,
}

impl Client {
    /// A client of the services at these addresses, such as
    /// `http://127.0.0.1:7170`; all of them must be able to answer.
    ///
    /// # Errors
    /// An address can't be read, or there is none.
    pub fn new<I>(addresses: I) -> Result<Self, InvalidAddress>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let addresses = address::parse_all(addresses)?;
        // No proxy, whatever the environment says, and no redirect: a verdict
        // comes from Muster itself.
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("muster/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| InvalidAddress::client(&error))?;
        Ok(Self {
            http,
            addresses: addresses.into(),
            preferred: Arc::default(),
            headers: HeaderMap::new(),
            patience: PATIENCE_DEFAULT,
            deadline: None,
            listener: None,
        })
    }

    /// The addresses, in the order they were given.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The same client for each address alone.
    #[must_use]
    pub fn each(&self) -> Vec<Self> {
        let one = |address: &String| Self {
            addresses: Arc::new([address.clone()]),
            preferred: Arc::default(),
            ..self.clone()
        };
        self.addresses.iter().map(one).collect()
    }

    /// Calls give up at `deadline`, and not before while nobody answers.
    #[must_use]
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Calls without a deadline give up when nobody has answered for so long.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a header with every call: trace context, credentials.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Is told of every repeat.
    #[must_use]
    pub fn on_trouble(mut self, listener: impl Fn(&Trouble) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.addresses.len()
    }

    fn prefer(&self, index: usize) {
        self.preferred.store(index, Ordering::Relaxed);
    }
}

impl fmt::Debug for Client {
    // Not derived: headers may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}
