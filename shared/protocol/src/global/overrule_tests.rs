//! Rules, failures and overrides as tables: commands in, steps out.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::tests::{REGIONS, World, by, decisions, spec};
use super::*;
use crate::fact::Fact;
use crate::generation::State;
use crate::name::ZoneName;
use crate::outcome::{BreakReason, Failure, Release, Verdict};
use crate::participants::Participants;
use crate::report::{Apart, RegionReport, ZoneReport};
use crate::spec::{Generations, Leaf, Rule};

pub(super) fn region(name: &str) -> RegionName {
    name.parse().unwrap()
}

fn leaf(name: &str) -> Rule {
    let (name, zone) = name.split_once('/').map_or((name, None), |(name, zone)| (name, Some(zone)));
    Rule::Leaf(Leaf { region: region(name), zone: zone.map(|zone| zone.parse().unwrap()) })
}

pub(super) fn with(change: impl FnOnce(&mut Spec)) -> World {
    let mut spec = spec(Generations::Keyed { max_open: 2 });
    change(&mut spec);
    let mut world = World::of(spec);
    world.run(Command::Open { key: Some("k".parse().unwrap()) });
    world
}

fn ids(world: &mut World) {
    // Participants with names, for those who waive some of them.
    let spec = world.barrier.specs.values_mut().next_back().unwrap();
    for slice in spec.regions.values_mut() {
        slice.participants = Participants::Set(IdSet::parse(["[1-4]"]).unwrap());
    }
}

fn release(world: &World, n: u64) -> Release {
    match &world.barrier.generations[&n].decided.as_ref().unwrap().outcome.verdict {
        Verdict::Released(release) => release.clone(),
        Verdict::Broken(broken) => panic!("broken: {broken:?}"),
    }
}

pub(super) fn report(world: &mut World, region: &str, change: impl FnOnce(&mut RegionReport)) -> Step {
    let mut report = world.report(1, region, false);
    change(&mut report);
    world.run(Command::Report(Box::new(report)))
}

fn fail(world: &mut World, region: &str, failed: u32, complete: bool) -> Step {
    let failure =
        Failure { region: region.parse().unwrap(), participant: "7".parse().unwrap(), attempt: 1, note: None };
    report(world, region, |report| {
        report.failed = failed;
        report.complete = complete;
        report.missing.count = u32::from(!complete);
        report.failures = vec![failure];
    })
}

#[test]
fn so_many_regions_suffice_and_the_rest_is_left_out() {
    let of = || REGIONS.iter().map(|name| leaf(name)).collect();
    let mut world = with(|spec| spec.release_when = Rule::AtLeast { count: 2, of: of() });
    world.complete(1, &["us-east"]);
    assert_eq!(world.state(1), State::Gathering);
    world.complete(1, &["ap-south"]);
    let release = release(&world, 1);
    assert_eq!((release.whole, release.left_out), (false, vec![region("eu-west")]));
}

#[test]
fn a_zone_may_suffice_for_its_region() {
    let rule =
        Rule::Every(vec![leaf("us-east/a"), Rule::AtLeast { count: 1, of: vec![leaf("eu-west"), leaf("ap-south")] }]);
    let mut world = with(|spec| spec.release_when = rule);
    let zone = |complete| -> (ZoneName, ZoneReport) {
        ("a".parse().unwrap(), ZoneReport { expected: 1, arrived: 1, failed: 0, complete })
    };
    world.complete(1, &["eu-west"]);
    report(&mut world, "us-east", |report| report.zones = [zone(false)].into());
    assert_eq!(world.state(1), State::Gathering);
    report(&mut world, "us-east", |report| report.zones = [zone(true)].into());
    assert_eq!(release(&world, 1).left_out, [region("ap-south"), region("us-east")]);
}

