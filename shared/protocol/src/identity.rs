//! Identities and stamps that are numbers or bytes: histories, writers,
//! epochs, digests, instants.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The text was not the expected number of hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} hexadecimal digits")]
pub struct NotHex {
    /// How many digits the identity has.
    pub expected: usize,
}

macro_rules! hex_identity {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $bytes]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = NotHex;

            fn from_str(text: &str) -> Result<Self, NotHex> {
                let mut bytes = [0; $bytes];
                decode_hex(text, &mut bytes)
                    .map(|()| Self(bytes))
                    .ok_or(NotHex { expected: 2 * $bytes })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
                } else {
                    <[u8; $bytes]>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}

hex_identity! {
    /// The identity of one life of a region's log: random, created once per
    /// empty keyspace. A log restored or recreated elsewhere has another.
    History, 16
}
hex_identity! {
    /// A client's liveness, named by the agent that opened it.
    SessionId, 16
}
hex_identity! {
    /// The blake3 hash of an immutable value's canonical bytes.
    Digest, 32
}

impl Digest {
    /// Hashes the canonical (postcard) bytes of a value.
    pub fn of<T: Serialize>(value: &T) -> Self {
        // Written out first: a hasher is fast in blocks, and the serializer
        // comes byte by byte.
        match postcard::to_allocvec(value) {
            Ok(bytes) => Self(*blake3::hash(&bytes).as_bytes()),
            // A vector takes every byte, and the hashed types have no serializer
            // that fails.
            Err(error) => unreachable!("hash a value: {error}"),
        }
    }
}

fn decode_hex(text: &str, bytes: &mut [u8]) -> Option<()> {
    let digits = text.as_bytes();
    if digits.len() != bytes.len() * 2 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = (pair[0] as char).to_digit(16)?;
        let low = (pair[1] as char).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(())
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// One life of one agent process as the log knows it. Grows with every
    /// registration, and is never used twice in a history.
    Writer
}
number! {
    /// One incarnation of a region's leader. Grows with every election.
    Epoch
}
number! {
    /// Milliseconds since the Unix epoch, stamped for people. No decision of a
    /// region reads it; the coordinator's are read off its database's clock.
    Timestamp
}

impl Timestamp {
    /// This instant moved later by a number of milliseconds.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since an earlier instant, zero if it is not earlier.
    #[must_use]
    pub fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// One life of the coordinator's database: a failover that may have lost
/// commits begins another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Era(pub String);

impl Era {
    /// An era named by the database's system identifier and timeline.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// The one life of the decider of a regional barrier: it is part of the
    /// region's own state.
    #[must_use]
    pub fn regional() -> Self {
        Self::new("region")
    }

    /// A life of which the database remembers nothing.
    #[must_use]
    pub fn lost() -> Self {
        Self::new("lost")
    }
}

/// Where in a region's log a statement was true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stamp {
    /// The life of the log.
    pub history: History,
    /// Which shard of the region; 0 while a region has one.
    pub shard: u16,
    /// The log index, 1 for the first entry.
    pub index: u64,
}
