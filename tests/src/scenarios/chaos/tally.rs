//! What happened, counted, and in its order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::fault::Fault;
use super::load::Ending;
use super::scan::Compared;
use crate::history::{Answer, History};
use crate::world::World;

/// How long to ask why a generation does not go on.
const PATIENCE: Duration = Duration::from_secs(5);

/// What happened.
pub(super) struct Tally {
    began: Instant,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    faults: BTreeMap<String, u64>,
    endings: BTreeMap<Ending, u64>,
    acknowledged: u64,
    calls: u64,
    longest: u64,
    calm: Duration,
    compared: Compared,
    /// What each that is begun does, and since when.
    open: BTreeMap<String, (&'static str, Instant)>,
}

impl Default for Tally {
    fn default() -> Self {
        Self { began: Instant::now(), counts: Mutex::default() }
    }
}

impl Tally {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of the timeline.
    pub(super) fn note(&self, what: String) {
        let line = format!("{:8.3} {what}", self.began.elapsed().as_secs_f64());
        eprintln!("{line}");
    }

    /// A fault is over.
    pub(super) fn befell(&self, fault: &Fault) {
        *self.counts().faults.entry(fault.kind()).or_default() += 1;
    }

    /// A generation has come to this step.
    pub(super) fn at(&self, target: &str, step: &'static str) {
        self.counts().open.insert(target.to_owned(), (step, Instant::now()));
    }

    /// A generation came to its end.
    pub(super) fn ended(&self, ending: Ending, target: &str) {
        let mut counts = self.counts();
        counts.open.remove(target);
        *counts.endings.entry(ending).or_default() += 1;
    }

    /// Those at one step for longer than this, though nothing was in their way
    /// since then, and why.
    pub(super) async fn stuck(&self, since: Instant, patience: Duration, world: &World<'_>) -> Vec<String> {
        let open = self.counts().open.clone();
        let mut lines = Vec::new();
        for (name, (step, at)) in open {
            if at.max(since).elapsed() < patience {
                continue;
            }
            let told = match name.parse() {
                Ok(target) => match world.coordinator().patience(PATIENCE).explain(&target).await {
                    Ok(why) => why.lines.join(" "),
                    Err(error) => error.to_string(),
                },
                Err(error) => format!("{error:?}"),
            };
            lines.push(format!("{name}, {step} for {} s: {told}", at.elapsed().as_secs()));
        }
        lines
    }

    /// What clients called, and it was judged.
    pub(super) fn calls(&self, history: &History) {
        let calls = history.calls();
        let mut counts = self.counts();
        counts.calls += calls.len() as u64;
        counts.longest = counts.longest.max(calls.len() as u64);
        let acknowledged = calls.iter().filter(|call| matches!(call.answer, Answer::Arrived { .. })).count();
        counts.acknowledged += acknowledged as u64;
    }

    /// How long it took until all was done, once the faults were over.
    pub(super) fn calmed(&self, after: Duration) {
        let mut counts = self.counts();
        counts.calm = counts.calm.max(after);
    }

    /// What was kept, and it agreed with what was told.
    pub(super) fn scanned(&self, compared: Compared) {
        let mut counts = self.counts();
        counts.compared.told += compared.told;
        counts.compared.applied += compared.applied;
        counts.compared.arrivals += compared.arrivals;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        let Counts { acknowledged, calls, longest, calm, compared, .. } = &*counts;
        writeln!(f, "  arrivals acknowledged {acknowledged}, calls judged {calls}, the most of one history {longest}")?;
        writeln!(f, "  all was done {:.1} s after the last fault, at the latest", calm.as_secs_f64())?;
        let Compared { told, applied, arrivals } = compared;
        writeln!(
            f,
            "  found in Postgres {told} ends that were told, in etcd {applied} of its ends and {arrivals} arrivals"
        )?;
        let endings = counts.endings.iter().map(|(ending, count)| format!("{ending:?} {count}"));
        writeln!(f, "  generations: {}", endings.collect::<Vec<_>>().join(", "))?;
        let faults = counts.faults.iter().map(|(kind, count)| format!("{kind} {count}"));
        write!(f, "  faults: {}", faults.collect::<Vec<_>>().join(", "))
    }
}