#[test]
fn failures_are_limited_per_region_and_in_all() {
    let limited = |total, own: u32| {
        with(move |spec| {
            spec.failures_max = total;
            spec.regions.values_mut().for_each(|slice| slice.failures_max = own);
        })
    };
    let mut world = limited(3, 2);
    for (name, failed) in [("us-east", 2), ("eu-west", 1)] {
        fail(&mut world, name, failed, true);
    }
    world.complete(1, &["ap-south"]);
    assert_eq!((release(&world, 1).failed, release(&world, 1).whole), (3, false));

    let mut world = limited(3, 2);
    fail(&mut world, "us-east", 3, false);
    assert_eq!(world.break_reason(1), Some(BreakReason::MaxFailuresExceeded));

    let mut world = limited(3, 2);
    fail(&mut world, "us-east", 2, true);
    let step = fail(&mut world, "eu-west", 2, true);
    assert_eq!(decisions(&step), 1);
    assert_eq!(world.break_reason(1), Some(BreakReason::MaxFailuresExceeded));
}

#[test]
fn without_fail_fast_everybody_is_heard_first() {
    let mut world = with(|spec| spec.regions.values_mut().for_each(|slice| slice.fail_fast = false));
    fail(&mut world, "us-east", 1, false);
    world.complete(1, &["eu-west", "ap-south"]);
    assert_eq!(world.state(1), State::Gathering, "one of us-east has not spoken");
    report(&mut world, "us-east", |report| {
        report.failed = 1;
        report.missing.count = 0;
    });
    assert_eq!(world.break_reason(1), Some(BreakReason::ParticipantFailed));
}

#[test]
fn a_loss_has_its_own_reason() {
    let mut world = with(|_| {});
    report(&mut world, "us-east", |report| {
        report.failed = 1;
        report.apart = Apart { lost_for_good: 1, ..Apart::default() };
    });
    assert_eq!(world.break_reason(1), Some(BreakReason::ParticipantLost));
}

#[test]
fn a_region_is_waived_once_and_its_arrivals_are_ignored() {
    let mut world = with(|_| {});
    world.complete(1, &["us-east"]);
    fail(&mut world, "ap-south", 0, false);
    let waive = |name: &str| Command::Waive { n: 1, region: region(name), participants: None, by: by("dark") };
    let step = world.run(waive("ap-south"));
    assert!(matches!(step.reply, Ok(Reply::Waived { changed: true, outcome: None })));
    assert!(matches!(&step.changes[..], [Change::Audited(audit), Change::Waived { .. }] if audit.object == "ap-south"));
    assert!(step.facts.is_empty(), "a region that is waived has nothing to do");
    assert!(matches!(world.run(waive("ap-south")).reply, Ok(Reply::Waived { changed: false, .. })));
    assert!(matches!(world.run(waive("mars")).reply, Err(Refusal::NotInBarrier { .. })));
    world.complete(1, &["eu-west"]);
    let release = release(&world, 1);
    assert_eq!((release.whole, release.waived.get(&region("ap-south"))), (false, Some(&"".to_string())));
    assert!(!release.outputs.contains_key(&region("ap-south")));
    assert!(matches!(world.run(waive("us-east")).reply, Err(Refusal::AlreadyDecided { .. })));
}

#[test]
fn participants_are_waived_by_a_fact_that_is_repeated_until_it_is_answered() {
    let mut world = with(|_| {});
    ids(&mut world);
    let waive = |ids: &str| Command::Waive {
        n: 1,
        region: region("us-east"),
        participants: Some(IdSet::parse([ids]).unwrap()),
        by: by("they are gone"),
    };
    assert!(matches!(world.run(waive("9")).reply, Err(Refusal::NotExpected { .. })));
    assert!(matches!(world.run(waive("[1-2]")).reply, Ok(Reply::Waived { changed: true, .. })));
    let step = world.run(waive("3"));
    let [Fact::Waived(fact)] = &step.facts[..] else { panic!("{:?}", step.facts) };
    assert_eq!((fact.revision, fact.participants.to_string()), (2, "[1-3]".to_string()));
    assert!(matches!(world.run(waive("[2-3]")).reply, Ok(Reply::Waived { changed: false, .. })));
    let owes = |world: &World| {
        let (generation, spec) = world.barrier.loaded(1).unwrap();
        generation.unanswered(spec, &region("us-east"))
    };
    assert!(matches!(owes(&world), Some(Fact::Opened(_))), "first things first");
    report(&mut world, "us-east", |report| report.apart.waiver = 1);
    assert!(matches!(owes(&world), Some(Fact::Waived(_))));
    report(&mut world, "us-east", |report| report.apart = Apart { waiver: 2, waived: 3, ..Apart::default() });
    assert_eq!(owes(&world), None);
    world.complete(1, &REGIONS);
    assert_eq!(release(&world, 1).waived[&region("us-east")], "[1-3]");

    let mut world = with(|_| {});
    assert_eq!(world.run(waive("1")).reply, Err(Refusal::NoNames));
}

