//! What the machine of version 2 added to a region's rules: sessions and
//! losses, waivers, zones, retention, what is forgotten.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::tests::{World, arrive, decided, id, opened, slice};
use super::*;
use crate::entry::{Body, Entry, Snapshot, Witness};
use crate::fact::{Closed, Fact, Opened, Waived};
use crate::identity::Digest;
use crate::participants::{IdSet, Participants};
use crate::report::RegionReport;
use crate::spec::{Liveness, OnLost};

const TTL_MS: u64 = 10_000;
const REJOIN_MS: u64 = 60_000;

fn set(text: &str) -> Participants {
    Participants::Set(IdSet::parse([text]).unwrap())
}

fn watched(on_lost: OnLost) -> Slice {
    let liveness = Liveness { ttl_ms: TTL_MS, rejoin_ms: REJOIN_MS, on_lost };
    Slice { liveness: Some(liveness), ..slice(set("[1-3]")) }
}

/// A world in which generation 2 is open with this slice.
fn world(slice: &Slice) -> World {
    let mut world = World::new(Participants::Count(1));
    world.run(Command::Fact(opened(2, slice)));
    world
}

fn session(byte: u8) -> SessionId {
    SessionId([byte; 16])
}

fn open(world: &mut World, byte: u8, who: &[&str]) -> Vec<Attempt> {
    let works = who.iter().map(|who| work(who)).collect();
    let open = OpenSession { id: session(byte), ttl_ms: TTL_MS, works, at: Timestamp(1) };
    match world.run(Command::OpenSession(open)) {
        Reply::SessionOpened(opened) => opened.attempts,
        other => panic!("not opened: {other:?}"),
    }
}

fn work(who: &str) -> Work {
    Work { barrier: id(2).barrier, n: 2, participant: who.parse().unwrap() }
}

fn report(world: &World) -> RegionReport {
    world.region.report(&id(2).barrier, 2).unwrap()
}

fn by(byte: u8, who: &str, attempt: u32) -> Command {
    Command::Arrive(Arrive { session: Some(session(byte)), attempt, ..arrive(2, who) })
}

fn expire(byte: u8) -> Command {
    Command::ExpireSession { session: session(byte), attach: 1 }
}

