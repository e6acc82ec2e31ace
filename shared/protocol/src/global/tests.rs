//! The coordinator's rules as tables: commands in, steps out.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::fact::Fact;
use crate::generation::State;
use crate::identity::Stamp;
use crate::outcome::{BreakReason, Failure, Verdict};
use crate::participants::Participants;
use crate::report::Missing;
use crate::spec::{Generations, Rule, Scope, Slice};

pub(super) struct World {
    pub(super) barrier: Barrier,
    pub(super) regions: BTreeMap<RegionName, Declared>,
    pub(super) now: u64,
    pub(super) era: &'static str,
    index: u64,
}

pub(super) const REGIONS: [&str; 3] = ["ap-south", "eu-west", "us-east"];

pub(super) fn spec(generations: Generations) -> Spec {
    let slice = crate::region::tests::slice(Participants::Count(2));
    Spec {
        name: "etl/map".parse().unwrap(),
        description: "".to_string(),
        owner: "".to_string(),
        labels: BTreeMap::new(),
        scope: Scope::Global,
        regions: REGIONS.iter().map(|name| (name.parse().unwrap(), slice.clone())).collect(),
        generations,
        deadline_ms: Some(1_000),
        release_when: Rule::All,
        retention_ms: 1_000,
        retention_generations: 3,
        failures_max: 0,
        after: None,
    }
}

fn declared() -> Declared {
    Declared { history: Some(History([1; 16])), era: Some(Era::new("1/1")), drained: None }
}

pub(super) fn by(reason: &str) -> Override {
    Override { actor: Some("ops".to_string()), reason: reason.to_string() }
}

impl World {
    pub(super) fn new(generations: Generations) -> Self {
        Self::of(spec(generations))
    }

    pub(super) fn of(spec: Spec) -> Self {
        let regions = REGIONS.iter().map(|name| (name.parse().unwrap(), declared())).collect();
        let barrier = Barrier::new("etl/map".parse().unwrap());
        let mut world = Self { barrier, regions, now: 10, era: "1/1", index: 0 };
        world.run(Command::Define { spec: Box::new(spec), expect: Expect::NewOrEqual });
        world
    }

    pub(super) fn run(&mut self, command: Command) -> Step {
        let era = Era::new(self.era);
        let context = Context {
            now: Timestamp(self.now),
            at: Timestamp(self.now),
            era: &era,
            regions: &self.regions,
            barriers_in_namespace: 1,
        };
        let step = apply(&mut self.barrier, &context, &command);
        for (n, generation) in &self.barrier.generations {
            let (_, spec) = self.barrier.loaded(*n).unwrap();
            assert!(crate::invariant::released_only_when_complete(generation, spec), "I1");
        }
        step
    }

    pub(super) fn report(&mut self, n: u64, region: &str, complete: bool) -> RegionReport {
        self.index += 1;
        let stamp = Stamp { history: History([1; 16]), shard: 0, index: self.index };
        RegionReport {
            expected: 2,
            arrived: if complete { 2 } else { 1 },
            complete,
            missing: Missing { count: u32::from(!complete), names: "".to_string() },
            outputs: BTreeMap::from([("1".parse().unwrap(), region.to_string())]),
            first_arrival_at: Some(Timestamp(1)),
            last_arrival_at: Some(Timestamp(2)),
            ..RegionReport::empty(&region.parse().unwrap(), stamp, &self.barrier.generations[&n].id)
        }
    }

    pub(super) fn complete(&mut self, n: u64, regions: &[&str]) -> Step {
        let mut last = None;
        for region in regions {
            let report = Box::new(self.report(n, region, true));
            last = Some(self.run(Command::Report(report)));
        }
        last.unwrap()
    }

    pub(super) fn state(&self, n: u64) -> State {
        self.barrier.generations[&n].state()
    }

    pub(super) fn break_reason(&self, n: u64) -> Option<BreakReason> {
        match &self.barrier.generations[&n].decided.as_ref()?.outcome.verdict {
            Verdict::Broken(broken) => Some(broken.reason),
            Verdict::Released(_) => None,
        }
    }
}

