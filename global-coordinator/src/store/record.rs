//! Rows as they are stored, and what they are to the rest of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;

use muster_protocol::generation::GenerationId;
use muster_protocol::global::{Barrier, Generation, Waiver};
use muster_protocol::identity::{Era, Timestamp};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Override;
use muster_protocol::report::RegionReport;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;
use super::error::defect;
use super::query::{Row, row};

/// A barrier's name.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct NameRecord {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// A barrier.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct BarrierRecord {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) revision: i64,
    pub(super) deleted: bool,
    pub(super) next_n: i64,
    pub(super) lost_from: Option<i64>,
}

/// A spec, at one revision of its barrier.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct SpecRecord {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) revision: i64,
    pub(super) spec: String,
}

/// A generation without its reports.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct GenerationRecord {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) n: i64,
    pub(super) key: Option<String>,
    pub(super) round: i64,
    pub(super) revision: i64,
    pub(super) opened_at: i64,
    pub(super) deadline_at: Option<i64>,
    pub(super) era: String,
    pub(super) decided: Option<String>,
    pub(super) settled: bool,
    pub(super) version: i64,
    pub(super) carry: Option<i64>,
    pub(super) closed: bool,
}

/// Who is no longer expected of one region.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct WaiverRecord {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) n: i64,
    pub(super) region: String,
    pub(super) revision: i64,
    pub(super) participants: Option<String>,
    pub(super) actor: Option<String>,
    pub(super) reason: String,
}

/// A report.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct ReportRecord {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) n: i64,
    /// In the body too, but here it may have been taken back.
    pub(super) applied: Option<String>,
    pub(super) body: String,
    pub(super) received_at: i64,
}

/// Something counted for each barrier.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct CountRecord {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) count: i64,
}

/// A generation and when its reports came.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) generation: Generation,
    pub(super) version: u64,
    pub(super) received: BTreeMap<RegionName, Timestamp>,
}

impl BarrierRecord {
    /// The barrier, without specs and generations.
    pub(super) fn barrier(self, gathering: u32) -> Result<Barrier, StoreError> {
        Ok(Barrier {
            name: barrier_name(&self.namespace, &self.name)?,
            revision: unsigned(self.revision)?,
            deleted: self.deleted,
            next_n: unsigned(self.next_n)?,
            lost_from: self.lost_from.map(unsigned).transpose()?,
            gathering,
            specs: BTreeMap::new(),
            generations: BTreeMap::new(),
            numbers: BTreeSet::new(),
        })
    }
}

impl GenerationRecord {
    /// The generation, without its reports.
    pub(super) fn loaded(self) -> Result<Loaded, StoreError> {
        let id = GenerationId {
            barrier: barrier_name(&self.namespace, &self.name)?,
            n: unsigned(self.n)?,
            key: self.key.as_deref().map(|key| parsed("key", key)).transpose()?,
            round: unsigned(self.round)?,
        };
        let generation = Generation {
            id,
            revision: unsigned(self.revision)?,
            opened_at: timestamp(self.opened_at)?,
            deadline_at: self.deadline_at.map(timestamp).transpose()?,
            era: Era(self.era),
            reports: BTreeMap::new(),
            decided: self.decided.as_deref().map(|text| document("outcome", text)).transpose()?,
            settled: self.settled,
            carry: self.carry.map(unsigned).transpose()?,
            waived: BTreeMap::new(),
            closed: self.closed,
        };
        Ok(Loaded { generation, version: unsigned(self.version)?, received: BTreeMap::new() })
    }
}

impl Loaded {
    /// Adds one region's report.
    pub(super) fn add(&mut self, record: &ReportRecord) -> Result<(), StoreError> {
        let mut report: RegionReport = document("report", &record.body)?;
        report.applied = report.applied.filter(|_| record.applied.is_some());
        self.received.insert(report.region.clone(), timestamp(record.received_at)?);
        self.generation.reports.insert(report.region.clone(), report);
        Ok(())
    }

    /// Adds one region's waiver.
    pub(super) fn waive(&mut self, record: WaiverRecord) -> Result<(), StoreError> {
        let waiver = Waiver {
            revision: unsigned(record.revision)?,
            participants: record.participants.map(|text| document("waiver", &text)).transpose()?,
            by: Override { actor: record.actor, reason: record.reason },
        };
        self.generation.waived.insert(parsed("region", &record.region)?, waiver);
        Ok(())
    }
}

/// A barrier's name out of its two columns.
pub(super) fn barrier_name(namespace: &str, name: &str) -> Result<BarrierName, StoreError> {
    parsed("barrier name", &format!("{namespace}/{name}"))
}

/// The columns that a barrier's name is stored in.
pub(super) fn name_row(name: &BarrierName) -> Row {
    row![name.namespace(), name.name()]
}

/// The columns that name a generation.
pub(super) fn generation_row(name: &BarrierName, n: u64) -> Row {
    row![name.namespace(), name.name(), n]
}

/// A name or a number out of its text.
pub(super) fn parsed<T: FromStr<Err: Display>>(what: &str, text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|error| defect(format!("the stored {what} {text:?} can't be read: {error}")))
}

/// A counter out of its column.
pub(super) fn unsigned<T: TryFrom<i64>>(value: i64) -> Result<T, StoreError> {
    T::try_from(value).map_err(|_| defect(format!("the stored number {value} is outside its range")))
}

/// An instant out of its column.
pub(super) fn timestamp(value: i64) -> Result<Timestamp, StoreError> {
    unsigned(value).map(Timestamp)
}

/// A document out of its text.
pub(super) fn document<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| defect(format!("a stored {what} can't be read: {error}")))
}

/// A document as text.
pub(super) fn text_of<T: Serialize>(what: &str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| defect(format!("the {what} can't be written as JSON: {error}")))
}
