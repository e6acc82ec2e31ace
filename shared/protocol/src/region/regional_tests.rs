//! Barriers of regional scope: the whole of a barrier in one region's log.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::tests::{World, arrive, id, opened, slice};
use super::*;
use crate::fact::Fact;
use crate::generation::State;
use crate::global::{self, Expect};
use crate::outcome::{BreakReason, Override, Verdict};
use crate::participants::{IdSet, Participants};
use crate::spec::{Generations, Rule, Scope, Spec};

const NAME: &str = "local/step";

fn name() -> BarrierName {
    NAME.parse().unwrap()
}

fn spec(generations: Generations, change: impl FnOnce(&mut Spec)) -> Spec {
    let set = Participants::Set(IdSet::parse(["[1-2]"]).unwrap());
    let mut spec = Spec {
        name: name(),
        description: "".to_string(),
        owner: "".to_string(),
        labels: BTreeMap::new(),
        scope: Scope::Regional,
        regions: [("us-east".parse().unwrap(), Slice { retention_ms: u64::MAX, ..slice(set) })].into(),
        generations,
        deadline_ms: Some(60_000),
        release_when: Rule::All,
        retention_ms: 1_000,
        retention_generations: 1_000,
        failures_max: 0,
        after: None,
    };
    change(&mut spec);
    spec
}

fn by() -> Override {
    Override { actor: Some("ops".to_string()), reason: "because".to_string() }
}

fn say_to(world: &mut World, barrier: &str, command: global::Command) -> Reply {
    let barrier = barrier.parse().unwrap();
    world.run(Command::Regional(Box::new(Regional { barrier, command, at: Timestamp(1_000) })))
}

fn say(world: &mut World, command: global::Command) -> Result<global::Reply, global::Refusal> {
    match say_to(world, NAME, command) {
        Reply::Regional(reply) => *reply,
        other => panic!("not said to a regional barrier: {other:?}"),
    }
}

fn world(generations: Generations, change: impl FnOnce(&mut Spec)) -> World {
    let mut world = World::new(Participants::Count(1));
    let define = global::Command::Define { spec: Box::new(spec(generations, change)), expect: Expect::NewOrEqual };
    assert!(matches!(say(&mut world, define), Ok(global::Reply::Defined { created: true, .. })));
    world
}

fn come(world: &mut World, n: u64, who: &str) -> Reply {
    world.run(Command::Arrive(Arrive { barrier: name(), ..arrive(n, who) }))
}

fn state(world: &World, n: u64) -> State {
    let (generation, decider) = (world.region.generation(&name(), n), world.region.regional_barrier(&name()));
    let (here, there) = (generation.unwrap().state(), decider.unwrap().generations[&n].state());
    assert_eq!(here, there, "the region and its decider are one");
    here
}

fn cause(world: &World, n: u64) -> BreakReason {
    match &world.region.generation(&name(), n).unwrap().ended().unwrap().outcome.verdict {
        Verdict::Broken(broken) => broken.reason,
        Verdict::Released(release) => panic!("released: {release:?}"),
    }
}

#[test]
fn the_last_arrival_releases_within_its_own_command() {
    let mut world = world(Generations::Cyclic, |_| {});
    for n in 1..=3 {
        come(&mut world, n, "1");
        assert_eq!(state(&world, n), State::Gathering);
        come(&mut world, n, "2");
        assert_eq!(state(&world, n), State::Released, "no releasing: it is applied where it is decided");
        assert!(world.effects.iter().any(|effect| matches!(effect, Effect::Ended { .. })));
    }
    assert!(world.region.report_up(&name(), 1).is_none(), "the coordinator has no part in it");
}

/// Commands of one entry are applied at one index: each is heard nevertheless.
#[test]
fn everybody_may_come_in_one_entry() {
    let mut world = world(Generations::Single, |_| {});
    let both = ["1", "2"].map(|who| Command::Arrive(Arrive { barrier: name(), ..arrive(1, who) }));
    world.run_all(Writer(1), both.into());
    assert_eq!(state(&world, 1), State::Released);
}

