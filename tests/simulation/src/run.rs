//! One run of one seed, and the explanation of one that failed.

use crate::scene::Violation;
use crate::sightings::Sightings;
use crate::workload::Restored;
use crate::world::World;

/// Lines of a story that are printed when not all of it is asked for.
const LINES_SHOWN: usize = 80;

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// What was seen.
    pub seen: Sightings,
    /// Events that were met.
    pub steps: u64,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, restored: Restored) -> Ran {
    let mut world = World::new(seed, restored, false);
    world.run();
    let scene = world.scene;
    Ran { violation: scene.violation, seen: scene.seen, steps: scene.steps }
}

/// Runs one seed again and tells its story: the last events, or all of them.
#[must_use]
pub fn explain(seed: u64, restored: Restored, whole: bool) -> String {
    let mut world = World::new(seed, restored, true);
    world.run();
    let violation = world.scene.violation.clone();
    let story = world.scene.into_story();
    let skipped = if whole { 0 } else { story.len().saturating_sub(LINES_SHOWN) };
    let mut text = String::new();
    if skipped > 0 {
        text.push_str(&format!("… {skipped} earlier events; --full tells them\n"));
    }
    for line in &story[skipped..] {
        text.push_str(line);
        text.push('\n');
    }
    match violation {
        Some(Violation { invariant, what, at }) => {
            text.push_str(&format!("seed {seed}: {invariant} is broken after {:.3} s: {what}\n", at.as_secs_f64()));
        }
        None => text.push_str(&format!("seed {seed}: every promise was kept\n")),
    }
    let mode = match restored {
        Restored::Nothing => "",
        Restored::Log => " --restored log",
        Restored::Store => " --restored store",
    };
    text.push_str(&format!("replay: cargo run -p muster-simulation -- --seed {seed}{mode} --full\n"));
    text
}
