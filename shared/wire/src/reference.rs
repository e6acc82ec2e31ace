//! How a generation is named in a path: a number, a key, `key~round`, or, for
//! reads only, `latest`.

use std::fmt;
use std::str::FromStr;

use muster_protocol::name::Key;

use crate::code::Code;
use crate::problem::Problem;

/// The newest generation; therefore no key can be called so.
pub(crate) const LATEST: &str = "latest";
/// What is said of a key that is.
pub(crate) const NOT_A_KEY: &str = "no key can be \"latest\", which names the newest generation; choose another";

/// What callers write where a generation is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The one with the highest number.
    Latest,
    /// A number, or a key that looks like one: the barrier decides.
    Number(u64, Key),
    /// A key; its latest round unless one is named.
    Key(Key, Option<u32>),
}

impl Reference {
    /// The key this names on a keyed barrier.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Latest => None,
            Self::Number(_, key) | Self::Key(key, _) => Some(key),
        }
    }

    /// The round this names on a keyed barrier.
    #[must_use]
    pub fn round(&self) -> Option<u32> {
        match self {
            Self::Key(_, round) => *round,
            Self::Latest | Self::Number(..) => None,
        }
    }

    /// The number this names on a barrier without keys.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(n, _) => Some(*n),
            Self::Latest | Self::Key(..) => None,
        }
    }
}

impl FromStr for Reference {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text == LATEST {
            return Ok(Self::Latest);
        }
        let (key, round) = match text.split_once('~') {
            Some((key, round)) => {
                let plain = !round.is_empty() && round.bytes().all(|byte| byte.is_ascii_digit());
                let round = round.parse().ok().filter(|_| plain).ok_or_else(|| {
                    Problem::new(Code::InvalidName, format!("the round {round:?} of {key:?} is not a number"))
                        .hint("write key~1 for the first retry of a key")
                })?;
                (key, Some(round))
            }
            None => (text, None),
        };
        if key == LATEST {
            return Err(Problem::new(Code::InvalidName, NOT_A_KEY).hint("latest alone names the newest generation"));
        }
        let key: Key = key.parse().map_err(|error| Problem::new(Code::InvalidName, format!("{error}")))?;
        match key.as_str().parse::<u64>() {
            Ok(n) if round.is_none() && n.to_string() == key.as_str() => Ok(Self::Number(n, key)),
            _ => Ok(Self::Key(key, round)),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str(LATEST),
            Self::Number(n, _) => n.fmt(f),
            Self::Key(key, None) => key.fmt(f),
            Self::Key(key, Some(round)) => write!(f, "{key}~{round}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read() {
        assert_eq!("latest".parse::<Reference>().unwrap(), Reference::Latest);
        assert_eq!("7".parse::<Reference>().unwrap().number(), Some(7));
        assert_eq!("007".parse::<Reference>().unwrap().number(), None);
        assert_eq!("2026-10-07~1".parse::<Reference>().unwrap().round(), Some(1));
        for bad in ["", "~1", "k~", "k~x", "k~1~2", "k~+1", "a b", "k/1", "latest~0", "latest~1"] {
            assert!(bad.parse::<Reference>().is_err(), "{bad:?}");
        }
    }
}