pub(super) fn decisions(step: &Step) -> usize {
    step.changes.iter().filter(|change| matches!(change, Change::Decided { .. })).count()
}

#[test]
fn the_last_region_decides_exactly_once() {
    let mut world = World::new(Generations::Single);
    assert_eq!(decisions(&world.complete(1, &["us-east", "eu-west"])), 0, "one region fewer does not suffice");
    let step = world.complete(1, &["ap-south"]);
    assert_eq!(decisions(&step), 1);
    assert!(matches!(&step.facts[..], [Fact::Decided(_)]));
    assert_eq!(world.state(1), State::Releasing);
    let first = world.barrier.generations[&1].decided.clone();
    assert_eq!(decisions(&world.complete(1, &["us-east"])), 0);
    assert_eq!(world.barrier.generations[&1].decided, first);
}

#[test]
fn it_is_released_when_every_region_has_applied_it() {
    let mut world = World::new(Generations::Single);
    world.complete(1, &REGIONS);
    let digest = world.barrier.generations[&1].decided.as_ref().unwrap().outcome.digest();
    for region in REGIONS {
        assert_eq!(world.state(1), State::Releasing);
        let (generation, spec) = world.barrier.loaded(1).unwrap();
        assert!(generation.unanswered(spec, &region.parse().unwrap()).is_some());
        let report = Box::new(RegionReport { applied: Some(digest), ..world.report(1, region, true) });
        world.run(Command::Report(report));
    }
    assert_eq!(world.state(1), State::Released);
    let (generation, spec) = world.barrier.loaded(1).unwrap();
    assert!(generation.unanswered_regions(spec).is_empty());
}

#[test]
fn reports_that_are_old_or_foreign_change_nothing() {
    let mut world = World::new(Generations::Single);
    let old = world.report(1, "us-east", false);
    world.complete(1, &["us-east"]);
    let step = world.run(Command::Report(Box::new(old.clone())));
    assert_eq!((step.changes.len(), step.reply), (0, Ok(Reply::Reported { newer: false })));
    let mut foreign = RegionReport { stamp: Stamp { history: History([9; 16]), shard: 0, index: 99 }, ..old };
    assert_eq!(world.run(Command::Report(Box::new(foreign.clone()))).reply, Err(Refusal::ForeignReport));
    foreign.region = "mars".parse().unwrap();
    assert_eq!(world.run(Command::Report(Box::new(foreign))).reply, Err(Refusal::ForeignReport));
}

#[test]
fn a_failure_breaks_and_names_who() {
    let mut world = World::new(Generations::Single);
    world.complete(1, &["us-east", "eu-west"]);
    let mut report = world.report(1, "ap-south", false);
    report.failed = 1;
    report.over_failures = true;
    report.failures = vec![Failure {
        region: "ap-south".parse().unwrap(),
        participant: "2".parse().unwrap(),
        attempt: 1,
        note: Some("signal 9".to_string()),
    }];
    world.run(Command::Report(Box::new(report)));
    assert_eq!(world.break_reason(1), Some(BreakReason::ParticipantFailed));
    let Verdict::Broken(broken) = &world.barrier.generations[&1].decided.as_ref().unwrap().outcome.verdict else {
        panic!("not broken")
    };
    assert_eq!(broken.message, "ap-south/2 (signal 9) failed");
    assert_eq!(world.state(1), State::Broken);
}

#[test]
fn a_deadline_is_one_hard_decision_and_never_early() {
    let mut world = World::new(Generations::Single);
    world.now = 1_009;
    assert_eq!(world.run(Command::Expire { n: 1 }).reply, Ok(Reply::NotDue));
    world.complete(1, &["us-east", "eu-west"]);
    world.now = 1_010;
    let step = world.complete(1, &["ap-south"]);
    assert_eq!(decisions(&step), 1);
    assert_eq!(world.break_reason(1), Some(BreakReason::DeadlineExceeded));
}

