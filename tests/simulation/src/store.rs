//! The coordinator's store: rows, one transaction at a time, and the pure
//! machine between load and write, as the adapters for real databases do it.
//! A write that a real table's guard would refuse is a broken promise here.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::caps::VERDICTS_FACTOR;
use muster_protocol::fact::{Decided, Fact, Heartbeat, Hello, Standing, Welcome};
use muster_protocol::generation::State;
use muster_protocol::global::{self, Barrier, Change, Command, Context, Declared, Generation, Names, Reply, Step};
use muster_protocol::identity::{Era, History, Timestamp};
use muster_protocol::invariant::{self, Invariant};
use muster_protocol::mutant;
use muster_protocol::name::{BarrierName, Key, RegionName};
use muster_protocol::outcome::Override;
use muster_protocol::report::RegionReport;

/// What a promise that was about to break was, and how.
pub(crate) type Broken = (Invariant, String);

/// Reports by barrier and generation, as one statement saw them.
pub(crate) type Seen = BTreeMap<(BarrierName, u64), BTreeMap<RegionName, RegionReport>>;

/// The rows.
#[derive(Clone, Debug)]
struct Tables {
    barriers: BTreeMap<BarrierName, Barrier>,
    regions: BTreeMap<RegionName, Declared>,
    highest: BTreeMap<(RegionName, History), u64>,
    /// Lives of logs whose place another took.
    superseded: BTreeSet<(RegionName, History)>,
}

/// The store.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    tables: Tables,
    era: Era,
    /// The tables before each of the latest transactions, while they are kept.
    past: Option<Vec<Tables>>,
}

/// What a client may see of a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Looked {
    pub(crate) defined: bool,
    pub(crate) next_n: u64,
    /// The newest generation that gathers, or the latest round of the key that
    /// was asked for, and its regions.
    pub(crate) found: Option<(u64, Vec<RegionName>)>,
    /// Which retry of its key that is.
    pub(crate) round: u32,
}

impl Store {
    pub(crate) fn new(regions: &[RegionName], keeps_past: bool) -> Self {
        let regions = regions.iter().map(|region| (region.clone(), Declared::default())).collect();
        let tables =
            Tables { barriers: BTreeMap::new(), regions, highest: BTreeMap::new(), superseded: BTreeSet::new() };
        Self { tables, era: Era::new("simulated"), past: keeps_past.then(Vec::new) }
    }

    #[cfg(test)]
    pub(crate) fn barriers(&self) -> impl Iterator<Item = &Barrier> {
        self.tables.barriers.values()
    }

    pub(crate) fn barrier(&self, name: &BarrierName) -> Option<&Barrier> {
        self.tables.barriers.get(name)
    }

    /// What a statement sees of the reports now.
    pub(crate) fn see(&self, batch: &[(BarrierName, Command)]) -> Seen {
        let mut seen = Seen::new();
        for barrier in batch.iter().filter_map(|(name, _)| self.tables.barriers.get(name)) {
            for generation in barrier.generations.values() {
                seen.insert((barrier.name.clone(), generation.id.n), generation.reports.clone());
            }
        }
        seen
    }

    /// Locks, loads, applies, writes, commits. `seen` is what the statement
    /// that waited for the locks saw when it began: nothing may come of it.
    pub(crate) fn transact(
        &mut self,
        batch: &[(BarrierName, Command)],
        seen: &Seen,
        now: Timestamp,
    ) -> Result<Vec<Step>, Broken> {
        let mut names: BTreeMap<BarrierName, Names> = BTreeMap::new();
        for (name, command) in batch {
            names.entry(name.clone()).or_default().add(command);
        }
        let mut loaded: BTreeMap<BarrierName, Barrier> =
            names.iter().map(|(name, names)| (name.clone(), self.load(name, names, now))).collect();
        if mutant!(LockAndCountAtOnce) {
            loaded.values_mut().for_each(|barrier| unsee(barrier, seen));
        }
        let barriers_in_namespace = self.tables.barriers.values().filter(|barrier| !barrier.deleted).count() as u32;
        let mut steps = Vec::with_capacity(batch.len());
        for (name, command) in batch {
            let Some(barrier) = loaded.get_mut(name) else { continue };
            let context =
                Context { now, at: now, era: &self.era, regions: &self.tables.regions, barriers_in_namespace };
            let step = global::apply(barrier, &context, command);
            step.changes.iter().try_for_each(|change| check(barrier, change))?;
            steps.push(step);
        }
        self.commit(batch, &steps)?;
        Ok(steps)
    }