#[test]
fn a_forced_release_says_so() {
    let mut world = with(|_| {});
    world.complete(1, &["us-east"]);
    let force = || Command::Release { n: 1, by: by("the night is over") };
    assert!(matches!(world.run(force()).reply, Ok(Reply::Ended { changed: true, .. })));
    let forced = release(&world, 1);
    assert_eq!((forced.whole, forced.left_out.len()), (false, 2));
    assert_eq!(forced.forced.unwrap().reason, "the night is over");
    assert!(matches!(world.run(force()).reply, Ok(Reply::Ended { changed: false, .. })));

    let mut world = with(|_| {});
    world.run(Command::Abort { n: 1, by: by("stop") });
    assert!(matches!(world.run(force()).reply, Err(Refusal::AlreadyDecided { .. })));
}

#[test]
fn a_broken_generation_is_retried_once() {
    let mut world = with(|_| {});
    let retry = |keep| Command::Retry { n: 1, key: Some("k".parse().unwrap()), keep, by: by("again") };
    assert_eq!(world.run(retry(true)).reply, Err(Refusal::NotBroken));
    world.run(Command::Abort { n: 1, by: by("stop") });
    let keyless = Command::Retry { n: 1, key: None, keep: true, by: by("again") };
    assert_eq!(world.run(keyless).reply, Err(Refusal::NoSuchGeneration));
    let step = world.run(retry(true));
    let Ok(Reply::Opened { generation, created: true, outcome: None }) = &step.reply else { panic!("{step:?}") };
    assert_eq!((generation.n, generation.round, generation.label().to_string()), (2, 1, "k~1".to_string()));
    assert!(step.facts.iter().all(|fact| matches!(fact, Fact::Opened(opened) if opened.carry == Some(1))));
    assert_eq!(step.facts.len(), 3);
    let again = world.run(retry(true));
    assert!(matches!(again.reply, Ok(Reply::Opened { created: false, .. })) && again.changes.is_empty());
    // Arrivals by key go to the latest round.
    let open = world.run(Command::Open { key: Some("k".parse().unwrap()) });
    assert!(matches!(open.reply, Ok(Reply::Opened { generation, created: false, .. }) if generation.n == 2));
}

#[test]
fn what_goes_on_by_itself_is_not_retried() {
    let mut world = World::new(Generations::Cyclic);
    world.run(Command::Abort { n: 1, by: by("stop") });
    let retry = Command::Retry { n: 1, key: None, keep: true, by: by("again") };
    assert!(matches!(world.run(retry).reply, Err(Refusal::GoesOn { next: Some(next) }) if next.n == 2));

    let mut world = World::new(Generations::Single);
    world.run(Command::Abort { n: 1, by: by("stop") });
    let retry = || Command::Retry { n: 1, key: None, keep: false, by: by("again") };
    assert!(matches!(world.run(retry()).reply, Ok(Reply::Opened { created: true, .. })));
    assert!(matches!(world.run(retry()).reply, Ok(Reply::Opened { created: false, .. })));
    assert_eq!(world.barrier.generations[&2].carry, None);
}

#[test]
fn a_drained_region_is_waived_in_what_opens() {
    let mut world = with(|_| {});
    world.regions.get_mut(&region("ap-south")).unwrap().drained = Some(by("maintenance"));
    world.run(Command::Open { key: Some("l".parse().unwrap()) });
    world.complete(2, &["us-east", "eu-west"]);
    assert_eq!(release(&world, 2).waived.len(), 1);
    assert_eq!(world.state(1), State::Gathering, "what was open keeps its regions");
}

