//! Another life of a log whose head was lost or set back.
//!
//! ```text
//!  chunks of the first snapshot ─▶ recovery put, all else deleted ─▶ meta, head, manifest created, recovery deleted
//! ```
//!
//! `meta` and the head must have one create revision, so they are deleted
//! before they are put. In between stands `recovery`, which keeps agents from
//! taking the keyspace for an empty one, and says what is to be put in place:
//! whoever recovers again goes on from there.

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, Txn, TxnOp};
use muster_protocol::mutant;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::keys::KeyRange;
use super::origin::{Meta, first_keys};
use super::read::{Found, ReadError};
use super::requests::Purpose;
use super::snapshot::Manifest;
use crate::log::{LogError, Rebirth, Salvage};

/// Entries in one page: 16 MiB if each is as large as it may be.
const PAGE_ENTRIES: i64 = 64;

/// What is about to be put in place.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Recovery {
    meta: Meta,
    manifest: Manifest,
}

impl Shared {
    /// What can still be read, whatever became of the head.
    pub(super) async fn salvage(&self) -> Result<Salvage, LogError> {
        let gets = [self.keys.meta(), self.keys.manifest(), self.keys.recovery()].map(|key| TxnOp::get(key, None));
        let txn = Txn::new().and_then(gets);
        let answer = self.endpoints.txn(Purpose::Origin, "read what is left of the log", txn).await?;
        let [meta, manifest, recovery] = first_keys(&answer);
        let revision = answer.header().map_or(0, |header| header.revision());
        // A recovery that did not end has read it all before, and kept it.
        if let Some(recovery) = recovery.filter(|_| meta.is_none()) {
            let Recovery { meta, manifest } = decode(&recovery)?;
            let snapshot = Some(self.read_chunks(&manifest, revision).await.map_err(LogError::from)?);
            return Ok(Salvage { history: Some(meta.history), snapshot, entries: Vec::new() });
        }
        let meta = meta.map(|meta| self.decode_meta(meta.value())).transpose()?;
        let manifest = manifest.map(|one| Manifest::decode(one.value())).transpose()?;
        let snapshot = match &manifest {
            Some(manifest) => Some(self.read_chunks(manifest, revision).await.map_err(LogError::from)?),
            None => None,
        };
        let base = meta.map_or(0, |meta| meta.base);
        let (floor, covered) = manifest.map_or((base, 0), |manifest| (manifest.index, manifest.revision));
        let options = GetOptions::new().with_revision(revision).with_limit(PAGE_ENTRIES);
        let pages = self.read_pages(Purpose::CatchUp, self.keys.entries(), options).await;
        let mut found: Vec<Found> = pages
            .map_err(|error| LogError::from(ReadError::from(error)))?
            .into_iter()
            .map(|key| self.found(key))
            .collect::<Result<_, _>>()?;
        found.retain(|entry| entry.revision > covered);
        found.sort_by_key(|entry| entry.revision);
        let entries = (floor + 1..).zip(found).map(|(index, found)| found.at(index)).collect();
        Ok(Salvage { history: meta.map(|meta| meta.history), snapshot, entries })
    }

    /// Puts another life in the place of whatever there is.
    pub(super) async fn begin_anew(&self, rebirth: &Rebirth) -> Result<(), LogError> {
        if self.options.shards != 1 {
            let shards = self.options.shards;
            let what = format!("a region of {shards} shards can't be recovered by this version; bring back its data");
            return Err(LogError::Damaged { what });
        }
        let recovery = self.clear_only(rebirth).await?;
        fail::fail_point!("log.recovery.cleared");
        self.put_in_place(&recovery).await
    }

    /// Puts the first snapshot and deletes the old life. From here on nobody reads or creates the log.
    pub(super) async fn clear_only(&self, rebirth: &Rebirth) -> Result<Recovery, LogError> {
        let Rebirth { history, base, snapshot } = rebirth;
        self.put_first_chunks(*base, snapshot).await?;
        let first = if mutant!(BaseForgotten) { 0 } else { *base };
        let recovery = Recovery { meta: Meta::of(*history, first), manifest: Manifest::first(*base, snapshot.len()) };
        let delete = |(from, to): KeyRange| TxnOp::delete(from, Some(DeleteOptions::new().with_range(to)));
        let txn = Txn::new().and_then([
            TxnOp::put(self.keys.recovery(), encode(&recovery)?, None),
            TxnOp::delete(self.keys.meta(), None),
            TxnOp::delete(self.keys.head(), None),
            TxnOp::delete(self.keys.manifest(), None),
            delete(self.keys.entries()),
            delete(self.keys.chunks_before(recovery.meta.base)),
        ]);
        self.endpoints.txn(Purpose::Origin, "begin another life of the log", txn).await?;
        Ok(recovery)
    }

    async fn put_in_place(&self, recovery: &Recovery) -> Result<(), LogError> {
        let (meta, head, manifest) = (self.keys.meta(), self.keys.head(), self.keys.manifest());
        let absent = |key: &str| Compare::create_revision(key, CompareOp::Equal, 0);
        let txn = Txn::new()
            .when([absent(&meta), absent(&head)])
            .and_then([
                TxnOp::put(meta.as_str(), encode(&recovery.meta)?, None),
                TxnOp::put(head, "", None),
                TxnOp::put(manifest, encode(&recovery.manifest)?, None),
                TxnOp::delete(self.keys.recovery(), None),
            ])
            .or_else([TxnOp::get(meta, None)]);
        let answer = self.endpoints.txn(Purpose::Origin, "put another life of the log in place", txn).await?;
        // A first try whose answer was lost may have put it.
        let [there] = first_keys(&answer);
        let there = there.map(|meta: KeyValue| self.decode_meta(meta.value())).transpose()?;
        match there {
            _ if answer.succeeded() => Ok(()),
            Some(there) if there.history == recovery.meta.history => Ok(()),
            _ => {
                let what = "another recovery put its own log in place meanwhile; start the agents on that".to_owned();
                Err(LogError::Damaged { what })
            }
        }
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, LogError> {
    serde_json::to_vec(value)
        .map_err(|source| LogError::Unavailable { what: "write a recovery", source: source.into() })
}

fn decode(recovery: &KeyValue) -> Result<Recovery, LogError> {
    serde_json::from_slice(recovery.value())
        .map_err(|error| LogError::Damaged { what: format!("what a recovery was about to put in place: {error}") })
}
