//! Definitions and openings.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::apply::{Opening, Work, asked};
use super::{Action, Change, Expect, Generation, Refusal, Reply, Waiver};
use crate::caps;
use crate::fact::Fact;
use crate::generation::GenerationId;
use crate::mutant;
use crate::name::Key;
use crate::outcome::{BreakReason, Override, Verdict};
use crate::spec::{Generations, Spec};

impl Work<'_> {
    pub(super) fn define(&mut self, spec: &Spec, expect: Expect) -> Result<Reply, Refusal> {
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
        let opens = match spec.generations {
            Generations::Single => created,
            Generations::Cyclic => true,
            Generations::Keyed { .. } => false,
        };
        let opens = opens && self.barrier.gathering == 0;
        // All of it or nothing: said again, an equal definition opens nothing.
        if opens {
            self.all_are_heard(spec)?;
        }
        if created && mutant!(NumbersRestart) {
            self.barrier.next_n = 1;
        }
        self.barrier.deleted = false;
        self.barrier.revision += 1;
        self.barrier.specs.insert(self.barrier.revision, spec.clone());
        self.changes.push(Change::Defined { revision: self.barrier.revision, spec: Box::new(spec.clone()) });
        if !created {
            let by = Override { actor: None, reason: String::new() };
            self.audit(Action::Replace, None, &by, &format!("revision {}", self.barrier.revision));
        }
        if opens {
            let generation = self.new_generation(None, 0, Opening::Asked);
            self.insert(generation);
        }
        Ok(Reply::Defined { revision: self.barrier.revision, created, changed: true })
    }

    fn admit(&self, spec: &Spec) -> Result<(), Refusal> {
        // Callers say `7` for the seventh generation and for the key 7: what was
        // one must not become the other, deleted or not.
        let last = self.barrier.specs.get(&self.barrier.revision).filter(|_| self.barrier.next_n > 1);
        if let Some(last) = last.filter(|last| last.generations.are_keyed() != spec.generations.are_keyed()) {
            return Err(Refusal::KindStays { keyed: last.generations.are_keyed() });
        }
        match spec.regions.keys().find(|region| !self.context.regions.contains_key(*region)) {
            None => Ok(()),
            Some(region) => Err(Refusal::UnknownRegion {
                region: region.clone(),
                declared: self.context.regions.keys().cloned().collect(),
            }),
        }
    }

    /// Nothing opens before every region that could know of generations which
    /// the database has lost has said so.
    pub(super) fn all_are_heard(&self, spec: &Spec) -> Result<(), Refusal> {
        let silent = spec.regions.keys().find(|region| {
            let declared = self.context.regions.get(*region);
            declared.is_some_and(|known| known.history.is_some() && known.era.as_ref() != Some(self.context.era))
        });
        silent.map_or(Ok(()), |region| Err(Refusal::RegionBehind { region: region.clone() }))
    }

    pub(super) fn delete(&mut self, force: bool, by: &Override) -> Result<Reply, Refusal> {
        if self.barrier.deleted {
            return match self.barrier.revision {
                0 => Err(Refusal::NotDefined),
                _ => Ok(Reply::Deleted { changed: false, broken: alloc::vec::Vec::new() }),
            };
        }
        let open = self.gathering();
        if !force && !open.is_empty() {
            let open = open.iter().filter_map(|n| Some(self.barrier.generations.get(n)?.id.clone())).collect();
            return Err(Refusal::StillGathering { open });
        }
        for n in &open {
            self.may_decide(*n)?;
        }
        // Marked first: the end of a cyclic generation must not open another.
        self.barrier.deleted = true;
        self.changes.push(Change::Deleted);
        if force {
            self.audit(Action::Delete, None, by, "");
        }
        let mut broken = alloc::vec::Vec::new();
        for n in open {
            let outcome = self.end(n, Verdict::Broken(asked(BreakReason::Deleted, by)))?;
            broken.push(outcome.generation.clone());
        }
        Ok(Reply::Deleted { changed: true, broken })
    }

    fn gathering(&self) -> alloc::vec::Vec<u64> {
        let open = self.barrier.generations.values().filter(|generation| generation.decided.is_none());
        open.map(|generation| generation.id.n).collect()
    }

    pub(super) fn open(&mut self, key: Option<&Key>) -> Result<Reply, Refusal> {
        let spec = self.barrier.spec().ok_or(Refusal::NotDefined)?;
        let known = match (spec.generations, key) {
            (Generations::Keyed { .. }, None) => return Err(Refusal::KeyNeeded),
            (Generations::Single | Generations::Cyclic, Some(_)) => return Err(Refusal::NotKeyed),
            (Generations::Keyed { .. }, Some(_)) => self.latest_round(key),
            (Generations::Single | Generations::Cyclic, None) => {
                self.barrier.generations.values().rev().find(|generation| generation.decided.is_none())
            }
        };
        if let Some(known) = known {
            let outcome = known.decided.as_ref().map(|decided| Box::new(decided.outcome.clone()));
            return Ok(Reply::Opened { generation: known.id.clone(), created: false, outcome });
        }
        // A single barrier that has crossed has no other generation.
        if spec.generations == Generations::Single {
            return Err(Refusal::NoSuchGeneration);
        }
        self.has_room()?;
        self.all_are_heard(spec)?;
        let generation = self.new_generation(key, 0, Opening::Asked);
        let id = generation.id.clone();
        self.insert(generation);
        Ok(Reply::Opened { generation: id, created: true, outcome: None })
    }

    /// The latest round of a key.
    pub(super) fn latest_round(&self, key: Option<&Key>) -> Option<&Generation> {
        let rounds = self.barrier.generations.values().filter(|generation| generation.id.key.as_ref() == key);
        rounds.max_by_key(|generation| generation.id.round)
    }

    /// Whether one more generation may gather.
    pub(super) fn has_room(&self) -> Result<(), Refusal> {
        match self.barrier.spec().map(|spec| spec.generations) {
            Some(Generations::Keyed { max_open }) if self.barrier.gathering >= max_open => {
                Err(Refusal::TooManyOpen { limit: max_open })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn new_generation(&self, key: Option<&Key>, round: u32, opening: Opening) -> Generation {
        let deadline_ms = self.barrier.spec().and_then(|spec| spec.deadline_ms);
        Generation {
            id: GenerationId { barrier: self.barrier.name.clone(), n: self.barrier.next_n, key: key.cloned(), round },
            revision: self.barrier.revision,
            opened_at: self.context.at,
            deadline_at: match opening {
                Opening::Asked => deadline_ms.map(|ms| self.context.now.plus_ms(ms)),
                Opening::ByItself => None,
            },
            era: self.context.era.clone(),
            reports: BTreeMap::new(),
            decided: None,
            settled: false,
            carry: None,
            waived: self.drained(),
            closed: false,
        }
    }

    /// A drained region is waived in everything that opens, unless nobody would
    /// be left to wait for: then a cyclic barrier would release one generation
    /// after the other, and whoever comes first would pass alone.
    fn drained(&self) -> BTreeMap<crate::name::RegionName, Waiver> {
        let Some(spec) = self.barrier.spec().filter(|_| !mutant!(DrainedRequired)) else { return BTreeMap::new() };
        let waiver = |by: Override| Waiver { revision: 1, participants: None, by };
        let drained = spec.regions.keys().filter_map(|region| {
            let by = self.context.regions.get(region)?.drained.clone()?;
            Some((region.clone(), waiver(by)))
        });
        let drained: BTreeMap<_, _> = drained.collect();
        let nobody_left = spec.release_when.holds(spec.regions.keys(), &|leaf| drained.contains_key(&leaf.region));
        if nobody_left { BTreeMap::new() } else { drained }
    }

    /// Adds a generation, and tells each of its regions. The slice travels
    /// with the first generation of a revision; a region that lacks it later
    /// gets it with the repeat.
    pub(super) fn insert(&mut self, generation: Generation) {
        let n = generation.id.n;
        let previous = self.barrier.generations.get(&(n - 1));
        let told = previous.is_some_and(|previous| previous.revision == generation.revision);
        let by_decided =
            told && previous.and_then(|p| p.decided.as_ref()?.next.as_ref()).is_some_and(|next| next.same_spec);
        if let Some(spec) = self.barrier.specs.get(&generation.revision).filter(|_| !by_decided) {
            let regions = spec.regions.keys();
            self.facts.extend(regions.filter_map(|region| generation.opened(spec, region, !told).map(Fact::Opened)));
        }
        self.changes.push(Change::Opened(Box::new(generation.clone())));
        self.barrier.take_number(n);
        self.barrier.gathering += 1;
        self.barrier.generations.insert(n, generation);
    }
}
