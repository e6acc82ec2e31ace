//! How long a release takes to reach every region, and how far apart the
//! arrivals were. For people: nothing is decided by it, and a restart forgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_protocol::fact::Decided;
use muster_protocol::generation::GenerationId;
use muster_protocol::global::{Change, Step};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::report::RegionReport;
use muster_telemetry::metrics;

use crate::coordinator::Coordinator;
use crate::hub::reference;
use crate::status::skew_seconds;

/// Releases whose propagation is measured at once; beyond, some are not.
const MEASURED_MAX: usize = 10_000;

/// The releases decided here that some region has not applied.
#[derive(Debug, Default)]
pub(crate) struct Propagation(Mutex<BTreeMap<(BarrierName, u64), Underway>>);

#[derive(Debug)]
struct Underway {
    since: Instant,
    regions: BTreeSet<RegionName>,
}

impl Propagation {
    fn begin(&self, decided: &Decided, now: Instant) {
        let mut underway = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if underway.len() < MEASURED_MAX {
            let id = &decided.outcome.generation;
            let regions = decided.regions.iter().cloned().collect();
            underway.insert((id.barrier.clone(), id.n), Underway { since: now, regions });
        }
    }

    /// A region has applied the end; how long that took, the first time.
    fn applied(&self, id: &GenerationId, region: &RegionName, now: Instant) -> Option<Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (id.barrier.clone(), id.n);
        let underway = all.get_mut(&name)?;
        let took = underway.regions.remove(region).then(|| now.saturating_duration_since(underway.since));
        if underway.regions.is_empty() {
            all.remove(&name);
        }
        took
    }
}

/// Measures what one report led to.
pub(super) fn measure(coordinator: &Arc<Coordinator>, report: &RegionReport, step: &Step) {
    for change in &step.changes {
        if let Change::Decided { decided, .. } = change
            && decided.outcome.verdict.is_released()
        {
            coordinator.propagation.begin(decided, Instant::now());
            coordinator.tasks.spawn(skew(Arc::clone(coordinator), decided.outcome.generation.clone()));
        }
    }
    if report.applied.is_some()
        && let Some(took) = coordinator.propagation.applied(&report.generation, &report.region, Instant::now())
    {
        metrics::release_propagation(report.region.to_string()).record(took);
    }
}

/// The reports of the other regions are in the store, not in this batch.
async fn skew(coordinator: Arc<Coordinator>, id: GenerationId) {
    if let Ok(Some(row)) = coordinator.store.generation(&id.barrier, &reference(&id)).await
        && let Some(seconds) = skew_seconds(&row)
    {
        metrics::barrier_skew().record(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_protocol::identity::Timestamp;
    use muster_protocol::outcome::{Outcome, Release, Verdict};

    #[test]
    fn each_region_is_measured_once() {
        let id = GenerationId { barrier: "etl/map".parse().unwrap(), n: 1, key: None, round: 0 };
        let (us, eu): (RegionName, RegionName) = ("us-east".parse().unwrap(), "eu-west".parse().unwrap());
        let verdict = Verdict::Released(Release { whole: true, ..Release::default() });
        let outcome = Outcome { generation: id.clone(), verdict, decided_at: Timestamp(0) };
        let regions = [us.clone(), eu.clone()].into_iter().collect();
        let (propagation, now) = (Propagation::default(), Instant::now());
        propagation.begin(&Decided { outcome, next: None, regions }, now);
        let later = now + Duration::from_millis(7);
        assert_eq!(propagation.applied(&id, &us, later), Some(Duration::from_millis(7)));
        assert_eq!(propagation.applied(&id, &us, later), None);
        assert_eq!(propagation.applied(&id, &eu, now), Some(Duration::ZERO));
        assert!(propagation.0.lock().unwrap().is_empty(), "what is over is forgotten");
    }
}
