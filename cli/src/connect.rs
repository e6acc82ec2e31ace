//! What every command needs: services to talk to, and where its words go.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Context as _;
use muster_client::{Client, Target, Trouble};
use muster_wire::time::format_duration;
use serde::Serialize;
use tokio::time::Instant;

use crate::arguments::{Format, Global};
use crate::failure::Failure;
use crate::render::{visible, visible_line};

/// How long a command that a person watches keeps trying without --timeout.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for participants: services may restart meanwhile.
const PATIENCE_OF_PARTICIPANTS: Duration = Duration::from_secs(300);

/// The surroundings of one command.
#[derive(Debug)]
pub(crate) struct Context {
    global: Global,
    until: Option<Instant>,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        // Counts from the start, whatever the command does first.
        let until = global.timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout)).map(Into::into);
        Self { global, until }
    }

    /// When to give up.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Time starts again: for what comes after a child's work.
    pub(crate) fn until_from_now(&self) -> Option<Instant> {
        self.global.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    pub(crate) fn format(&self) -> Format {
        self.global.format.unwrap_or(Format::Table)
    }

    /// A client for commands that people watch.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let client = self.connect(PATIENCE)?;
        Ok(match self.until {
            Some(until) => client.until(until),
            None => client,
        })
    }

    /// A client for participants. Without --timeout it outlives restarts.
    pub(crate) fn participant(&self, until: Option<Instant>) -> Result<Client, Failure> {
        let client = self.connect(PATIENCE_OF_PARTICIPANTS)?;
        Ok(match until {
            Some(until) => client.until(until),
            None => client,
        })
    }

    fn connect(&self, patience: Duration) -> Result<Client, Failure> {
        let client = Client::new([&self.global.addr]).map_err(|error| Failure::usage(error.to_string()))?;
        let client = client.patience(patience);
        Ok(match std::io::stderr().is_terminal() {
            true => client.on_trouble(tell_trouble),
            false => client,
        })
    }

    /// The target, at the generation of the environment where it names none.
    pub(crate) fn target(&self, target: &Target) -> Result<Target, Failure> {
        with_generation(target, std::env::var("MUSTER_GENERATION").ok().as_deref())
    }

    /// Prints data: as it is for programs, as `table` or `names` say otherwise.
    pub(crate) fn show<T: Serialize>(
        &self,
        data: &T,
        names: impl FnOnce() -> Vec<String>,
        table: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let mut text = match self.format() {
            Format::Table => visible(&table()),
            Format::Name => visible(&names().join("\n")),
            Format::Json => serde_json::to_string_pretty(data).context("write JSON")?,
            Format::Yaml => serde_saphyr::to_string(data).context("write YAML")?,
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        print(&text)
    }

    /// Prints the result of doing something: nothing by itself, unless a person
    /// looks on or a format was asked for.
    pub(crate) fn show_done<T: Serialize>(
        &self,
        data: &T,
        name: impl FnOnce() -> String,
        sentence: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match self.global.format {
            None | Some(Format::Table) => {
                self.tell(&sentence());
                Ok(())
            }
            Some(_) => self.show(data, || vec![name()], String::new),
        }
    }

    /// Says something on standard error, to a person.
    pub(crate) fn tell(&self, sentence: &str) {
        if std::io::stderr().is_terminal() {
            eprintln!("{}", visible(sentence));
        }
    }
}

fn with_generation(target: &Target, environment: Option<&str>) -> Result<Target, Failure> {
    let id = match environment.filter(|id| !id.is_empty()) {
        Some(id) if target.generation.is_none() => id,
        _ => return Ok(target.clone()),
    };
    let id = id.parse().map_err(|problem: muster_wire::problem::Problem| {
        Failure::usage(format!("MUSTER_GENERATION: {}", problem.detail))
    })?;
    Ok(Target { barrier: target.barrier.clone(), generation: Some(id) })
}

/// Writes to standard output; a reader that went away ends the command.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

fn tell_trouble(trouble: &Trouble) {
    if !trouble.again_in.is_zero() {
        let why = visible_line(&trouble.why);
        eprintln!("{}: {why}; again in {}", trouble.address, format_duration(trouble.again_in));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_generation_that_the_command_does_not() {
        let bare: Target = "etl/map".parse().unwrap();
        let named: Target = "etl/map@7".parse().unwrap();
        assert_eq!(with_generation(&bare, Some("k~1")).unwrap().to_string(), "etl/map@k~1");
        assert_eq!(with_generation(&named, Some("8")).unwrap(), named);
        assert_eq!(with_generation(&bare, Some("")).unwrap(), bare);
        assert_eq!(with_generation(&bare, Some("a b")).unwrap_err().exit_code(), 2);
    }
}
