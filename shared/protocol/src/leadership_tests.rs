//! One agent's part in leading, against a region that refuses old epochs.

use super::*;
use crate::participants::Participants;
use crate::region::tests::World;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const US: Writer = Writer(1);
const EPOCH: Epoch = Epoch(7);

fn acting(world: &mut World) -> Leadership {
    let mut part = Leadership::new(3);
    let Elected::TakesOver(command) = part.elected(Some(EPOCH)) else { unreachable!() };
    let reply = world.run(command);
    assert!(part.took_over(US, EPOCH, &reply, s(100)));
    part
}

#[test]
fn acts_only_after_its_own_word_is_applied() {
    let (mut world, mut part) = (World::new(Participants::Count(9)), Leadership::new(3));
    assert_eq!(part.elected(Some(EPOCH)), Elected::TakesOver(Command::TookOver { epoch: EPOCH }));
    assert_eq!(part.epoch(), None, "elected is not yet acting");
    assert_eq!(part.count_time(&world.region, s(1_000), Timestamp(0)), None);
    world.run(Command::TookOver { epoch: Epoch(8) });
    let late = world.run(Command::TookOver { epoch: EPOCH });
    assert!(!part.took_over(US, EPOCH, &late, s(1)), "a newer one has acted");
    assert_eq!(part.epoch(), None);
}

#[test]
fn an_election_it_did_not_win_ends_its_reign() {
    let mut part = acting(&mut World::new(Participants::Count(9)));
    assert_eq!(part.elected(Some(EPOCH)), Elected::Acts);
    assert_eq!(part.elected(None), Elected::Another(Some(EPOCH)));
    assert_eq!(part.elected(None), Elected::Another(None));
    assert_eq!(part.mandate(), None);
}

#[test]
fn time_is_counted_once_from_where_it_stood() {
    let mut world = World::new(Participants::Count(9));
    let mut part = acting(&mut world);
    assert_eq!(part.count_time(&world.region, s(159), Timestamp(0)), None);
    let command = part.count_time(&world.region, s(161), Timestamp(0)).unwrap();
    assert_eq!(command, Command::Ticked { epoch: EPOCH, from_ms: 0, to_ms: 61_000, at: Timestamp(0) });
    world.run(command);
    assert_eq!(part.count_time(&world.region, s(162), Timestamp(0)), None);
    let command = part.count_time(&world.region, s(221), Timestamp(0)).unwrap();
    assert_eq!(command, Command::Ticked { epoch: EPOCH, from_ms: 61_000, to_ms: 121_000, at: Timestamp(0) });
}

#[test]
fn a_refusal_for_its_epoch_ends_its_reign() {
    let mut world = World::new(Participants::Count(9));
    let mut part = acting(&mut world);
    world.run(Command::TookOver { epoch: Epoch(8) });
    let reply = world.run(part.count_time(&world.region, s(200), Timestamp(0)).unwrap());
    assert_eq!(part.heed(&reply), Some(EPOCH));
    assert_eq!(part.count_time(&world.region, s(900), Timestamp(0)), None);
}

#[test]
fn only_writers_known_before_the_list_was_read_are_lost() {
    let part = acting(&mut World::new(Participants::Count(9)));
    let lost = part.lost_agents(&[US, Writer(2), Writer(3)], &[US, Writer(3), Writer(4)]);
    assert_eq!(lost, [Command::AgentLost { epoch: EPOCH, writer: Writer(2) }]);
}

#[test]
fn a_snapshot_is_due_once_in_so_many_entries() {
    let mut world = World::new(Participants::Count(9));
    let mut part = acting(&mut world);
    assert_eq!(part.snapshot_due(&world.region), None, "two entries");
    world.run(Command::TookOver { epoch: EPOCH });
    assert_eq!(part.snapshot_due(&world.region), Some(EPOCH));
    part.snapshot_done(world.region.index());
    assert_eq!(part.snapshot_due(&world.region), None);
}
