//! Names that people choose, checked once at the border and valid ever after.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A name outside its grammar, with the grammar in the sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} is not valid: {rule}")]
pub struct InvalidName {
    /// What was being named.
    pub what: &'static str,
    /// What was given, cut to its first 160 characters.
    pub given: String,
    /// The grammar, as a sentence.
    pub rule: &'static str,
}

struct Grammar {
    what: &'static str,
    rule: &'static str,
    length_max: usize,
    first: fn(u8) -> bool,
    rest: fn(u8) -> bool,
}

impl Grammar {
    fn check(&self, text: &str) -> Result<(), InvalidName> {
        let bytes = text.as_bytes();
        let good = bytes.len() <= self.length_max
            && bytes.first().is_some_and(|&byte| (self.first)(byte))
            && bytes.iter().all(|&byte| (self.rest)(byte));
        if good { Ok(()) } else { Err(self.refuse(text)) }
    }

    fn refuse(&self, text: &str) -> InvalidName {
        InvalidName { what: self.what, given: text.chars().take(160).collect(), rule: self.rule }
    }
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

const PART: Grammar = Grammar {
    what: "barrier name",
    rule: "write namespace/name, each 1 to 63 of a-z 0-9 . _ - and beginning with a letter or digit",
    length_max: 63,
    first: lower,
    rest: |byte| lower(byte) || matches!(byte, b'.' | b'_' | b'-'),
};
const REGION: Grammar = Grammar {
    what: "region",
    rule: "1 to 63 of a-z 0-9 -",
    length_max: 63,
    first: |byte| lower(byte) || byte == b'-',
    rest: |byte| lower(byte) || byte == b'-',
};
const ZONE: Grammar = Grammar { what: "zone", ..REGION };
const PARTICIPANT: Grammar = Grammar {
    what: "participant",
    rule: "1 to 128 of A-Z a-z 0-9 . _ : - and beginning with a letter or digit",
    length_max: 128,
    first: |byte| byte.is_ascii_alphanumeric(),
    rest: |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-'),
};
const KEY: Grammar = Grammar {
    what: "key",
    rule: "1 to 250 of A-Z a-z 0-9 . _ : + = - and beginning with a letter or digit",
    length_max: 250,
    first: |byte| byte.is_ascii_alphanumeric(),
    rest: |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'+' | b'=' | b'-'),
};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $grammar:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                $grammar.check(text).map(|()| Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                $grammar.check(&text).map(|()| Self(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    };
}

name! {
    /// A region: one datacenter, declared before it is used.
    RegionName, REGION
}
name! {
    /// A part of a region that arrives for itself.
    ZoneName, ZONE
}
name! {
    /// A participant's id, unique in its region.
    ParticipantId, PARTICIPANT
}
name! {
    /// What callers of a keyed barrier call one of its generations.
    Key, KEY
}
name! {
    /// A barrier: `namespace/name`.
    BarrierName, Both
}

impl BarrierName {
    /// The namespace: everything before the slash.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.split().0
    }

    /// The name inside its namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.split().1
    }

    fn split(&self) -> (&str, &str) {
        // A value exists only with exactly one slash.
        self.0.split_once('/').unwrap_or((&self.0, ""))
    }
}

struct Both;

impl Both {
    fn check(&self, text: &str) -> Result<(), InvalidName> {
        let (namespace, name) = text.split_once('/').ok_or_else(|| PART.refuse(text))?;
        PART.check(namespace).and_then(|()| PART.check(name)).map_err(|_| PART.refuse(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn barrier_names_have_exactly_two_parts() {
        for good in ["etl/map", "a/b", "0a.b_c-d/9"] {
            let name: BarrierName = good.parse().unwrap();
            assert_eq!(alloc::format!("{}/{}", name.namespace(), name.name()), good);
        }
        for bad in ["", "etl", "/map", "etl/", "etl/map/x", "Etl/map", "etl/.map", "etl/ma p", "é/a", "a\0/b"] {
            assert!(bad.parse::<BarrierName>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn lengths_are_limited() {
        let long = "a".repeat(64);
        assert!(long.parse::<RegionName>().is_err());
        assert!(alloc::format!("{long}/x").parse::<BarrierName>().is_err());
        assert!("a".repeat(128).parse::<ParticipantId>().is_ok());
        assert!("a".repeat(129).parse::<ParticipantId>().is_err());
        assert!("k".repeat(250).parse::<Key>().is_ok());
        assert!("k".repeat(251).parse::<Key>().is_err());
    }

    #[test]
    fn a_refusal_says_the_grammar() {
        let error = "a b".parse::<ParticipantId>().unwrap_err().to_string();
        assert!(error.contains("\"a b\"") && error.contains("1 to 128"), "{error}");
    }

    #[test]
    fn a_key_can_never_be_read_as_a_round() {
        assert!("2026-10-07~1".parse::<Key>().is_err());
    }
}
