//! Runs seeds until one breaks a promise, or tells the story of one.
//!
//! ```text
//! muster-simulation --seeds 10000            as many seeds, from a fresh one on
//! muster-simulation --seeds 500 --from 0     these seeds
//! muster-simulation --seed 17 [--full]       one seed, with its last events or all of them
//!     --restored log|store                   with a log or a store that came back from a backup
//! ```

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use muster_simulation::{Restored, Sightings, explain, run};

fn main() -> ExitCode {
    match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments.obey(),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

#[derive(Debug, Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: u64,
    from: Option<u64>,
    full: bool,
    restored: Restored,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self { seeds: 1_000, ..Self::default() };
        while let Some(word) = words.next() {
            let mut number = || {
                let text = words.next().ok_or_else(|| format!("{word} needs a number"))?;
                text.parse::<u64>().map_err(|_| format!("{word} needs a number, not {text:?}"))
            };
            match word.as_str() {
                "--seed" => arguments.seed = Some(number()?),
                "--seeds" => arguments.seeds = number()?,
                "--from" => arguments.from = Some(number()?),
                "--full" => arguments.full = true,
                "--restored" => {
                    arguments.restored = match words.next().as_deref() {
                        Some("log") => Restored::Log,
                        Some("store") => Restored::Store,
                        _ => return Err("--restored is `log` or `store`".to_owned()),
                    };
                }
                other => {
                    return Err(format!(
                        "{other:?} is not known; there are --seed, --seeds, --from, --full, --restored"
                    ));
                }
            }
        }
        Ok(arguments)
    }

    fn obey(&self) -> ExitCode {
        if let Some(seed) = self.seed {
            print!("{}", explain(seed, self.restored, self.full));
            let kept = run(seed, self.restored).violation.is_none();
            return if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        let from = self.from.unwrap_or_else(fresh);
        println!("seeds {from} to {}", from + self.seeds);
        let began = Instant::now();
        let mut seen = Sightings::default();
        let mut steps = 0;
        for seed in from..from + self.seeds {
            let ran = run(seed, self.restored);
            if ran.violation.is_some() {
                print!("{}", explain(seed, self.restored, self.full));
                return ExitCode::FAILURE;
            }
            seen.add(&ran.seen);
            steps += ran.steps;
        }
        self.sum_up(began.elapsed(), &seen, steps)
    }

    fn sum_up(&self, took: Duration, seen: &Sightings, steps: u64) -> ExitCode {
        for (sight, count) in seen.counts() {
            println!("{count:>12}  {sight}");
        }
        let per_minute = self.seeds as f64 / took.as_secs_f64() * 60.0;
        println!("{} seeds, {steps} events, {:.1} s: {per_minute:.0} seeds a minute", self.seeds, took.as_secs_f64());
        let missing = seen.missing();
        if self.seeds >= 500 && self.restored == Restored::Nothing && !missing.is_empty() {
            println!("never seen, so little is proved: {}", missing.join(", "));
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

/// A seed nobody has run: the time, in milliseconds.
fn fresh() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
