//! Barriers of regional scope: opened, decided and released by the region's
//! log alone. The decider is the coordinator's own machine, run inside the
//! region's: what it says as facts is applied at once, and what changes of a
//! generation is reported to it at once, all within one command.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{Effect, Refusal, Region, Regional, Reply, Timer};
use crate::caps;
use crate::fact::Fact;
use crate::generation::{GenerationId, State};
use crate::global::{self, Change, Context, Declared};
use crate::identity::{Era, Timestamp};
use crate::mutant;
use crate::name::BarrierName;

impl Region {
    pub(super) fn regional(&mut self, said: &Regional, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        let name = &said.barrier;
        if !self.regional.contains_key(name) {
            // One name space in a region: the name may be the coordinator's.
            if self.barriers.contains_key(name) {
                return Err(Refusal::NameTaken);
            }
            if !matches!(said.command, global::Command::Define { .. }) {
                return Ok(Reply::Regional(Box::new(Err(global::Refusal::NotDefined))));
            }
        }
        // These are said by the region itself, on its own clock.
        if matches!(said.command, global::Command::Report(_) | global::Command::Collect { .. }) {
            return Ok(Reply::Regional(Box::new(Err(global::Refusal::NoSuchGeneration))));
        }
        let reply = self.decide(name, &said.command, said.at, effects);
        if self.regional.get(name).is_some_and(|barrier| barrier.revision == 0) {
            self.regional.remove(name);
        }
        Ok(Reply::Regional(Box::new(reply)))
    }

