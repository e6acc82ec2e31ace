//! What is wrong with a definition: all of it, told at once.

use serde_json::{Value, json};

use crate::code::Code;
use crate::problem::Problem;

/// Collects what is wrong, field by field.
#[derive(Default)]
pub(super) struct Findings(Vec<Finding>);

struct Finding {
    field: String,
    message: String,
}

impl Findings {
    /// A value that can't be meant.
    pub(super) fn invalid(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding { field: field.into(), message: message.into() });
    }

    /// Every finding in one problem, or nothing.
    pub(super) fn finish(self) -> Result<(), Problem> {
        let Some(first) = self.0.first() else { return Ok(()) };
        let detail = match self.0.len() - 1 {
            0 => format!("{}: {}", first.field, first.message),
            1 => format!("{}: {} (and one more problem)", first.field, first.message),
            more => format!("{}: {} (and {more} more problems)", first.field, first.message),
        };
        let errors: Vec<Value> =
            self.0.iter().map(|finding| json!({"field": finding.field, "message": finding.message})).collect();
        Err(Problem::new(Code::InvalidDefinition, detail).with("errors", errors))
    }
}

/// A value as it is quoted in a sentence.
pub(super) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}
