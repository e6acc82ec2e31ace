//! Runs seeds until one breaks a promise, or tells the story of one.
//!
//! ```text
//! muster-simulation --seeds 10000            as many seeds, from a fresh one on
//! muster-simulation --seeds 500 --from 0     these seeds
//! muster-simulation --seed 17 [--full]       one seed, with its last events or all of them
//!     --restored log|store                   with a log or a store that came back from a backup
//!     --mutant NAME                          with a known bug (feature `mutants`)
//! muster-simulation --mutants [--seeds MAX] [--mutant NAME] [--json FILE]
//!                                            hunts every known bug, or one (feature `mutants`)
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
    mutant: Option<String>,
    mutants: bool,
    json: Option<String>,
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
                "--mutants" => arguments.mutants = true,
                "--mutant" => arguments.mutant = words.next(),
                "--json" => arguments.json = words.next(),
                "--restored" => {
                    arguments.restored = match words.next().as_deref() {
                        Some("log") => Restored::Log,
                        Some("store") => Restored::Store,
                        _ => return Err("--restored is `log` or `store`".to_owned()),
                    };
                }
                other => {
                    return Err(format!(
                        "{other:?} is not known; there are --seed, --seeds, --from, --full, --restored, --mutant, --mutants, --json"
                    ));
                }
            }
        }
        Ok(arguments)
    }

    fn obey(&self) -> ExitCode {
        if let Err(why) = bugs::switch(self.mutant.as_deref()) {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
        if self.mutants {
            return bugs::hunt_all(self.mutant.as_deref(), self.seeds, self.json.as_deref());
        }
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
        let missing = seen.missing(self.restored);
        if self.seeds >= 500 && !missing.is_empty() {
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

#[cfg(not(feature = "mutants"))]
mod bugs {
    use std::process::ExitCode;

    const NONE: &str = "this build contains no known bug: build it with --features mutants, or run `make mutants`";

    pub(super) fn switch(named: Option<&str>) -> Result<(), String> {
        named.map_or(Ok(()), |_| Err(NONE.to_owned()))
    }

    pub(super) fn hunt_all(_only: Option<&str>, _seeds: u64, _json: Option<&str>) -> ExitCode {
        eprintln!("{NONE}");
        ExitCode::from(2)
    }
}

#[cfg(feature = "mutants")]
mod bugs {
    use std::process::ExitCode;

    use muster_protocol::mutant::{self, Mutant, Place};
    use muster_simulation::mutants::{Caught, hunt, json};

    pub(super) fn switch(named: Option<&str>) -> Result<(), String> {
        let Some(name) = named else { return Ok(()) };
        let names = || Mutant::ALL.iter().map(|mutant| mutant.name()).collect::<Vec<_>>().join(", ");
        let known = Mutant::named(name).ok_or_else(|| format!("there is no bug {name:?}; there are {}", names()))?;
        mutant::switch(Some(known));
        Ok(())
    }

    /// Hunts all of them; fails if one survives.
    pub(super) fn hunt_all(only: Option<&str>, seeds: u64, file: Option<&str>) -> ExitCode {
        println!("{:<24} {:>8}  {:<9} {:<10} bug", "name", "seeds", "caught by", "breaks");
        let simulated = Mutant::ALL.iter().filter(|mutant| mutant.places().contains(&Place::Simulator));
        let wanted = simulated.filter(|mutant| only.is_none_or(|only| only == mutant.name()));
        let caught: Vec<Caught> = wanted.map(|mutant| tell(hunt(*mutant, seeds))).collect();
        if let Some(file) = file
            && let Err(error) = std::fs::write(file, json(&caught))
        {
            eprintln!("write {file}: {error}");
            return ExitCode::FAILURE;
        }
        let survivors: Vec<&str> =
            caught.iter().filter(|one| one.median().is_none()).map(|one| one.mutant.name()).collect();
        if survivors.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("not caught: {}", survivors.join(", "));
        ExitCode::FAILURE
    }

    fn tell(caught: Caught) -> Caught {
        let median = caught.median().map_or_else(|| "survived".to_owned(), |median| median.to_string());
        let Caught { mutant, by, .. } = &caught;
        println!("{:<24} {median:>8}  {by:<9} {:<10} {}", mutant.name(), mutant.breaks(), mutant.what());
        caught
    }
}
