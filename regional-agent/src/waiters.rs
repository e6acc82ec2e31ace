//! Who waits for what. A wake-up is a hint: whoever is woken reads the
//! region's state and waits on if it says so. Ends, progress and openings have
//! channels of their own, so that ten thousand who wait for an end are not
//! woken by every arrival.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_protocol::name::BarrierName;
use muster_telemetry::{TraceContext, metrics};
use tokio::sync::watch;

/// What a wake-up carries: how often it was rung, and what led to it.
#[derive(Clone, Debug, Default)]
struct Bell {
    rung: u64,
    cause: Option<TraceContext>,
}

type Generation = (BarrierName, u64);

/// One kind of thing to wait for, by what it is about.
struct Bells<K>(Mutex<HashMap<K, watch::Sender<Bell>>>);

impl<K: Eq + Hash + Clone> Bells<K> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    fn map(&self) -> MutexGuard<'_, HashMap<K, watch::Sender<Bell>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(&self, key: &K) -> watch::Receiver<Bell> {
        let mut map = self.map();
        map.entry(key.clone()).or_insert_with(|| watch::Sender::new(Bell::default())).subscribe()
    }

    fn ring(&self, key: &K, cause: Option<&TraceContext>) -> usize {
        let map = self.map();
        let Some(bell) = map.get(key) else { return 0 };
        bell.send_modify(|bell| {
            bell.rung += 1;
            bell.cause = cause.cloned();
        });
        bell.receiver_count()
    }

    fn ring_all(&self) {
        self.map().values().for_each(|bell| bell.send_modify(|bell| bell.rung += 1));
    }

    fn count(&self, key: &K) -> usize {
        self.map().get(key).map_or(0, watch::Sender::receiver_count)
    }

    /// Forgets a bell nobody listens to.
    fn forget(&self, key: &K) {
        let mut map = self.map();
        if map.get(key).is_some_and(|bell| bell.receiver_count() == 0) {
            map.remove(key);
        }
    }
}

struct Inner {
    region: String,
    ends: Bells<Generation>,
    progress: Bells<Generation>,
    openings: Bells<BarrierName>,
}

/// Everybody who waits at this agent.
#[derive(Clone)]
pub struct Waiters(Arc<Inner>);

/// One who waits. Dropping it takes the place back.
pub struct Waiter {
    inner: Arc<Inner>,
    about: About,
    bell: Option<watch::Receiver<Bell>>,
}

enum About {
    End(Generation),
    Progress(Generation),
    Opening(BarrierName),
}

impl Waiters {
    pub(crate) fn new(region: &str) -> Self {
        let region = region.to_owned();
        Self(Arc::new(Inner { region, ends: Bells::new(), progress: Bells::new(), openings: Bells::new() }))
    }

    /// Waits for a generation's end. Subscribe first, then read the state.
    #[must_use]
    pub fn for_end(&self, barrier: &BarrierName, n: u64) -> Waiter {
        let generation = (barrier.clone(), n);
        let bell = self.0.ends.subscribe(&generation);
        metrics::waiters(self.0.region.clone()).increment(1.0);
        Waiter { inner: self.0.clone(), about: About::End(generation), bell: Some(bell) }
    }

    /// Waits for any change of a generation.
    #[must_use]
    pub fn for_progress(&self, barrier: &BarrierName, n: u64) -> Waiter {
        let generation = (barrier.clone(), n);
        let bell = self.0.progress.subscribe(&generation);
        Waiter { inner: self.0.clone(), about: About::Progress(generation), bell: Some(bell) }
    }

    /// Waits for a generation of a barrier to open.
    #[must_use]
    pub fn for_opening(&self, barrier: &BarrierName) -> Waiter {
        let bell = self.0.openings.subscribe(barrier);
        Waiter { inner: self.0.clone(), about: About::Opening(barrier.clone()), bell: Some(bell) }
    }

    /// How many wait for a generation's end.
    #[must_use]
    pub fn count(&self, barrier: &BarrierName, n: u64) -> usize {
        self.0.ends.count(&(barrier.clone(), n))
    }

    /// Whether anybody here waits for what a fact about this generation says.
    #[must_use]
    pub fn concerned(&self, barrier: &BarrierName, n: u64) -> bool {
        self.count(barrier, n) > 0 || self.0.openings.count(barrier) > 0
    }

    pub(crate) fn opened(&self, barrier: &BarrierName) {
        self.0.openings.ring(barrier, None);
    }

    pub(crate) fn progressed(&self, barrier: &BarrierName, n: u64) {
        self.0.progress.ring(&(barrier.clone(), n), None);
    }

    pub(crate) fn ended(&self, barrier: &BarrierName, n: u64, cause: Option<&TraceContext>) {
        let span = tracing::info_span!("wake", %barrier, n, waiters = tracing::field::Empty);
        if let Some(cause) = cause {
            cause.set_parent(&span);
        }
        span.in_scope(|| {
            let context = TraceContext::current();
            let woken = self.0.ends.ring(&(barrier.clone(), n), context.as_ref().or(cause));
            span.record("waiters", woken);
        });
        // Whoever waits for this barrier to open must look again, too.
        self.opened(barrier);
    }

    pub(crate) fn wake_all(&self) {
        self.0.ends.ring_all();
        self.0.progress.ring_all();
        self.0.openings.ring_all();
    }
}

impl Waiter {
    /// Waits until something happened since the last call or the subscription.
    pub async fn changed(&mut self) {
        if let Some(bell) = &mut self.bell {
            // The sender lives as long as this subscription does.
            let _ = bell.changed().await;
        }
    }

    /// What led to the last wake-up.
    #[must_use]
    pub fn cause(&self) -> Option<TraceContext> {
        self.bell.as_ref()?.borrow().cause.clone()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.bell = None;
        match &self.about {
            About::End(generation) => {
                metrics::waiters(self.inner.region.clone()).decrement(1.0);
                self.inner.ends.forget(generation);
            }
            About::Progress(generation) => self.inner.progress.forget(generation),
            About::Opening(barrier) => self.inner.openings.forget(barrier),
        }
    }
}