    /// What would come of a batch; nothing is written.
    pub(crate) fn dry_run(&self, batch: &[(BarrierName, Command)], now: Timestamp) -> Result<Vec<Step>, Broken> {
        self.clone().transact(batch, &Seen::new(), now)
    }

    fn commit(&mut self, batch: &[(BarrierName, Command)], steps: &[Step]) -> Result<(), Broken> {
        if steps.iter().all(|step| step.changes.is_empty()) {
            return Ok(());
        }
        self.remember();
        for ((name, command), step) in batch.iter().zip(steps) {
            step.changes.iter().try_for_each(|change| self.write(name, change))?;
            if let (Command::Report(report), Ok(Reply::Reported { .. })) = (command, &step.reply) {
                self.raise(&report.region, report.stamp.history, report.stamp.index);
            }
        }
        Ok(())
    }

    /// A barrier with only what is named of it.
    fn load(&self, name: &BarrierName, names: &Names, now: Timestamp) -> Barrier {
        let Some(row) = self.tables.barriers.get(name) else { return Barrier::new(name.clone()) };
        let latest = |key| {
            let rounds = row.generations.values().filter(|one| one.id.key.as_ref() == Some(key));
            rounds.max_by_key(|one| one.id.round).map(|one| one.id.n)
        };
        let mut numbers: BTreeSet<u64> = names.numbers.clone();
        let said = names.said.iter().filter(|(n, _)| row.takes_up(*n)).map(|(_, key)| key);
        numbers.extend(names.keys.iter().chain(said).filter_map(latest));
        let gathering = row.generations.values().filter(|one| one.decided.is_none());
        numbers.extend(gathering.filter(|_| names.gathering).map(|one| one.id.n));
        numbers.extend(row.generations.keys().next_back().filter(|_| names.latest));
        let named = numbers.iter().filter_map(|n| Some((*n, row.generations.get(n)?.clone())));
        // What is past its retention comes bare.
        let past = row.generations.values().filter(|one| names.finished && is_past(row, one, now));
        let bare = |one: &Generation| Generation { reports: BTreeMap::new(), waived: BTreeMap::new(), ..one.clone() };
        let generations: BTreeMap<_, _> = past.map(|one| (one.id.n, bare(one))).chain(named).collect();
        let numbers = row.generations.keys().copied().filter(|_| names.finished).collect();
        let revisions: BTreeSet<u64> = generations.values().map(|one| one.revision).chain([row.revision]).collect();
        let specs = revisions.iter().filter_map(|at| Some((*at, row.specs.get(at)?.clone()))).collect();
        Barrier { specs, generations, numbers, ..row.clone() }
    }

    fn write(&mut self, name: &BarrierName, change: &Change) -> Result<(), Broken> {
        let row = self.tables.barriers.entry(name.clone()).or_insert_with(|| Barrier::new(name.clone()));
        match change {
            Change::Defined { revision, spec } => {
                (row.revision, row.deleted) = (*revision, false);
                row.specs.insert(*revision, (**spec).clone());
            }
            Change::Deleted => row.deleted = true,
            Change::Opened(generation) => {
                let n = generation.id.n;
                let lost = generation.era == Era::lost();
                if row.generations.contains_key(&n) || n < row.next_n && !lost {
                    return Err((Invariant::GenerationsApart, format!("{name} opened generation {n} twice")));
                }
                let regions = &self.tables.regions;
                let drained = |region: &RegionName| regions.get(region).is_some_and(|one| one.drained.is_some());
                if let Some(spec) = row.specs.get(&generation.revision) {
                    let regions = || spec.regions.keys();
                    let alone = spec.release_when.holds(regions(), &|leaf| drained(&leaf.region));
                    let wrong = regions().filter(|region| drained(region)).find(|one| generation.waives(one) == alone);
                    if let Some(region) = wrong {
                        let what = if alone { "waits for nobody: so is" } else { "waits for" };
                        return Err((Invariant::Live, format!("{} {what} {region}, which is away", generation.id)));
                    }
                }
                row.take_number(n);
                row.gathering += 1;
                row.generations.insert(n, (**generation).clone());
            }
            Change::Reported { n, report } => {
                if let Some(one) = row.generations.get_mut(n) {
                    one.reports.insert(report.region.clone(), (**report).clone());
                }
            }
            Change::DeadlineSet { n, at } => {
                if let Some(one) = row.generations.get_mut(n) {
                    one.deadline_at = Some(*at);
                }
            }
            Change::Decided { n, decided } => write_outcome(row, *n, decided)?,
            Change::Settled { n } => {
                if let Some(one) = row.generations.get_mut(n) {
                    one.settled = true;
                }
            }
            Change::Waived { n, region, waiver } => {
                row.generations.get_mut(n).map(|one| one.waived.insert(region.clone(), waiver.clone()));
            }
            Change::Closed { n } => n.iter().for_each(|n| {
                if let Some(one) = row.generations.get_mut(n) {
                    one.closed = true;
                    one.reports.clear();
                }
            }),
            Change::Forgotten { n } => row.forget(n),
            Change::Audited(_) => {}
        }
        Ok(())
    }

