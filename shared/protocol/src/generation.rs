//! One crossing of a barrier, and how it is named.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{BarrierName, Key};

/// A generation as the protocol knows it: a number never reused under its
/// barrier's name, with the name people use for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerationId {
    /// The barrier.
    pub barrier: BarrierName,
    /// The number, 1 for the first generation a name ever had.
    pub n: u64,
    /// What callers of a keyed barrier call it.
    pub key: Option<Key>,
    /// 0, or which retry of a broken generation this is.
    pub round: u32,
}

impl GenerationId {
    /// What people write after the `@`.
    #[must_use]
    pub fn label(&self) -> Label<'_> {
        Label(self)
    }
}

/// A generation's key and round, else its number.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a>(&'a GenerationId);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.key {
            Some(key) => key.fmt(f)?,
            None => self.0.n.fmt(f)?,
        }
        match (&self.0.key, self.0.round) {
            // A number names one round.
            (None, _) | (_, 0) => Ok(()),
            (Some(_), round) => write!(f, "~{round}"),
        }
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.barrier, self.label())
    }
}

/// How far a generation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Participants are arriving.
    Gathering,
    /// Decided, not yet applied in every region.
    Releasing,
    /// Applied everywhere.
    Released,
    /// Ended without a release, for a reason.
    Broken,
}

impl State {
    /// The state as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gathering => "gathering",
            Self::Releasing => "releasing",
            Self::Released => "released",
            Self::Broken => "broken",
        }
    }
}
