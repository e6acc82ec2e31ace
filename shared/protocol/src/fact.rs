//! What the coordinator tells the regions. Facts are immutable and keyed by
//! (barrier, n): the first one a region applies stays, so order, duplicates
//! and the number of publishers change nothing.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::generation::GenerationId;
use crate::identity::{Digest, Era, History, Timestamp};
use crate::name::RegionName;
use crate::outcome::Outcome;
use crate::participants::IdSet;
use crate::spec::Slice;

/// One immutable fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fact {
    /// A generation is open.
    Opened(Opened),
    /// A generation has ended.
    Decided(Decided),
    /// Finished generations are forgotten.
    Closed(Closed),
    /// Participants of a region are no longer expected.
    Waived(Waived),
}

impl Fact {
    /// The generation the fact is about.
    #[must_use]
    pub fn generation(&self) -> &GenerationId {
        match self {
            Self::Opened(opened) => &opened.generation,
            Self::Decided(decided) => &decided.outcome.generation,
            Self::Closed(closed) => &closed.generation,
            Self::Waived(waived) => &waived.generation,
        }
    }

    /// Whether a region has a part in the generation, and must hear this.
    #[must_use]
    pub fn concerns(&self, region: &RegionName) -> bool {
        match self {
            Self::Opened(opened) => opened.region == *region,
            Self::Decided(decided) => decided.regions.contains(region),
            Self::Closed(closed) => closed.regions.contains(region),
            Self::Waived(waived) => waived.region == *region,
        }
    }
}

/// A generation is open in one region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opened {
    /// Which generation.
    pub generation: GenerationId,
    /// The region this record is for.
    pub region: RegionName,
    /// The region's slice of the spec, by its digest.
    pub spec: Digest,
    /// The slice itself; left out when the region was sent it before.
    pub slice: Option<Slice>,
    /// When, on the coordinator's clock; for people.
    pub opened_at: Timestamp,
    /// The generation whose ok arrivals count here too: a retry goes on from
    /// the round that broke.
    pub carry: Option<u64>,
}

/// A generation has ended, with the successor that its end opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// How it ended.
    pub outcome: Outcome,
    /// The regions that have a part in it.
    pub regions: Vec<RegionName>,
    /// The generation that this end opens, when the barrier is cyclic.
    pub next: Option<Next>,
}

/// The successor of a cyclic generation. Each region opens it with the slice
/// it used for the generation that ended, if the digest of the spec says so;
/// otherwise its own `Opened` brings the slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Next {
    /// Which generation.
    pub generation: GenerationId,
    /// Whether the successor has the same spec as the generation that ended.
    pub same_spec: bool,
    /// When, on the coordinator's clock; for people.
    pub opened_at: Timestamp,
}

/// Everything of a barrier up to a generation is forgotten, but for what is
/// listed. Forgetting is cumulative: a later fact says all that an earlier one
/// said, so a lost one costs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Closed {
    /// The newest generation that is forgotten.
    pub generation: GenerationId,
    /// The regions that have a part in the barrier.
    pub regions: Vec<RegionName>,
    /// Generations before it that are not.
    #[serde(default)]
    pub kept: Vec<u64>,
}

/// Participants of one region are no longer expected in one generation. The
/// latest waiver says all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waived {
    /// Which generation.
    pub generation: GenerationId,
    /// The region.
    pub region: RegionName,
    /// Counts the waivers of this generation in this region, from 1.
    pub revision: u32,
    /// All who are waived.
    pub participants: IdSet,
}

/// A region's greeting: who it is, and where its log stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// The region.
    pub region: RegionName,
    /// The agent that greets, one per process life.
    pub agent: AgentId,
    /// The life of its log.
    pub history: History,
    /// Which shard.
    pub shard: u16,
    /// The highest index it has applied.
    pub head: u64,
    /// The version of the region's machine that this agent can run.
    pub machine_version: u16,
    /// Where the agent can be reached over HTTP.
    pub address: String,
    /// The life of the database that it was last welcomed by.
    #[serde(default)]
    pub era: Option<Era>,
}

/// An agent process: its configured name and a random instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentId {
    /// The configured name.
    pub name: String,
    /// Random for each life of the process.
    pub instance: String,
}

/// The coordinator's answer to a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// The region that greeted.
    pub region: RegionName,
    /// The agent that greeted.
    pub agent: AgentId,
    /// The life of the log that was greeted with.
    pub history: History,
    /// What the coordinator knows of that life.
    pub standing: Standing,
    /// The highest index it has seen of that life.
    pub index: u64,
    /// The life of the coordinator's database. One that the agent has not
    /// heard of may have lost what the region was told.
    #[serde(default)]
    pub era: Option<Era>,
    /// Whether it lacks all that the region can tell, ends too.
    #[serde(default)]
    pub tell_ends: bool,
}

/// What the coordinator knows of one life of a region's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Standing {
    /// It is the region's current one.
    Current,
    /// The region has another; somebody has to adopt this one.
    Unknown,
    /// Another one has taken its place.
    Superseded,
    /// The region is not declared.
    Undeclared,
}

/// A sign of life of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// The region.
    pub region: RegionName,
    /// The agent.
    pub agent: AgentId,
    /// The life of its log.
    pub history: History,
    /// Which shard.
    pub shard: u16,
    /// The highest index it has applied.
    pub index: u64,
    /// Where the agent can be reached over HTTP.
    pub address: String,
    /// The life of the database that it was last welcomed by.
    #[serde(default)]
    pub era: Option<Era>,
}
