//! `muster region recover`: a region's log that was lost or set back begins
//! another life, with what can still be read of it.
//!
//! Indices never go back: the new life begins at the highest index that anybody
//! is known to have seen. It has a history of its own, which the coordinator
//! takes for the region's only once somebody adopts it, because what the region
//! had promised may be lost.

use muster_protocol::entry::{Body, Snapshot};
use muster_protocol::identity::History;
use muster_protocol::name::RegionName;
use muster_protocol::region::Region;
use muster_protocol::replica::{Input, Logged, Output, Replica};
use tracing::warn;

use crate::log::{LogError, RawEntry, Rebirth, RegionLog, Salvage};

/// Times the salvaged log is read anew because a replica doubted itself.
const READ_ANEW_MAX: usize = 4;

/// Another life of a region's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The life that is over, if that can be read.
    pub before: Option<History>,
    /// The new one: what is to be adopted.
    pub history: History,
    /// The index that its first entry follows.
    pub base: u64,
    /// The index up to which the old life could be read.
    pub read_to: u64,
}

/// Why a region could not be recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// Nobody said which region it is.
    #[error("`region` is not set: say which region this agent belongs to")]
    NoRegion,
    /// Nobody said why.
    #[error("say why the region is recovered: its log says so to whoever looks for what was lost")]
    NoReason,
    /// The log does not answer, or can't be begun anew.
    #[error("recover the region's log")]
    Log(#[from] LogError),
    /// The region's log can't be opened with these options.
    #[cfg(feature = "etcd")]
    #[error("open the region's log")]
    Options(#[from] crate::log::etcd::InvalidOptions),
    /// Agents of the region still run.
    #[error("agents of the region are registered: {0}; stop them first, a lease of one that died ends within seconds")]
    AgentsRun(String),
}

/// Recovers the region of an agent's options on its etcd. `seen` is the highest
/// index that the coordinator knows of the region.
///
/// # Errors
/// See [`RecoverError`].
#[cfg(feature = "etcd")]
pub async fn recover(options: &crate::Options, seen: u64, reason: &str) -> Result<Recovered, RecoverError> {
    let region = options.region.as_ref().ok_or(RecoverError::NoRegion)?;
    let log = crate::log::etcd::Etcd::open(options.etcd.clone(), region).await?;
    recover_log(&log, region, seen, reason).await
}

/// Recovers a region on its log.
///
/// # Errors
/// See [`RecoverError`].
pub async fn recover_log(
    log: &dyn RegionLog,
    region: &RegionName,
    seen: u64,
    reason: &str,
) -> Result<Recovered, RecoverError> {
    if reason.trim().is_empty() {
        return Err(RecoverError::NoReason);
    }
    let agents = log.registrations().await?;
    if !agents.is_empty() {
        let names: Vec<String> = agents.iter().map(|one| format!("{} at {}", one.agent.name, one.address)).collect();
        return Err(RecoverError::AgentsRun(names.join(", ")));
    }
    let salvage = log.salvage().await?;
    let before = salvage.history;
    let (state, history) = (last_state(region, salvage), History(rand::random()));
    let read_to = state.region.index();
    let base = read_to.max(seen);
    let snapshot = Snapshot { hash: state.hash, region: state.region.anew(history, base) }.encode();
    log.begin_anew(&Rebirth { history, base, snapshot }).await?;
    let recovered = Recovered { before, history, base, read_to };
    warn!(%region, ?recovered, reason, "the region's log began another life");
    Ok(recovered)
}

/// The newest state that what is left leads to.
fn last_state(region: &RegionName, salvage: Salvage) -> Snapshot {
    let Salvage { history, snapshot, entries } = salvage;
    let known = snapshot.as_deref().map(Snapshot::decode).and_then(|decoded| match decoded {
        Ok(snapshot) if snapshot.region.name() == region => Some(snapshot.region.history()),
        Ok(_) => None,
        Err(error) => {
            warn!(%error, "the newest snapshot can't be read");
            None
        }
    });
    // Entries that follow a snapshot mean nothing without it.
    let readable = known.is_some() || snapshot.is_none();
    let history = known.or(history).unwrap_or(History([0; 16]));
    let mut replica = Replica::new(Region::new(region.clone(), history, 0));
    let numbered = |entry: &RawEntry| Body::decode(&entry.bytes).is_ok_and(|body| body.witness.index < entry.index);
    // A writer that had seen more than lies before its entry says that what lay
    // there is gone.
    let entries = entries.into_iter().take_while(|entry| readable && numbered(entry));
    let entries: Vec<Logged> = entries.map(Into::into).collect();
    let snapshot = snapshot.filter(|_| readable);
    let head = entries.last().map_or(u64::MAX, |last| last.index);
    for _ in 0..READ_ANEW_MAX {
        let input = Input::CaughtUp { snapshot: snapshot.clone(), entries: entries.clone(), head };
        let outputs = replica.step(input);
        if let Some(stop) = outputs.iter().find_map(|output| match output {
            Output::Stop(stop) => Some(stop),
            _ => None,
        }) {
            warn!(%stop, "the rest of the log can't be read");
        }
        if !outputs.iter().any(|output| matches!(output, Output::CatchUp { .. })) {
            break;
        }
    }
    replica.snapshot().0
}

#[cfg(test)]
mod tests {
    use muster_protocol::entry::Witness;
    use muster_protocol::identity::{Digest, Writer};

    use super::*;
    use crate::log::conformance::replay::{arrive, open};

    fn entry(index: u64, seen: u64, bytes: Option<Vec<u8>>) -> RawEntry {
        let command = if index == 1 { open(1, 9) } else { arrive(1, index as u32) };
        // A hash that is nobody's: a replica doubts itself before it doubts the writer.
        let body = Body { witness: Witness { index: seen, hash: Digest([seen as u8; 32]) }, commands: vec![command] };
        RawEntry { index, writer: Writer(1), seq: index, bytes: bytes.unwrap_or_else(|| body.encode()) }
    }

    fn read(salvage: Salvage) -> (u64, Option<u32>) {
        let state = last_state(&"us-east".parse().unwrap(), salvage).region;
        (state.index(), state.report(&"t/b".parse().unwrap(), 1).map(|report| report.arrived))
    }

    fn salvage(entries: Vec<RawEntry>) -> Salvage {
        Salvage { history: Some(History([1; 16])), snapshot: None, entries }
    }

    #[test]
    fn everything_that_can_be_read_is_and_nothing_behind_what_can_not() {
        let good = |last| (1..=last).map(|index| entry(index, 0, None)).collect::<Vec<_>>();
        assert_eq!(read(Salvage::default()), (0, None));
        assert_eq!(read(salvage(good(5))), (5, Some(4)));
        let mut torn = good(5);
        torn[3] = entry(4, 0, Some(vec![1, 2, 3]));
        assert_eq!(read(salvage(torn)), (3, Some(2)));
        // The entries of a log whose snapshot and manifest were deleted.
        let cut = (1..=5).map(|index| entry(index, index + 40, None)).collect();
        assert_eq!(read(salvage(cut)), (0, None));
        let damaged = Salvage { snapshot: Some(vec![9, 9]), ..salvage(good(5)) };
        assert_eq!(read(damaged), (0, None), "what follows a snapshot means nothing without it");
        // A writer whose replica differed is doubted, and read all the same.
        let differs = (1..=5).map(|index| entry(index, index - 1, None)).collect();
        assert_eq!(read(salvage(differs)), (5, Some(4)));
    }
}
