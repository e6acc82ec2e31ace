//! The topics: their names, and how many partitions each has.

use muster_protocol::name::RegionName;

/// Partitions of every topic. They must be equally many everywhere: only then
/// does the same key mean the same partition in every region's topic, and one
/// barrier's reports meet in one member of the group.
pub(crate) const PARTITIONS: i32 = 8;

/// The names of one installation's topics.
#[derive(Clone, Debug)]
pub(crate) struct Topics {
    prefix: String,
}

impl Topics {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Facts, down.
    pub(crate) fn global(&self) -> String {
        format!("{}.global", self.prefix)
    }

    /// One region's states, up.
    pub(crate) fn region(&self, region: &RegionName) -> String {
        format!("{}.region.{region}", self.prefix)
    }
}
