//! One command in, one step out.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Barrier, Change, Command, Context, Refusal, Reply, Step, View};
use crate::fact::{Decided, Fact, Next};
use crate::mutant;
use crate::outcome::{Break, BreakReason, Outcome, Override, Verdict};
use crate::spec::Generations;

/// Applies one command to a barrier of which [`Names`](super::Names) are
/// loaded. The barrier holds the new state; the step says what to write.
pub fn apply(barrier: &mut Barrier, context: &Context<'_>, command: &Command) -> Step {
    let mut work = Work { barrier, context, changes: Vec::new(), facts: Vec::new() };
    let reply = match command {
        Command::Define { spec, expect } => work.define(spec, *expect),
        Command::Delete { force, by } => work.delete(*force, by),
        Command::Open { key } => work.open(key.as_ref()),
        Command::Report(report) => work.report(report),
        Command::Abort { n, by } => work.abort(*n, by),
        Command::Release { n, by } => work.release(*n, by),
        Command::Waive { n, region, participants, by } => work.waive(*n, region, participants.as_ref(), by),
        Command::Retry { n, key, keep, by } => work.retry(*n, key.as_ref(), *keep, by),
        Command::PredecessorBroke { n, predecessor } => work.predecessor_broke(*n, predecessor),
        Command::Expire { n } => work.expire(*n),
        Command::Collect { tell } => work.collect(*tell),
    };
    Step { changes: work.changes, reply, facts: work.facts }
}

pub(super) struct Work<'a> {
    pub(super) barrier: &'a mut Barrier,
    pub(super) context: &'a Context<'a>,
    pub(super) changes: Vec<Change>,
    pub(super) facts: Vec<Fact>,
}

impl Work<'_> {
    /// A loaded generation as it can be judged.
    pub(super) fn view(&self, n: u64) -> Result<View<'_>, Refusal> {
        let (generation, spec) = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?;
        Ok(View { generation, spec, context: self.context })
    }

    fn expire(&mut self, n: u64) -> Result<Reply, Refusal> {
        if mutant!(TimerOfOldGeneration) {
            let by = Override { actor: None, reason: "an old timer".into() };
            return self.abort(self.barrier.next_n - 1, &by);
        }
        let before = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?.0.decided.is_some();
        self.evaluate(n)?;
        let (generation, _) = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?;
        Ok(match &generation.decided {
            Some(decided) => Reply::Ended { outcome: Box::new(decided.outcome.clone()), changed: !before },
            None => Reply::NotDue,
        })
    }

    /// Decides a gathering generation if what is known decides it.
    pub(super) fn evaluate(&mut self, n: u64) -> Result<(), Refusal> {
        let view = self.view(n)?;
        if view.generation.decided.is_none()
            && let Some(verdict) = view.verdict()
        {
            self.end(n, verdict)?;
        }
        Ok(())
    }

    /// Writes the outcome, once, and opens what follows it.
    pub(super) fn end(&mut self, n: u64, verdict: Verdict) -> Result<Outcome, Refusal> {
        let generation = self.barrier.generations.get(&n).ok_or(Refusal::NoSuchGeneration)?;
        let outcome = Outcome { generation: generation.id.clone(), verdict, decided_at: self.context.at };
        self.end_as(n, outcome)
    }

    /// Ends a generation with an outcome that may have been written before.
    pub(super) fn end_as(&mut self, n: u64, outcome: Outcome) -> Result<Outcome, Refusal> {
        let revision = self.barrier.generations.get(&n).ok_or(Refusal::NoSuchGeneration)?.revision;
        self.barrier.gathering = self.barrier.gathering.saturating_sub(1);
        let cyclic = self.barrier.spec().is_some_and(|spec| spec.generations == Generations::Cyclic);
        // A region that has the name for its own would break the next one, too,
        // and the one after it, without end: somebody opens it once that is over.
        let opens = cyclic && !outcome.verdict.is_broken_for(BreakReason::NameTaken);
        let next = (opens && self.barrier.gathering == 0).then(|| self.new_generation(None, 0, Opening::ByItself));
        let decided = Decided {
            outcome: outcome.clone(),
            regions: self
                .barrier
                .specs
                .get(&revision)
                .map_or_else(Vec::new, |spec| spec.regions.keys().cloned().collect()),
            next: next.as_ref().map(|next| Next {
                generation: next.id.clone(),
                same_spec: next.revision == revision,
                opened_at: next.opened_at,
            }),
        };
        if let Some(generation) = self.barrier.generations.get_mut(&n) {
            generation.decided = Some(decided.clone());
        }
        self.changes.push(Change::Decided { n, decided: Box::new(decided.clone()) });
        self.facts.push(Fact::Decided(decided));
        if let Some(next) = next {
            self.insert(next);
        }
        Ok(outcome)
    }

    /// Marks a generation whose end every region has applied.
    pub(super) fn settle(&mut self, n: u64) {
        let Some((generation, spec)) = self.barrier.loaded(n) else { return };
        if generation.settled || !generation.applied_everywhere(spec) {
            return;
        }
        if let Some(generation) = self.barrier.generations.get_mut(&n) {
            generation.settled = true;
        }
        self.changes.push(Change::Settled { n });
    }
}

/// Who or what opened a generation: its time counts from an act, or from its
/// first arrival when nobody acted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Asked,
    ByItself,
}

/// Somebody asked for a break.
pub(super) fn asked(reason: BreakReason, by: &Override) -> Break {
    Break { reason, region: None, failed: Vec::new(), actor: by.actor.clone(), message: by.reason.clone() }
}