#[test]
fn where_all_that_is_needed_is_drained_somebody_has_to_come() {
    let rule = Rule::AtLeast { count: 2, of: REGIONS.iter().map(|name| leaf(name)).collect() };
    for (generations, rule, drained) in [
        (Generations::Cyclic, Rule::All, &REGIONS[..]),
        (Generations::Cyclic, rule.clone(), &REGIONS[..2]),
        (Generations::Keyed { max_open: 16 }, rule, &REGIONS[1..]),
    ] {
        let mut world = World::new(generations);
        for name in drained {
            world.regions.get_mut(&region(name)).unwrap().drained = Some(by("maintenance"));
        }
        let spec = Spec { release_when: rule, ..spec(generations) };
        world.run(Command::Define { spec: Box::new(spec), expect: Expect::Anything });
        match generations {
            Generations::Keyed { .. } => world.run(Command::Open { key: Some("k".parse().unwrap()) }),
            _ => world.run(Command::Abort { n: 1, by: by("the next one opens") }),
        };
        let n = world.barrier.next_n - 1;
        let step = world.complete(n, &["us-east"]);
        assert_eq!((decisions(&step), world.state(n)), (0, State::Gathering), "nobody passes alone");
        world.complete(n, &REGIONS[..2]);
        assert_ne!(world.state(n), State::Gathering, "{drained:?}");
    }
}

#[test]
fn a_predecessor_that_broke_takes_its_successor_down() {
    let mut world = with(|_| {});
    let predecessor =
        GenerationId { barrier: "etl/extract".parse().unwrap(), ..world.barrier.generations[&1].id.clone() };
    let broke = || Command::PredecessorBroke { n: 1, predecessor: predecessor.clone() };
    assert!(matches!(world.run(broke()).reply, Ok(Reply::Ended { changed: true, .. })));
    assert_eq!(world.break_reason(1), Some(BreakReason::PredecessorBroken));
    assert!(matches!(world.run(broke()).reply, Ok(Reply::Ended { changed: false, .. })));
}

#[test]
fn finished_generations_are_closed_and_then_forgotten() {
    let mut world = World::new(Generations::Cyclic);
    let mut left: Vec<(usize, usize)> = Vec::new();
    for n in 1..=40 {
        world.complete(n, &REGIONS);
        let step = world.run(Command::Collect { tell: false });
        let closed = world.barrier.generations.values().filter(|generation| generation.closed).count();
        left.push((world.barrier.generations.len(), closed));
        if n == 40 {
            let [Fact::Closed(fact)] = &step.facts[..] else { panic!("{:?}", step.facts) };
            assert_eq!((fact.generation.n, fact.kept.len()), (10, 0));
        }
    }
    // 3 with details, 30 verdicts in all, and the one that gathers.
    assert_eq!(left.last(), Some(&(31, 27)), "{left:?}");
    world.now += 10 * 1_000 + 1;
    world.run(Command::Collect { tell: false });
    assert_eq!(world.barrier.generations.keys().copied().collect::<Vec<_>>(), [41], "verdicts have their time too");
}

#[test]
fn a_region_that_a_definition_left_out_is_told_what_is_forgotten() {
    let mut world = World::new(Generations::Cyclic);
    let mut spec = Box::new(world.barrier.spec().unwrap().clone());
    spec.regions.remove(&"ap-south".parse().unwrap());
    world.run(Command::Define { spec, expect: Expect::Anything });
    // It was cut off, and never heard how the first one ended.
    world.run(Command::Abort { n: 1, by: by("the plan changed") });
    world.now += 100_000;
    // Of definitions only those are loaded that something refers to.
    world.run(Command::Collect { tell: false });
    world.barrier.specs.retain(|revision, _| *revision == world.barrier.revision);
    let step = world.run(Command::Collect { tell: true });
    let [Fact::Closed(fact)] = &step.facts[..] else { panic!("{:?}", step.facts) };
    assert!(fact.regions.contains(&"ap-south".parse().unwrap()), "{:?}", fact.regions);
}

#[test]
fn what_still_gathers_is_kept_apart_from_what_is_forgotten() {
    let mut world = with(|_| {});
    for key in 2..=40 {
        world.run(Command::Open { key: Some(alloc::format!("k{key}").parse().unwrap()) });
        world.complete(key, &REGIONS);
        world.run(Command::Collect { tell: false });
    }
    let step = world.run(Command::Collect { tell: true });
    let [Fact::Closed(fact)] = &step.facts[..] else { panic!("{:?}", step.facts) };
    assert_eq!((fact.generation.n, fact.kept.as_slice()), (9, &[1][..]));
    assert_eq!(world.state(1), State::Gathering);
}
