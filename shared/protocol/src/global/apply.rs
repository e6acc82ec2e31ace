//! One command in, one step out.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::decide::verdict;
use super::{Barrier, Change, Command, Context, Expect, Generation, Refusal, Reply, Step};
use crate::caps;
use crate::fact::{Decided, Fact, Next};
use crate::generation::GenerationId;
use crate::mutant;
use crate::name::Key;
use crate::outcome::{Break, BreakReason, Outcome, Verdict};
use crate::report::RegionReport;
use crate::spec::{Generations, Spec};

/// Applies one command to a barrier of which [`Names`](super::Names) are
/// loaded. The barrier holds the new state; the step says what to write.
pub fn apply(barrier: &mut Barrier, context: &Context<'_>, command: &Command) -> Step {
    let mut work = Work { barrier, context, changes: Vec::new(), facts: Vec::new() };
    let reply = match command {
        Command::Define { spec, expect } => work.define(spec, *expect),
        Command::Delete { force, actor, reason } => work.delete(*force, actor.as_deref(), reason),
        Command::Open { key } => work.open(key.as_ref()),
        Command::Report(report) => work.report(report),
        Command::Abort { n, actor, reason } => work.abort(*n, actor.as_deref(), reason),
        Command::Expire { n } => work.expire(*n),
    };
    Step { changes: work.changes, reply, facts: work.facts }
}

struct Work<'a> {
    barrier: &'a mut Barrier,
    context: &'a Context<'a>,
    changes: Vec<Change>,
    facts: Vec<Fact>,
}

