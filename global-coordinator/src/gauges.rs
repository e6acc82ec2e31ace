//! What operators look at: how many generations gather, how long, which
//! regions can be heard. Read from the store now and then, so that a restart
//! does not start from zero.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_protocol::generation::State;
use muster_protocol::identity::Timestamp;
use muster_telemetry::metrics;
use muster_wire::answer::Link;

use crate::coordinator::{Coordinator, now};
use crate::status::link;
use crate::store::{GenerationFilter, StoreError};

const LOOK: Duration = Duration::from_secs(10);
/// Regions are looked at more often: their silence is an alert.
const LOOKS_PER_COUNT: u32 = 5;
const PAGE: u32 = 500;
/// Generations that are counted one by one; beyond, gauges say "at least".
const COUNTED_MAX: usize = 5_000;

/// Reads until the service stops.
pub(crate) async fn run(coordinator: Arc<Coordinator>) {
    let mut looks = 0_u32;
    loop {
        if let Err(error) = regions(&coordinator).await {
            tracing::debug!(%error, "look at the regions for the gauges");
        }
        if looks.is_multiple_of(LOOKS_PER_COUNT)
            && let Err(error) = generations(&coordinator).await
        {
            tracing::debug!(%error, "count the generations for the gauges");
        }
        looks = looks.wrapping_add(1);
        tokio::time::sleep(LOOK / LOOKS_PER_COUNT).await;
    }
}

async fn regions(coordinator: &Coordinator) -> Result<(), StoreError> {
    // Keeps the era fresh: a failover of the store may have begun another.
    coordinator.check(&*coordinator.store).await?;
    for region in coordinator.store.regions().await? {
        let up = if link(&region) == Link::Up { 1.0 } else { 0.0 };
        metrics::region_up(region.name.to_string()).set(up);
    }
    Ok(())
}

/// What is open, summed up.
#[derive(Default)]
struct Open {
    by_state: BTreeMap<&'static str, u64>,
    oldest: Option<Timestamp>,
    nearest: Option<Timestamp>,
}

async fn generations(coordinator: &Coordinator) -> Result<(), StoreError> {
    let filter = GenerationFilter { states: vec![State::Gathering, State::Releasing], ..GenerationFilter::default() };
    let mut open = Open { by_state: BTreeMap::from([("gathering", 0), ("releasing", 0)]), ..Open::default() };
    let (mut cursor, mut seen) = (None, 0);
    loop {
        let page = coordinator.store.generations(&filter, cursor, PAGE).await?;
        seen += page.items.len();
        for row in &page.items {
            let state = row.generation.state();
            *open.by_state.entry(state.as_str()).or_default() += 1;
            if state == State::Gathering {
                open.oldest = earlier(open.oldest, Some(row.generation.opened_at));
                open.nearest = earlier(open.nearest, row.generation.deadline_at);
            }
        }
        cursor = page.next;
        if cursor.is_none() || seen >= COUNTED_MAX {
            break;
        }
    }
    show(&open);
    Ok(())
}

fn show(open: &Open) {
    let now = now();
    for (state, count) in &open.by_state {
        metrics::generations(*state, "", "global").set(*count as f64);
    }
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    metrics::oldest_gathering().set(open.oldest.map_or(0.0, |at| seconds(now.since_ms(at))));
    metrics::deadline_remaining_min().set(open.nearest.map_or(f64::INFINITY, |at| seconds(at.since_ms(now))));
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}
