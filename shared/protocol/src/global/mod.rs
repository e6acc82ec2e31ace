//! The machine of one barrier at the coordinator. A store locks a barrier's
//! row, loads what a batch of [`Command`]s names, calls [`apply`], writes the
//! [`Change`]s, commits, and only then may anybody publish the facts: [`Step`]
//! says so by its fields.
//!
//! ```text
//!                 the rule holds · force         every region applied it
//!  gathering ───────────────────────────▶ releasing ─────────────────────▶ released ──▶ forgotten
//!      │  failure · deadline · abort · deletion · predecessor                              ▲
//!      └───────────────────────────────▶ broken ─────────────────────────────────────────┘
//!                                          └── retry ──▶ the next round gathers
//! ```
//!
//! An outcome is written once. Last arrival, deadline, abort and failure race
//! for the barrier's row lock; one wins and everybody reads the winner.

mod apply;
mod collect;
mod command;
mod decide;
mod define;
#[cfg(test)]
mod life_tests;
mod overrule;
#[cfg(test)]
mod overrule_tests;
mod read;
mod report;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use apply::apply;
pub use command::{Action, Audit, Change, Command, Expect, Names, Refusal, Reply, Step};
pub use decide::View;

use crate::fact::Decided;
use crate::generation::GenerationId;
use crate::identity::{Era, History, Timestamp};
use crate::name::{BarrierName, RegionName};
use crate::outcome::Override;
use crate::participants::IdSet;
use crate::report::RegionReport;
use crate::spec::Spec;

/// What a batch of commands must know of the world around its barrier.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The clock that decides: the database's, or the region's.
    pub now: Timestamp,
    /// The same instant as people read it.
    pub at: Timestamp,
    /// The life of the database.
    pub era: &'a Era,
    /// The declared regions.
    pub regions: &'a BTreeMap<RegionName, Declared>,
    /// Barriers defined in the namespace, this one included if it is.
    pub barriers_in_namespace: u32,
}

/// What is known of a declared region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// The current life of its log, if any agent ever greeted.
    pub history: Option<History>,
    /// The life of the database in which it last greeted.
    pub era: Option<Era>,
    /// Who has drained it, while it is: generations that open go on without it.
    pub drained: Option<Override>,
}

/// A barrier, with those of its generations that a batch names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// Its name.
    pub name: BarrierName,
    /// Counts the changes of its definition, from 1, across deletions.
    pub revision: u64,
    /// Whether it is deleted. A name's row stays, so that its numbers go on.
    pub deleted: bool,
    /// The number of the next generation; never falls.
    pub next_n: u64,
    /// Numbers from here on that are not there may have been lost with an
    /// earlier life of the database; those below it were forgotten. A region's
    /// log, which keeps its own barriers, loses nothing.
    #[serde(skip)]
    pub lost_from: Option<u64>,
    /// How many generations are gathering, loaded or not.
    pub gathering: u32,
    /// The current spec and those that the loaded generations were opened
    /// with, by revision.
    pub specs: BTreeMap<u64, Spec>,
    /// The loaded generations.
    pub generations: BTreeMap<u64, Generation>,
    /// The numbers of all that there are, where they were asked for.
    pub numbers: BTreeSet<u64>,
}

/// Who is no longer expected of one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiver {
    /// Counts the waivers of the generation in the region, from 1.
    pub revision: u32,
    /// The participants; `None` is the whole region.
    pub participants: Option<IdSet>,
    /// Who waived them last, and why.
    pub by: Override,
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
    /// The broken generation whose ok arrivals count here too.
    pub carry: Option<u64>,
    /// Who is no longer expected.
    pub waived: BTreeMap<RegionName, Waiver>,
    /// Whether its details are past their retention.
    pub closed: bool,
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
            lost_from: None,
            gathering: 0,
            specs: BTreeMap::new(),
            generations: BTreeMap::new(),
            numbers: BTreeSet::new(),
        }
    }

    /// Whether a number that is not there may have been lost, not forgotten.
    #[must_use]
    pub fn may_have_lost(&self, n: u64) -> bool {
        self.lost_from.is_some_and(|from| n >= from)
    }

    /// Whether a generation that is not there is taken up when a region tells of
    /// it, because the database may have lost it.
    #[must_use]
    pub fn takes_up(&self, n: u64) -> bool {
        n >= self.next_n || self.may_have_lost(n)
    }

    /// A generation has this number from now on. Those that it jumps over were
    /// given in an earlier life of the database.
    pub fn take_number(&mut self, n: u64) {
        if n > self.next_n {
            self.lost_from = self.lost_from.or(Some(self.next_n));
        }
        self.next_n = self.next_n.max(n + 1);
    }

    /// Nothing is kept of these generations. By then every region has told what
    /// the database had lost up to them.
    pub fn forget(&mut self, numbers: &[u64]) {
        self.generations.retain(|n, _| !numbers.contains(n));
        self.numbers.retain(|n| !numbers.contains(n));
        if let Some(newest) = numbers.iter().max().filter(|n| self.may_have_lost(**n)) {
            self.lost_from = Some(newest + 1).filter(|from| *from < self.next_n);
        }
    }

    /// The definition in force, unless the name is deleted or never was.
    #[must_use]
    pub fn spec(&self) -> Option<&Spec> {
        self.specs.get(&self.revision).filter(|_| !self.deleted)
    }
}
