//! `muster-model small|large [--states N] [--seconds S]`: looks at a world and
//! prints what it found. Exit code 1 when a promise was broken, or when it was
//! never seen to matter.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use muster_model::World;
use stateright::{Checker, Model};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let world = match arguments.first().map(String::as_str) {
        Some("small") => World::small(),
        Some("large") => World::large(),
        _ => {
            eprintln!("usage: muster-model small|large [--states N] [--seconds S]");
            return ExitCode::from(2);
        }
    };
    let limited = arguments.len() > 1;
    let (name, began) = (world.name, Instant::now());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut checker = world.checker().threads(threads);
    if let Some(states) = number("--states") {
        checker = checker.target_state_count(usize::try_from(states).unwrap_or(usize::MAX));
    }
    if let Some(seconds) = number("--seconds") {
        checker = checker.timeout(Duration::from_secs(seconds));
    }
    let checked = checker.spawn_bfs().join();
    println!(
        "{name}: {} distinct states of {}, depth {}, {:.0} s{}",
        checked.unique_state_count(),
        checked.state_count(),
        checked.max_depth(),
        began.elapsed().as_secs_f64(),
        if limited { "" } else { ", to completion" }
    );
    let mut good = true;
    for property in checked.model().properties() {
        let found = checked.discovery(property.name);
        println!("  {} {}", if found.is_none() { "holds " } else { "BROKEN" }, property.name);
        good &= found.is_none();
        for act in found.map(stateright::Path::into_actions).unwrap_or_default() {
            println!("         {act:?}");
        }
    }
    let unseen = checked.model().unseen();
    println!(
        "  {}",
        if unseen.is_empty() { "saw every outcome that it should".to_owned() } else { format!("NEVER SAW {unseen:?}") }
    );
    if good && unseen.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
