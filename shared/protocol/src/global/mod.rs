//! The machine of one barrier at the coordinator. A store locks a barrier's
//! row, loads what a batch of [`Command`]s names, calls [`apply`], writes the
//! [`Change`]s, commits, and only then may anybody publish the facts: [`Step`]
//! says so by its fields.
//!
//! ```text
//!                 every region complete            every region applied it
//!  gathering ───────────────────────────▶ releasing ─────────────────────▶ released
//!      │  failure · deadline · abort · deletion
//!      └───────────────────────────────▶ broken
//! ```
//!
//! An outcome is written once. Last arrival, deadline, abort and failure race
//! for the barrier's row lock; one wins and everybody reads the winner.

mod apply;
mod command;
mod decide;
mod read;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use apply::apply;
pub use command::{Change, Command, Expect, Names, Refusal, Reply, Step};

use crate::fact::Decided;
use crate::generation::GenerationId;
use crate::identity::{Era, History, Timestamp};
use crate::name::{BarrierName, RegionName};
use crate::report::RegionReport;
use crate::spec::Spec;

/// What a batch of commands must know of the world around its barrier.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The database's clock.
    pub now: Timestamp,
    /// The life of the database.
    pub era: &'a Era,
    /// The declared regions, each with the current life of its log if any
    /// agent ever greeted.
    pub regions: &'a BTreeMap<RegionName, Option<History>>,
    /// Barriers defined in the namespace, this one included if it is.
    pub barriers_in_namespace: u32,
}

/// A barrier, with those of its generations that a batch names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Its name.
    pub name: BarrierName,
    /// Counts the changes of its definition, from 1, across deletions.
    pub revision: u64,
    /// Whether it is deleted. A name's row stays, so that its numbers go on.
    pub deleted: bool,
    /// The number of the next generation; never falls.
    pub next_n: u64,
    /// How many generations are gathering, loaded or not.
    pub gathering: u32,
    /// The current spec and those that the loaded generations were opened
    /// with, by revision.
    pub specs: BTreeMap<u64, Spec>,
    /// The loaded generations.
    pub generations: BTreeMap<u64, Generation>,
}

/// A generation as the coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// How it is named.
    pub id: GenerationId,
    /// The revision of the spec it was opened with.
    pub revision: u64,
    /// When it was opened, on the database's clock.
    pub opened_at: Timestamp,
    /// When it breaks, on the database's clock. `None` while its time has not
    /// begun, or when it has none.
    pub deadline_at: Option<Timestamp>,
    /// The life of the database in which it was opened.
    pub era: Era,
    /// The latest report of each region.
    pub reports: BTreeMap<RegionName, RegionReport>,
    /// How it ended, and what its end opened.
    pub decided: Option<Decided>,
    /// Whether every region has applied its end.
    pub settled: bool,
}

impl Barrier {
    /// A name that was never defined.
    #[must_use]
    pub fn new(name: BarrierName) -> Self {
        Self {
            name,
            revision: 0,
            deleted: true,
            next_n: 1,
            gathering: 0,
            specs: BTreeMap::new(),
            generations: BTreeMap::new(),
        }
    }

    /// The definition in force, unless the name is deleted or never was.
    #[must_use]
    pub fn spec(&self) -> Option<&Spec> {
        self.specs.get(&self.revision).filter(|_| !self.deleted)
    }
}
