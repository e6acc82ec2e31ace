//! What one append puts on the log, and the snapshot that replaces a prefix
//! of it: postcard behind one version byte.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::identity::{Digest, Writer};
use crate::region::{Command, Region, v1};

/// The version byte of entries this build writes.
pub const ENTRY_VERSION: u8 = 1;
/// The highest version byte of snapshots that this build writes.
pub const SNAPSHOT_VERSION: u8 = 2;

/// One entry, at its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The log index: dense, from 1.
    pub index: u64,
    /// Who wrote it.
    pub writer: Writer,
    /// The writer's own count, from 1.
    pub seq: u64,
    /// What it says.
    pub body: Body,
}

/// What an entry's bytes say; index, writer and seq are its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body {
    /// What the writer's replica looked like when it wrote.
    pub witness: Witness,
    /// Commands, in order.
    pub commands: Vec<Command>,
}

/// A replica's state by its hash at an index, so that replicas that differ
/// find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// The index.
    pub index: u64,
    /// The hash over everything up to it.
    pub hash: Digest,
}

/// Bytes that this build cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// No bytes at all.
    #[error("the record is empty")]
    Empty,
    /// Written by a newer build.
    #[error("the record has version {found}, this build reads up to {known}")]
    Version {
        /// The version byte.
        found: u8,
        /// The highest version this build knows.
        known: u8,
    },
    /// The bytes are not what their version says.
    #[error("the record does not decode: {0}")]
    Damaged(postcard::Error),
    /// There are bytes behind the end of the record.
    #[error("the record has {0} bytes behind its end")]
    Trailing(usize),
}

fn encode<T: Serialize>(version: u8, value: &T) -> Vec<u8> {
    match postcard::to_extend(value, Vec::from([version])) {
        Ok(bytes) => bytes,
        // Growing a vector can't fail, and these types have no serializer
        // that does.
        Err(error) => unreachable!("encode a record: {error}"),
    }
}

fn decode<'a, T: Deserialize<'a>>(known: u8, bytes: &'a [u8]) -> Result<T, Unreadable> {
    let (&found, rest) = bytes.split_first().ok_or(Unreadable::Empty)?;
    if found != known {
        return Err(Unreadable::Version { found, known });
    }
    match postcard::take_from_bytes(rest).map_err(Unreadable::Damaged)? {
        (value, []) => Ok(value),
        (_, rest) => Err(Unreadable::Trailing(rest.len())),
    }
}

impl Body {
    /// The entry's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(ENTRY_VERSION, self)
    }

    /// Reads an entry's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        decode(ENTRY_VERSION, bytes)
    }
}

/// A region's whole state at an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The hash over everything up to the state's index.
    pub hash: Digest,
    /// The state.
    pub region: Region,
}

/// A snapshot as version 1 of the region's machine writes it.
#[derive(Serialize, Deserialize)]
struct SnapshotV1 {
    hash: Digest,
    region: v1::Region,
}

impl Snapshot {
    /// The snapshot's bytes, in the form that every agent of the region reads.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self.region.machine_version() {
            0 | 1 => encode(1, &SnapshotV1 { hash: self.hash, region: (&self.region).into() }),
            _ => encode(SNAPSHOT_VERSION, self),
        }
    }

    /// Reads a snapshot's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        if bytes.first() == Some(&1) {
            let SnapshotV1 { hash, region } = decode(1, bytes)?;
            return Ok(Self { hash, region: region.into() });
        }
        decode(SNAPSHOT_VERSION, bytes)
    }
}

/// Bytes one command adds to an entry, rounded up.
#[must_use]
pub fn command_bytes(command: &Command) -> usize {
    postcard::experimental::serialized_size(command).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
