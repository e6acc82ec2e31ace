//! What the demo runs against: services that run, or ones of its own in this
//! process. Nothing after this file knows which.

use std::time::Duration;

use muster_client::Client;
use muster_embedded::Embedded;
use muster_protocol::name::RegionName;
use muster_wire::answer::Region;
use muster_wire::code::Code;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// The regions of `muster dev` and of services of the demo's own.
pub(crate) const REGIONS: [&str; 3] = ["us-east", "eu-west", "ap-south"];
/// How long regions that are starting get until an agent of theirs is heard.
const REGIONS_PATIENCE: Duration = Duration::from_secs(30);
const REGIONS_PAUSE: Duration = Duration::from_millis(50);

/// Each region with the addresses of its agents.
pub(crate) type Found = Vec<(RegionName, Vec<String>)>;

/// A coordinator, and the agents of the regions that take part.
pub(crate) struct Services {
    /// The coordinator.
    pub(crate) coordinator: Client,
    /// The regions that take part.
    pub(crate) regions: Found,
    embedded: Option<(Embedded, CancellationToken)>,
}

impl Services {
    /// Starts everything in this process, on free ports, storing nothing.
    ///
    /// # Errors
    /// A part does not start.
    pub(crate) async fn embedded(regions: Option<Vec<RegionName>>) -> Result<Self, Failure> {
        let regions = match regions {
            Some(regions) => regions,
            None => default_regions().map_err(anyhow::Error::new)?,
        };
        let options = muster_embedded::Options { port: 0, regions, data_dir: None };
        let shutdown = CancellationToken::new();
        let embedded = Embedded::start(&options, shutdown.clone()).await?;
        let (coordinator, regions) = ready(&embedded, &options.regions).await?;
        Ok(Self { coordinator, regions, embedded: Some((embedded, shutdown)) })
    }

    /// Finds running services.
    ///
    /// # Errors
    /// The coordinator can't be reached; a region is not declared, or no agent
    /// of it is heard.
    pub(crate) async fn running(server: &str, wanted: Option<&[RegionName]>) -> Result<Self, Failure> {
        let coordinator = Client::new([server]).map_err(|error| Failure::usage(format!("--server: {error}")))?;
        let regions = regions_of(&coordinator, wanted).await?;
        Ok(Self { coordinator, regions, embedded: None })
    }

    /// Ends what was started.
    pub(crate) async fn stop(self) {
        if let Some((embedded, shutdown)) = self.embedded {
            shutdown.cancel();
            embedded.stopped().await;
        }
    }
}

/// Waits until services that were just started can be used: every region is
/// declared, and an agent of each is heard.
pub(crate) async fn ready(embedded: &Embedded, regions: &[RegionName]) -> Result<(Client, Found), Failure> {
    let coordinator = Client::new([&embedded.coordinator]).map_err(anyhow::Error::new)?;
    for region in regions {
        // The coordinator does so too, at its own time.
        coordinator.declare_region(region).await?;
    }
    let found = regions_of(&coordinator, Some(regions)).await?;
    Ok((coordinator, found))
}

/// Asks the coordinator where the agents are, until it has heard one of each
/// region.
async fn regions_of(coordinator: &Client, wanted: Option<&[RegionName]>) -> Result<Found, Failure> {
    let patience = tokio::time::Instant::now() + REGIONS_PATIENCE;
    loop {
        match choose(&coordinator.regions().await?, wanted)? {
            Chosen::All(regions) => return Ok(regions),
            Chosen::Silent(silent) if tokio::time::Instant::now() >= patience => {
                let silent = silent.join(" and in ");
                let sentence = format!("no agent is heard in {silent}; start it, or leave it out with --regions");
                return Err(Failure::refused(Code::Unavailable, sentence));
            }
            Chosen::Silent(_) => tokio::time::sleep(REGIONS_PAUSE).await,
        }
    }
}

/// The regions of services of its own.
fn default_regions() -> Result<Vec<RegionName>, muster_protocol::name::InvalidName> {
    REGIONS.iter().map(|region| region.parse()).collect()
}

enum Chosen {
    All(Found),
    /// Those in which no agent is heard.
    Silent(Vec<String>),
}

/// The regions that are wanted, else all that are declared.
fn choose(declared: &[Region], wanted: Option<&[RegionName]>) -> Result<Chosen, Failure> {
    let names: Vec<&str> = declared.iter().map(|region| region.name.as_str()).collect();
    if names.is_empty() {
        return Err(Failure::refused(Code::UnknownRegion, "no region is declared there; see `muster region declare`"));
    }
    let wanted: Vec<&RegionName> = match wanted {
        Some(wanted) => wanted.iter().collect(),
        None => declared.iter().map(|region| &region.name).collect(),
    };
    let (mut chosen, mut silent) = (Vec::new(), Vec::new());
    for name in wanted {
        let Some(region) = declared.iter().find(|region| region.name == *name) else {
            let sentence = format!("the region {name} is not declared; declared are {}", names.join(", "));
            return Err(Failure::refused(Code::UnknownRegion, sentence));
        };
        let agents: Vec<String> = region.agents.iter().map(|agent| agent.address.clone()).collect();
        match agents.is_empty() {
            true => silent.push(name.to_string()),
            false => chosen.push((name.clone(), agents)),
        }
    }
    Ok(if silent.is_empty() { Chosen::All(chosen) } else { Chosen::Silent(silent) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn declared(names: &[(&str, usize)]) -> Vec<Region> {
        let agent = json!({"name": "a", "instance": "i", "address": "http://127.0.0.1:1", "lastHeardAt": "x"});
        let region = |(name, agents): &(&str, usize)| {
            let agents = vec![agent.clone(); *agents];
            let body =
                json!({"name": name, "link": "up", "history": null, "index": 1, "lastHeardAt": null, "agents": agents});
            serde_json::from_value(body).unwrap()
        };
        names.iter().map(region).collect()
    }

    fn names(chosen: Chosen) -> Vec<String> {
        match chosen {
            Chosen::All(regions) => regions.into_iter().map(|(region, _)| region.to_string()).collect(),
            Chosen::Silent(_) => panic!("silent"),
        }
    }

    #[test]
    fn every_declared_region_takes_part_or_those_that_are_wanted() {
        let regions = declared(&[("a", 1), ("b", 2), ("c", 1)]);
        let wanted: Vec<RegionName> = vec!["c".parse().unwrap(), "a".parse().unwrap()];
        assert_eq!(names(choose(&regions, None).unwrap()), ["a", "b", "c"]);
        assert_eq!(names(choose(&regions, Some(&wanted)).unwrap()), ["c", "a"]);
    }

    #[test]
    fn a_region_without_agents_is_awaited_and_an_unknown_one_refused() {
        let regions = declared(&[("a", 1), ("b", 0)]);
        assert!(matches!(choose(&regions, None).unwrap(), Chosen::Silent(silent) if silent == ["b"]));
        let unknown = ["z".parse().unwrap()];
        let refused = choose(&regions, Some(&unknown)).err().and_then(|failure| failure.sentence()).unwrap();
        assert!(refused.contains("z is not declared; declared are a, b"), "{refused}");
        assert!(choose(&[], None).is_err());
    }
}
