//! The region's rules as tables: commands in, replies and state out.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::entry::{Body, Entry, Witness};
use crate::fact::{Decided, Fact, Next, Opened};
use crate::generation::State;
use crate::identity::Digest;
use crate::outcome::{Break, BreakReason, Outcome, Release, Verdict};
use crate::participants::{IdSet, Participants};
use crate::{invariant, spec::Slice};

pub(crate) struct World {
    pub(crate) region: Region,
    seq: u64,
    pub(crate) effects: Vec<Effect>,
}

pub(crate) fn slice(participants: Participants) -> Slice {
    Slice {
        participants,
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: 64,
        deadline_ms: None,
        retention_ms: 1_000,
    }
}

pub(crate) fn id(n: u64) -> GenerationId {
    GenerationId { barrier: "etl/map".parse().unwrap(), n, key: None, round: 0 }
}

pub(crate) fn opened(n: u64, slice: &Slice) -> Fact {
    Fact::Opened(Opened {
        generation: id(n),
        region: "us-east".parse().unwrap(),
        spec: slice.digest(),
        slice: Some(slice.clone()),
        opened_at: Timestamp(5),
        carry: None,
    })
}

fn outcome(n: u64, released: bool) -> Outcome {
    let verdict = match released {
        true => Verdict::Released(Release { whole: true, ..Release::default() }),
        false => Verdict::Broken(Break {
            reason: BreakReason::Aborted,
            region: None,
            failed: vec![],
            actor: None,
            message: "stop".to_string(),
        }),
    };
    Outcome { generation: id(n), verdict, decided_at: Timestamp(9) }
}

pub(crate) fn decided(n: u64, released: bool) -> Fact {
    Fact::Decided(Decided { outcome: outcome(n, released), regions: vec![], next: None })
}

pub(crate) fn arrive(n: u64, who: &str) -> Arrive {
    Arrive {
        barrier: "etl/map".parse().unwrap(),
        n,
        participant: who.parse().unwrap(),
        attempt: 1,
        outcome: ArrivalOutcome::Ok,
        note: None,
        output: None,
        session: None,
        at: Timestamp(7),
    }
}

fn withdraw(n: u64, who: &str, attempt: u32) -> Command {
    Command::Withdraw(Withdraw { barrier: "etl/map".parse().unwrap(), n, participant: who.parse().unwrap(), attempt })
}

impl World {
    pub(crate) fn new(participants: Participants) -> Self {
        let region = Region::new("us-east".parse().unwrap(), History([1; 16]), 0);
        let mut world = Self { region, seq: 0, effects: Vec::new() };
        world.run_all(
            Writer(1),
            vec![
                Command::TookOver { epoch: Epoch(1) },
                Command::VersionRaised { epoch: Epoch(1), version: MACHINE_VERSION },
                Command::Fact(opened(1, &slice(participants))),
            ],
        );
        world
    }

    pub(crate) fn run(&mut self, command: Command) -> Reply {
        self.run_as(Writer(1), command)
    }

    pub(crate) fn run_as(&mut self, writer: Writer, command: Command) -> Reply {
        self.run_all(writer, vec![command]).remove(0)
    }

    pub(crate) fn run_all(&mut self, writer: Writer, commands: Vec<Command>) -> Vec<Reply> {
        self.seq += 1;
        let witness = Witness { index: 0, hash: Digest([0; 32]) };
        let entry = Entry { index: self.region.index() + 1, writer, seq: self.seq, body: Body { witness, commands } };
        self.effects.clear();
        let replies = self.region.apply(&entry, &mut self.effects);
        assert!(invariant::missing_is_exact(&self.region), "I11");
        assert!(invariant::region_promised_before_release(&self.region), "I1");
        replies
    }

    /// The region clock comes to a time, in a region whose leader counts what
    /// waits for it from when it begins to wait.
    pub(crate) fn tick(&mut self, to_ms: u64) {
        self.count_time(self.region.clock_ms());
        self.count_time(self.region.clock_ms());
        self.count_time(to_ms);
    }

    pub(crate) fn count_time(&mut self, to_ms: u64) {
        let (epoch, from_ms) = (self.region.epoch(), self.region.clock_ms());
        self.run(Command::Ticked { epoch, from_ms, to_ms, at: Timestamp(to_ms) });
    }

