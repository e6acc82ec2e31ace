//! A process's registration and the lease under it, kept alive.
//!
//! The keeper sends every third of the time to live, gives each send its own
//! deadline, and opens a new stream, at another member, after any error: a
//! stream dies with its member and nobody else opens it again. Whether the
//! lease still *counts* is no matter of the keeper's: `proven_for` reads it off
//! the clock on each request, so a process that slept knows at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, Error, KeyValue, LeaseKeepAliveStream, LeaseKeeper, PutOptions, Txn, TxnOp};
use muster_protocol::fact::AgentId;
use muster_protocol::identity::Writer;
use muster_protocol::lease::LeaseClock;
use muster_protocol::mutant;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Shared;
use super::append::revision;
use super::endpoints::{Clients, Endpoints};
use super::origin::{all_but, first_keys};
use super::requests::Purpose;
use super::verdict::is_lease_gone;
use crate::log::{LogError, NewRegistration, Registered, Registration, boot_clock};

/// Keep-alives sent within one time to live.
const BEATS_PER_TTL: u32 = 3;
/// The pause after a keep-alive that failed.
const RETRY: Duration = Duration::from_millis(200);

/// What an agent's key holds.
#[derive(Debug, Serialize, Deserialize)]
struct AgentRecord {
    version: u32,
    agent: AgentId,
    address: String,
    machine_version: u16,
}

/// One registration of this process, and what is known of its lease.
pub(super) struct Lease {
    pub(super) writer: Writer,
    pub(super) id: i64,
    pub(super) agent_key: String,
    clock: Mutex<LeaseClock>,
    lost: watch::Sender<bool>,
}

impl Lease {
    fn new(writer: Writer, id: i64, agent_key: String, clock: LeaseClock) -> Self {
        Self { writer, id, agent_key, clock: Mutex::new(clock), lost: watch::Sender::new(false) }
    }

    /// The clock is whole after each of its calls, so a poisoned one is too.
    fn with_clock<T>(&self, act: impl FnOnce(&mut LeaseClock) -> T) -> T {
        act(&mut self.clock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn proven_for(&self) -> Duration {
        self.with_clock(|clock| clock.proven_for(boot_clock::now()))
    }

    /// The registration is known to be gone.
    pub(super) fn lose(&self) {
        self.with_clock(LeaseClock::lost);
        self.lost.send_replace(true);
    }

    fn is_lost(&self) -> bool {
        self.with_clock(|clock| clock.is_lost())
    }
}

impl Shared {
    pub(super) async fn register_agent(
        self: &Arc<Self>,
        new: NewRegistration,
    ) -> Result<Box<dyn Registered>, LogError> {
        self.origin().await?;
        let key = self.keys.agent(&new.agent);
        let record =
            AgentRecord { version: 1, agent: new.agent, address: new.address, machine_version: new.machine_version };
        let record = serde_json::to_vec(&record)
            .map_err(|source| LogError::Unavailable { what: "write a registration", source: source.into() })?;
        let sent_at = boot_clock::now();
        let (id, ttl) = self.grant(new.lease_ttl).await?;
        fail::fail_point!("log.register.before");
        let writer = self.put_agent(&key, record, id).await?;
        fail::fail_point!("log.register.after");
        let clock = LeaseClock::granted(sent_at, ttl, LeaseClock::MARGIN);
        let lease = Arc::new(Lease::new(writer, id, key, clock));
        self.keep_lease(&lease);
        let keeper = tokio::spawn(keep(Arc::clone(self), Arc::clone(&lease), ttl));
        Ok(Box::new(Kept { log: Arc::clone(self), lease, keeper }))
    }

    async fn grant(&self, ttl: Duration) -> Result<(i64, Duration), LogError> {
        let seconds = i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX);
        // Granted twice after a lost answer, the first one runs out unused.
        let send = |clients: Arc<Clients>| {
            let mut client = clients.lease.clone();
            async move { client.grant(seconds, None).await }
        };
        let granted = self.endpoints.call(Purpose::Lease, "grant a lease", send).await?;
        Ok((granted.id(), seconds_of(granted.ttl())))
    }

    async fn put_agent(&self, key: &str, record: Vec<u8>, lease: i64) -> Result<Writer, LogError> {
        let put = TxnOp::put(key, record, Some(PutOptions::new().with_lease(lease)));
        let txn = Txn::new()
            .when(all_but([(mutant!(RegistersOver), Compare::create_revision(key, CompareOp::Equal, 0))]))
            .and_then([put])
            .or_else([TxnOp::get(key, None)]);
        let answer = self.endpoints.txn(Purpose::Lease, "register the agent", txn).await?;
        if answer.succeeded() {
            return Ok(Writer(answer.header().map_or(0, |header| header.revision()).unsigned_abs()));
        }
        match first_keys(&answer) {
            // A first try whose answer was lost has put it.
            [Some(there)] if there.lease() == lease => Ok(Writer(there.create_revision().unsigned_abs())),
            _ => Err(LogError::Damaged { what: format!("{key} is registered already; take another instance") }),
        }
    }

    pub(super) async fn list_agents(&self) -> Result<Vec<Registration>, LogError> {
        let options = etcd_client::GetOptions::new().with_prefix();
        let what = "list the registered agents";
        let mut answer = self.endpoints.get(Purpose::Registrations, what, &self.keys.agents(), Some(options)).await?;
        answer.take_kvs().into_iter().map(|key| registration(&key)).collect()
    }
}

fn registration(key: &KeyValue) -> Result<Registration, LogError> {
    let record: AgentRecord = serde_json::from_slice(key.value())
        .map_err(|error| LogError::Damaged { what: format!("{}: {error}", String::from_utf8_lossy(key.key())) })?;
    Ok(Registration {
        writer: Writer(key.create_revision().unsigned_abs()),
        agent: record.agent,
        address: record.address,
        machine_version: record.machine_version,
    })
}

fn seconds_of(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or_default())
}

