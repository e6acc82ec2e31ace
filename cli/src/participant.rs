//! Who is meant: told by `--id`, or by the scheduler that started the process.
//! Never the host's name: two processes of one host would be one participant.

use clap::Args;
use muster_protocol::name::{ParticipantId, RegionName};

use crate::failure::Failure;

/// One participant.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ParticipantArgument {
    /// Who: an id, or region/id; else the environment says
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Its region; an agent knows its own
    #[arg(long, env = "MUSTER_REGION", value_name = "REGION")]
    pub(crate) region: Option<RegionName>,
}

/// A participant, with its region where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Participant {
    pub(crate) id: ParticipantId,
    pub(crate) region: Option<RegionName>,
}

/// What tells a process who it is. The first is ours, the rest schedulers'.
const OURS: &str = "MUSTER_PARTICIPANT";
const SCHEDULERS: &[&str] =
    &["JOB_COMPLETION_INDEX", "SLURM_ARRAY_TASK_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK"];

impl ParticipantArgument {
    /// The participant, or exit 2 with what was looked at.
    pub(crate) fn resolve(&self) -> Result<Participant, Failure> {
        self.resolve_in(|name| std::env::var(name).ok())
    }

    fn resolve_in(&self, environment: impl Fn(&str) -> Option<String>) -> Result<Participant, Failure> {
        let text = match &self.id {
            Some(id) => id.clone(),
            None => from_environment(environment)?,
        };
        let (region, id) = match text.split_once('/') {
            Some((region, id)) => (Some(region), id),
            None => (None, text.as_str()),
        };
        let id = id.parse().map_err(|error| Failure::usage(format!("{error}")))?;
        let region =
            region.map(str::parse::<RegionName>).transpose().map_err(|error| Failure::usage(format!("{error}")))?;
        match (region, &self.region) {
            (Some(told), Some(other)) if told != *other => {
                Err(Failure::usage(format!("{text} is a participant of {told}, but the region is {other}")))
            }
            (region, other) => Ok(Participant { id, region: region.or_else(|| other.clone()) }),
        }
    }
}

fn from_environment(environment: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
    let look = |name: &str| environment(name).filter(|value| !value.is_empty());
    if let Some(id) = look(OURS) {
        return Ok(id);
    }
    let found: Vec<(&str, String)> = SCHEDULERS
        .iter()
        // A single Slurm process has a rank too, and it is always 0.
        .filter(|name| **name != "SLURM_PROCID" || tasks(look) > 1)
        .filter_map(|name| Some((*name, look(name)?)))
        .collect();
    let Some((_, first)) = found.first() else {
        let list = SCHEDULERS.join(", ");
        return Err(Failure::usage(format!(
            "nobody says which participant this is; write --id, or set {OURS}, or one of {list} \
             (SLURM_PROCID counts only with SLURM_NTASKS > 1)"
        )));
    };
    match found.iter().all(|(_, value)| value == first) {
        true => Ok(first.clone()),
        false => {
            let list: Vec<String> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let list = list.join(", ");
            Err(Failure::usage(format!(
                "the environment names several participants: {list}; write --id, or set {OURS}"
            )))
        }
    }
}

fn tasks(look: impl Fn(&str) -> Option<String>) -> u32 {
    look("SLURM_NTASKS").and_then(|tasks| tasks.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(id: Option<&str>, region: Option<&str>, environment: &[(&str, &str)]) -> Result<String, String> {
        let argument = ParticipantArgument { id: id.map(str::to_owned), region: region.map(|r| r.parse().unwrap()) };
        let look = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        match argument.resolve_in(look) {
            Ok(Participant { id, region: Some(region) }) => Ok(format!("{region}/{id}")),
            Ok(Participant { id, region: None }) => Ok(id.to_string()),
            Err(failure) => {
                assert_eq!(failure.exit_code(), 2);
                Err(failure.sentence().unwrap())
            }
        }
    }

    #[test]
    fn a_told_id_wins_over_the_environment() {
        let environment = [("MUSTER_PARTICIPANT", "7"), ("RANK", "8")];
        assert_eq!(resolve(Some("5"), None, &environment).unwrap(), "5");
        assert_eq!(resolve(None, None, &environment).unwrap(), "7");
        assert_eq!(resolve(Some("us-east/5"), None, &[]).unwrap(), "us-east/5");
        assert_eq!(resolve(Some("5"), Some("us-east"), &[]).unwrap(), "us-east/5");
        assert_eq!(resolve(Some("us-east/5"), Some("us-east"), &[]).unwrap(), "us-east/5");
    }

    #[test]
    fn schedulers_say_who_it_is() {
        for name in ["JOB_COMPLETION_INDEX", "SLURM_ARRAY_TASK_ID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK"] {
            assert_eq!(resolve(None, None, &[(name, "3")]).unwrap(), "3", "{name}");
        }
        assert_eq!(resolve(None, None, &[("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4")]).unwrap(), "3");
        assert_eq!(resolve(None, None, &[("SLURM_PROCID", "0"), ("RANK", "3")]).unwrap(), "3");
        assert_eq!(resolve(None, None, &[("PMIX_RANK", "3"), ("OMPI_COMM_WORLD_RANK", "3")]).unwrap(), "3");
    }

    #[test]
    fn two_that_differ_or_none_are_a_mistake() {
        let error = resolve(None, None, &[("RANK", "3"), ("SLURM_ARRAY_TASK_ID", "4")]).unwrap_err();
        assert!(error.contains("SLURM_ARRAY_TASK_ID=4, RANK=3"), "{error}");
        for environment in [&[][..], &[("HOSTNAME", "node-7")], &[("SLURM_PROCID", "3")], &[("RANK", "")]] {
            let error = resolve(None, None, environment).unwrap_err();
            assert!(error.contains("JOB_COMPLETION_INDEX") && error.contains("--id"), "{error}");
        }
        assert!(resolve(Some("a b"), None, &[]).unwrap_err().contains("1 to 128"));
        assert!(resolve(Some("us-east/5"), Some("eu-west"), &[]).unwrap_err().contains("eu-west"));
        assert!(resolve(Some("A/5"), None, &[]).unwrap_err().contains("region"));
    }
}