#[test]
fn failures_and_overrides_are_as_with_any_barrier() {
    let mut world = world(Generations::Keyed { max_open: 4 }, |_| {});
    for key in ["a", "b", "c", "d"] {
        say(&mut world, global::Command::Open { key: Some(key.parse().unwrap()) }).unwrap();
    }
    world.run(Command::Arrive(Arrive { barrier: name(), outcome: ArrivalOutcome::Failed, ..arrive(1, "1") }));
    assert_eq!((state(&world, 1), cause(&world, 1)), (State::Broken, BreakReason::ParticipantFailed));
    say(&mut world, global::Command::Abort { n: 2, by: by() }).unwrap();
    assert_eq!(cause(&world, 2), BreakReason::Aborted);
    say(&mut world, global::Command::Release { n: 3, by: by() }).unwrap();
    assert_eq!(state(&world, 3), State::Released);
    come(&mut world, 4, "1");
    let participants = Some(IdSet::parse(["2"]).unwrap());
    say(&mut world, global::Command::Waive { n: 4, region: "us-east".parse().unwrap(), participants, by: by() })
        .unwrap();
    assert_eq!(state(&world, 4), State::Released);
    let retry = global::Command::Retry { n: 2, key: Some("b".parse().unwrap()), keep: true, by: by() };
    assert!(matches!(say(&mut world, retry), Ok(global::Reply::Opened { created: true, .. })));
    assert_eq!(state(&world, 5), State::Gathering);
    let actions: Vec<&str> = world.region.audit().map(|audit| audit.action.as_str()).collect();
    assert_eq!(actions, ["abort", "release", "waive", "retry"]);
}

/// The decider looks at the time with each report, not only when it is due.
#[test]
fn a_first_arrival_after_a_late_tick_finds_its_time_not_over() {
    let mut world = world(Generations::Single, |_| {});
    world.count_time(60_000);
    come(&mut world, 1, "1");
    assert_eq!(state(&world, 1), State::Gathering);
    world.count_time(61_000);
    world.count_time(120_999);
    assert_eq!(state(&world, 1), State::Gathering);
    world.count_time(121_000);
    assert_eq!(cause(&world, 1), BreakReason::DeadlineExceeded);
}

#[test]
fn a_deadline_counts_on_the_region_clock() {
    let mut world = world(Generations::Cyclic, |_| {});
    come(&mut world, 1, "1");
    world.tick(59_999);
    assert_eq!(state(&world, 1), State::Gathering, "never early");
    world.tick(60_000);
    assert_eq!(cause(&world, 1), BreakReason::DeadlineExceeded);
    // The next opened by itself: its time begins with its first arrival. That
    // came just before the leader's count of a minute was applied, and that may
    // have set out before it: it is not charged with it.
    world.tick(500_000);
    assert_eq!(state(&world, 2), State::Gathering);
    come(&mut world, 2, "1");
    world.count_time(560_000);
    world.count_time(565_000);
    world.count_time(624_999);
    assert_eq!(state(&world, 2), State::Gathering);
    world.count_time(625_000);
    assert_eq!(cause(&world, 2), BreakReason::DeadlineExceeded);
}

#[test]
fn what_follows_by_itself_goes_down_too_and_only_by_its_own_definition() {
    let mut world = world(Generations::Cyclic, |_| {});
    let second = |after| {
        let second = spec(Generations::Cyclic, |spec| {
            spec.name = "local/after".parse().unwrap();
            spec.after = after;
        });
        global::Command::Define { spec: Box::new(second), expect: Expect::Anything }
    };
    for n in 1..=200 {
        say(&mut world, global::Command::Abort { n, by: by() }).unwrap();
    }
    say_to(&mut world, "local/after", second(Some(name())));
    let latest = |world: &World| {
        let latest = world.region.barrier(&"local/after".parse().unwrap()).unwrap().latest().unwrap();
        (latest.id().n, latest.state())
    };
    assert_eq!(latest(&world), (201, State::Gathering), "each broke, and opened the next");
    // A change of the definition is for the generations that open after it.
    say_to(&mut world, "local/after", second(None));
    say(&mut world, global::Command::Abort { n: 201, by: by() }).unwrap();
    say(&mut world, global::Command::Abort { n: 202, by: by() }).unwrap();
    assert_eq!(latest(&world), (202, State::Gathering));
}