    fn arrive(&mut self, arrive: Arrive) -> Reply {
        self.run(Command::Arrive(arrive))
    }

    fn complete(&self) -> bool {
        self.region.report(&id(1).barrier, 1).unwrap().complete
    }
}

fn arrived(reply: Reply) -> Arrived {
    match reply {
        Reply::Arrived(arrived) => arrived,
        other => panic!("not arrived: {other:?}"),
    }
}

fn refused(reply: Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

fn set(text: &str) -> Participants {
    Participants::Set(IdSet::parse([text]).unwrap())
}

#[test]
fn a_repeat_gets_the_same_answer_and_counts_once() {
    let mut world = World::new(Participants::Count(2));
    let first = arrived(world.arrive(arrive(1, "a")));
    assert!(first.first && !first.late);
    let again = arrived(world.arrive(Arrive { outcome: ArrivalOutcome::Failed, ..arrive(1, "a") }));
    assert_eq!(again, Arrived { first: false, ..first });
    assert!(!world.complete());
    assert!(world.effects.is_empty(), "a repeat is not news");
}

#[test]
fn strangers_and_extras_never_count() {
    let mut world = World::new(set("[1-2]"));
    assert_eq!(refused(world.arrive(arrive(1, "3"))), Refusal::NotExpected);
    let mut world = World::new(Participants::Count(1));
    arrived(world.arrive(arrive(1, "a")));
    assert_eq!(refused(world.arrive(arrive(1, "b"))), Refusal::Full { latest: vec!["a".parse().unwrap()] });
    assert_eq!(world.region.report(&id(1).barrier, 1).unwrap().arrived, 1);
}

#[test]
fn completion_is_a_promise() {
    let mut world = World::new(set("[1-2]"));
    arrived(world.arrive(arrive(1, "1")));
    assert_eq!(world.run(withdraw(1, "1", 1)), Reply::Withdrawn);
    assert_eq!(refused(world.arrive(arrive(1, "1"))), Refusal::Withdrawn { through: 1 });
    arrived(world.arrive(Arrive { attempt: 2, ..arrive(1, "1") }));
    arrived(world.arrive(arrive(1, "2")));
    assert!(world.complete());
    assert_eq!(refused(world.run(withdraw(1, "1", 2))), Refusal::Sealed);
    assert_eq!(world.run(withdraw(1, "1", 1)), Reply::Withdrawn, "a repeat of what was done");
    assert!(world.complete());
}

#[test]
fn a_withdrawal_that_overtakes_its_arrival_wins() {
    let mut world = World::new(Participants::Count(1));
    assert_eq!(world.run(withdraw(1, "a", 1)), Reply::Withdrawn);
    assert_eq!(refused(world.arrive(arrive(1, "a"))), Refusal::Withdrawn { through: 1 });
    assert!(!world.complete());
}

#[test]
fn attempts_only_grow() {
    let mut world = World::new(set("[1-2]"));
    let failed = Arrive { attempt: 2, outcome: ArrivalOutcome::Failed, ..arrive(1, "1") };
    arrived(world.arrive(failed.clone()));
    assert!(world.region.report(&id(1).barrier, 1).unwrap().over_failures);
    assert_eq!(refused(world.arrive(arrive(1, "1"))), Refusal::StaleAttempt { known: 2 });
    let better = arrived(world.arrive(Arrive { attempt: 3, outcome: ArrivalOutcome::Ok, ..failed.clone() }));
    assert!(better.first, "ok replaces failed while it gathers");
    assert!(!world.region.report(&id(1).barrier, 1).unwrap().over_failures);
    let worse = arrived(world.arrive(Arrive { attempt: 4, ..failed }));
    assert_eq!((worse.attempt, worse.outcome, worse.first), (3, ArrivalOutcome::Ok, false), "ok is final");
}

#[test]
fn outputs_have_a_bound_that_refuses_before_it_hurts() {
    let mut world = World::new(set("[1-3]"));
    let large = |who: &str, bytes: usize| Arrive { output: Some("x".repeat(bytes)), ..arrive(1, who) };
    arrived(world.arrive(large("1", 60)));
    assert_eq!(refused(world.arrive(large("2", 5))), Refusal::OutputsFull { limit: 64 });
    assert!(world.region.generation(&id(1).barrier, 1).unwrap().arrival(&"2".parse().unwrap()).is_none());
    arrived(world.arrive(large("2", 4)));
}

#[test]
fn the_first_outcome_stays() {
    for (first, second) in [(true, false), (false, true)] {
        let mut world = World::new(Participants::Count(1));
        arrived(world.arrive(arrive(1, "a")));
        assert_eq!(world.run(Command::Fact(decided(1, first))), Reply::Done { changed: true });
        assert_eq!(world.run(Command::Fact(decided(1, first))), Reply::Done { changed: false });
        assert_eq!(refused(world.run(Command::Fact(decided(1, second)))), Refusal::Conflict);
        assert!(matches!(world.effects[..], [Effect::Conflict { .. }]));
        let generation = world.region.generation(&id(1).barrier, 1).unwrap();
        assert_eq!(generation.ended().unwrap().outcome.verdict.is_released(), first);
    }
}

#[test]
fn late_arrivals_get_the_recorded_outcome() {
    let mut world = World::new(set("[1-2]"));
    for who in ["1", "2"] {
        arrived(world.arrive(arrive(1, who)));
    }
    world.run(Command::Fact(decided(1, true)));
    let again = arrived(world.arrive(arrive(1, "1")));
    assert!(!again.first && !again.late);
    assert_eq!(refused(world.arrive(arrive(1, "9"))), Refusal::NotExpected);
    assert_eq!(refused(world.run(withdraw(1, "1", 1))), Refusal::AlreadyReleased);

    let mut world = World::new(set("[1-2]"));
    world.run(Command::Fact(decided(1, false)));
    assert_eq!(refused(world.arrive(arrive(1, "1"))), Refusal::Broken);
}

#[test]
fn an_end_heard_before_its_opening_is_kept() {
    let mut world = World::new(Participants::Count(1));
    assert_eq!(world.run(Command::Fact(decided(4, false))), Reply::Done { changed: true });
    assert_eq!(world.run(Command::Fact(opened(4, &slice(Participants::Count(1))))), Reply::Done { changed: false });
    assert_eq!(refused(world.arrive(arrive(4, "a"))), Refusal::Broken);
}

#[test]
fn the_end_of_a_cyclic_generation_opens_the_next_in_the_same_step() {
    let mut world = World::new(Participants::Count(1));
    arrived(world.arrive(arrive(1, "a")));
    let next = |n, same_spec| Some(Next { generation: id(n), same_spec, opened_at: Timestamp(9) });
    world.run(Command::Fact(Fact::Decided(Decided {
        outcome: outcome(1, true),
        regions: vec![],
        next: next(2, true),
    })));
    assert!(arrived(world.arrive(arrive(2, "a"))).first);
    // With another spec the opening itself must bring it.
    world.run(Command::Fact(Fact::Decided(Decided {
        outcome: outcome(2, true),
        regions: vec![],
        next: next(3, false),
    })));
    assert_eq!(refused(world.arrive(arrive(3, "a"))), Refusal::NoSuchGeneration);
    let other = slice(Participants::Count(2));
    let Fact::Opened(without) = opened(3, &other) else { unreachable!() };
    let without = Fact::Opened(Opened { slice: None, ..without });
    assert!(matches!(refused(world.run(Command::Fact(without))), Refusal::SliceUnknown { .. }));
    world.run(Command::Fact(opened(3, &other)));
    assert_eq!(arrived(world.arrive(arrive(3, "a"))).expected, 2);
}

#[test]
fn a_second_opening_that_differs_is_an_alarm() {
    let mut world = World::new(Participants::Count(1));
    assert_eq!(refused(world.run(Command::Fact(opened(1, &slice(Participants::Count(2)))))), Refusal::Conflict);
    assert_eq!(arrived(world.arrive(arrive(1, "a"))).expected, 1);
}

#[test]
fn an_entry_takes_effect_at_most_once() {
    let mut world = World::new(Participants::Count(2));
    let mut effects = Vec::new();
    let entry = |region: &Region, seq| Entry {
        index: region.index() + 1,
        writer: Writer(9),
        seq,
        body: Body {
            witness: Witness { index: 0, hash: Digest([0; 32]) },
            commands: vec![Command::Arrive(arrive(1, "a"))],
        },
    };
    let first = entry(&world.region, 1);
    assert_eq!(world.region.apply(&first, &mut effects).len(), 1);
    let again = entry(&world.region, 1);
    assert!(world.region.apply(&again, &mut effects).is_empty());
}

#[test]
fn an_old_leader_is_powerless() {
    let mut world = World::new(Participants::Count(1));
    world.run(Command::TookOver { epoch: Epoch(7) });
    let tick = |epoch, from_ms, to_ms| Command::ClockAdvanced { epoch: Epoch(epoch), from_ms, to_ms };
    assert_eq!(world.run(tick(7, 0, 5_000)), Reply::Done { changed: true });
    assert_eq!(refused(world.run(tick(7, 0, 5_000))), Refusal::ClockMoved, "a repeat counts no time twice");
    world.run(Command::TookOver { epoch: Epoch(8) });
    assert_eq!(refused(world.run(tick(7, 5_000, 9_000))), Refusal::OldEpoch { current: Epoch(8) });
    assert_eq!(refused(world.run(Command::TookOver { epoch: Epoch(7) })), Refusal::OldEpoch { current: Epoch(8) });
    assert_eq!(world.region.clock_ms(), 5_000);
}

#[test]
fn details_go_when_their_time_has_passed_and_the_verdict_stays() {
    let mut world = World::new(Participants::Count(1));
    arrived(world.arrive(arrive(1, "a")));
    world.tick(5_000);
    let generation = |world: &World| world.region.generation(&id(1).barrier, 1).unwrap().clone();
    assert_eq!(generation(&world).arrivals().count(), 1, "not while it gathers");
    world.run(Command::Fact(decided(1, true)));
    world.tick(5_999);
    assert_eq!(generation(&world).arrivals().count(), 1);
    world.tick(6_000);
    assert_eq!((generation(&world).arrivals().count(), generation(&world).state()), (0, State::Released));
    assert_eq!(refused(world.arrive(arrive(1, "a"))), Refusal::Expired);
}

#[test]
fn a_report_is_urgent_exactly_when_somebody_waits_for_it() {
    let mut world = World::new(set("[1-3]"));
    let urgent = |world: &World| matches!(world.effects[..], [Effect::Changed { urgent: true, .. }]);
    world.arrive(arrive(1, "1"));
    assert!(matches!(world.effects[..], [Effect::Changed { urgent: false, .. }]));
    world.arrive(Arrive { outcome: ArrivalOutcome::Failed, ..arrive(1, "2") });
    assert!(urgent(&world), "a failure");
    world.arrive(Arrive { attempt: 2, ..arrive(1, "2") });
    world.arrive(arrive(1, "3"));
    assert!(urgent(&world), "completion");
}

#[test]
fn a_retry_goes_on_from_the_arrivals_of_the_round_that_broke() {
    let mut world = World::new(set("[1-3]"));
    arrived(world.arrive(Arrive { output: Some("s3://1".to_string()), ..arrive(1, "1") }));
    arrived(world.arrive(arrive(1, "2")));
    arrived(world.arrive(Arrive { outcome: ArrivalOutcome::Failed, ..arrive(1, "3") }));
    world.run(Command::Fact(decided(1, false)));
    let Fact::Opened(retry) = opened(2, &slice(set("[1-3]"))) else { unreachable!() };
    world.run(Command::Fact(Fact::Opened(Opened { carry: Some(1), ..retry })));
    let report = world.region.report(&id(2).barrier, 2).unwrap();
    assert_eq!((report.arrived, report.failed, report.missing.names.as_str()), (2, 0, "3"));
    assert!(!arrived(world.arrive(arrive(2, "1"))).first, "what is done stays done");
    arrived(world.arrive(Arrive { attempt: 2, ..arrive(2, "3") }));
    let report = world.region.report(&id(2).barrier, 2).unwrap();
    assert!(report.complete);
    assert_eq!(report.outputs.len(), 1);
}
