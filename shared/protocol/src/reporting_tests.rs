//! When reports are due, against a region with one generation.

use super::*;
use crate::participants::Participants;
use crate::region::Command;
use crate::region::tests::{World, arrive, decided, opened, slice};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn subject() -> Subject {
    ("etl/map".parse().unwrap(), 1)
}

fn changed(urgent: bool) -> Effect {
    Effect::Changed { barrier: "etl/map".parse().unwrap(), n: 1, urgent }
}

fn gathering() -> World {
    let mut world = World::new(Participants::Count(9));
    world.run(Command::Arrive(arrive(1, "a")));
    world
}

#[test]
fn progress_is_told_once_a_second_and_what_is_urgent_at_once() {
    let (world, mut reporting) = (gathering(), Reporting::default());
    let region = &world.region;
    let mut told = |urgent, now| {
        let now = ms(now);
        let at_once = reporting.heed(&changed(urgent), true, region, now);
        at_once.iter().for_each(|subject| reporting.sent(subject, now));
        let due = reporting.due(now, false);
        due.iter().for_each(|subject| reporting.sent(subject, now));
        at_once.iter().len() + due.len()
    };
    assert_eq!(told(false, 5_000), 1, "the first change is told");
    assert_eq!(told(false, 5_100), 0, "the second waits for its second");
    assert_eq!(told(true, 5_200), 1, "urgent waits for nothing");
    assert_eq!(told(false, 5_300), 0);
    assert_eq!(told(false, 6_200), 1, "a second later the next is told");
}

#[test]
fn progress_that_came_too_early_is_told_when_its_second_has_passed() {
    let (world, mut reporting) = (gathering(), Reporting::default());
    assert_eq!(reporting.heed(&changed(false), true, &world.region, ms(0)), Some(subject()));
    reporting.sent(&subject(), ms(0));
    assert_eq!(reporting.heed(&changed(false), true, &world.region, ms(400)), None);
    assert_eq!(reporting.due(ms(999), false), []);
    assert_eq!(reporting.due(ms(1_000), false), [subject()]);
    assert_eq!(reporting.due(ms(1_250), false), [subject()], "it stays due until the bus took it");
    reporting.sent(&subject(), ms(1_250));
    assert_eq!(reporting.due(ms(9_000), false), [], "who does not lead repeats nothing");
}

#[test]
fn what_another_agent_appended_is_that_agents_to_tell_and_the_leaders_to_repeat() {
    let (world, mut reporting) = (gathering(), Reporting::default());
    assert_eq!(reporting.heed(&changed(true), false, &world.region, ms(0)), None);
    assert_eq!(reporting.due(ms(10_000), false), []);
    assert_eq!(reporting.due(ms(10_000), true), [subject()]);
}

#[test]
fn a_leader_repeats_with_doubling_pauses_until_something_changes() {
    let (world, mut reporting) = (gathering(), Reporting::default());
    assert!(reporting.heed(&changed(true), true, &world.region, ms(0)).is_some());
    reporting.sent(&subject(), ms(0));
    let mut sent = Vec::new();
    for second in 1..100 {
        for subject in reporting.due(Duration::from_secs(second), true) {
            reporting.sent(&subject, Duration::from_secs(second));
            sent.push(second);
        }
    }
    assert_eq!(sent, [1, 3, 7, 15, 31, 61, 91]);
    assert_eq!(reporting.heed(&changed(false), false, &world.region, ms(99_000)), None);
    reporting.sent(&subject(), ms(99_000));
    assert_eq!(reporting.due(ms(100_000), true), [subject()], "news begin anew");
}

#[test]
fn an_end_is_told_and_then_only_when_asked() {
    let (mut world, mut reporting) = (gathering(), Reporting::default());
    world.run(Command::Fact(decided(1, false)));
    assert_eq!(reporting.heed(&changed(true), true, &world.region, ms(0)), Some(subject()));
    assert_eq!(reporting.due(ms(60_000), true), []);
}

#[test]
fn after_a_greeting_all_that_is_open_is_due() {
    let (mut world, mut reporting) = (gathering(), Reporting::default());
    world.run(Command::Fact(opened(2, &slice(Participants::Count(9)))));
    world.run(Command::Fact(decided(1, false)));
    reporting.everything(&world.region, false);
    assert_eq!(reporting.due(ms(0), true), [("etl/map".parse().unwrap(), 2)]);
}
