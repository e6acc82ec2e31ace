//! Fixed seeds, a fresh one, and that the simulator itself is what it says.

use crate::{Restored, Sightings, explain, run};

#[test]
fn a_seed_is_one_story() {
    assert_eq!(explain(11, Restored::Nothing, true), explain(11, Restored::Nothing, true));
}

fn keeps_every_promise(seeds: impl Iterator<Item = u64>, restored: Restored) -> Sightings {
    let mut seen = Sightings::default();
    for seed in seeds {
        let ran = run(seed, restored);
        assert!(ran.violation.is_none(), "{}", explain(seed, restored, false));
        seen.add(&ran.seen);
    }
    seen
}

#[test]
fn five_hundred_seeds_keep_every_promise() {
    let seen = keeps_every_promise(0..500, Restored::Nothing);
    assert_eq!(seen.missing(), Vec::<String>::new(), "a run that never sees these proves too little");
}
