//! Who works: so many workers in each region, numbered from 1.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use muster_protocol::name::{BarrierName, InvalidName, ParticipantId, RegionName};
use muster_wire::time::parse_duration;
use serde::{Deserialize, Serialize};

/// A phase of the job; each ends at its barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Phase {
    /// Count a share of the input.
    Map,
    /// Bring together what all counted for one reducer.
    Shuffle,
    /// Sum it.
    Reduce,
}

impl Phase {
    pub(crate) const ALL: [Self; 3] = [Self::Map, Self::Shuffle, Self::Reduce];

    /// The name of its barrier.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Map => "demo/map",
            Self::Shuffle => "demo/shuffle",
            Self::Reduce => "demo/reduce",
        }
    }

    /// Its barrier.
    pub(crate) fn barrier(self) -> Result<BarrierName, InvalidName> {
        self.name().parse()
    }

    /// The phase after it.
    pub(crate) fn next(self) -> Option<Self> {
        Self::ALL.get(self as usize + 1).copied()
    }
}

/// One worker, `ap-south/2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerName {
    pub(crate) region: RegionName,
    pub(crate) number: u32,
}

impl WorkerName {
    /// Its id at the barriers.
    pub(crate) fn id(&self) -> Result<ParticipantId, InvalidName> {
        self.number.to_string().parse()
    }

    /// The same as the name of a file.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{}", self.region, self.number)
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.region, self.number)
    }
}

impl FromStr for WorkerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (region, number) =
            text.split_once('/').ok_or_else(|| "write a worker as REGION/N, such as ap-south/2".to_owned())?;
        let region = region.parse().map_err(|error: InvalidName| error.to_string())?;
        let plain = |number: &u32| *number > 0;
        let number = number.parse().ok().filter(plain).ok_or("workers are numbered from 1, such as ap-south/2")?;
        Ok(Self { region, number })
    }
}

/// Which worker is slow on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slow {
    /// One that the demo picks.
    Some,
    /// Nobody.
    Nobody,
    /// This one, by so much.
    One(WorkerName, Duration),
}

const SLOW_REGION: &str = "ap-south";
/// So slow that a person sees it and does not mind.
const SLOW_BY_DEFAULT: Duration = Duration::from_secs(2);

impl FromStr for Slow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "some" => Ok(Self::Some),
            None if text == "none" => Ok(Self::Nobody),
            None => Ok(Self::One(text.parse()?, SLOW_BY_DEFAULT)),
            Some((worker, by)) => {
                Ok(Self::One(worker.parse()?, parse_duration(by).map_err(|error| error.to_string())?))
            }
        }
    }
}

/// All workers, region by region.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    regions: Vec<RegionName>,
    per_region: u32,
}

impl Roster {
    pub(crate) fn new(regions: Vec<RegionName>, per_region: u32) -> Self {
        Self { regions, per_region }
    }

    pub(crate) fn regions(&self) -> &[RegionName] {
        &self.regions
    }

    pub(crate) fn per_region(&self) -> u32 {
        self.per_region
    }

    pub(crate) fn workers(&self) -> Vec<WorkerName> {
        let of = |region: &RegionName| {
            let region = region.clone();
            (1..=self.per_region).map(move |number| WorkerName { region: region.clone(), number })
        };
        self.regions.iter().flat_map(of).collect()
    }

    /// Refuses a worker that there is not.
    pub(crate) fn check(&self, worker: &WorkerName, option: &str) -> Result<(), String> {
        if self.regions.contains(&worker.region) && worker.number <= self.per_region {
            return Ok(());
        }
        let regions: Vec<&str> = self.regions.iter().map(RegionName::as_str).collect();
        let (regions, last) = (regions.join(", "), self.per_region);
        Err(format!("{option} {worker}: there is no such worker; regions are {regions}, workers 1 to {last} in each"))
    }

    /// Who is slow, and by how much.
    pub(crate) fn slow(&self, slow: &Slow) -> Option<(WorkerName, Duration)> {
        match slow {
            Slow::Nobody => None,
            Slow::One(worker, by) => Some((worker.clone(), *by)),
            Slow::Some => {
                // The same one wherever the demo runs, if it is there.
                let usual = self.regions.iter().find(|region| region.as_str() == SLOW_REGION);
                let region = usual.or(self.regions.last())?.clone();
                Some((WorkerName { region, number: self.per_region.min(2) }, SLOW_BY_DEFAULT))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_read_and_written() {
        let worker: WorkerName = "ap-south/2".parse().unwrap();
        assert_eq!((worker.to_string(), worker.file_name()), ("ap-south/2".to_owned(), "ap-south-2".to_owned()));
        for bad in ["", "ap-south", "ap-south/", "ap-south/0", "ap-south/x", "AP/1", "/1", "a/1/2"] {
            assert!(bad.parse::<WorkerName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn one_is_slow_unless_nobody_is_to_be() {
        let roster = Roster::new(vec!["a".parse().unwrap(), "b".parse().unwrap()], 3);
        let slow = |text: &str| roster.slow(&text.parse().unwrap()).map(|(worker, by)| (worker.to_string(), by));
        assert_eq!(slow("some"), Some(("b/2".to_owned(), SLOW_BY_DEFAULT)));
        assert_eq!(slow("none"), None);
        assert_eq!(slow("a/3=50ms"), Some(("a/3".to_owned(), Duration::from_millis(50))));
        assert!("a/3=soon".parse::<Slow>().is_err());
        let usual = Roster::new(vec!["ap-south".parse().unwrap(), "b".parse().unwrap()], 3);
        assert_eq!(usual.slow(&Slow::Some).unwrap().0.to_string(), "ap-south/2");
        assert_eq!(Roster::new(vec!["a".parse().unwrap()], 1).slow(&Slow::Some).unwrap().0.to_string(), "a/1");
    }

    #[test]
    fn a_worker_that_is_not_there_is_refused_with_those_that_are() {
        let roster = Roster::new(vec!["a".parse().unwrap()], 3);
        assert_eq!(roster.workers().len(), 3);
        assert!(roster.check(&"a/3".parse().unwrap(), "--kill").is_ok());
        for missing in ["a/4", "b/1"] {
            let refused = roster.check(&missing.parse().unwrap(), "--kill").unwrap_err();
            assert!(refused.contains(missing) && refused.contains("regions are a, workers 1 to 3"), "{refused}");
        }
    }

    #[test]
    fn phases_follow_each_other() {
        assert_eq!(Phase::Map.next(), Some(Phase::Shuffle));
        assert_eq!(Phase::Reduce.next(), None);
        assert!(Phase::ALL.iter().all(|phase| phase.barrier().is_ok()));
    }
}
