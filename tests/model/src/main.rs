//! `muster-model [WORLD] [--states N] [--seconds S]`: looks at one world, or at
//! all, and prints what it found. Exit code 1 when a promise was broken, or when
//! what should end a generation was never seen to.

use std::process::ExitCode;
use std::time::Duration;

use muster_model::{Limits, World, look};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let limits = Limits {
        states: number("--states").and_then(|states| usize::try_from(states).ok()),
        time: number("--seconds").map(Duration::from_secs),
    };
    let name = arguments.first().filter(|name| !name.starts_with("--"));
    let worlds: Vec<World> =
        World::all().into_iter().filter(|world| name.is_none_or(|name| name == world.name)).collect();
    if worlds.is_empty() {
        eprintln!("there is no such world; there are {:?}", World::all().map(|world| world.name));
        return ExitCode::from(2);
    }
    let mut good = true;
    for world in worlds {
        let found = look(world, limits);
        println!("{found}");
        good &= found.is_good();
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
