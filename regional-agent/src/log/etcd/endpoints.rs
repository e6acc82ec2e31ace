//! The members of one etcd, and how a request finds one that answers.
//!
//! There is one client per member: a client over several balances over all of
//! them and keeps choosing one that is down. Requests go to the current member
//! until it fails, then to the next. So each must be safe to send twice; what
//! is known of one that was sent twice is in [`CallError::doubt`].

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{
    Client, ConnectOptions, Error, GetOptions, GetResponse, KvClient, LeaseClient, Txn, TxnResponse, WatchClient,
};

use super::InvalidOptions;
use super::requests::{Counters, Purpose};
use super::verdict::{CallError, EtcdError, Verdict};

/// One page of entries, or one watch response, at most.
const MESSAGE_BYTES_MAX: usize = 24 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Servers close a connection that pings more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// One member.
pub(super) struct Endpoint {
    url: String,
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) watch: WatchClient,
}

impl Endpoint {
    async fn open(url: &str) -> Result<Self, Error> {
        let options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            // A server counts pings without a stream as abuse.
            .with_keep_alive_while_idle(false)
            // A member cut off from the others says so instead of waiting.
            .with_require_leader(true);
        // Connects with the first request, so a member that is down is no error.
        let client = Client::connect([url], Some(options)).await?;
        Ok(Self {
            url: url.to_owned(),
            kv: client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn answered(&self, source: Error) -> EtcdError {
        EtcdError::Answered { url: self.url.clone(), source }
    }

    pub(super) fn silent(&self, after: Duration) -> EtcdError {
        EtcdError::Silent { url: self.url.clone(), after }
    }

    pub(super) fn ended(&self) -> EtcdError {
        EtcdError::Ended { url: self.url.clone() }
    }
}

/// All members.
pub(super) struct Endpoints {
    all: Vec<Endpoint>,
    current: AtomicUsize,
    timeout: Duration,
    counters: Counters,
}

impl Endpoints {
    pub(super) async fn open(urls: &[String], timeout: Duration, region: String) -> Result<Self, InvalidOptions> {
        if urls.is_empty() {
            return Err(InvalidOptions::NoEndpoint);
        }
        let mut all = Vec::new();
        for url in urls {
            let endpoint = Endpoint::open(url).await;
            all.push(endpoint.map_err(|source| InvalidOptions::Endpoint { url: url.clone(), source: source.into() })?);
        }
        Ok(Self { all, current: AtomicUsize::new(0), timeout, counters: Counters::new(region) })
    }

    /// How long one request may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The member that requests go to now.
    pub(super) fn current(&self) -> (usize, &Endpoint) {
        let at = self.current.load(Ordering::Relaxed);
        (at, &self.all[at])
    }

    /// A member by its place.
    pub(super) fn at(&self, at: usize) -> &Endpoint {
        &self.all[at]
    }

    /// Moves on from a member that failed, unless somebody has already.
    pub(super) fn failed(&self, at: usize) {
        let next = (at + 1) % self.all.len();
        let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Sends a request that may be sent twice: to the current member, and while
    /// members fail to each of the others.
    pub(super) async fn call<T, F>(
        &self,
        purpose: Purpose,
        what: &'static str,
        send: impl Fn(&Endpoint) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries_left = self.all.len();
        let mut doubt = false;
        loop {
            let (at, endpoint) = self.current();
            self.counters.count(purpose);
            let error = match tokio::time::timeout(self.timeout, send(endpoint)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => endpoint.answered(error),
                Err(_) => endpoint.silent(self.timeout),
            };
            let verdict = Verdict::of(&error);
            tries_left -= 1;
            if verdict == Verdict::Unknown {
                doubt = true;
                self.failed(at);
                if tries_left > 0 {
                    tracing::debug!(what, error = &error as &dyn std::error::Error, "try another member of etcd");
                    continue;
                }
            }
            return Err(CallError { what, error, verdict, doubt });
        }
    }

    pub(super) async fn txn(&self, purpose: Purpose, what: &'static str, txn: Txn) -> Result<TxnResponse, CallError> {
        let send = |endpoint: &Endpoint| {
            let (mut kv, txn) = (endpoint.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        };
        self.call(purpose, what, send).await
    }

    pub(super) async fn get(
        &self,
        purpose: Purpose,
        what: &'static str,
        key: &str,
        options: Option<GetOptions>,
    ) -> Result<GetResponse, CallError> {
        let send = |endpoint: &Endpoint| {
            let (mut kv, options) = (endpoint.kv.clone(), options.clone());
            async move { kv.get(key, options).await }
        };
        self.call(purpose, what, send).await
    }
}
