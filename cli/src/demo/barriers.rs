//! The three barriers of the demo, and the three generations of one run.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use muster_client::{Apply, Client, Target};
use muster_protocol::name::Key;
use muster_wire::answer::Status;
use muster_wire::reference::Reference;
use muster_wire::time::format_duration;
use serde_json::{Value, json};

use super::roster::{Phase, Roster};
use crate::failure::Failure;

/// When a generation breaks that did not release.
pub(crate) const DEADLINE: Duration = Duration::from_secs(600);
/// Runs that may gather at once.
const RUNS_MAX: u32 = 100;
/// How often another demo may change the definitions under our hands.
const TRIES_MAX: usize = 5;

/// Defines the barriers and opens this run's generations.
///
/// Another demo may define them for other workers at the same time, and a key
/// opens with the definition of that moment. Nobody works on one that does not
/// expect exactly these workers: then it is aborted, and another key opened.
///
/// # Errors
/// A service refuses, or can't be reached.
pub(crate) async fn open(coordinator: &Client, roster: &Roster) -> Result<Key, Failure> {
    for _ in 0..TRIES_MAX {
        let key = new_key()?;
        for phase in Phase::ALL {
            let barrier = phase.barrier().map_err(anyhow::Error::new)?;
            let how = Apply { replace: true, ..Apply::default() };
            coordinator.apply(&barrier, definition(phase, roster).to_string(), how).await?;
        }
        if open_key(coordinator, &key, roster).await? {
            return Ok(key);
        }
        abort(coordinator, &key, &Phase::ALL, "opened for another demo's workers").await;
    }
    Err(anyhow::anyhow!("other demos keep changing the barriers demo/*; run again when they are done").into())
}

/// Whether all three expect these workers.
async fn open_key(coordinator: &Client, key: &Key, roster: &Roster) -> Result<bool, Failure> {
    for phase in Phase::ALL {
        coordinator.open(&phase.barrier().map_err(anyhow::Error::new)?, Some(key)).await?;
        let status = coordinator.status(&target(phase, key)?, None).await?;
        if !expects(&status, roster) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn expects(status: &Status, roster: &Roster) -> bool {
    let found: BTreeMap<&str, u32> =
        status.regions.iter().map(|region| (region.name.as_str(), region.expected)).collect();
    found == roster.regions().iter().map(|region| (region.as_str(), roster.per_region())).collect()
}

/// Breaks what is still gathering, as well as can be done in a moment.
pub(crate) async fn abort(coordinator: &Client, key: &Key, phases: &[Phase], reason: &str) {
    let patience = tokio::time::Instant::now() + Duration::from_secs(2);
    let coordinator = coordinator.clone().until(patience);
    for phase in phases {
        let Ok(target) = target(*phase, key) else { continue };
        // One that has ended refuses; one that can't be asked has a deadline.
        if let Err(error) = coordinator.abort(&target, reason, false).await {
            tracing::debug!(%target, %error, "a generation of the demo was not aborted");
        }
    }
}

/// The generation of a phase.
pub(crate) fn target(phase: Phase, key: &Key) -> Result<Target, Failure> {
    let barrier = phase.barrier().map_err(anyhow::Error::new)?;
    Ok(Target { barrier, generation: Some(Reference::Key(key.clone(), None)) })
}

/// The status document of a phase.
pub(crate) async fn status(coordinator: &Client, phase: Phase, key: &Key) -> Result<Status, Failure> {
    Ok(coordinator.status(&target(phase, key)?, None).await?)
}

fn definition(phase: Phase, roster: &Roster) -> Value {
    let (before, after) = match phase {
        Phase::Map => ("every worker has counted its share of the text", "shuffle may read the counts"),
        Phase::Shuffle => ("all counts of one reducer are in one file", "reduce may read it"),
        Phase::Reduce => ("every reducer has summed its words", "the result may be read"),
    };
    json!({
        "kind": "Barrier",
        "name": phase.name(),
        "description": format!("{before}; {after}"),
        "owner": "muster demo mapreduce",
        "regions": roster.regions(),
        "participants": format!("[1-{}]", roster.per_region()),
        "generations": "keyed",
        "maxOpen": RUNS_MAX,
        "deadline": format_duration(DEADLINE),
    })
}

/// A key that no other run has: the time, and chance.
fn new_key() -> anyhow::Result<Key> {
    let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let chance = RandomState::new().hash_one(std::process::id()) % 0x1_0000;
    Ok(format!("{time}-{chance:04x}").parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_wire::definition::parse;

    fn roster(per_region: u32) -> Roster {
        Roster::new(vec!["a".parse().unwrap(), "b".parse().unwrap()], per_region)
    }

    #[test]
    fn the_definitions_are_good_whatever_the_numbers() {
        for phase in Phase::ALL {
            for workers in [1, 3, 64] {
                let body = definition(phase, &roster(workers)).to_string();
                let parsed = parse(&phase.barrier().unwrap(), body.as_bytes()).unwrap();
                assert_eq!(parsed.effective["deadline"], "10m");
                assert_eq!(parsed.effective["generations"], "keyed");
            }
        }
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::BTreeSet<Key> = (0..20).map(|_| new_key().unwrap()).collect();
        assert!(keys.len() > 10, "{keys:?}");
    }
}
