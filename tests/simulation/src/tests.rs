//! Fixed seeds, a fresh one, and that the simulator itself is what it says.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Restored, Sightings, explain, run};

fn keep_every_promise(seeds: impl Iterator<Item = u64>, restored: Restored) -> Sightings {
    let mut seen = Sightings::default();
    for seed in seeds {
        let ran = run(seed, restored);
        assert!(ran.violation.is_none(), "{}", explain(seed, restored, false));
        seen.add(&ran.seen);
    }
    seen
}

#[test]
fn a_seed_is_one_story() {
    assert_eq!(explain(11, Restored::Nothing, true), explain(11, Restored::Nothing, true));
}

#[test]
fn five_hundred_seeds_keep_every_promise() {
    let seen = keep_every_promise(0..500, Restored::Nothing);
    assert_eq!(seen.missing(Restored::Nothing), Vec::<String>::new(), "seeds that never see these prove too little");
}

#[test]
fn a_fresh_seed_keeps_every_promise() {
    let fresh = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    // Not through the macros, which tests that pass keep to themselves.
    writeln!(std::io::stderr(), "the fresh seed is {fresh}").expect("print the seed");
    keep_every_promise([fresh].into_iter(), Restored::Nothing);
}

#[test]
fn a_log_that_was_set_back_is_never_followed_in_silence_and_goes_on_once_it_is_adopted() {
    let seen = keep_every_promise(0..150, Restored::Log);
    assert!(seen.count("SetBackStopped") > 0, "who has seen more stops");
    assert!(seen.count("SetBackRefused") > 0, "who has not is told by the coordinator");
    assert!(seen.count("RecoveredWhatIsLeft") > 0 && seen.count("RecoveredEmpty") > 0, "both are recovered");
    assert!(seen.count("LogRefused") > 0, "it counts for nothing before somebody says so");
    assert!(seen.count("AdoptedTooEarly") > 0, "nobody adopts what never greeted");
    assert!(seen.count("Adopted") > 100, "and then everything goes on");
}

#[test]
fn a_store_that_lost_decisions_takes_nothing_back_in_a_region() {
    let seen = keep_every_promise(0..200, Restored::Store);
    assert!(seen.count("EndAdopted") > 0, "what a region has applied is taken for what it is");
    assert!(seen.count("ConflictAlarm") > 0, "what was on its way when it was lost is an alarm");
}
