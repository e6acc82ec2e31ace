//! Kafka records: JSON, tagged and versioned. A reader ignores fields it does
//! not know; a version it does not know is set aside, not guessed.

use muster_protocol::fact::{Fact, Heartbeat, Hello, Welcome};
use muster_protocol::report::RegionReport;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the records this build writes, and the highest it reads.
pub const RECORD_VERSION: u16 = 1;

/// What a region tells the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "kebab-case")]
pub enum Upward {
    /// Its state of one generation.
    Report(RegionReport),
    /// It greets.
    Hello(Hello),
    /// It lives.
    Heartbeat(Heartbeat),
}

impl Upward {
    /// What keeps one barrier's reports in one partition.
    #[must_use]
    pub fn partition_key(&self) -> &str {
        match self {
            Self::Report(report) => report.generation.barrier.as_str(),
            Self::Hello(hello) => hello.region.as_str(),
            Self::Heartbeat(heartbeat) => heartbeat.region.as_str(),
        }
    }

    /// The region that speaks.
    #[must_use]
    pub fn region(&self) -> &muster_protocol::name::RegionName {
        match self {
            Self::Report(report) => &report.region,
            Self::Hello(hello) => &hello.region,
            Self::Heartbeat(heartbeat) => &heartbeat.region,
        }
    }
}

/// What the coordinator tells the regions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "body", rename_all = "kebab-case")]
pub enum Downward {
    /// A fact.
    Fact(Fact),
    /// The answer to a greeting.
    Welcome(Welcome),
}

impl Downward {
    /// What keeps one barrier's facts in one partition.
    #[must_use]
    pub fn partition_key(&self) -> &str {
        match self {
            Self::Fact(fact) => fact.generation().barrier.as_str(),
            Self::Welcome(welcome) => welcome.region.as_str(),
        }
    }
}

/// Bytes that this build cannot read as a record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Not JSON, or not of the record's form.
    #[error("the record is not of the expected form")]
    Form(#[from] serde_json::Error),
    /// Written by a newer build.
    #[error("the record has version {found}, this build reads up to {RECORD_VERSION}")]
    Version {
        /// The version found.
        found: u64,
    },
    /// No version.
    #[error("the record has no version")]
    Unversioned,
}

/// A record's bytes.
pub fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, serde_json::Error> {
    #[derive(Serialize)]
    struct Versioned<'a, T> {
        v: u16,
        #[serde(flatten)]
        record: &'a T,
    }
    serde_json::to_vec(&Versioned { v: RECORD_VERSION, record })
}

/// Reads a record's bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let value: Value = serde_json::from_slice(bytes)?;
    match value.get("v").and_then(Value::as_u64) {
        None => Err(Unreadable::Unversioned),
        Some(found) if found == 0 || found > u64::from(RECORD_VERSION) => Err(Unreadable::Version { found }),
        Some(_) => Ok(T::deserialize(value)?),
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