impl Work<'_> {
    fn define(&mut self, spec: &Spec, expect: Expect) -> Result<Reply, Refusal> {
        let revision = self.barrier.spec().map_or(0, |_| self.barrier.revision);
        if let Expect::Revision(expected) = expect
            && expected != revision
        {
            return Err(Refusal::Precondition { revision });
        }
        self.admit(spec)?;
        match self.barrier.spec() {
            Some(current) if current == spec => {
                return Ok(Reply::Defined { revision, created: false, changed: false });
            }
            Some(current) if expect == Expect::NewOrEqual => {
                return Err(Refusal::Conflict { current: Box::new(current.clone()), revision });
            }
            Some(_) => {}
            None if self.context.barriers_in_namespace >= caps::BARRIERS_PER_NAMESPACE_MAX => {
                return Err(Refusal::TooManyBarriers { limit: caps::BARRIERS_PER_NAMESPACE_MAX });
            }
            None => {}
        }
        let created = self.barrier.deleted;
        if created && mutant!(NumbersRestart) {
            self.barrier.next_n = 1;
        }
        self.barrier.deleted = false;
        self.barrier.revision += 1;
        self.barrier.specs.insert(self.barrier.revision, spec.clone());
        self.changes.push(Change::Defined { revision: self.barrier.revision, spec: Box::new(spec.clone()) });
        let opens = match spec.generations {
            Generations::Single => created,
            Generations::Cyclic => true,
            Generations::Keyed { .. } => false,
        };
        if opens && self.barrier.gathering == 0 {
            let generation = self.new_generation(None, 0, Opening::Asked);
            self.insert(generation);
        }
        Ok(Reply::Defined { revision: self.barrier.revision, created, changed: true })
    }

    fn admit(&self, spec: &Spec) -> Result<(), Refusal> {
        match spec.regions.keys().find(|region| !self.context.regions.contains_key(*region)) {
            None => Ok(()),
            Some(region) => Err(Refusal::UnknownRegion {
                region: region.clone(),
                declared: self.context.regions.keys().cloned().collect(),
            }),
        }
    }

    fn delete(&mut self, force: bool, actor: Option<&str>, reason: &str) -> Result<Reply, Refusal> {
        if self.barrier.deleted {
            return match self.barrier.revision {
                0 => Err(Refusal::NotDefined),
                _ => Ok(Reply::Deleted { changed: false, broken: Vec::new() }),
            };
        }
        let open = self.gathering();
        if !force && !open.is_empty() {
            let open = open.iter().filter_map(|n| Some(self.barrier.generations.get(n)?.id.clone())).collect();
            return Err(Refusal::StillGathering { open });
        }
        // Marked first: the end of a cyclic generation must not open another.
        self.barrier.deleted = true;
        self.changes.push(Change::Deleted);
        let mut broken = Vec::new();
        for n in open {
            let outcome = self.end(n, Verdict::Broken(asked(BreakReason::Deleted, actor, reason)))?;
            broken.push(outcome.generation.clone());
        }
        Ok(Reply::Deleted { changed: true, broken })
    }

    fn gathering(&self) -> Vec<u64> {
        let open = self.barrier.generations.values().filter(|generation| generation.decided.is_none());
        open.map(|generation| generation.id.n).collect()
    }

    fn open(&mut self, key: Option<&Key>) -> Result<Reply, Refusal> {
        let spec = self.barrier.spec().ok_or(Refusal::NotDefined)?;
        let known = match (spec.generations, key) {
            (Generations::Keyed { .. }, None) => return Err(Refusal::KeyNeeded),
            (Generations::Single | Generations::Cyclic, Some(_)) => return Err(Refusal::NotKeyed),
            (Generations::Keyed { .. }, Some(_)) => {
                let rounds = self.barrier.generations.values().filter(|generation| generation.id.key.as_ref() == key);
                rounds.max_by_key(|generation| generation.id.round)
            }
            (Generations::Single | Generations::Cyclic, None) => {
                self.barrier.generations.values().rev().find(|generation| generation.decided.is_none())
            }
        };
        if let Some(known) = known {
            let outcome = known.decided.as_ref().map(|decided| Box::new(decided.outcome.clone()));
            return Ok(Reply::Opened { generation: known.id.clone(), created: false, outcome });
        }
        match spec.generations {
            Generations::Keyed { max_open } if self.barrier.gathering >= max_open => {
                return Err(Refusal::TooManyOpen { limit: max_open });
            }
            // A single barrier that has crossed has no other generation.
            Generations::Single => return Err(Refusal::NoSuchGeneration),
            Generations::Keyed { .. } | Generations::Cyclic => {}
        }
        let generation = self.new_generation(key, 0, Opening::Asked);
        let id = generation.id.clone();
        self.insert(generation);
        Ok(Reply::Opened { generation: id, created: true, outcome: None })
    }

    fn report(&mut self, report: &RegionReport) -> Result<Reply, Refusal> {
        let current = self.context.regions.get(&report.region).copied().flatten();
        let (generation, spec) = self.barrier.loaded(report.generation.n).ok_or(Refusal::NoSuchGeneration)?;
        let foreign = current != Some(report.stamp.history)
            || generation.id != report.generation
            || !spec.regions.contains_key(&report.region);
        if foreign {
            return Err(Refusal::ForeignReport);
        }
        let known = generation.reports.get(&report.region).map(|known| known.stamp);
        let newer = known.is_none_or(|stamp| stamp.history != report.stamp.history || report.stamp.index > stamp.index);
        if !newer {
            return Ok(Reply::Reported { newer: false });
        }
        let n = report.generation.n;
        // Nobody counts the time of a cyclic generation that nobody came to.
        let starts =
            generation.decided.is_none() && generation.deadline_at.is_none() && report.first_arrival_at.is_some();
        let deadline_at = spec.deadline_ms.filter(|_| starts).map(|ms| self.context.now.plus_ms(ms));
        self.changes.push(Change::Reported { n, report: Box::new(report.clone()) });
        if let Some(at) = deadline_at {
            self.changes.push(Change::DeadlineSet { n, at });
        }
        if let Some(generation) = self.barrier.generations.get_mut(&n) {
            generation.reports.insert(report.region.clone(), report.clone());
            generation.deadline_at = generation.deadline_at.or(deadline_at);
        }
        self.evaluate(n)?;
        self.settle(n);
        Ok(Reply::Reported { newer: true })
    }

    fn abort(&mut self, n: u64, actor: Option<&str>, reason: &str) -> Result<Reply, Refusal> {
        let (generation, _) = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?;
        if let Some(decided) = &generation.decided {
            let outcome = Box::new(decided.outcome.clone());
            return match outcome.verdict.is_released() {
                true => Err(Refusal::AlreadyReleased { outcome }),
                false => Ok(Reply::Ended { outcome, changed: false }),
            };
        }
        let outcome = self.end(n, Verdict::Broken(asked(BreakReason::Aborted, actor, reason)))?;
        Ok(Reply::Ended { outcome: Box::new(outcome), changed: true })
    }

    fn expire(&mut self, n: u64) -> Result<Reply, Refusal> {
        if mutant!(TimerOfOldGeneration) {
            return self.abort(self.barrier.next_n - 1, None, "an old timer");
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
    fn evaluate(&mut self, n: u64) -> Result<(), Refusal> {
        let (generation, spec) = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?;
        if generation.decided.is_none()
            && let Some(verdict) = verdict(generation, spec, self.context.now)
        {
            self.end(n, verdict)?;
        }
        Ok(())
    }

    /// Writes the outcome, once, and opens what follows it.
    fn end(&mut self, n: u64, verdict: Verdict) -> Result<Outcome, Refusal> {
        let generation = self.barrier.generations.get(&n).ok_or(Refusal::NoSuchGeneration)?;
        let revision = generation.revision;
        let outcome = Outcome { generation: generation.id.clone(), verdict, decided_at: self.context.now };
        self.barrier.gathering = self.barrier.gathering.saturating_sub(1);
        let cyclic = self.barrier.spec().is_some_and(|spec| spec.generations == Generations::Cyclic);
        let next = (cyclic && self.barrier.gathering == 0).then(|| self.new_generation(None, 0, Opening::ByItself));
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
    fn settle(&mut self, n: u64) {
        let Some((generation, spec)) = self.barrier.loaded(n) else { return };
        if generation.settled || !generation.applied_everywhere(spec) {
            return;
        }
        if let Some(generation) = self.barrier.generations.get_mut(&n) {
            generation.settled = true;
        }
        self.changes.push(Change::Settled { n });
    }

    fn new_generation(&self, key: Option<&Key>, round: u32, opening: Opening) -> Generation {
        let deadline_ms = self.barrier.spec().and_then(|spec| spec.deadline_ms);
        Generation {
            id: GenerationId { barrier: self.barrier.name.clone(), n: self.barrier.next_n, key: key.cloned(), round },
            revision: self.barrier.revision,
            opened_at: self.context.now,
            deadline_at: match opening {
                Opening::Asked => deadline_ms.map(|ms| self.context.now.plus_ms(ms)),
                Opening::ByItself => None,
            },
            era: self.context.era.clone(),
            reports: BTreeMap::new(),
            decided: None,
            settled: false,
        }
    }

    /// Adds a generation, and tells each of its regions. The slice travels
    /// with the first generation of a revision; a region that lacks it later
    /// gets it with the repeat.
    fn insert(&mut self, generation: Generation) {
        let n = generation.id.n;
        let previous = self.barrier.generations.get(&(n - 1));
        let told = previous.is_some_and(|previous| previous.revision == generation.revision);
        let by_decided =
            told && previous.and_then(|p| p.decided.as_ref()?.next.as_ref()).is_some_and(|next| next.same_spec);
        if let Some(spec) = self.barrier.specs.get(&generation.revision).filter(|_| !by_decided) {
            let regions = spec.regions.keys();
            self.facts.extend(regions.filter_map(|region| generation.opened(spec, region, !told)));
        }
        self.changes.push(Change::Opened(Box::new(generation.clone())));
        self.barrier.next_n = n + 1;
        self.barrier.gathering += 1;
        self.barrier.generations.insert(n, generation);
    }
}

/// Who or what opened a generation: its time counts from an act, or from its
/// first arrival when nobody acted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opening {
    Asked,
    ByItself,
}

fn asked(reason: BreakReason, actor: Option<&str>, message: &str) -> Break {
    Break { reason, region: None, failed: Vec::new(), actor: actor.map(String::from), message: String::from(message) }
}
