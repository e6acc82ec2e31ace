//! Puts the known bugs of the adapters back, one at a time, and runs the tests
//! of each adapter that has it, on real services. A bug that all tests survive
//! says that they prove less than they seem to.
//!
//! ```text
//! adapters [--mutant NAME] [--json FILE]
//! ```
//!
//! It needs `MUSTER_TEST_ETCD` and `MUSTER_TEST_POSTGRES`: `make mutants` sets them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_protocol::mutant::{Mutant, Place};

const AGENT: &str = "muster-regional-agent";
const COORDINATOR: &str = "muster-global-coordinator";

/// An adapter: what it is called, whose tests show it, and which of them.
struct Adapter {
    name: &'static str,
    package: &'static str,
    tests: &'static str,
}

fn adapter(place: Place) -> Option<Adapter> {
    let (name, package, tests) = match place {
        Place::Simulator => return None,
        Place::EtcdLog => ("log on etcd", AGENT, "log::etcd::"),
        Place::SqliteLog => ("log in SQLite", AGENT, "log::embedded::"),
        Place::PostgresStore => ("store in Postgres", COORDINATOR, "store::postgres::"),
        Place::SqliteStore => ("store in SQLite", COORDINATOR, "store::embedded::"),
    };
    Some(Adapter { name, package, tests })
}

/// The test programs, by package.
type Programs = BTreeMap<&'static str, String>;

/// Longer than all tests of an adapter take: a bug may make one wait for ever.
const LIMIT: Duration = Duration::from_secs(300);

/// A bug in one adapter, and the test that went red first.
struct Hunt {
    mutant: Mutant,
    adapter: Adapter,
    red: Option<String>,
}

fn main() -> ExitCode {
    match Arguments::read(std::env::args().skip(1)).and_then(|arguments| arguments.obey()) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Arguments {
    mutant: Option<String>,
    json: Option<String>,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--mutant" => arguments.mutant = words.next(),
                "--json" => arguments.json = words.next(),
                other => return Err(format!("{other:?} is not known; there are --mutant NAME and --json FILE")),
            }
        }
        Ok(arguments)
    }

    fn obey(&self) -> Result<ExitCode, String> {
        let wanted = |mutant: &&Mutant| self.mutant.as_deref().is_none_or(|only| only == mutant.name());
        let places = |mutant: &Mutant| mutant.places().iter().map(|place| (*mutant, *place)).collect::<Vec<_>>();
        let wanted = Mutant::ALL.iter().filter(wanted).flat_map(places);
        let wanted: Vec<(Mutant, Adapter)> =
            wanted.filter_map(|(mutant, place)| Some((mutant, adapter(place)?))).collect();
        if wanted.is_empty() {
            println!("no adapter has {}", self.mutant.as_deref().unwrap_or("a bug"));
            return Ok(ExitCode::SUCCESS);
        }
        let programs = build()?;
        let used: BTreeMap<&str, &Adapter> = wanted.iter().map(|(_, adapter)| (adapter.name, adapter)).collect();
        used.into_values().try_for_each(|adapter| healthy(&programs, adapter))?;
        println!("{:<24} {:<18} caught by", "name", "adapter");
        let mut hunts = Vec::new();
        for (mutant, adapter) in wanted {
            let red = run(&programs, &adapter, Some(mutant))?;
            let by = red.as_deref().unwrap_or("nothing: it survived");
            println!("{:<24} {:<18} {by}", mutant.name(), adapter.name);
            hunts.push(Hunt { mutant, adapter, red });
        }
        if let Some(file) = &self.json {
            std::fs::write(file, json(&hunts)).map_err(|error| format!("write {file}: {error}"))?;
        }
        let survivors: Vec<&Hunt> = hunts.iter().filter(|hunt| hunt.red.is_none()).collect();
        for Hunt { mutant, adapter, .. } in &survivors {
            println!("not caught in the {}: {}, {}", adapter.name, mutant.name(), mutant.what());
        }
        Ok(if survivors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Builds the tests with all bugs in them; cargo says where it put them.
fn build() -> Result<Programs, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["test", "--locked", "--no-run", "--lib"]);
    for package in [AGENT, COORDINATOR] {
        command.args(["-p", package, "--features", &format!("{package}/mutants")]);
    }
    let output = command.output().map_err(|error| format!("run cargo: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(said.into_owned());
    }
    let program = |package: &'static str| {
        let file = format!("{}-", package.replace('-', "_"));
        let mut places = said.lines().filter_map(|line| line.rsplit_once('(')?.1.strip_suffix(')'));
        let place = places.find(|place| place.contains(&file));
        Ok((package, place.ok_or_else(|| format!("cargo built no tests of {package}:\n{said}"))?.to_owned()))
    };
    [AGENT, COORDINATOR].into_iter().map(program).collect()
}

/// Tests that are red without a bug show nothing with one.
fn healthy(programs: &Programs, adapter: &Adapter) -> Result<(), String> {
    match run(programs, adapter, None)? {
        None => Ok(()),
        Some(red) => Err(format!("the {} fails without a bug put back: {red}", adapter.name)),
    }
}

/// Runs the tests of an adapter until one goes red.
fn run(programs: &Programs, adapter: &Adapter, mutant: Option<Mutant>) -> Result<Option<String>, String> {
    let program = programs.get(adapter.package).ok_or("no program")?;
    let mut command = Command::new(program);
    command.arg(adapter.tests).stdout(Stdio::piped()).stderr(Stdio::null());
    match mutant {
        Some(mutant) => command.env("MUSTER_MUTANT", mutant.name()),
        None => command.env_remove("MUSTER_MUTANT"),
    };
    let failed = |error: std::io::Error| format!("run {program}: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines().map_while(Result::ok);
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || lines.map(|line| said.send(line)).take_while(Result::is_ok).count());
    let (end, mut green) = (Instant::now() + LIMIT, 0);
    let red = loop {
        match heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => match line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
                Some((test, "FAILED")) => break Some(test.to_owned()),
                Some((_, "ok")) => green += 1,
                _ => {}
            },
            Err(RecvTimeoutError::Timeout) => break Some("a test that does not end".to_owned()),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    if red.is_some() {
        child.kill().map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    match red {
        None if green == 0 || !status.success() => {
            Err(format!("{program} {} ended with {status}, {green} tests were green and none red", adapter.tests))
        }
        red => Ok(red),
    }
}

/// The results as JSON, for the documents that publish them.
fn json(hunts: &[Hunt]) -> String {
    let mut text = String::from("[\n");
    for (at, Hunt { mutant, adapter, red }) in hunts.iter().enumerate() {
        let comma = if at + 1 < hunts.len() { "," } else { "" };
        let by = red.as_ref().map_or_else(|| "null".to_owned(), |by| format!("{by:?}"));
        let _ = writeln!(
            text,
            "  {{\"name\": \"{}\", \"what\": \"{}\", \"breaks\": \"{}\", \"adapter\": \"{}\", \"caughtBy\": {by}}}{comma}",
            mutant.name(),
            mutant.what(),
            mutant.breaks(),
            adapter.name,
        );
    }
    text.push_str("]\n");
    text
}
