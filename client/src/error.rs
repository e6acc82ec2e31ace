//! What is not a yes.

use muster_wire::code::Code;
use muster_wire::problem::Problem;

/// The exit code for "nobody answered", as in sysexits' `EX_TEMPFAIL`.
const EXIT_UNREACHABLE: u8 = 75;
/// The exit code of timeout(1).
const EXIT_TIMED_OUT: u8 = 124;

/// Why a call was not answered with yes.
#[derive(Debug, thiserror::Error)]
#[must_use]
#[non_exhaustive]
pub enum Error {
    /// Not done, and the problem says why.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// Nobody could be asked, or nobody was able to act: not done.
    #[error("{}", match last {
        Some(problem) => format!("not done: {}", problem.detail),
        None => format!("{} can't be reached: {why}", addresses.join(", ")),
    })]
    Unreachable {
        /// Who was asked.
        addresses: Vec<String>,
        /// What happened last.
        why: String,
        /// What the last try was answered, if it was.
        last: Option<Box<Problem>>,
    },
    /// The call may or may not have been done. The same call again is safe.
    #[error("it is not known whether this was done: {why}; the same call again is safe")]
    Unknown {
        /// What happened last.
        why: String,
        /// What was answered last, if anything was.
        last: Option<Box<Problem>>,
    },
    /// Time is up and the generation is still open.
    #[error("{}", match last { Some(problem) => format!("time is up: {}", problem.detail), None => "time is up".to_owned() })]
    TimedOut {
        /// What was answered last, if anything was.
        last: Option<Box<Problem>>,
    },
}

impl Error {
    /// The exit code of a command that ends with this.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(problem) => problem.code.exit(),
            Self::TimedOut { .. } => EXIT_TIMED_OUT,
            Self::Unknown { last: Some(problem), .. } if problem.code == Code::Internal => problem.code.exit(),
            Self::Unreachable { .. } | Self::Unknown { .. } => EXIT_UNREACHABLE,
        }
    }

    /// What the service answered, if one did.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            Self::Unreachable { last, .. } | Self::Unknown { last, .. } | Self::TimedOut { last } => last.as_deref(),
        }
    }

    /// Whether it was refused with this code.
    #[must_use]
    pub fn is(&self, code: Code) -> bool {
        matches!(self, Self::Refused(problem) if problem.code == code)
    }
}
