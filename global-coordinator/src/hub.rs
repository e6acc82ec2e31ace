//! Whom to wake: every call that waits for a generation looks at one shared
//! view of it, so that ten thousand waits cost one read of the store per change.
//!
//! ```text
//!  wake ────────┐
//!  every second ┴─▶ reader of a generation ─▶ view ─▶ every subscription
//! ```
//!
//! A view has a reader while it has subscriptions. Wakes make it fast; the
//! reader's own pace makes it right when another coordinator did the work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_protocol::generation::GenerationId;
use muster_protocol::name::{BarrierName, Key};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::store::{GenerationRow, Store};

/// How often a view is read again though nobody said that it changed.
const PACE: Duration = Duration::from_secs(1);
/// Views that are read at that pace; more are read as much more slowly.
const VIEWS_AT_PACE: usize = 200;

type Name = (BarrierName, u64);

/// Shared by everybody who waits and everybody who wakes.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    waits_max: usize,
    slots: Mutex<Slots>,
    /// Counts openings: for those who wait for what is not open yet.
    openings: watch::Sender<u64>,
}

#[derive(Default)]
struct Slots {
    by_name: HashMap<Name, Slot>,
    subscriptions: usize,
}

struct Slot {
    view: watch::Sender<Arc<GenerationRow>>,
    changed: Arc<Notify>,
    subscriptions: usize,
    waiting: u64,
    reader: AbortHandle,
}

/// What one call sees of a generation.
pub(crate) struct Subscription {
    hub: Hub,
    name: Name,
    view: watch::Receiver<Arc<GenerationRow>>,
    waits: bool,
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>, waits_max: usize) -> Self {
        let (slots, openings) = (Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(Inner { store, waits_max, slots, openings }))
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a generation changed.
    pub(crate) fn wake(&self, barrier: &BarrierName, n: u64) {
        if let Some(slot) = self.lock().by_name.get(&(barrier.clone(), n)) {
            slot.changed.notify_one();
        }
    }

    /// Says that some generation was opened.
    pub(crate) fn opened(&self) {
        self.0.openings.send_modify(|count| *count += 1);
    }

    /// Changes with every opening that this coordinator hears of.
    pub(crate) fn openings(&self) -> watch::Receiver<u64> {
        self.0.openings.subscribe()
    }

    /// How many calls wait for the release of a generation here.
    pub(crate) fn waiting(&self, barrier: &BarrierName, n: u64) -> u64 {
        self.lock().by_name.get(&(barrier.clone(), n)).map_or(0, |slot| slot.waiting)
    }

    /// Looks at a generation from here on. `waits` if the caller waits for its
    /// release, rather than for news of it.
    ///
    /// # Errors
    /// `busy` when as many calls wait as may.
    pub(crate) fn subscribe(&self, row: Arc<GenerationRow>, waits: bool) -> Result<Subscription, Problem> {
        let id = row.generation.id.clone();
        let name = (id.barrier.clone(), id.n);
        let mut slots = self.lock();
        if slots.subscriptions >= self.0.waits_max {
            let limit = self.0.waits_max;
            return Err(Problem::new(Code::Busy, format!("{limit} calls wait at this coordinator, as many as may"))
                .hint("call again later, or wait at an agent of your region"));
        }
        slots.subscriptions += 1;
        let slot = slots.by_name.entry(name.clone()).or_insert_with(|| self.slot(&id, Arc::clone(&row)));
        slot.subscriptions += 1;
        slot.waiting += u64::from(waits);
        slot.view.send_if_modified(|seen| replace_older(seen, row));
        let view = slot.view.subscribe();
        Ok(Subscription { hub: self.clone(), name, view, waits })
    }

    fn slot(&self, id: &GenerationId, row: Arc<GenerationRow>) -> Slot {
        let (view, changed) = (watch::Sender::new(row), Arc::new(Notify::new()));
        let reader = tokio::spawn(read(self.clone(), reference(id), id.clone(), view.clone(), Arc::clone(&changed)));
        Slot { view, changed, subscriptions: 0, waiting: 0, reader: reader.abort_handle() }
    }

    fn pace(&self) -> Duration {
        let views = self.lock().by_name.len();
        PACE * u32::try_from(views.div_ceil(VIEWS_AT_PACE).max(1)).unwrap_or(u32::MAX)
    }
}

fn replace_older(seen: &mut Arc<GenerationRow>, row: Arc<GenerationRow>) -> bool {
    let newer = row.version > seen.version;
    if newer {
        *seen = row;
    }
    newer
}

/// Keeps one view up to date until the last subscription is gone.
async fn read(
    hub: Hub,
    reference: Reference,
    id: GenerationId,
    view: watch::Sender<Arc<GenerationRow>>,
    changed: Arc<Notify>,
) {
    loop {
        match hub.0.store.generation(&id.barrier, &reference).await {
            Ok(Some(row)) => {
                view.send_if_modified(|seen| replace_older(seen, Arc::new(row)));
            }
            Ok(None) => {}
            // Whoever waits goes on waiting: the truth has not changed.
            Err(error) => tracing::debug!(generation = %id, error = %error, "read a generation that is waited for"),
        }
        // A wake in the middle of a read leaves its permit: nothing is missed.
        let pace = hub.pace();
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(pace) => {}
        }
    }
}

/// How the store is asked for exactly this generation.
pub(crate) fn reference(id: &GenerationId) -> Reference {
    match (&id.key, id.n.to_string().parse::<Key>()) {
        (Some(key), _) => Reference::Key(key.clone(), Some(id.round)),
        (None, Ok(n)) => Reference::Number(id.n, n),
        // Digits are a key by its grammar.
        (None, Err(_)) => Reference::Latest,
    }
}

impl Subscription {
    /// Returns when there is news since the last call of `take`.
    pub(crate) async fn changed(&mut self) {
        // The hub holds the sender for as long as this subscription lives.
        if self.view.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What is known now; news counts from here on.
    pub(crate) fn take(&mut self) -> Arc<GenerationRow> {
        Arc::clone(&self.view.borrow_and_update())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut slots = self.hub.lock();
        slots.subscriptions = slots.subscriptions.saturating_sub(1);
        let Some(slot) = slots.by_name.get_mut(&self.name) else { return };
        slot.subscriptions -= 1;
        slot.waiting -= u64::from(self.waits);
        if slot.subscriptions == 0 {
            slot.reader.abort();
            slots.by_name.remove(&self.name);
        }
    }
}