    /// Runs the decider of one barrier, and of those that go down with it,
    /// until nobody has anything more to say.
    fn decide(
        &mut self,
        name: &BarrierName,
        command: &global::Command,
        at: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Result<global::Reply, global::Refusal> {
        let mut broken = VecDeque::new();
        let reply = self.decide_one(name, command, at, effects, &mut broken);
        // One after the other, not one inside the other: a barrier may come
        // after one that has broken as often as numbers go.
        while let Some((GenerationId { barrier, n, .. }, predecessor)) = broken.pop_front() {
            let command = global::Command::PredecessorBroke { n, predecessor };
            let _ = self.decide_one(&barrier, &command, at, effects, &mut broken);
        }
        reply
    }

    /// Runs the decider of one barrier, applies what it says, and tells it what
    /// came of that. Adds what is to break with it.
    fn decide_one(
        &mut self,
        name: &BarrierName,
        command: &global::Command,
        at: Timestamp,
        effects: &mut Vec<Effect>,
        broken: &mut VecDeque<(GenerationId, GenerationId)>,
    ) -> Result<global::Reply, global::Refusal> {
        let mut barrier = self.regional.remove(name).unwrap_or_else(|| global::Barrier::new(name.clone()));
        let step = self.step(&mut barrier, command, at);
        self.regional.insert(name.clone(), barrier);
        self.carry_out(&step.changes);
        for fact in &step.facts {
            // Conflicts can't be: there is one decider, and it is here.
            let _ = match fact {
                Fact::Opened(opened) => self.opened(opened, effects),
                Fact::Decided(decided) => self.decided(decided, effects),
                Fact::Waived(waived) => self.waived(waived, effects),
                Fact::Closed(_) => Ok(false),
            };
            self.tell_decider(&fact.generation().barrier, fact.generation().n, effects);
        }
        // What a cyclic generation's end opens has no opening of its own.
        for change in step.changes.iter().filter(|_| !mutant!(AfterIgnored)) {
            match change {
                Change::Decided { decided, .. } if !decided.outcome.verdict.is_released() => {
                    broken.extend(self.successors(&decided.outcome.generation));
                }
                Change::Opened(generation) => broken.extend(self.predecessor(&generation.id)),
                _ => {}
            }
        }
        step.reply
    }

    /// What gathers after a generation that broke, which it breaks with.
    fn successors(&self, broken: &GenerationId) -> Vec<(GenerationId, GenerationId)> {
        let gathering = self.regional.values().filter_map(|barrier| {
            let successor = barrier.counterpart(broken).filter(|generation| generation.decided.is_none())?;
            let after = barrier.specs.get(&successor.revision)?.after.as_ref();
            (after == Some(&broken.barrier)).then(|| (successor.id.clone(), broken.clone()))
        });
        gathering.collect()
    }

    /// What a generation that opens comes after, if that is broken.
    fn predecessor(&self, opened: &GenerationId) -> Option<(GenerationId, GenerationId)> {
        let (_, spec) = self.regional.get(&opened.barrier)?.loaded(opened.n)?;
        let predecessor = self.regional.get(spec.after.as_ref()?)?.counterpart(opened)?;
        (predecessor.state() == State::Broken).then(|| (opened.clone(), predecessor.id.clone()))
    }

    fn step(&self, barrier: &mut global::Barrier, command: &global::Command, at: Timestamp) -> global::Step {
        let era = Era::regional();
        let own = Declared { history: Some(self.history), era: Some(era.clone()), drained: None };
        let regions = BTreeMap::from([(self.name.clone(), own)]);
        let namespace = barrier.name.namespace();
        let defines = matches!(command, global::Command::Define { .. });
        let defined = self.regional.keys().filter(|name| defines && name.namespace() == namespace).count();
        let context = Context {
            now: Timestamp(self.clock_ms),
            at,
            era: &era,
            regions: &regions,
            barriers_in_namespace: u32::try_from(defined).unwrap_or(u32::MAX),
        };
        global::apply(barrier, &context, command)
    }

    fn carry_out(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Opened(generation) => {
                    let (id, due) = (&generation.id, generation.deadline_at);
                    self.arm_deadline(&id.barrier.clone(), id.n, due);
                }
                Change::Audited(audit) => {
                    if self.audit.len() >= caps::REGION_AUDIT_MAX {
                        self.audit.pop_front();
                    }
                    self.audit.push_back((**audit).clone());
                }
                _ => {}
            }
        }
    }

    fn arm_deadline(&mut self, barrier: &BarrierName, n: u64, due: Option<Timestamp>) {
        if let Some(due) = due {
            let after_ms = due.0.saturating_sub(self.clock_ms);
            self.armed.push((after_ms, Timer::Deadline { barrier: barrier.clone(), n }));
        }
    }

    /// The time of a generation counts from when the region clock moved after
    /// its opening.
    pub(super) fn set_deadline(&mut self, barrier: &BarrierName, n: u64, due_ms: u64) {
        let decider = self.regional.get_mut(barrier).and_then(|barrier| barrier.generations.get_mut(&n));
        if let Some(generation) = decider.filter(|generation| generation.decided.is_none()) {
            generation.deadline_at = Some(Timestamp(due_ms));
        }
    }

    /// Tells the decider of a regional barrier what the region knows of a
    /// generation. Its stamps for people are the generation's own.
    pub(super) fn tell_decider(&mut self, barrier: &BarrierName, n: u64, effects: &mut Vec<Effect>) {
        if !self.regional.contains_key(barrier) {
            return;
        }
        let Some(report) = self.report(barrier, n) else { return };
        let at = report.last_arrival_at.or_else(|| Some(self.generation(barrier, n)?.opened_at)).unwrap_or_default();
        let command = global::Command::Report(Box::new(report));
        let before = self.deadline(barrier, n);
        // A report has no answer that anybody waits for.
        let _ = self.decide(barrier, &command, at, effects);
        let after = self.deadline(barrier, n);
        if before != after {
            self.arm_deadline(barrier, n, after);
        }
    }

    fn deadline(&self, barrier: &BarrierName, n: u64) -> Option<Timestamp> {
        self.regional.get(barrier)?.generations.get(&n)?.deadline_at
    }

    pub(super) fn deadline_is_due(&mut self, barrier: &BarrierName, n: u64, at: Timestamp, effects: &mut Vec<Effect>) {
        // The decider names who is missing now, not who was.
        self.tell_decider(barrier, n, effects);
        let _ = self.decide(barrier, &global::Command::Expire { n }, at, effects);
    }

    /// A barrier of regional scope, as its decider knows it.
    #[must_use]
    pub fn regional_barrier(&self, name: &BarrierName) -> Option<&global::Barrier> {
        self.regional.get(name)
    }

    /// All barriers of regional scope.
    pub fn regional_barriers(&self) -> impl Iterator<Item = &global::Barrier> {
        self.regional.values()
    }

    /// Overrides of regional barriers, the oldest first.
    pub fn audit(&self) -> impl DoubleEndedIterator<Item = &global::Audit> {
        self.audit.iter()
    }
}
