//! Every connection is an open file to the system, and so is all that a service
//! calls: one that has none left can neither accept nor reach its log.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files that connections leave alone: log, database and bus, and the
/// calls that are handed on.
const OWN: u64 = 1_024;

/// For how many of `connections_max` connections there is room, once the
/// process may have open as many files as it can give itself.
pub(crate) fn room(connections_max: usize) -> usize {
    let Some(files) = raised() else { return connections_max };
    let room = usize::try_from(files - OWN.min(files / 4)).unwrap_or(usize::MAX);
    if room < connections_max {
        tracing::info!(room, connections_max, "fewer connections than configured; raise `ulimit -Hn` for more");
    }
    room.min(connections_max)
}

/// Raises the limit that this process has to the one it may have, and says
/// which it is; none if there is none.
fn raised() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "raise the limit of open files");
            limit.current
        }
    }
}
