//! What is said of regions, of their agents, and of a service itself.

use muster_protocol::name::RegionName;
use serde::{Deserialize, Serialize};

use super::Link;

/// A declared region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Region {
    /// Its name.
    pub name: RegionName,
    /// Whether it can be heard.
    pub link: Link,
    /// The current life of its log.
    pub history: Option<String>,
    /// The highest log index it reported.
    pub index: Option<u64>,
    /// When it was last heard.
    pub last_heard_at: Option<String>,
    /// Its agents that were heard lately.
    pub agents: Vec<Agent>,
    /// Whether generations that open go on without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<Drained>,
    /// Lives of its log that somebody would have to adopt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_histories: Vec<String>,
}

/// A planned absence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// When it ends by itself.
    pub until: String,
    /// Who asked, if it is known.
    pub actor: Option<String>,
    /// Why.
    pub reason: String,
}

/// One entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// When.
    pub at: String,
    /// What was done: `abort`, `release`, `waive`, `retry`, `delete`,
    /// `replace`, `drain`, `resume` or `adopt`.
    pub action: String,
    /// The barrier, when one was meant.
    pub barrier: Option<String>,
    /// The generation, when one was meant.
    pub generation: Option<String>,
    /// Who did it, if it is known.
    pub actor: Option<String>,
    /// Why.
    pub reason: String,
    /// To which region or participants.
    pub object: String,
}

/// An agent of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its configured name.
    pub name: String,
    /// Random for each life of its process.
    pub instance: String,
    /// Where it can be reached.
    pub address: String,
    /// When it was last heard.
    pub last_heard_at: String,
}

/// What `/readyz?verbose` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Whether traffic may be sent here.
    pub ready: bool,
    /// Each thing that is needed.
    pub checks: Vec<Check>,
}

/// One thing that is needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What.
    pub name: String,
    /// Whether it answers.
    pub ok: bool,
    /// Whether local work needs it.
    pub required: bool,
    /// What is the matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What `/version` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// `regional-agent` or `global-coordinator`.
    pub service: String,
    /// The release.
    pub version: String,
    /// The version of the region's machine it runs.
    pub machine_version: u16,
}