#[test]
fn a_cyclic_generation_that_opened_by_itself_counts_from_its_first_arrival() {
    let mut world = World::new(Generations::Cyclic);
    world.complete(1, &REGIONS);
    assert_eq!(world.state(1), State::Releasing);
    assert_eq!(world.barrier.generations[&2].deadline_at, None);
    world.now = 100_000;
    assert_eq!(world.run(Command::Expire { n: 2 }).reply, Ok(Reply::NotDue), "an idle generation never breaks");
    let mut empty = world.report(2, "us-east", false);
    empty.first_arrival_at = None;
    world.run(Command::Report(Box::new(empty)));
    assert_eq!(world.barrier.generations[&2].deadline_at, None);
    let first = Box::new(world.report(2, "us-east", false));
    world.run(Command::Report(first));
    assert_eq!(world.barrier.generations[&2].deadline_at, Some(Timestamp(101_000)));
}

#[test]
fn the_end_of_a_cyclic_generation_opens_the_next_in_the_same_step() {
    let mut world = World::new(Generations::Cyclic);
    let step = world.complete(1, &REGIONS);
    assert!(step.changes.iter().any(|change| matches!(change, Change::Opened(opened) if opened.id.n == 2)));
    let [Fact::Decided(decided)] = &step.facts[..] else { panic!("{:?}", step.facts) };
    assert!(decided.next.as_ref().is_some_and(|next| next.same_spec && next.generation.n == 2));
    // After a change of the definition the next opening brings its slice.
    let mut changed = spec(Generations::Cyclic);
    changed.owner = "us".to_string();
    world.run(Command::Define { spec: Box::new(changed), expect: Expect::Anything });
    assert_eq!(world.barrier.generations.len(), 2, "a change holds from the next generation");
    let step = world.complete(2, &REGIONS);
    let slices = |fact: &Fact| matches!(fact, Fact::Opened(opened) if opened.slice.is_some());
    assert_eq!(step.facts.iter().filter(|fact| slices(fact)).count(), 3);
}

#[test]
fn an_equal_definition_changes_nothing_and_a_different_one_is_a_conflict() {
    let mut world = World::new(Generations::Single);
    let define = |spec: Spec, expect| Command::Define { spec: Box::new(spec), expect };
    let step = world.run(define(spec(Generations::Single), Expect::NewOrEqual));
    assert_eq!(step.reply, Ok(Reply::Defined { revision: 1, created: false, changed: false }));
    assert!(step.changes.is_empty() && step.facts.is_empty());
    let mut other = spec(Generations::Single);
    other.owner = "them".to_string();
    let conflict = world.run(define(other.clone(), Expect::NewOrEqual)).reply;
    assert!(matches!(conflict, Err(Refusal::Conflict { revision: 1, .. })));
    assert_eq!(world.run(define(other.clone(), Expect::Revision(7))).reply, Err(Refusal::Precondition { revision: 1 }));
    let step = world.run(define(other, Expect::Revision(1)));
    assert_eq!(step.reply, Ok(Reply::Defined { revision: 2, created: false, changed: true }));
    assert!(step.changes.iter().any(|change| matches!(change, Change::Audited(it) if it.action == Action::Replace)));
}

#[test]
fn numbers_never_restart_with_the_name() {
    let mut world = World::new(Generations::Single);
    let refused = world.run(Command::Delete { force: false, by: by("") }).reply;
    assert!(matches!(refused, Err(Refusal::StillGathering { open }) if open.len() == 1));
    let step = world.run(Command::Delete { force: true, by: by("over") });
    assert!(matches!(step.reply, Ok(Reply::Deleted { changed: true, broken }) if broken.len() == 1));
    assert_eq!(world.break_reason(1), Some(BreakReason::Deleted));
    let step = world.run(Command::Define { spec: Box::new(spec(Generations::Single)), expect: Expect::NewOrEqual });
    assert_eq!(step.reply, Ok(Reply::Defined { revision: 2, created: true, changed: true }));
    assert!(world.barrier.generations.contains_key(&2));
}

