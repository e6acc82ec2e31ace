//! What is past its retention: details of finished generations go first, their
//! bare verdicts later, so that state stays bounded however often a barrier is
//! crossed. Counts are distances in numbers, so nothing has to be counted.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::apply::Work;
use super::{Change, Context, Generation, Refusal, Reply};
use crate::caps::VERDICTS_FACTOR;
use crate::fact::{Closed, Fact};
use crate::generation::GenerationId;
use crate::spec::Spec;

/// What is left of a finished generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Keep {
    Nothing,
    Verdict,
    Details,
}

/// What is to be kept of a generation, of a barrier whose next number is
/// `next_n`.
pub(super) fn keep(generation: &Generation, next_n: u64, spec: &Spec, context: &Context<'_>) -> Keep {
    let Some(decided) = &generation.decided else { return Keep::Details };
    let age_ms = context.now.since_ms(decided.outcome.decided_at);
    let behind = next_n.saturating_sub(generation.id.n + 1);
    let past = |times: u32| {
        let times = u64::from(times);
        age_ms > spec.retention_ms.saturating_mul(times) || behind > u64::from(spec.retention_generations) * times
    };
    match (past(VERDICTS_FACTOR), past(1)) {
        (true, _) => Keep::Nothing,
        (false, true) => Keep::Verdict,
        (false, false) => Keep::Details,
    }
}

impl Work<'_> {
    pub(super) fn collect(&mut self, tell: bool) -> Result<Reply, Refusal> {
        // What is kept of the past is what the present definition says.
        let spec = self.barrier.specs.get(&self.barrier.revision).ok_or(Refusal::NotDefined)?;
        let (mut closed, mut forgotten) = (Vec::new(), Vec::new());
        for generation in self.barrier.generations.values() {
            match keep(generation, self.barrier.next_n, spec, self.context) {
                Keep::Nothing => forgotten.push(generation.id.n),
                Keep::Verdict if !generation.closed => closed.push(generation.id.n),
                Keep::Verdict | Keep::Details => {}
            }
        }
        for n in &closed {
            if let Some(generation) = self.barrier.generations.get_mut(n) {
                generation.closed = true;
                generation.reports.clear();
            }
        }
        self.barrier.forget(&forgotten);
        if tell || !forgotten.is_empty() {
            self.tell_what_is_forgotten();
        }
        let count = forgotten.len() + closed.len();
        if !closed.is_empty() {
            self.changes.push(Change::Closed { n: closed });
        }
        if !forgotten.is_empty() {
            self.changes.push(Change::Forgotten { n: forgotten });
        }
        Ok(Reply::Collected { count })
    }

    /// Every declared region is told: who had a part in what is forgotten is
    /// forgotten with its definition, and may not have heard the end.
    fn tell_what_is_forgotten(&mut self) {
        let there: BTreeSet<u64> = self.barrier.generations.keys().chain(&self.barrier.numbers).copied().collect();
        // Of a number that may have been lost nobody says that it is forgotten.
        let end = self.barrier.lost_from.unwrap_or(self.barrier.next_n);
        let Some(newest) = (1..end).rev().find(|n| !there.contains(n)) else { return };
        let kept = there.into_iter().take_while(|n| *n < newest).collect();
        let regions = self.context.regions.keys().cloned().collect();
        let generation = GenerationId { barrier: self.barrier.name.clone(), n: newest, key: None, round: 0 };
        self.facts.push(Fact::Closed(Closed { generation, regions, kept }));
    }
}
