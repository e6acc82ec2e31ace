//! The service as scenarios see it: parts that can be started, hurt and ended,
//! whatever they run on.

pub mod in_process;
pub mod processes;

use std::fmt;

use async_trait::async_trait;
use muster_protocol::name::RegionName;

use crate::until::until;

/// Often enough that every longer scenario lives through snapshots and
/// truncation.
const SNAPSHOT_EVERY_ENTRIES: u64 = 50;

/// One process of the service, or what stands for one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A coordinator, counted from 0.
    Coordinator(usize),
    /// An agent, counted from 0 within its region.
    Agent(RegionName, usize),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator(number) => write!(f, "coordinator-{number}"),
            Self::Agent(region, number) => write!(f, "agent-{region}-{number}"),
        }
    }
}

/// What a cluster consists of.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The regions, all declared by the coordinators' configuration.
    pub regions: Vec<RegionName>,
    /// Agents in each region.
    pub agents_per_region: usize,
    /// Coordinators.
    pub coordinators: usize,
    /// Whether log and store outlive [`Cluster::restart_everything`].
    pub durable: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            regions: regions(["us-east", "eu-west", "ap-south"]),
            agents_per_region: 1,
            coordinators: 1,
            durable: false,
        }
    }
}

impl Shape {
    /// Every part, coordinators first.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        let coordinators = (0..self.coordinators).map(Part::Coordinator);
        let agents = self
            .regions
            .iter()
            .flat_map(|region| (0..self.agents_per_region).map(|number| Part::Agent(region.clone(), number)));
        coordinators.chain(agents).collect()
    }
}

/// Names of regions.
///
/// # Panics
/// One is not a name.
#[must_use]
pub fn regions<const N: usize>(names: [&str; N]) -> Vec<RegionName> {
    names.into_iter().map(|name| name.parse().expect("a region's name")).collect()
}

/// The service, on whatever it runs. Scenarios know nothing else of it.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// What it consists of.
    fn shape(&self) -> &Shape;

    /// The base URL of a part; the same after a restart.
    fn url(&self, part: &Part) -> String;

    /// Ends a part at once, as SIGKILL does: nothing is said to anybody.
    async fn kill(&self, part: &Part) -> anyhow::Result<()>;

    /// Ends a part as SIGTERM does, and returns when it has ended.
    async fn stop(&self, part: &Part) -> anyhow::Result<()>;

    /// Starts a part that was ended, at the same address. It returns when the
    /// part listens, not when it is ready.
    async fn start(&self, part: &Part) -> anyhow::Result<()>;

    /// Kills every part, forgets all that is not durable, starts anew.
    async fn restart_everything(&self) -> anyhow::Result<()>;

    /// Waits until every part is ready for work across regions, or says which
    /// is not and why.
    async fn ready(&self) -> anyhow::Result<()> {
        for part in self.shape().parts() {
            self.part_ready(&part).await?;
        }
        Ok(())
    }

    /// The same for one part.
    async fn part_ready(&self, part: &Part) -> anyhow::Result<()> {
        let client = muster_client::Client::new([self.url(part)])?.patience(std::time::Duration::from_millis(200));
        until(&format!("{part} is ready"), || async {
            match client.ready(true).await {
                Ok(ready) if ready.ready => Ok(()),
                Ok(ready) => Err(format!("{:?}", ready.checks)),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    /// The URLs of all coordinators.
    fn coordinators(&self) -> Vec<String> {
        (0..self.shape().coordinators).map(|number| self.url(&Part::Coordinator(number))).collect()
    }

    /// The URLs of a region's agents.
    fn agents(&self, region: &RegionName) -> Vec<String> {
        (0..self.shape().agents_per_region).map(|number| self.url(&Part::Agent(region.clone(), number))).collect()
    }

    /// The last words of every part, for a test that failed.
    fn last_words(&self) -> String {
        String::new()
    }
}