    fn raise(&mut self, region: &RegionName, history: History, index: u64) {
        if self.tables.regions.get(region).is_some_and(|declared| declared.history == Some(history)) {
            let highest = self.tables.highest.entry((region.clone(), history)).or_default();
            *highest = index.max(*highest);
        }
    }

    pub(crate) fn hello(&mut self, hello: &Hello) -> Welcome {
        let era = self.era.clone();
        let welcome = |standing, index, tell_ends| Welcome {
            region: hello.region.clone(),
            agent: hello.agent.clone(),
            history: hello.history,
            standing,
            index,
            era: Some(era.clone()),
            tell_ends,
        };
        let known = self.highest(&hello.region, hello.history);
        let Some(declared) = self.tables.regions.get(&hello.region) else {
            return welcome(Standing::Undeclared, 0, false);
        };
        let told = declared.era.as_ref() == Some(&era);
        if declared.history.is_none() {
            self.remember();
            // Nobody waits for what the first life of a region's log may tell,
            // unless an agent of it was welcome before: it was the lost commits
            // that knew of it.
            let waits = hello.era.is_some();
            let declared = self.tables.regions.entry(hello.region.clone()).or_default();
            (declared.history, declared.era) = (Some(hello.history), Some(era.clone()).filter(|_| !waits));
        }
        let standing = self.standing(&hello.region, hello.history);
        let answer = welcome(standing, known.max(hello.head), !told && standing == Standing::Current);
        let life = (hello.region.clone(), hello.history);
        // Of every life of the log, be it current or not.
        self.tables.highest.insert(life, known.max(hello.head));
        answer
    }

    /// What a life of a region's log counts for.
    fn standing(&self, region: &RegionName, history: History) -> Standing {
        match self.tables.regions.get(region) {
            None => Standing::Undeclared,
            Some(declared) if declared.history == Some(history) => Standing::Current,
            Some(_) if self.tables.superseded.contains(&(region.clone(), history)) => Standing::Superseded,
            Some(_) => Standing::Unknown,
        }
    }

    /// The highest index that was seen of a life of a region's log.
    pub(crate) fn highest(&self, region: &RegionName, history: History) -> u64 {
        self.tables.highest.get(&(region.clone(), history)).copied().unwrap_or(0)
    }

    /// Takes another life of a region's log for the one that counts; `None` if
    /// nobody of that life ever greeted, else whether that changed anything.
    pub(crate) fn adopt(&mut self, region: &RegionName, history: History) -> Option<bool> {
        let life = (region.clone(), history);
        self.tables.highest.get(&life)?;
        let former = self.tables.regions.get(region)?.history;
        if former == Some(history) {
            return Some(false);
        }
        self.remember();
        self.tables.superseded.remove(&life);
        self.tables.superseded.extend(former.map(|former| (region.clone(), former)));
        self.tables.regions.entry(region.clone()).or_default().history = Some(history);
        for barrier in self.tables.barriers.values_mut() {
            let Barrier { generations, specs, .. } = barrier;
            for one in generations.values_mut() {
                match one.reports.get_mut(region).filter(|_| one.decided.is_some()) {
                    // An end was made of it; but this life may not know the end.
                    Some(report) => report.applied = None,
                    None => drop(one.reports.remove(region)),
                }
                let takes_part = specs.get(&one.revision).is_some_and(|spec| spec.regions.contains_key(region));
                one.settled &= one.closed || !takes_part;
            }
        }
        Some(true)
    }

