//! How a command ends when it does not end well: an exit code, and sentences
//! on standard error.

use std::fmt::Write as _;
use std::io;

use muster_client::Error;
use muster_wire::code::Code;
use muster_wire::definition::Change;
use muster_wire::problem::Problem;
use serde_json::Value;

use crate::render::{changes, visible};

/// Exit code of a mistake in the command itself.
pub(crate) const USAGE: u8 = 2;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What a service answered, or that none did.
    Client(Box<Error>),
    /// The command can't be meant.
    Usage(String),
    /// Something on this machine.
    Other(anyhow::Error),
    /// The code of a child, or another that was told before.
    Code(u8),
    /// Nobody reads standard output any more.
    Closed,
}

impl Failure {
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::Usage(sentence.into())
    }

    /// A refusal that this side knows by itself.
    pub(crate) fn refused(code: Code, sentence: impl Into<String>) -> Self {
        Error::Refused(Box::new(Problem::new(code, sentence))).into()
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Client(error) => error.exit_code(),
            Self::Usage(_) => USAGE,
            Self::Other(_) => 1,
            Self::Code(code) => *code,
            Self::Closed => 0,
        }
    }

    /// What to print, if anything.
    pub(crate) fn sentence(&self) -> Option<String> {
        let sentence = match self {
            Self::Client(error) => explain(error),
            Self::Usage(sentence) => sentence.clone(),
            Self::Other(error) => format!("{error:#}"),
            Self::Code(_) | Self::Closed => return None,
        };
        Some(visible(&sentence))
    }
}

/// The sentence, and what helps with it.
fn explain(error: &Error) -> String {
    let mut text = match error {
        Error::Refused(problem) => problem.detail.clone(),
        other => other.to_string(),
    };
    // A break within it can't pass for a sentence of ours.
    text = text.replace('\n', "\n  ");
    if let Some(problem) = error.problem() {
        details(problem, &mut text);
    }
    if matches!(error, Error::Unreachable { last: None, .. }) {
        text.push_str("\n  is a service running there? `muster dev` starts one; MUSTER_ADDR or --addr name others");
    }
    text
}

fn details(problem: &Problem, text: &mut String) {
    let errors = problem.more.get("errors").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if errors.len() > 1 {
        for error in errors {
            let part = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
            let _ = write!(text, "\n  {}: {}", part("field"), part("message"));
        }
    }
    let diff = problem.more.get("diff").and_then(|diff| serde_json::from_value::<Vec<Change>>(diff.clone()).ok());
    for line in diff.iter().flat_map(|diff| changes(diff)) {
        let _ = write!(text, "\n  {line}");
    }
    if let Some(hint) = &problem.hint {
        let _ = write!(text, "\n  {hint}");
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Of writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Other(anyhow::Error::new(error).context("write to standard output")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_table() {
        let refused = |code| Failure::refused(code, "x").exit_code();
        assert_eq!(refused(Code::Broken), 3);
        assert_eq!(refused(Code::NotWhole), 3);
        assert_eq!(refused(Code::Conflict), 4);
        assert_eq!(refused(Code::NotYet), 4);
        assert_eq!(refused(Code::Fenced), 5);
        assert_eq!(refused(Code::GenerationRequired), 2);
        assert_eq!(Failure::from(Error::TimedOut { last: None }).exit_code(), 124);
        let unreachable = Error::Unreachable { addresses: vec![], why: "x".into(), last: None };
        assert_eq!(Failure::from(unreachable).exit_code(), 75);
        assert_eq!(Failure::from(Error::Unknown { why: "x".into(), last: None }).exit_code(), 75);
        assert_eq!(Failure::usage("x").exit_code(), 2);
        assert_eq!(Failure::from(anyhow::anyhow!("x")).exit_code(), 1);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 0);
    }

    #[test]
    fn everything_that_helps_is_printed() {
        let problem = Problem::new(Code::InvalidDefinition, "regions: no regions (and one more problem)")
            .hint("mend it")
            .with("errors", serde_json::json!([{"field": "regions", "message": "no regions"}, {"field": "deadline", "message": "is missing"}]))
            .with("diff", serde_json::json!([{"field": "owner", "from": "x", "to": "y"}]));
        let text = Failure::from(Error::Refused(Box::new(problem))).sentence().unwrap();
        let expected = "regions: no regions (and one more problem)\n  regions: no regions\n  deadline: is missing\n  \
                        ~ owner: \"x\" → \"y\"\n  mend it";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_reason_cannot_command_a_terminal() {
        let problem = Problem::new(Code::Broken, "aborted: \u{1b}]0;owned\u{7}\nmuster: done").hint("\u{9b}2J");
        let text = Failure::from(Error::Refused(Box::new(problem))).sentence().unwrap();
        assert_eq!(text, "aborted: \\u{1b}]0;owned\\u{7}\n  muster: done\n  \\u{9b}2J");
    }
}