#[test]
fn a_job_goes_down_together() {
    let keyed = Generations::Keyed { max_open: 4 };
    let mut world = world(keyed, |_| {});
    let second = spec(keyed, |spec| {
        spec.name = "local/after".parse().unwrap();
        spec.after = Some(name());
    });
    let define = global::Command::Define { spec: Box::new(second), expect: Expect::NewOrEqual };
    say_to(&mut world, "local/after", define);
    let open = |key: &str| global::Command::Open { key: Some(key.parse().unwrap()) };
    say(&mut world, open("k")).unwrap();
    say_to(&mut world, "local/after", open("k"));
    say(&mut world, open("l")).unwrap();
    for n in [1, 2] {
        say(&mut world, global::Command::Abort { n, by: by() }).unwrap();
    }
    // Opened after its predecessor broke.
    say_to(&mut world, "local/after", open("l"));
    for n in [1, 2] {
        let generation = world.region.generation(&"local/after".parse().unwrap(), n).unwrap();
        let Verdict::Broken(broken) = &generation.ended().unwrap().outcome.verdict else { panic!("{generation:?}") };
        assert_eq!(broken.reason, BreakReason::PredecessorBroken);
    }
}

#[test]
fn a_name_is_global_or_regional() {
    let mut world = world(Generations::Single, |_| {});
    let mine = opened(1, &slice(Participants::Count(1)));
    let Fact::Opened(mut theirs) = mine else { unreachable!() };
    theirs.generation.barrier = name();
    assert_eq!(world.run(Command::Fact(Fact::Opened(theirs))), Reply::Done { changed: true });
    let told = world.region.report_up(&name(), 1).unwrap();
    assert!(told.name_taken && !told.complete);
    assert_eq!(state(&world, 1), State::Gathering, "the region's own goes on");

    let spec = spec(Generations::Single, |spec| spec.name = id(1).barrier);
    let define = global::Command::Define { spec: Box::new(spec), expect: Expect::NewOrEqual };
    assert_eq!(say_to(&mut world, "etl/map", define), Reply::Refused(Refusal::NameTaken));
    let unknown = say_to(&mut world, "local/other", global::Command::Open { key: None });
    assert_eq!(unknown, Reply::Regional(Box::new(Err(global::Refusal::NotDefined))));
}

/// However often it is crossed, the region and its decider stay bounded.
#[test]
fn state_is_bounded() {
    let mut world = world(Generations::Cyclic, |_| {});
    for n in 1..=11_500 {
        let both = ["1", "2"].map(|who| Command::Arrive(Arrive { barrier: name(), ..arrive(n, who) }));
        let index = world.region.index() + 1;
        let witness = crate::entry::Witness { index: 0, hash: Digest([0; 32]) };
        let body = crate::entry::Body { witness, commands: both.into() };
        world.region.apply(&crate::entry::Entry { index, writer: Writer(3), seq: n, body }, &mut vec![]);
    }
    assert_eq!(state(&world, 11_500), State::Released);
    let known = world.region.barrier(&name()).unwrap();
    let detailed = known.generations().filter(|generation| !generation.is_closed()).count();
    assert_eq!((known.generations().count(), detailed), (10_000, 1_000));
    let decider = world.region.regional_barrier(&name()).unwrap();
    assert_eq!(decider.generations.len(), 10_000);
    assert_eq!(decider.generations.values().filter(|generation| !generation.closed).count(), 1_000);
}
