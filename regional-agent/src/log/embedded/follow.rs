//! Following a log in this process: the newest index is a hint that there may
//! be more; the table says what.

use std::sync::Arc;

use async_trait::async_trait;
use muster_protocol::mutant;
use tokio::sync::watch;

use super::tables::{self, failed};
use super::{Core, head_of};
use crate::log::{Follow, LogError, Position, RawEntry};

/// Entries read at once: 16 MiB if each is as large as it may be.
const READ_ENTRIES: u32 = 64;

/// The log from an index on.
pub(super) struct EmbeddedFollow {
    core: Arc<Core>,
    /// The last index that was given out.
    last: u64,
    newest: watch::Receiver<u64>,
}

impl EmbeddedFollow {
    pub(super) fn new(core: Arc<Core>, position: Position) -> Self {
        let newest = core.newest.subscribe();
        let last = if mutant!(FollowsLate) { position.0 } else { position.0.saturating_sub(1) };
        Self { core, last, newest }
    }
}

#[async_trait]
impl Follow for EmbeddedFollow {
    async fn next(&mut self) -> Result<Vec<RawEntry>, LogError> {
        loop {
            self.newest.borrow_and_update();
            let entries = self.read().await?;
            if let Some(newest) = entries.last() {
                self.last = newest.index;
                return Ok(entries);
            }
            // The sender lives in `self.core`.
            let _ = self.newest.changed().await;
        }
    }
}

impl EmbeddedFollow {
    async fn read(&self) -> Result<Vec<RawEntry>, LogError> {
        let mut store = self.core.store.lock().await;
        let entries =
            tables::entries_after(&mut store.db, self.last, READ_ENTRIES).await.map_err(failed("follow the log"))?;
        let next = match entries.first() {
            Some(entry) => entry.index,
            None => head_of(&mut store.db).await? + 1,
        };
        if next == self.last + 1 || mutant!(FollowsOverGap) {
            return Ok(entries);
        }
        let source = format!("the entries from index {} on are not there any more", self.last + 1).into();
        Err(LogError::Unavailable { what: "follow the log", source })
    }
}
