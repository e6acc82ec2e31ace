//! What every part of the coordinator shares: one way to decide, one way to
//! tell the regions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_bus::{Bus, Headers};
use muster_http::Forwarder;
use muster_protocol::fact::Fact;
use muster_protocol::global::{Change, Command, Step};
use muster_protocol::identity::{Era, Timestamp};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Verdict;
use muster_telemetry::{TraceContext, metrics};
use muster_wire::record::Downward;
use tokio::sync::{Mutex, Notify, RwLock, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use crate::aggregation::Propagation;
use crate::collection::Collection;
use crate::hub::Hub;
use crate::store::{Mode, RegionRow, Store, StoreError};

/// How long the bus may take to have a batch of facts.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// How old what is known of the regions may be.
const REGIONS_FRESH: Duration = Duration::from_millis(500);

/// The parts of one coordinator share it.
pub(crate) struct Coordinator {
    /// For what the coordinator does by itself.
    pub(crate) store: Arc<dyn Store>,
    /// For calls.
    pub(crate) calls: Arc<dyn Store>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) hub: Hub,
    pub(crate) forwarder: Forwarder,
    /// Poked when a deadline may be nearer than was thought, or something broke.
    pub(crate) deadlines: Notify,
    pub(crate) collection: Collection,
    /// Counts the declarations of regions made here.
    pub(crate) declared: watch::Sender<u64>,
    /// What must end before the process may.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the service is to stop.
    pub(crate) shutdown: CancellationToken,
    pub(crate) propagation: Propagation,
    era: RwLock<Option<Era>>,
    /// What the last read of them came to, and when; nothing if it failed.
    regions: Mutex<Option<(Instant, Option<Arc<Regions>>)>>,
}

/// The declared regions by name.
pub(crate) type Regions = BTreeMap<RegionName, RegionRow>;

impl Coordinator {
    pub(crate) fn new(
        bus: Arc<dyn Bus>,
        store: Arc<dyn Store>,
        forwarder: Forwarder,
        waits_max: usize,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let calls = store.for_calls();
        Arc::new(Self {
            hub: Hub::new(Arc::clone(&calls), waits_max),
            store,
            calls,
            bus,
            forwarder,
            deadlines: Notify::new(),
            collection: Collection::default(),
            declared: watch::Sender::new(0),
            tasks: TaskTracker::new(),
            shutdown,
            propagation: Propagation::default(),
            era: RwLock::new(None),
            regions: Mutex::new(None),
        })
    }

    /// Decides a batch in one transaction. When this returns with `Commit`,
    /// the steps are durable and waits are woken; the facts are yet to be sent.
    /// `store` is the one of whoever asks.
    pub(crate) async fn decide(
        &self,
        store: &dyn Store,
        batch: Vec<(BarrierName, Command)>,
        mode: Mode,
    ) -> Result<Vec<Step>, StoreError> {
        let names: Vec<BarrierName> = batch.iter().map(|(name, _)| name.clone()).collect();
        let began = Instant::now();
        let steps = store.transact(batch, mode).await?;
        metrics::coordinator_transaction().record(began.elapsed());
        if mode == Mode::Commit {
            for (name, step) in names.iter().zip(&steps) {
                step.changes.iter().for_each(|change| self.heed(name, change));
            }
        }
        Ok(steps)
    }

    /// Wakes whoever a change concerns.
    fn heed(&self, barrier: &BarrierName, change: &Change) {
        match change {
            Change::Opened(generation) => {
                self.hub.opened();
                self.hub.wake(barrier, generation.id.n);
                self.deadlines.notify_one();
            }
            Change::Reported { n, .. } | Change::Settled { n } => self.hub.wake(barrier, *n),
            Change::DeadlineSet { n, .. } => {
                self.hub.wake(barrier, *n);
                self.deadlines.notify_one();
            }
            Change::Decided { n, decided } => {
                if let Verdict::Broken(cause) = &decided.outcome.verdict {
                    metrics::broken(cause.reason.as_str()).increment(1);
                    // What comes after it breaks too.
                    self.deadlines.notify_one();
                }
                self.hub.wake(barrier, *n);
            }
            Change::Waived { n, .. } => self.hub.wake(barrier, *n),
            Change::Closed { n } => n.iter().for_each(|n| self.hub.wake(barrier, *n)),
            // It may keep less than the one before.
            Change::Defined { .. } => self.collection.poke(),
            Change::Audited(audit) => {
                let (action, generation) = (audit.action.as_str(), audit.generation.as_ref().map(ToString::to_string));
                tracing::info!(action, %barrier, generation, reason = audit.by.reason, "somebody decided");
            }
            Change::Deleted | Change::Forgotten { .. } => {}
        }
    }