#[test]
fn what_is_numbered_gets_no_keys_under_its_name() {
    let mut world = World::new(Generations::Cyclic);
    let define = |generations| Command::Define { spec: Box::new(spec(generations)), expect: Expect::Anything };
    let keyed = Generations::Keyed { max_open: 16 };
    assert_eq!(world.run(define(keyed)).reply, Err(Refusal::KindStays { keyed: false }));
    assert!(world.run(define(Generations::Single)).reply.is_ok(), "numbered as before");
    world.run(Command::Delete { force: true, by: by("no longer needed") });
    assert_eq!(world.run(define(keyed)).reply, Err(Refusal::KindStays { keyed: false }), "1 is still a number");

    let mut world = World::new(keyed);
    assert!(world.run(define(Generations::Cyclic)).reply.is_ok(), "no key was ever used");
    let mut world = World::new(keyed);
    world.run(Command::Open { key: Some("7".parse().unwrap()) });
    assert_eq!(world.run(define(Generations::Cyclic)).reply, Err(Refusal::KindStays { keyed: true }));
}

#[test]
fn a_deleted_cyclic_barrier_opens_nothing_more() {
    let mut world = World::new(Generations::Cyclic);
    world.run(Command::Delete { force: true, by: by("") });
    assert_eq!(world.barrier.generations.len(), 1);
}

#[test]
fn a_key_opens_once() {
    let mut world = World::new(Generations::Keyed { max_open: 1 });
    let open = |key: &str| Command::Open { key: Some(key.parse().unwrap()) };
    let step = world.run(open("a"));
    assert!(matches!(step.reply, Ok(Reply::Opened { created: true, .. })));
    assert_eq!(step.facts.len(), 3);
    assert!(matches!(world.run(open("a")).reply, Ok(Reply::Opened { created: false, outcome: None, .. })));
    assert_eq!(world.run(open("b")).reply, Err(Refusal::TooManyOpen { limit: 1 }));
    world.complete(1, &REGIONS);
    assert!(matches!(world.run(open("a")).reply, Ok(Reply::Opened { created: false, outcome: Some(_), .. })));
    assert!(matches!(world.run(open("b")).reply, Ok(Reply::Opened { created: true, .. })));
    assert_eq!(world.run(Command::Open { key: None }).reply, Err(Refusal::KeyNeeded));
}

#[test]
fn abort_and_release_exclude_each_other() {
    let mut world = World::new(Generations::Single);
    let abort = || Command::Abort { n: 1, by: by("stop") };
    assert!(matches!(world.run(abort()).reply, Ok(Reply::Ended { changed: true, .. })));
    assert!(matches!(world.run(abort()).reply, Ok(Reply::Ended { changed: false, .. })));
    assert_eq!(decisions(&world.complete(1, &REGIONS)), 0);
    assert_eq!(world.break_reason(1), Some(BreakReason::Aborted));

    let mut world = World::new(Generations::Single);
    world.complete(1, &REGIONS);
    assert!(matches!(world.run(abort()).reply, Err(Refusal::AlreadyDecided { .. })));
}

#[test]
fn a_definition_may_name_declared_regions_only() {
    let mut world = World::new(Generations::Single);
    let mut wrong = spec(Generations::Single);
    let slice: Slice = wrong.regions.values().next().unwrap().clone();
    wrong.regions.insert("mars".parse().unwrap(), slice);
    let reply = world.run(Command::Define { spec: Box::new(wrong), expect: Expect::Anything }).reply;
    let declared: Vec<RegionName> = REGIONS.iter().map(|name| name.parse().unwrap()).collect();
    assert_eq!(reply, Err(Refusal::UnknownRegion { region: "mars".parse().unwrap(), declared }));
}

#[test]
fn outputs_come_back_by_region() {
    let mut world = World::new(Generations::Single);
    world.complete(1, &REGIONS);
    let Verdict::Released(release) = &world.barrier.generations[&1].decided.as_ref().unwrap().outcome.verdict else {
        panic!("not released")
    };
    assert_eq!(release.outputs.len(), 3);
    assert_eq!(release.outputs[&"eu-west".parse::<RegionName>().unwrap()][&"1".parse().unwrap()], "eu-west");
}
