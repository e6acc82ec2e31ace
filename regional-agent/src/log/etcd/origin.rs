//! The log's origin: who it is, and where its indices count from.
//!
//! `meta` and every shard's head are created in one transaction; their common
//! create revision is the log's *birth*. A head that is not of that birth is
//! somebody else's. The head's version is 1 at birth and grows by one with each
//! entry, so `base + version - 1` is the index of the newest: `base` is the
//! index before the first entry, 0 in a new log, and the first entry has 1.

use std::sync::atomic::{AtomicU64, Ordering};

use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse};
use muster_protocol::identity::History;
use muster_protocol::mutant;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::requests::Purpose;
use crate::log::LogError;

const VERSION: u32 = 1;

/// What `meta` holds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Meta {
    version: u32,
    pub(super) history: History,
    pub(super) shards: u16,
    pub(super) base: u64,
}

impl Meta {
    /// A log of one shard whose first entry comes after `base`.
    pub(super) fn of(history: History, base: u64) -> Self {
        Self { version: VERSION, history, shards: 1, base }
    }
}

/// Who the log is, for as long as this process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) history: History,
    pub(super) base: u64,
    pub(super) birth: i64,
}

/// A shard's head as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The index of the newest entry.
    pub(super) index: u64,
    /// The revision that entry was put at.
    pub(super) modified: i64,
}

impl Origin {
    /// The index that a version of the head stands for.
    pub(super) fn index_of(&self, version: i64) -> u64 {
        self.base + u64::try_from(version - 1).unwrap_or_default()
    }

    /// The version of the head that stands for an index.
    pub(super) fn version_of(&self, index: u64) -> i64 {
        i64::try_from(index.saturating_sub(self.base)).unwrap_or(i64::MAX - 1) + 1
    }

    /// Reads a head, if it is there and of this birth.
    pub(super) fn head(&self, head: Option<&KeyValue>) -> Result<Head, LogError> {
        match head {
            Some(head) if head.create_revision() == self.birth => {
                Ok(Head { index: self.index_of(head.version()), modified: head.mod_revision() })
            }
            Some(_) => Err(head_gone("another one is in its place")),
            None => Err(head_gone("it is not there")),
        }
    }
}

fn head_gone(how: &str) -> LogError {
    LogError::Damaged {
        what: format!(
            "its head is gone ({how}), so nothing more can be numbered; stop the region's agents, find out who deleted \
             keys of its etcd, and bring back the data it had, or begin another life of the log: `muster region recover`"
        ),
    }
}

/// The highest index this process has seen. Only what was received before a
/// request is sent may be compared with its answer: answers overtake another.
#[derive(Debug, Default)]
pub(super) struct Seen(AtomicU64);

impl Seen {
    pub(super) fn index(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn note(&self, index: u64) {
        self.0.fetch_max(index, Ordering::AcqRel);
    }

    /// Notes an index that was asked for after `seen` was read.
    pub(super) fn check(&self, seen: u64, index: u64) -> Result<(), LogError> {
        self.note(index);
        if index >= seen {
            return Ok(());
        }
        Err(LogError::Damaged {
            what: format!(
                "its head is at {index} and was seen at {seen}: its etcd was restored from a backup; stop the region's \
                 agents, then bring back the data it had, or begin another life of the log: `muster region recover`"
            ),
        })
    }
}

impl Shared {
    /// Who the log is; creates it in an empty keyspace.
    pub(super) async fn origin(&self) -> Result<&Origin, LogError> {
        self.origin.get_or_try_init(|| self.read_or_create_origin()).await
    }

    /// The head, read so that everything acknowledged before is below it.
    pub(super) async fn read_head(&self) -> Result<u64, LogError> {
        let origin = self.origin().await?;
        let seen = self.seen.index();
        let mut answer = self.endpoints.get(Purpose::ReadIndex, "read the log's head", &self.keys.head(), None).await?;
        let revision = answer.header().map_or(0, |header| header.revision().unsigned_abs());
        let head = origin.head(answer.take_kvs().first())?.index;
        let head = if mutant!(ReadIndexByRevision) { revision } else { head };
        self.seen.check(seen, head)?;
        Ok(head)
    }

    async fn read_or_create_origin(&self) -> Result<Origin, LogError> {
        // Reads first: an etcd that is full refuses even a transaction whose
        // puts would not happen, and a log that exists must stay readable.
        if let Some(origin) = self.read_origin().await? {
            return Ok(origin);
        }
        self.create_origin().await?;
        self.read_origin().await?.ok_or_else(|| LogError::Damaged {
            what: format!(
                "{} is not there although other keys of its log are: they were deleted, or a recovery did not end; stop \
                 the region's agents, then bring back the data it had, or `muster region recover`",
                self.keys.meta()
            ),
        })
    }