    /// Takes a sign of life; an agent that has not heard of this era, or whose
    /// log does not count, is welcomed anew.
    pub(crate) fn heartbeat(&mut self, beat: &Heartbeat) -> Option<Welcome> {
        self.raise(&beat.region, beat.history, beat.index);
        let standing = self.standing(&beat.region, beat.history);
        let current = standing == Standing::Current;
        let era = self.tables.regions.get(&beat.region).and_then(|declared| declared.era.as_ref());
        let (present, told) = (beat.era.as_ref() == Some(&self.era), era == Some(&self.era));
        if current && present && !told {
            self.remember();
            let era = Some(self.era.clone());
            self.tables.regions.entry(beat.region.clone()).or_default().era = era;
        }
        let index = self.highest(&beat.region, beat.history);
        (!current || !present && (beat.era.is_some() || !told)).then(|| Welcome {
            region: beat.region.clone(),
            agent: beat.agent.clone(),
            history: beat.history,
            standing,
            index,
            era: Some(self.era.clone()),
            tell_ends: current && !told,
        })
    }

    /// Takes a region out of what opens, or in again.
    pub(crate) fn drain(&mut self, region: &RegionName, drained: bool) {
        let by = || Override { actor: None, reason: "it is being moved".to_owned() };
        if let Some(declared) = self.tables.regions.get_mut(region) {
            declared.drained = drained.then(by);
        }
    }

    fn remember(&mut self) {
        if let Some(past) = &mut self.past {
            past.push(self.tables.clone());
        }
    }

    /// Facts that regions have not answered.
    pub(crate) fn unanswered(&self, only: Option<&RegionName>) -> Vec<(RegionName, Fact)> {
        let mut facts = Vec::new();
        for barrier in self.tables.barriers.values() {
            for one in barrier.generations.values().filter(|one| !one.settled) {
                let Some(spec) = barrier.specs.get(&one.revision) else { continue };
                let regions = spec.regions.keys().filter(|region| only.is_none_or(|only| only == *region));
                facts.extend(regions.filter_map(|region| Some((region.clone(), one.unanswered(spec, region)?))));
            }
        }
        facts
    }

    /// What gathers though its predecessor broke, or though its time is up.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<(BarrierName, Command)> {
        let all = self.tables.barriers.values().flat_map(|barrier| barrier.generations.values());
        let gathering = all.filter(|one| one.decided.is_none());
        let orphaned = gathering.clone().filter_map(|one| {
            let predecessor = self.predecessor(one)?;
            let broken = predecessor.state() == State::Broken;
            let command = || Command::PredecessorBroke { n: one.id.n, predecessor: predecessor.id.clone() };
            (broken && !mutant!(AfterIgnored)).then(|| (one.id.barrier.clone(), command()))
        });
        let expired = gathering.filter(|one| one.deadline_at.is_some_and(|at| now >= at));
        orphaned.chain(expired.map(|one| (one.id.barrier.clone(), Command::Expire { n: one.id.n }))).collect()
    }

    /// The generation that one comes after, by the definition it was opened
    /// with.
    fn predecessor(&self, of: &global::Generation) -> Option<&global::Generation> {
        let spec = self.tables.barriers.get(&of.id.barrier)?.specs.get(&of.revision)?;
        self.tables.barriers.get(spec.after.as_ref()?)?.counterpart(&of.id)
    }

    pub(crate) fn look(&self, name: &BarrierName, key: Option<&Key>) -> Looked {
        Looked::at(self.tables.barriers.get(name), key)
    }

    /// Loses the latest transactions and begins another era, as a failover to a
    /// lagging replica does. Returns how many were lost, and the barriers of
    /// which a definition, a collection or the first greeting of a region was.
    pub(crate) fn roll_back(&mut self, count: usize) -> (usize, BTreeSet<BarrierName>) {
        let past = self.past.as_mut().map(std::mem::take).unwrap_or_default();
        let count = count.min(past.len());
        let mut doubtful = BTreeSet::new();
        if let Some(tables) = past.get(past.len() - count) {
            let lost = std::mem::replace(&mut self.tables, tables.clone());
            let greeted = |tables: &Tables, region: &RegionName| {
                tables.regions.get(region).is_some_and(|one| one.history.is_some())
            };
            let stranger = |region: &RegionName| greeted(&lost, region) && !greeted(&self.tables, region);
            let behind = |row: &&Barrier| {
                let back = self.tables.barriers.get(&row.name);
                let mut regions = row.specs.values().flat_map(|spec| spec.regions.keys());
                back.is_none_or(|back| is_behind(back, row)) || regions.any(stranger)
            };
            doubtful = lost.barriers.values().filter(behind).map(|row| row.name.clone()).collect();
            // Who is drained is said again.
            for (region, declared) in &mut self.tables.regions {
                declared.drained = lost.regions.get(region).and_then(|lost| lost.drained.clone());
            }
        }
        self.era = Era::new("after the failover");
        (count, doubtful)
    }
}

