//! Greeting, and what comes of facts before and after it is answered.

use alloc::borrow::ToOwned;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::identity::History;
use crate::participants::Participants;
use crate::region::Command;
use crate::region::tests::{World, decided};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn agent(instance: &str) -> AgentId {
    AgentId { name: "agent-1".to_owned(), instance: instance.to_owned() }
}

fn world() -> World {
    World::new(Participants::Count(9))
}

fn ear() -> Listening {
    Listening::new(agent("a"), "http://127.0.0.1:7171".to_owned())
}

fn welcome(region: &Region, standing: Standing, index: u64) -> Welcome {
    Welcome {
        region: region.name().clone(),
        agent: agent("a"),
        history: region.history(),
        standing,
        index,
        era: None,
        tell_ends: false,
    }
}

fn greeted(region: &Region) -> Listening {
    let mut ear = ear();
    assert_eq!(ear.welcomed(&welcome(region, Standing::Current, 0), region), Welcomed::Compare { seen: 0 });
    assert_eq!(ear.compared(0, region), Ok(()));
    ear
}

fn for_us(n: u64) -> Fact {
    let Fact::Decided(mut decided) = decided(n, false) else { unreachable!() };
    decided.regions = vec!["us-east".parse().unwrap()];
    Fact::Decided(decided)
}

#[test]
fn greets_with_doubling_pauses_until_it_is_answered() {
    let (world, mut ear) = (world(), ear());
    ear.followed(ms(0));
    let mut at = Vec::new();
    for now in (0..100_000).step_by(250) {
        at.extend(ear.greet(&world.region, ms(now)).map(|_| now));
    }
    assert_eq!(at, [0, 500, 1_500, 3_500, 7_500, 15_500, 31_500, 61_500, 91_500]);
    assert_eq!(greeted(&world.region).next_greeting(), None);
}

#[test]
fn nothing_is_acted_on_before_the_greeting_is_answered() {
    let world = world();
    let mut ear = ear();
    ear.followed(ms(0));
    assert_eq!(ear.fact(&for_us(1), &world.region, true, true), Hear::Nothing);
    let mut ear = greeted(&world.region);
    assert_eq!(ear.fact(&for_us(1), &world.region, true, true), Hear::Append);
    ear.followed(ms(9));
    assert_eq!(ear.fact(&for_us(1), &world.region, true, true), Hear::Nothing, "a new place begins anew");
}

#[test]
fn only_the_current_life_of_the_log_is_welcome_and_only_if_it_was_not_set_back() {
    let world = world();
    let region = &world.region;
    let us = || region.name().clone();
    let mut ear = ear();
    let refusals = [
        (Standing::Unknown, Refused::Unknown(us())),
        (Standing::Superseded, Refused::Superseded(us())),
        (Standing::Undeclared, Refused::Undeclared(us())),
    ];
    for (standing, refused) in refusals {
        assert_eq!(ear.welcomed(&welcome(region, standing, 0), region), Welcomed::Refused(refused));
    }
    let other = Welcome { history: History([9; 16]), ..welcome(region, Standing::Current, 0) };
    assert_eq!(ear.welcomed(&other, region), Welcomed::OtherHistory);
    let other = Welcome { agent: agent("b"), ..welcome(region, Standing::Current, 0) };
    assert_eq!(ear.welcomed(&other, region), Welcomed::NotForUs);
    assert_eq!(ear.compared(2, region), Err(Refused::SetBack { index: 1, seen: 2 }));
    assert!(!ear.is_greeted());
    assert_eq!(ear.compared(1, region), Ok(()));
}

#[test]
fn a_fact_is_left_to_others_unless_it_is_this_agents_turn() {
    let mut world = world();
    let ear = greeted(&world.region);
    let hear = |region: &Region, leading, waits| ear.fact(&for_us(1), region, leading, waits);
    assert_eq!(hear(&world.region, false, false), Hear::AppendLater);
    assert_eq!(hear(&world.region, true, false), Hear::Append);
    assert_eq!(hear(&world.region, false, true), Hear::Append);
    assert!(still_new(&for_us(1), &world.region));
    world.run(Command::Fact(for_us(1)));
    assert!(!still_new(&for_us(1), &world.region));
    assert_eq!(hear(&world.region, true, true), Hear::TellAgain, "the coordinator has not heard that it is applied");
    assert_eq!(hear(&world.region, false, true), Hear::Nothing);
}

#[test]
fn another_outcome_than_the_one_applied_is_an_alarm() {
    let mut world = world();
    world.run(Command::Fact(decided(2, true)));
    let ear = greeted(&world.region);
    assert_eq!(ear.fact(&for_us(2), &world.region, true, false), Hear::Alarm);
}