fn refused(reply: Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_session_gives_each_of_its_participants_the_next_attempt() {
    let mut world = world(&Slice { attempts: 3, ..watched(OnLost::Fail) });
    assert_eq!(open(&mut world, 1, &["1", "2"]), [Attempt { attempt: 1, done: false }; 2]);
    world.run(Command::Arrive(Arrive { outcome: ArrivalOutcome::Failed, session: Some(session(1)), ..arrive(2, "1") }));
    world.run(by(1, "2", 1));
    let again = open(&mut world, 2, &["1", "2"]);
    assert_eq!(again, [Attempt { attempt: 2, done: false }, Attempt { attempt: 1, done: true }]);
    let apart = report(&world).apart;
    assert_eq!((apart.working, apart.lost), (0, 0), "who failed and tries again is retrying");
    assert_eq!(report(&world).retrying, 1);
    let repeated = world.run(by(2, "2", 1));
    assert!(
        matches!(repeated, Reply::Arrived(Arrived { first: false, attempt: 1, .. })),
        "done stays done: {repeated:?}"
    );
}

#[test]
fn of_two_sessions_of_one_participant_the_later_wins() {
    let mut world = world(&watched(OnLost::Fail));
    open(&mut world, 1, &["1"]);
    open(&mut world, 2, &["1"]);
    assert!(matches!(world.effects[..], [.., Effect::SessionEnded { fenced: true, .. }]));
    assert_eq!(refused(world.run(by(1, "1", 1))), Refusal::Fenced);
    assert_eq!(refused(world.run(Command::Arrive(arrive(2, "1")))), Refusal::StaleAttempt { known: 2 });
    assert_eq!(refused(world.run(Command::AttachSession(session(1)))), Refusal::SessionLost);
    assert!(matches!(world.run(by(2, "1", 2)), Reply::Arrived(Arrived { first: true, .. })));
}

#[test]
fn a_loss_acts_only_once_the_time_to_rejoin_has_passed() {
    let mut world = world(&watched(OnLost::Fail));
    open(&mut world, 1, &["1", "2"]);
    world.run(by(1, "2", 1));
    world.run(expire(1));
    assert!(matches!(world.effects[..], [.., Effect::SessionEnded { fenced: false, .. }]));
    assert_eq!((report(&world).apart.lost, report(&world).failed), (1, 0), "done stays done");
    assert_eq!(refused(world.run(by(1, "1", 1))), Refusal::SessionLost);
    world.tick(REJOIN_MS - 1);
    assert_eq!(report(&world).failed, 0, "never early");
    world.tick(REJOIN_MS);
    let told = report(&world);
    assert_eq!((told.failed, told.apart.lost, told.apart.lost_for_good, told.over_failures), (1, 0, 1, true));
    assert_eq!(told.failures[0].participant, "1".parse().unwrap());
}

/// The region clock stands still while nothing waits for it. What begins to
/// wait is not charged with the time that was not counted until then.
#[test]
fn time_that_passed_before_a_loss_does_not_make_it_act() {
    let mut world = world(&watched(OnLost::Fail));
    open(&mut world, 1, &["1"]);
    world.run(expire(1));
    assert_eq!(world.region.due_ms(), Some(0), "the leader is asked to count at once");
    world.count_time(REJOIN_MS);
    // That tick may have been on its way before the loss.
    world.count_time(2 * REJOIN_MS);
    assert_eq!(report(&world).failed, 0);
    world.count_time(3 * REJOIN_MS - 1);
    assert_eq!(report(&world).failed, 0);
    world.count_time(3 * REJOIN_MS);
    assert_eq!(report(&world).failed, 1);
}

#[test]
fn who_comes_back_in_time_is_not_lost() {
    let mut world = world(&watched(OnLost::Fail));
    open(&mut world, 1, &["1"]);
    world.run(expire(1));
    world.tick(REJOIN_MS - 1);
    assert_eq!(open(&mut world, 2, &["1"]), [Attempt { attempt: 2, done: false }]);
    world.tick(2 * REJOIN_MS);
    assert_eq!((report(&world).failed, report(&world).apart.working), (0, 1));
}

/// The opening of a session may be said again after it was lost.
#[test]
fn who_is_lost_twice_has_the_whole_time_twice() {
    let mut world = world(&watched(OnLost::Fail));
    open(&mut world, 1, &["1"]);
    world.run(expire(1));
    world.tick(REJOIN_MS - 10);
    open(&mut world, 1, &["1"]);
    world.run(expire(1));
    world.count_time(REJOIN_MS - 10);
    world.count_time(REJOIN_MS - 5);
    world.count_time(REJOIN_MS);
    assert_eq!(report(&world).failed, 0, "the time of the first loss is not that of the second");
    world.count_time(2 * REJOIN_MS - 5);
    assert_eq!(report(&world).failed, 1);
}

#[test]
fn an_expiry_names_the_owner_it_means() {
    let mut world = world(&watched(OnLost::Fail));
    open(&mut world, 1, &["1"]);
    let stale = Command::ExpireSession { session: session(1), attach: 2 };
    assert_eq!(refused(world.run(stale)), Refusal::NotOwner);
    assert_eq!(refused(world.run_as(Writer(7), expire(1))), Refusal::NotOwner);
    assert_eq!(world.run_as(Writer(7), Command::AttachSession(session(1))), Reply::Done { changed: true });
    assert_eq!(refused(world.run(expire(1))), Refusal::NotOwner, "it has moved");
    assert_eq!(report(&world).apart.lost, 0);
}

#[test]
fn sessions_of_an_agent_that_is_gone_may_move_while_they_may_be_silent() {
    let mut world = world(&watched(OnLost::Fail));
    open(&mut world, 1, &["1"]);
    open(&mut world, 2, &["2"]);
    let writer = Writer(1);
    world.run_as(Writer(7), Command::TookOver { epoch: Epoch(2) });
    world.run_as(Writer(7), Command::AgentLost { epoch: Epoch(2), writer });
    world.run_as(Writer(7), Command::AttachSession(session(2)));
    world.tick(TTL_MS + 1_999);
    assert_eq!(report(&world).apart.lost, 0, "its ttl and the margin");
    world.tick(TTL_MS + 2_000);
    assert_eq!((report(&world).apart.lost, report(&world).apart.working), (1, 1));
    assert!(world.region.session(session(1)).is_none() && world.region.session(session(2)).is_some());
}

#[test]
fn a_session_that_is_opened_again_is_the_same() {
    let mut world = world(&watched(OnLost::Fail));
    let first = open(&mut world, 1, &["1"]);
    assert_eq!(open(&mut world, 1, &["1"]), first);
    assert_eq!(world.run(Command::CloseSession(session(1))), Reply::Done { changed: true });
    assert_eq!(world.run(Command::CloseSession(session(1))), Reply::Done { changed: false });
    assert_eq!((report(&world).apart.lost, report(&world).missing.count), (0, 3), "who leaves is missing, not lost");
}

#[test]
fn the_excluded_never_complete_a_region_that_nobody_arrived_in() {
    let mut world = world(&watched(OnLost::Exclude));
    open(&mut world, 1, &["1", "2", "3"]);
    world.run(expire(1));
    world.tick(REJOIN_MS);
    assert_eq!((report(&world).apart.excluded, report(&world).complete), (3, false));
    // One comes after all, and is enough.
    world.run(Command::Arrive(Arrive { attempt: 2, ..arrive(2, "1") }));
    assert_eq!((report(&world).apart.excluded, report(&world).complete), (2, true));
    assert_eq!(refused(world.run(Command::Arrive(Arrive { attempt: 2, ..arrive(2, "2") }))), Refusal::Sealed);
}

#[test]
fn a_loss_after_a_withdrawal_does_not_bring_the_withdrawn_attempt_back() {
    let mut world = world(&watched(OnLost::Fail));
    open(&mut world, 1, &["1"]);
    let Work { barrier, n, participant } = work("1");
    world.run(Command::Withdraw(Withdraw { barrier, n, participant, attempt: 1 }));
    world.run(expire(1));
    world.tick(REJOIN_MS);
    assert_eq!(report(&world).failures[0].attempt, 2);
}

#[test]
fn who_is_lost_after_others_took_every_place_was_not_expected() {
    for on_lost in [OnLost::Fail, OnLost::Exclude] {
        let counted = Slice { participants: Participants::Count(2), attempts: 2, ..watched(on_lost) };
        let mut world = world(&counted);
        open(&mut world, 1, &["3"]);
        let failed = Arrive { outcome: ArrivalOutcome::Failed, ..arrive(2, "1") };
        world.run(Command::Arrive(failed));
        world.run(Command::Arrive(arrive(2, "2")));
        world.run(expire(1));
        world.tick(REJOIN_MS);
        let told = report(&world);
        assert_eq!((told.arrived, told.retrying, told.failed, told.apart.excluded), (1, 1, 0, 0), "{on_lost:?}");
        world.run(Command::Arrive(Arrive { attempt: 2, ..arrive(2, "1") }));
        assert!(report(&world).complete, "the two that are expected have arrived");
    }
}

#[test]
fn an_arrival_that_is_not_kept_lives_as_long_as_its_session() {
    let mut world = world(&Slice { keep_arrivals: false, ..watched(OnLost::Fail) });
    for (byte, who) in [(1, "1"), (2, "2")] {
        open(&mut world, byte, &[who]);
        world.run(by(byte, who, 1));
    }
    world.run(expire(1));
    assert_eq!((report(&world).arrived, report(&world).apart.lost), (1, 1));
    open(&mut world, 3, &["1", "3"]);
    world.run(by(3, "1", 2));
    world.run(by(3, "3", 1));
    assert!(report(&world).complete);
    // Completion is a promise: the loss is recorded, and races in the outcome.
    world.run(expire(3));
    assert_eq!((report(&world).arrived, report(&world).complete), (3, true));
    world.tick(REJOIN_MS);
    let told = report(&world);
    assert_eq!((told.arrived, told.failed, told.complete, told.over_failures), (1, 2, true, true));
}

fn waive(revision: u32, ids: &str) -> Command {
    Command::Fact(Fact::Waived(Waived {
        generation: id(2),
        region: "us-east".parse().unwrap(),
        revision,
        participants: IdSet::parse([ids]).unwrap(),
    }))
}

#[test]
fn the_waived_are_not_expected_any_more() {
    let mut world = world(&slice(set("[1-4]")));
    world.run(Command::Arrive(arrive(2, "1")));
    assert_eq!(world.run(waive(2, "[1-3]")), Reply::Done { changed: true });
    let told = report(&world);
    assert_eq!((told.arrived, told.apart.waived, told.missing.names.as_str(), told.apart.waiver), (1, 2, "4", 2));
    assert_eq!(world.run(waive(1, "4")), Reply::Done { changed: false }, "an older one says less");
    assert!(!report(&world).complete);
    world.run(Command::Arrive(arrive(2, "3")));
    assert_eq!((report(&world).arrived, report(&world).apart.waived), (2, 1), "who comes after all counts");
    world.run(Command::Arrive(arrive(2, "4")));
    assert!(report(&world).complete);
}

#[test]
fn zones_promise_for_themselves() {
    let zones =
        [("a", "[1-2]"), ("b", "[3-4]")].map(|(zone, ids)| (zone.parse().unwrap(), IdSet::parse([ids]).unwrap()));
    let mut world = world(&slice(Participants::Zones(zones.into())));
    let output = |who: &str| Arrive { output: Some(who.to_string()), ..arrive(2, who) };
    for who in ["1", "2", "3"] {
        world.run(Command::Arrive(output(who)));
    }
    let told = report(&world);
    let (a, b) = (told.zones[&"a".parse().unwrap()], told.zones[&"b".parse().unwrap()]);
    assert_eq!((a.complete, b.complete, told.complete), (true, false, false));
    assert_eq!(told.outputs.len(), 2, "outputs of what has promised");
    let withdraw = |who: &str| {
        Command::Withdraw(Withdraw { barrier: id(2).barrier, n: 2, participant: who.parse().unwrap(), attempt: 1 })
    };
    assert_eq!(refused(world.run(withdraw("1"))), Refusal::Sealed);
    assert_eq!(world.run(withdraw("3")), Reply::Withdrawn);
    assert_eq!(refused(world.run(Command::Arrive(arrive(2, "9")))), Refusal::NotExpected);
}

#[test]
fn one_failure_too_many_is_told_and_the_last_attempt_decides() {
    let mut world = world(&Slice { attempts: 2, failures_max: 1, ..slice(set("[1-3]")) });
    let failed =
        |who: &str, attempt| Command::Arrive(Arrive { outcome: ArrivalOutcome::Failed, attempt, ..arrive(2, who) });
    world.run(failed("1", 1));
    assert_eq!((report(&world).retrying, report(&world).failed), (1, 0));
    world.run(failed("1", 2));
    assert_eq!((report(&world).retrying, report(&world).failed, report(&world).over_failures), (0, 1, false));
    world.run(failed("2", 2));
    assert!(report(&world).over_failures);
    world.run(Command::Arrive(Arrive { attempt: 3, ..arrive(2, "2") }));
    world.run(Command::Arrive(arrive(2, "3")));
    assert_eq!((report(&world).complete, report(&world).failed), (true, 1));
}

#[test]
fn nobody_of_an_old_round_arrives_in_the_next() {
    let slice = watched(OnLost::Fail);
    let mut world = world(&slice);
    open(&mut world, 1, &["1", "2"]);
    world.run(by(1, "1", 1));
    world.run(Command::Arrive(Arrive { outcome: ArrivalOutcome::Failed, ..arrive(2, "3") }));
    world.run(Command::Fact(decided(2, false)));
    let Fact::Opened(retry) = opened(3, &slice) else { unreachable!() };
    world.run(Command::Fact(Fact::Opened(Opened { carry: Some(2), ..retry })));
    let told = world.region.report(&id(3).barrier, 3).unwrap();
    assert_eq!((told.arrived, told.missing.count), (1, 2));
    for who in ["2", "3"] {
        let zombie = world.run(Command::Arrive(arrive(3, who)));
        assert_eq!(refused(zombie), Refusal::Withdrawn { through: 1 }, "{who}");
    }
    assert!(matches!(world.run(Command::Arrive(Arrive { attempt: 2, ..arrive(3, "2") })), Reply::Arrived(_)));
}

#[test]
fn what_is_forgotten_stays_forgotten() {
    let mut world = world(&slice(Participants::Count(1)));
    for n in 3..=6 {
        world.run(Command::Fact(opened(n, &slice(Participants::Count(1)))));
    }
    for n in [1, 3, 4] {
        world.run(Command::Fact(decided(n, false)));
    }
    let closed = |n, kept: &[u64]| {
        Command::Fact(Fact::Closed(Closed { generation: id(n), regions: vec![], kept: kept.to_vec() }))
    };
    // 2 still gathers; 7 has not been heard of.
    assert_eq!(world.run(closed(4, &[2])), Reply::Done { changed: true });
    assert_eq!(world.run(closed(3, &[])), Reply::Done { changed: false }, "an older one says less");
    let numbers = |world: &World| -> Vec<u64> {
        world.region.barrier(&id(1).barrier).unwrap().generations().map(|g| g.id().n).collect()
    };
    assert_eq!(numbers(&world), [2, 5, 6]);
    for n in [1, 3] {
        let again = Command::Fact(opened(n, &slice(Participants::Count(1))));
        assert_eq!(world.run(again), Reply::Done { changed: false });
        assert_eq!(world.region.heard(&opened(n, &slice(Participants::Count(1)))), Heard::Known);
        assert_eq!(refused(world.run(Command::Arrive(arrive(n, "a")))), Refusal::Expired);
    }
    assert_eq!(numbers(&world), [2, 5, 6]);
    assert_eq!(world.run(closed(5, &[1])), Reply::Done { changed: true });
    assert_eq!(numbers(&world), [6], "what is not kept goes, whatever the region thought of it");
    let back = world.region.heard(&opened(1, &slice(Participants::Count(1))));
    assert_eq!(back, Heard::Known, "a database that lost its collection does not bring it back");
    let woken = world.effects.iter().filter_map(|effect| match effect {
        Effect::Ended { n, .. } => Some(*n),
        _ => None,
    });
    assert_eq!(woken.collect::<Vec<_>>(), [2, 5], "whoever waits for it looks again");
}

/// However often a barrier is crossed, a region keeps details of the last
/// thousand, and verdicts until it is told to forget them.
#[test]
fn details_are_bounded_by_number() {
    let slice = Slice { retention_ms: u64::MAX, ..slice(Participants::Count(1)) };
    let mut world = World::new(Participants::Count(1));
    world.run(Command::Fact(decided(1, false)));
    for n in 2..=1_200 {
        world.run(Command::Fact(opened(n, &slice)));
        world.run(Command::Arrive(arrive(n, "a")));
        world.run(Command::Fact(decided(n, true)));
    }
    let barrier = world.region.barrier(&id(1).barrier).unwrap();
    let detailed: Vec<u64> = barrier.generations().filter(|g| !g.is_closed()).map(|g| g.id().n).collect();
    assert_eq!((detailed.len(), detailed[0]), (1_000, 201));
    assert_eq!(barrier.generations().count(), 1_200);
    assert_eq!(barrier.generation(200).unwrap().arrivals().count(), 0);
    assert_ne!(Digest::of(&world.region), Digest([0; 32]));
}

#[test]
fn an_older_machine_knows_nothing_of_sessions() {
    let mut region = Region::new("us-east".parse().unwrap(), History([1; 16]), 0);
    let open = OpenSession { id: session(1), ttl_ms: TTL_MS, works: vec![], at: Timestamp(1) };
    let reply = region.command(Writer(1), &Command::OpenSession(open), &mut Vec::new());
    assert_eq!(reply, Reply::Refused(Refusal::VersionTooLow));
}

/// What an agent restores from a snapshot that version 1 wrote is what those
/// have who replayed the log: they come to one state when the version is raised.
#[test]
fn a_snapshot_of_the_first_version_loses_nothing() {
    let mut region = Region::new("us-east".parse().unwrap(), History([1; 16]), 0);
    let slice = Slice { attempts: 2, ..slice(set("[1-3]")) };
    let run = |region: &mut Region, commands: Vec<Command>| {
        let index = region.index() + 1;
        let witness = crate::entry::Witness { index: 0, hash: Digest([0; 32]) };
        let body = crate::entry::Body { witness, commands };
        region.apply(&crate::entry::Entry { index, writer: Writer(1), seq: index, body }, &mut Vec::new());
    };
    let Fact::Opened(retry) = opened(3, &slice) else { unreachable!() };
    run(
        &mut region,
        vec![
            Command::TookOver { epoch: Epoch(1) },
            Command::ClockAdvanced { epoch: Epoch(1), from_ms: 0, to_ms: 700 },
            Command::Fact(opened(2, &slice)),
            Command::Arrive(Arrive { session: Some(session(1)), ..arrive(2, "1") }),
            Command::Arrive(Arrive { outcome: ArrivalOutcome::Failed, ..arrive(2, "2") }),
            Command::Fact(decided(2, false)),
            Command::Fact(Fact::Opened(Opened { carry: Some(2), ..retry })),
            Command::Arrive(arrive(3, "2")),
        ],
    );
    let bytes = crate::entry::Snapshot { hash: Digest([0; 32]), region: region.clone() }.encode();
    let mut restored = crate::entry::Snapshot::decode(&bytes).unwrap().region;
    assert_eq!(restored, region);
    for region in [&mut region, &mut restored] {
        run(region, vec![Command::VersionRaised { epoch: Epoch(1), version: 2 }]);
    }
    assert_eq!(restored, region);
}

#[test]
fn who_comes_back_after_an_exclusion_or_a_waiver_uses_no_attempt_twice() {
    for waives in [false, true] {
        let mut world = world(&Slice { attempts: 3, ..watched(OnLost::Exclude) });
        open(&mut world, 1, &["1"]);
        open(&mut world, 2, &["1"]);
        let failed = Arrive { session: Some(session(2)), attempt: 2, ..arrive(2, "1") };
        world.run(Command::Arrive(Arrive { outcome: ArrivalOutcome::Failed, ..failed.clone() }));
        if waives {
            world.run(waive(1, "1"));
        } else {
            world.run(expire(2));
            world.tick(REJOIN_MS);
        }
        assert_eq!(open(&mut world, 3, &["1"]), [Attempt { attempt: 3, done: false }], "waived: {waives}");
        assert_eq!(refused(world.run(Command::Arrive(failed))), Refusal::Fenced);
        assert!(matches!(world.run(by(3, "1", 3)), Reply::Arrived(Arrived { first: true, attempt: 3, .. })));
    }
}

/// Version 1 of the machine knew no zones and wrote none: a replica that begins
/// with its snapshot must not differ from one that counted along.
#[test]
fn zones_count_from_when_all_agents_know_them() {
    let zones = [("a", "1"), ("b", "[2-3]")].map(|(zone, ids)| (zone.parse().unwrap(), IdSet::parse([ids]).unwrap()));
    let slice = slice(Participants::Zones(zones.into()));
    let mut region = Region::new("us-east".parse().unwrap(), History([1; 16]), 0);
    let apply = |region: &mut Region, commands: Vec<Command>| {
        let index = region.index() + 1;
        let body = Body { witness: Witness { index: 0, hash: Digest([0; 32]) }, commands };
        let mut effects = Vec::new();
        region.apply(&Entry { index, writer: Writer(1), seq: index, body }, &mut effects)
    };
    let arrived = Command::Arrive(Arrive { barrier: id(2).barrier, ..arrive(2, "1") });
    apply(&mut region, vec![Command::TookOver { epoch: Epoch(1) }, Command::Fact(opened(2, &slice)), arrived]);
    let snapshot = Snapshot { hash: Digest([0; 32]), region: region.clone() };
    let mut read = Snapshot::decode(&snapshot.encode()).unwrap().region;
    assert_eq!(read, region);
    let promised = |region: &Region| {
        let zones = region.report(&id(2).barrier, 2).unwrap().zones;
        zones.values().map(|zone| zone.complete).collect::<Vec<_>>()
    };
    assert_eq!(promised(&region), [false, false], "an agent of version 1 would let its participant go");
    for region in [&mut region, &mut read] {
        apply(region, vec![Command::VersionRaised { epoch: Epoch(1), version: 2 }]);
        assert_eq!(promised(region), [true, false]);
    }
    assert_eq!(read, region);
}
