//! The members of one etcd, and how a request finds one that answers.
//!
//! There is one client per member: a client over several balances over all of
//! them and keeps choosing one that is down. Requests go to the current member
//! until it fails, then to the next. So each must be safe to send twice; what
//! is known of one that was sent twice is in [`CallError::doubt`].

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
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

/// The services of one member, over one connection.
pub(super) struct Clients {
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) watch: WatchClient,
}

impl Clients {
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
            kv: client.kv_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(MESSAGE_BYTES_MAX),
        })
    }
}

/// One member.
pub(super) struct Endpoint {
    url: String,
    clients: RwLock<Arc<Clients>>,
}

impl Endpoint {
    async fn open(url: &str) -> Result<Self, Error> {
        let clients = RwLock::new(Arc::new(Clients::open(url).await?));
        Ok(Self { url: url.to_owned(), clients })
    }

    pub(super) fn clients(&self) -> Arc<Clients> {
        Arc::clone(&self.clients.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a new connection in place of one that was silent: the network may
    /// have lost it, and pings find that out later than a lease runs out.
    async fn renew(&self, silent: &Arc<Clients>) {
        // The URL was good once, so this does not fail.
        let Ok(fresh) = Clients::open(&self.url).await else { return };
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&clients, silent) {
            *clients = Arc::new(fresh);
        }
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

    /// Sends to the current member, within a time limit.
    pub(super) async fn send<T, F>(
        &self,
        purpose: Purpose,
        limit: Duration,
        send: impl FnOnce(Arc<Clients>) -> F,
    ) -> Result<T, (usize, EtcdError)>
    where
        F: Future<Output = Result<T, Option<Error>>>,
    {
        let (at, endpoint) = self.current();
        let clients = endpoint.clients();
        self.counters.count(purpose);
        match tokio::time::timeout(limit, send(Arc::clone(&clients))).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Some(error))) => Err((at, endpoint.answered(error))),
            Ok(Err(None)) => Err((at, endpoint.ended())),
            Err(_) => {
                endpoint.renew(&clients).await;
                Err((at, endpoint.silent(limit)))
            }
        }
    }

    /// Sends a request that may be sent twice: to the current member, and while
    /// members fail to each of the others.
    pub(super) async fn call<T, F>(
        &self,
        purpose: Purpose,
        what: &'static str,
        send: impl Fn(Arc<Clients>) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut tries_left = self.all.len();
        let mut doubt = false;
        loop {
            let sent = self.send(purpose, self.timeout, async |clients| send(clients).await.map_err(Some));
            let (at, error) = match sent.await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let verdict = Verdict::of(&error);
            tries_left -= 1;
            if verdict == Verdict::Unknown {
                doubt = true;
                self.failed(at);
                if tries_left > 0 {
                    tracing::debug!(what, error = %muster_telemetry::chain(&error), "try another member of etcd");
                    continue;
                }
            }
            return Err(CallError { what, error, verdict, doubt });
        }
    }

    pub(super) async fn txn(&self, purpose: Purpose, what: &'static str, txn: Txn) -> Result<TxnResponse, CallError> {
        let send = |clients: Arc<Clients>| {
            let (mut kv, txn) = (clients.kv.clone(), txn.clone());
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
        let send = |clients: Arc<Clients>| {
            let (mut kv, options) = (clients.kv.clone(), options.clone());
            async move { kv.get(key, options).await }
        };
        self.call(purpose, what, send).await
    }
}
