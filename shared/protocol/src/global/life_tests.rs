//! What is decided where the database, or a region's log, begins another life.

use alloc::boxed::Box;
use alloc::format;

use super::overrule_tests::{region, report, with};
use super::tests::{REGIONS, World, by, spec};
use super::*;
use crate::fact::Fact;
use crate::generation::State;
use crate::outcome::{BreakReason, Verdict};
use crate::report::RegionReport;
use crate::spec::Generations;

#[test]
fn nothing_of_an_older_life_of_the_database_is_decided_before_all_have_spoken_again() {
    let mut world = with(|_| {});
    world.complete(1, &["us-east", "eu-west"]);
    world.era = "1/2";
    world.complete(1, &["ap-south"]);
    assert_eq!(world.state(1), State::Gathering);
    let abort = || Command::Abort { n: 1, by: by("stop") };
    assert!(matches!(world.run(abort()).reply, Err(Refusal::RegionBehind { .. })));
    for name in REGIONS {
        assert_eq!(world.state(1), State::Gathering);
        report(&mut world, name, |report| {
            report.complete = true;
            report.missing.count = 0;
            report.era = Some(Era::new("1/2"));
        });
    }
    assert_eq!(world.state(1), State::Releasing);
}

#[test]
fn an_end_that_a_region_has_applied_is_adopted() {
    let mut world = with(|_| {});
    let mut before = with(|_| {});
    before.complete(1, &REGIONS);
    let outcome = before.barrier.generations[&1].decided.clone().unwrap().outcome;
    world.era = "1/2";
    report(&mut world, "us-east", |report| {
        report.applied = Some(outcome.digest());
        report.outcome = Some(Box::new(outcome.clone()));
        report.era = Some(Era::new("1/2"));
    });
    assert_eq!(world.barrier.generations[&1].decided.as_ref().unwrap().outcome, outcome);
}

/// Its log was brought back from before the end, which nobody owes any more.
#[test]
fn a_region_that_does_not_know_an_end_any_more_is_told() {
    let mut world = with(|_| {});
    world.complete(1, &REGIONS);
    let end = world.barrier.generations[&1].decided.clone().unwrap();
    for name in REGIONS {
        report(&mut world, name, |report| (report.complete, report.applied) = (true, Some(end.outcome.digest())));
    }
    let mut again = world.report(1, "us-east", true);
    assert_eq!((world.state(1), again.applied), (State::Released, None));
    for _ in 0..2 {
        let told = world.run(Command::Report(Box::new(again.clone()))).facts;
        assert_eq!(told, [Fact::Decided(end.clone())], "until it says that it has applied it");
    }
    again.applied = Some(end.outcome.digest());
    assert_eq!(world.run(Command::Report(Box::new(again))).facts, []);
}

/// A refusal leaves nothing behind: said again, the definition opens.
#[test]
fn a_definition_that_has_to_wait_for_a_region_is_refused_as_a_whole() {
    let mut world = World::new(Generations::Cyclic);
    world.run(Command::Delete { force: true, by: by("moved") });
    world.era = "1/2";
    let mut anew = spec(Generations::Cyclic);
    anew.deadline_ms = None;
    let define = Command::Define { spec: Box::new(anew), expect: Expect::Anything };
    world.regions.values_mut().for_each(|declared| declared.era = Some(Era::new("1/2")));
    world.regions.get_mut(&region("us-east")).unwrap().era = Some(Era::new("1/1"));
    world.barrier.generations.clear();
    world.barrier.gathering = 0;
    let before = world.barrier.clone();
    let step = world.run(define.clone());
    assert!(matches!(step.reply, Err(Refusal::RegionBehind { .. })), "{step:?}");
    assert_eq!((step.changes.len(), &world.barrier), (0, &before));
    world.regions.get_mut(&region("us-east")).unwrap().era = Some(Era::new("1/2"));
    let step = world.run(define);
    assert!(matches!(step.reply, Ok(Reply::Defined { created: true, changed: true, .. })), "{step:?}");
    assert!(step.changes.iter().any(|change| matches!(change, Change::Opened(_))), "{step:?}");
}

/// Which end it was may be on a report that was lost.
#[test]
fn a_region_that_has_applied_an_end_is_asked_which() {
    let mut world = with(|_| {});
    let end = crate::identity::Digest([7; 32]);
    world.complete(1, &REGIONS[..2]);
    report(&mut world, "us-east", |report| (report.complete, report.applied) = (true, Some(end)));
    let gathers = &world.barrier.generations[&1];
    assert_eq!(gathers.decided, None, "it is not made anew");
    let (generation, spec) = world.barrier.loaded(1).unwrap();
    let asked = generation.unanswered(spec, &"us-east".parse().unwrap());
    assert!(matches!(asked, Some(Fact::Opened(_))), "{asked:?}");
    assert!(matches!(world.run(Command::Abort { n: 1, by: by("enough") }).reply, Err(Refusal::RegionBehind { .. })));
}