/// A registration that is kept alive until it is dropped.
struct Kept {
    log: Arc<Shared>,
    lease: Arc<Lease>,
    keeper: JoinHandle<()>,
}

#[async_trait]
impl Registered for Kept {
    fn writer(&self) -> Writer {
        self.lease.writer
    }

    fn proven_for(&self) -> Duration {
        self.lease.proven_for()
    }

    async fn lost(&self) {
        // The sender lives in `self.lease`, so this ends by the value only.
        let _ = self.lease.lost.subscribe().wait_for(|lost| *lost).await;
    }

    async fn release(&self) {
        self.keeper.abort();
        self.lease.lose();
        let id = self.lease.id;
        let send = |clients: Arc<Clients>| {
            let mut client = clients.lease.clone();
            async move { client.revoke(id).await }
        };
        if let Err(error) = self.log.endpoints.call(Purpose::Lease, "revoke the lease", send).await
            && !is_lease_gone(&error.error)
        {
            let error = muster_telemetry::chain(&error.error);
            tracing::warn!(%error, "revoke the agent's lease; it runs out by itself");
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

type Stream = Box<(LeaseKeeper, LeaseKeepAliveStream)>;

/// What one keep-alive came to.
enum Beat {
    Alive(Stream, Duration),
    Gone,
    Failed,
}

async fn keep(log: Arc<Shared>, lease: Arc<Lease>, ttl: Duration) {
    let period = ttl / BEATS_PER_TTL;
    let mut stream = None;
    let mut pause = period;
    loop {
        sleep(pause).await;
        let sent_at = boot_clock::now();
        match beat(&log.endpoints, lease.id, stream.take(), period / 2).await {
            Beat::Alive(same, ttl) => {
                let sent_at = if mutant!(ProvenByAnswer) { boot_clock::now() } else { sent_at };
                lease.with_clock(|clock| clock.acknowledged(sent_at, ttl));
                stream = Some(same);
                pause = period.saturating_sub(boot_clock::now().saturating_sub(sent_at));
            }
            Beat::Gone => lease.lose(),
            Beat::Failed => {
                pause = RETRY;
                if lease.proven_for().is_zero() && is_agent_gone(&log, &lease).await {
                    lease.lose();
                }
            }
        }
        if lease.is_lost() {
            tracing::warn!(writer = %lease.writer, "the agent's lease is lost");
            return;
        }
    }
}

/// Sends one keep-alive and waits for its answer. Only one is under way on a
/// stream, and a stream that owes one is dropped, so an answer is never taken
/// for that of a later send.
async fn beat(endpoints: &Endpoints, id: i64, stream: Option<Stream>, limit: Duration) -> Beat {
    let sent = endpoints.send(Purpose::Lease, limit, |clients| beat_once(clients, id, stream));
    let (at, error) = match sent.await {
        Ok((_, ttl)) if ttl.is_zero() => return Beat::Gone,
        Ok((stream, ttl)) => return Beat::Alive(stream, ttl),
        Err(failed) => failed,
    };
    if is_lease_gone(&error) {
        return Beat::Gone;
    }
    tracing::debug!(error = %muster_telemetry::chain(&error), "keep the lease alive at another member of etcd");
    endpoints.failed(at);
    Beat::Failed
}

async fn beat_once(
    clients: Arc<Clients>,
    id: i64,
    stream: Option<Stream>,
) -> Result<(Stream, Duration), Option<Error>> {
    let mut stream = match stream {
        Some(open) => open,
        // Opening sends one and keeps its answer to itself, so ask again.
        None => Box::new(clients.lease.clone().keep_alive(id).await?),
    };
    stream.0.keep_alive().await?;
    let ttl = stream.1.message().await?.ok_or(None)?.ttl();
    Ok((stream, seconds_of(ttl)))
}

/// Whether etcd says that the agent's key or lease is gone, when keep-alives
/// get no answer that says so.
async fn is_agent_gone(log: &Shared, lease: &Lease) -> bool {
    let answer = log.endpoints.get(Purpose::Lease, "look for the agent's key", &lease.agent_key, None).await;
    let same = |key: &KeyValue| key.create_revision() == revision(lease.writer.0);
    answer.is_ok_and(|mut answer| !answer.take_kvs().iter().any(same))
}