    /// Sends facts with the current trace. A failure is logged and healed by
    /// the repeats: a fact is repeated until its regions have answered it.
    pub(crate) async fn send(&self, facts: Vec<Fact>) {
        let headers = headers_of(&Span::current());
        self.send_down(facts.into_iter().map(|fact| (Downward::Fact(fact), headers.clone())).collect()).await;
    }

    /// Sends records down; what the bus does not take is logged.
    pub(crate) async fn send_down(&self, records: Vec<(Downward, Headers)>) {
        let count = records.len();
        if count == 0 {
            return;
        }
        match tokio::time::timeout(SEND_TIMEOUT, self.bus.send_down(records)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, count, "send facts; they will be repeated"),
            Err(_) => {
                tracing::warn!(count, seconds = SEND_TIMEOUT.as_secs(), "send facts in time; they will be repeated");
            }
        }
    }

    /// Sends facts while the caller goes on.
    pub(crate) fn publish(self: &Arc<Self>, facts: Vec<Fact>) {
        if !facts.is_empty() {
            let this = Arc::clone(self);
            self.tasks.spawn(async move { this.send(facts).await }.in_current_span());
        }
    }

    /// The declared regions by name, as they were a moment ago: ten thousand
    /// calls that time out together read them once, and share what came of it.
    pub(crate) async fn regions(&self) -> Result<Arc<Regions>, StoreError> {
        let asked = Instant::now();
        let mut seen = self.regions.lock().await;
        match seen.as_ref() {
            Some((at, Some(regions))) if at.elapsed() < REGIONS_FRESH => return Ok(Arc::clone(regions)),
            Some((at, None)) if *at >= asked => {
                return Err(StoreError::Unavailable("it did not answer a moment ago".into()));
            }
            _ => {}
        }
        let read = self.calls.regions().await.map(|rows| {
            let rows = rows.into_iter().map(|row| (row.name.clone(), row));
            Arc::new(rows.collect::<Regions>())
        });
        *seen = Some((Instant::now(), read.as_ref().ok().cloned()));
        read
    }

    /// Forgets what was read of the regions: they were changed here.
    pub(crate) async fn regions_changed(&self) {
        *self.regions.lock().await = None;
    }

    /// Declares a region, and has it listened to.
    pub(crate) async fn declare(&self, region: &RegionName) -> Result<bool, StoreError> {
        let new = self.calls.declare(region).await?;
        self.regions_changed().await;
        if new {
            self.declared.send_modify(|count| *count += 1);
        }
        Ok(new)
    }

    /// The life of the store, as it was last seen.
    pub(crate) async fn era(&self) -> Result<Era, StoreError> {
        if let Some(era) = self.era.read().await.as_ref() {
            return Ok(era.clone());
        }
        self.check(&*self.calls).await
    }

    /// Asks a store whether it answers, and remembers its era.
    pub(crate) async fn check(&self, store: &dyn Store) -> Result<Era, StoreError> {
        let era = store.check().await?;
        *self.era.write().await = Some(era.clone());
        Ok(era)
    }
}

/// What carries a span's trace with a record.
pub(crate) fn headers_of(span: &Span) -> Headers {
    let mut headers = Headers::new();
    if let Some(context) = TraceContext::of(span) {
        context.to_map(&mut headers);
    }
    headers
}

/// This machine's clock: for sentences, never for a decision.
pub(crate) fn now() -> Timestamp {
    Timestamp(muster_telemetry::wall_clock_ms())
}