#[test]
fn an_opening_that_the_database_lost_is_taken_up() {
    let mut world = with(|_| {});
    world.era = "1/2";
    world.regions.values_mut().for_each(|declared| declared.era = Some(Era::new("1/1")));
    let open = || Command::Open { key: Some("l".parse().unwrap()) };
    assert!(matches!(world.run(open()).reply, Err(Refusal::RegionBehind { .. })));
    let id = GenerationId { n: 7, key: Some("lost".parse().unwrap()), ..world.barrier.generations[&1].id.clone() };
    let template = world.report(1, "us-east", false);
    let lost = RegionReport { generation: id, era: Some(Era::new("1/2")), ..template };
    assert!(matches!(world.run(Command::Report(Box::new(lost))).reply, Ok(Reply::Reported { newer: true })));
    assert_eq!((world.barrier.next_n, world.state(7)), (8, State::Gathering));
    world.regions.values_mut().for_each(|declared| declared.era = Some(Era::new("1/2")));
    assert!(matches!(world.run(open()).reply, Err(Refusal::TooManyOpen { .. })));
}

#[test]
fn what_the_database_lost_may_be_told_in_any_order_and_is_not_called_forgotten() {
    let mut world = with(|_| {});
    let told = |world: &mut World, n: u64| {
        let id =
            GenerationId { n, key: Some(format!("k{n}").parse().unwrap()), ..world.barrier.generations[&1].id.clone() };
        let template = world.report(1, "us-east", false);
        let report = RegionReport { generation: id, era: Some(Era::new("1/2")), ..template };
        world.run(Command::Report(Box::new(report))).reply
    };
    world.era = "1/2";
    for n in [7, 5, 6] {
        assert_eq!(told(&mut world, n), Ok(Reply::Reported { newer: true }), "{n}");
    }
    assert_eq!((world.barrier.next_n, world.barrier.lost_from), (8, Some(2)));
    let step = world.run(Command::Collect { tell: true });
    assert!(step.facts.is_empty(), "some region may still know of 2, 3 and 4: {:?}", step.facts);
    // Once something behind them is past its retention they are, too.
    let generation = world.barrier.generations[&5].id.clone();
    let verdict = Verdict::Released(Default::default());
    let outcome = crate::outcome::Outcome { generation, verdict, decided_at: Timestamp(world.now) };
    let mut end = world.report(5, "us-east", true);
    (end.applied, end.outcome) = (Some(outcome.digest()), Some(Box::new(outcome)));
    world.run(Command::Report(Box::new(end)));
    world.now += 1_000 * u64::from(crate::caps::VERDICTS_FACTOR) + 1;
    world.run(Command::Collect { tell: false });
    assert_eq!(world.barrier.lost_from, Some(6));
    assert_eq!(told(&mut world, 4), Err(Refusal::NoSuchGeneration));
}

#[test]
fn another_life_of_a_log_confirms_an_end_and_takes_nothing_of_it_back() {
    let mut world = with(|_| {});
    world.complete(1, &REGIONS);
    let digest = world.barrier.generations[&1].decided.as_ref().unwrap().outcome.digest();
    let mut later = world.report(1, "us-east", false);
    (later.stamp.history, later.stamp.index, later.arrived) = (History([2; 16]), 1, 0);
    let region: RegionName = "us-east".parse().unwrap();
    world.regions.get_mut(&region).unwrap().history = Some(History([2; 16]));
    for (applied, newer) in [(None, true), (Some(digest), true), (Some(digest), false)] {
        later.applied = applied;
        let reply = world.run(Command::Report(Box::new(later.clone()))).reply;
        assert_eq!(reply, Ok(Reply::Reported { newer }), "{applied:?}");
        let known = &world.barrier.generations[&1].reports[&region];
        assert_eq!((known.applied, known.arrived), (applied, 2));
    }
}

#[test]
fn a_cyclic_barrier_whose_name_is_taken_somewhere_does_not_break_without_end() {
    let mut world = World::new(Generations::Cyclic);
    let taken = RegionReport { name_taken: true, ..world.report(1, "us-east", false) };
    world.run(Command::Report(Box::new(taken)));
    assert_eq!(world.break_reason(1), Some(BreakReason::NameTaken));
    assert_eq!((world.barrier.next_n, world.barrier.gathering), (2, 0), "the next would break, too");
    let opened = world.run(Command::Open { key: None }).reply;
    assert!(matches!(opened, Ok(Reply::Opened { created: true, .. })), "{opened:?}");
}
