//! Refusals as `application/problem+json` (RFC 9457).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::code::{Code, Retry};

/// The media type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a call was not answered with yes, and what to do next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// What it is called.
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// The code in a few words.
    pub title: String,
    /// What was wrong, with names and numbers.
    pub detail: String,
    /// Whether repeating the call is useful.
    pub retry: Retry,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Where to read more.
    #[serde(default)]
    pub links: Links,
    /// What helps with this code: `missing`, `expected`, `generation`, `diff` …
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Where to read more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// The page about the code. Boxed to keep a problem below 128 bytes, since
    /// it is the error of most results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doc: Option<Box<str>>,
}

impl Problem {
    /// A problem of this code, with a sentence about this case.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            status: code.status(),
            title: code.title().to_owned(),
            detail: detail.into(),
            retry: code.retry(),
            hint: None,
            links: Links { doc: Some(format!("docs/codes.md#{code}").into()) },
            more: Map::new(),
        }
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)?;
        self.hint.iter().try_for_each(|hint| write!(f, " ({hint})"))
    }
}

impl std::error::Error for Problem {}