impl Looked {
    /// What is seen of a row.
    pub(crate) fn at(row: Option<&Barrier>, key: Option<&Key>) -> Self {
        let newest = row.and_then(|row| {
            row.generations.values().rev().find(|one| match key {
                Some(key) => one.id.key.as_ref() == Some(key),
                None => one.decided.is_none(),
            })
        });
        let regions = |one: &Generation| {
            row.and_then(|row| row.specs.get(&one.revision)).map(|spec| spec.regions.keys().cloned().collect())
        };
        Self {
            defined: row.is_some_and(|row| !row.deleted),
            next_n: row.map_or(1, |row| row.next_n),
            round: newest.map_or(0, |one| one.id.round),
            found: newest.and_then(|one| Some((one.id.n, regions(one)?))),
        }
    }
}

/// Whether a generation's details, or its verdict once they are gone, are past
/// their retention.
fn is_past(row: &Barrier, one: &Generation, now: Timestamp) -> bool {
    let Some((spec, decided)) = row.specs.get(&row.revision).zip(one.decided.as_ref()) else { return false };
    let times = if one.closed { u64::from(VERDICTS_FACTOR) } else { 1 };
    let kept = u64::from(spec.retention_generations) * times;
    decided.outcome.decided_at.plus_ms(spec.retention_ms.saturating_mul(times)) < now
        || one.id.n + kept + 1 < row.next_n
}

/// Whether a row lacks a definition or a collection that was.
fn is_behind(back: &Barrier, lost: &Barrier) -> bool {
    let collected = |one: &Generation| lost.generations.get(&one.id.n).is_none_or(|lost| lost.closed != one.closed);
    (back.revision, back.deleted) != (lost.revision, lost.deleted) || back.generations.values().any(collected)
}

/// Takes back what a statement that began earlier could not see.
fn unsee(barrier: &mut Barrier, seen: &Seen) {
    for (n, generation) in &mut barrier.generations {
        generation.reports = seen.get(&(barrier.name.clone(), *n)).cloned().unwrap_or_default();
    }
}

fn check(barrier: &Barrier, change: &Change) -> Result<(), Broken> {
    let Change::Decided { n, .. } = change else { return Ok(()) };
    let kept =
        barrier.loaded(*n).is_some_and(|(generation, spec)| invariant::released_only_when_complete(generation, spec));
    match kept {
        true => Ok(()),
        false => Err((
            Invariant::ReleasedOnlyWhenComplete,
            format!("{} generation {n} was released without every region's promise", barrier.name),
        )),
    }
}

fn write_outcome(row: &mut Barrier, n: u64, decided: &Decided) -> Result<(), Broken> {
    let Some(generation) = row.generations.get_mut(&n) else { return Ok(()) };
    if generation.decided.is_some() {
        return Err((Invariant::OneOutcome, format!("{} generation {n} was decided a second time", row.name)));
    }
    generation.decided = Some(decided.clone());
    row.gathering = row.gathering.saturating_sub(1);
    Ok(())
}