    async fn read_origin(&self) -> Result<Option<Origin>, LogError> {
        let gets = [TxnOp::get(self.keys.meta(), None), TxnOp::get(self.keys.head(), None)];
        let txn = Txn::new().and_then(gets);
        let answer = self.endpoints.txn(Purpose::Origin, "read who the log is", txn).await?;
        let [meta, head] = first_keys(&answer);
        let Some(meta) = meta else { return Ok(None) };
        let birth = meta.create_revision();
        let meta = self.decode_meta(meta.value())?;
        let origin = Origin { history: meta.history, base: meta.base, birth };
        origin.head(head.as_ref())?;
        Ok(Some(origin))
    }

    pub(super) fn decode_meta(&self, bytes: &[u8]) -> Result<Meta, LogError> {
        let unusable = |why: String| LogError::Damaged { what: format!("{}: {why}", self.keys.meta()) };
        let meta: Meta = serde_json::from_slice(bytes).map_err(|error| unusable(error.to_string()))?;
        if meta.version != VERSION {
            return Err(unusable(format!("its version is {}, this build reads {VERSION}", meta.version)));
        }
        if self.options.shard >= meta.shards {
            return Err(unusable(format!("it has {} shards, and no shard {}", meta.shards, self.options.shard)));
        }
        Ok(meta)
    }

    /// Creates the log if nothing of it is there. Of several at once one wins,
    /// and whether it was this one is of no interest.
    async fn create_origin(&self) -> Result<(), LogError> {
        let meta = Meta { version: VERSION, history: History(rand::random()), shards: self.options.shards, base: 0 };
        let meta = serde_json::to_vec(&meta)
            .map_err(|source| LogError::Unavailable { what: "write who the log is", source: source.into() })?;
        let mut keys = vec![(self.keys.meta(), meta)];
        keys.extend((0..self.options.shards).map(|shard| (self.keys.head_of(shard), Vec::new())));
        // One that is being recovered is not empty, whatever is left of it.
        let recovery = self.keys.recovery();
        let absent: Vec<_> = keys
            .iter()
            .map(|(key, _)| key.as_str())
            .filter(|_| !mutant!(CreatedTwice))
            .chain([recovery.as_str()])
            .map(|key| Compare::create_revision(key, CompareOp::Equal, 0))
            .collect();
        let puts: Vec<_> = keys.into_iter().map(|(key, value)| TxnOp::put(key, value, None)).collect();
        let txn = Txn::new().when(absent).and_then(puts);
        fail::fail_point!("log.create.before");
        self.endpoints.txn(Purpose::Origin, "create the log", txn).await?;
        fail::fail_point!("log.create.after");
        Ok(())
    }
}

/// The compares of a transaction, but for those that a known bug leaves out.
pub(super) fn all_but<const N: usize>(compares: [(bool, Compare); N]) -> Vec<Compare> {
    compares.into_iter().filter(|(left_out, _)| !left_out).map(|(_, compare)| compare).collect()
}

/// The first key each of the last `N` operations of a transaction got.
pub(super) fn first_keys<const N: usize>(answer: &TxnResponse) -> [Option<KeyValue>; N] {
    let mut keys = [const { None }; N];
    for (key, operation) in keys.iter_mut().rev().zip(answer.op_responses().into_iter().rev()) {
        if let TxnOpResponse::Get(mut get) = operation {
            *key = get.take_kvs().into_iter().next();
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_has_index_one_and_a_base_shifts_it() {
        let origin = |base| Origin { history: History([0; 16]), base, birth: 5 };
        assert_eq!(origin(0).index_of(1), 0);
        assert_eq!(origin(0).index_of(2), 1);
        assert_eq!(origin(900).index_of(3), 902);
        assert_eq!(origin(900).version_of(902), 3);
        assert_eq!(origin(900).version_of(0), 1);
    }

    #[test]
    fn a_head_that_went_back_is_found() {
        let seen = Seen::default();
        let before = seen.index();
        seen.note(7);
        // Its answer was under way while 7 was noted: no harm.
        assert!(seen.check(before, 5).is_ok());
        let error = seen.check(seen.index(), 6).unwrap_err();
        assert!(error.to_string().contains("at 6 and was seen at 7"), "{error}");
    }
}
