//! A generation as people write it: `etl/map@2026-10-07~1`.

use std::fmt;
use std::str::FromStr;

use muster_protocol::name::BarrierName;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;

/// A barrier, and one of its generations where that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The barrier.
    pub barrier: BarrierName,
    /// Which generation; a barrier of single generations needs none.
    pub generation: Option<Reference>,
}

impl Target {
    /// The path of the generation; the latest where none was told, which only
    /// reads may mean.
    pub(crate) fn path(&self) -> String {
        let id = self.generation.as_ref().unwrap_or(&Reference::Latest);
        format!("{}/generations/{id}", barrier_path(&self.barrier))
    }
}

pub(crate) fn barrier_path(barrier: &BarrierName) -> String {
    format!("/v1/barriers/{barrier}")
}

impl From<BarrierName> for Target {
    fn from(barrier: BarrierName) -> Self {
        Self { barrier, generation: None }
    }
}

impl FromStr for Target {
    type Err = Box<Problem>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (barrier, generation) = match text.split_once('@') {
            Some((barrier, id)) => (barrier, Some(id.parse::<Reference>()?)),
            None => (text, None),
        };
        let barrier = barrier.parse().map_err(|error| Problem::new(Code::InvalidName, format!("{error}")))?;
        Ok(Self { barrier, generation })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.generation {
            Some(id) => write!(f, "{}@{id}", self.barrier),
            None => self.barrier.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_become_paths() {
        let keyed: Target = "etl/map@2026-10-07~1".parse().unwrap();
        assert_eq!(keyed.path(), "/v1/barriers/etl/map/generations/2026-10-07~1");
        assert_eq!(keyed.to_string(), "etl/map@2026-10-07~1");
        let bare: Target = "etl/map".parse().unwrap();
        assert_eq!(bare.path(), "/v1/barriers/etl/map/generations/latest");
        for bad in ["etl", "etl/map@", "etl/map@a b", "etl/map@x@y", "@x", "etl/map@k~z"] {
            assert_eq!(bad.parse::<Target>().unwrap_err().code, Code::InvalidName, "{bad:?}");
        }
    }
}
