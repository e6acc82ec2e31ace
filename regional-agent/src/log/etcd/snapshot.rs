//! Replacing a prefix of the log by a snapshot: chunks, then the manifest, then
//! what it covers is deleted. Every write of it is safe to lose and to repeat:
//!
//! - Chunks are put only under the leader's epoch, so a leader that was paused
//!   can't overwrite those of a snapshot that a later leader put in place.
//! - The manifest is put only under the epoch and over the one that was read,
//!   so its index only grows.
//! - The manifest carries the revision of the entry at its index, so which
//!   entries it covers needs no index: those up to that revision. It is found
//!   by listing and numbering the log at one revision, as catch-up does, hence
//!   from the log itself and not from what this process remembers.
//! - Only keys up to that revision are deleted. An append whose answer was lost
//!   may be sent again after its entry was deleted, and land anew behind the
//!   snapshot; such an entry counts as one until another snapshot covers it,
//!   although every replica ignores it.

use std::collections::BTreeMap;

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, Txn, TxnOp};
use muster_protocol::identity::{Epoch, Writer};
use muster_protocol::mutant;
use serde::{Deserialize, Serialize};

use super::Shared;
use super::append::revision;
use super::keys::KeyRange;
use super::origin::{all_but, first_keys};
use super::read::{Found, Listing, ReadError};
use super::requests::Purpose;
use super::verdict::CallError;
use crate::log::{Installed, LogError};

const VERSION: u32 = 1;
/// etcd takes requests of up to 1.5 MiB.
const CHUNK_BYTES: usize = 512 * 1024;
/// Chunks in one page: 16 MiB.
const PAGE_CHUNKS: i64 = 32;
/// Times the log is listed anew because it was compacted meanwhile.
const COMPACTIONS_MAX: usize = 5;

/// Which snapshot is in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    version: u32,
    /// The index the snapshot is the state at.
    pub(super) index: u64,
    /// The revision the entry at that index was put at.
    pub(super) revision: i64,
    /// Who put it in place.
    epoch: Epoch,
    chunks: usize,
    bytes: usize,
    /// The last sequence number of each writer that it covers.
    seqs: Vec<(Writer, u64)>,
}

impl Manifest {
    /// The first snapshot of a log that begins with one: no entry comes before.
    pub(super) fn first(index: u64, bytes: usize) -> Self {
        let chunks = bytes.div_ceil(CHUNK_BYTES);
        Self { version: VERSION, index, revision: 0, epoch: Epoch(0), chunks, bytes, seqs: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn of(index: u64, revision: i64) -> Self {
        Self { version: VERSION, index, revision, epoch: Epoch(1), chunks: 0, bytes: 0, seqs: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn by(self, epoch: Epoch) -> Self {
        Self { epoch, ..self }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LogError> {
        let unusable = |why: String| LogError::Damaged { what: format!("the manifest of its snapshot: {why}") };
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| unusable(error.to_string()))?;
        if manifest.version != VERSION {
            return Err(unusable(format!("its version is {}, this build reads {VERSION}", manifest.version)));
        }
        Ok(manifest)
    }
}

impl Shared {
    pub(super) async fn install(
        &self,
        epoch: Epoch,
        index: u64,
        bytes: &[u8],
        seqs: &[(Writer, u64)],
    ) -> Result<Installed, LogError> {
        let base = self.origin().await?.base;
        let listing = self.list_keys().await?;
        let (head, floor) = (listing.head.index, listing.floor(base));
        if index <= floor {
            return Ok(Installed::No);
        }
        if index > head && !mutant!(SnapshotBeyondHead) {
            let what = format!("a snapshot at index {index} lies behind its head {head}");
            return Err(LogError::Damaged { what });
        }
        let (kept, before) = (listing.found.clone(), listing.manifest_modified);
        let covered = listing.numbered(base)?.find(|(at, _)| *at == index).map_or(0, |(_, found)| found.revision);
        if !self.put_chunks(epoch, index, bytes).await? {
            return Ok(Installed::No);
        }
        fail::fail_point!("log.snapshot.chunks");
        let manifest = Manifest {
            version: VERSION,
            index,
            revision: covered,
            epoch,
            chunks: bytes.len().div_ceil(CHUNK_BYTES),
            bytes: bytes.len(),
            seqs: seqs.to_vec(),
        };
        if !self.put_manifest(&manifest, before).await? {
            return Ok(Installed::No);
        }
        fail::fail_point!("log.snapshot.manifest");
        // From here it is in place; the next one deletes what is left over.
        if let Err(error) = self.delete_covered(&manifest, &kept).await {
            tracing::warn!(error = %muster_telemetry::chain(&error.error), "delete what a snapshot covers, later");
        }
        Ok(Installed::Yes)
    }

    async fn list_keys(&self) -> Result<Listing, LogError> {
        let mut compactions = 0;
        loop {
            match self.list(Purpose::Snapshot, true).await {
                Err(ReadError::Compacted(_)) if compactions < COMPACTIONS_MAX => compactions += 1,
                listed => return listed.map_err(LogError::from),
            }
        }
    }

    /// Puts the chunks; `false` if another leads.
    pub(super) async fn put_chunks(&self, epoch: Epoch, index: u64, bytes: &[u8]) -> Result<bool, LogError> {
        for (number, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let put = TxnOp::put(self.keys.chunk(index, number), chunk, None);
            let txn = Txn::new().when([self.leads(epoch)]).and_then([put]);
            if !self.endpoints.txn(Purpose::Snapshot, "write a chunk of a snapshot", txn).await?.succeeded() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts the manifest over the one put at revision `before`; `false` if
    /// another leads or another was put.
    pub(super) async fn put_manifest(&self, manifest: &Manifest, before: i64) -> Result<bool, LogError> {
        let key = self.keys.manifest();
        let value = serde_json::to_vec(manifest)
            .map_err(|source| LogError::Unavailable { what: "write a manifest", source: source.into() })?;
        let txn = Txn::new()
            .when(all_but([
                (mutant!(ManifestWithoutEpoch), self.leads(manifest.epoch)),
                (mutant!(ManifestFalls), Compare::mod_revision(key.as_str(), CompareOp::Equal, before)),
            ]))
            .and_then([TxnOp::put(key.as_str(), value, None)])
            .or_else([TxnOp::get(key.as_str(), None)]);
        let answer = self.endpoints.txn(Purpose::Snapshot, "put a snapshot in place", txn).await?;
        if answer.succeeded() {
            return Ok(true);
        }
        // A first try whose answer was lost may have put it.
        let [there] = first_keys(&answer);
        let there = there.map(|one: KeyValue| Manifest::decode(one.value())).transpose()?;
        Ok(there.as_ref() == Some(manifest))
    }

    /// Puts the chunks of a snapshot that no leader guards.
    pub(super) async fn put_first_chunks(&self, index: u64, bytes: &[u8]) -> Result<(), LogError> {
        for (number, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let txn = Txn::new().and_then([TxnOp::put(self.keys.chunk(index, number), chunk, None)]);
            self.endpoints.txn(Purpose::Snapshot, "write a chunk of a snapshot", txn).await?;
        }
        Ok(())
    }

    pub(super) fn leads(&self, epoch: Epoch) -> Compare {
        Compare::create_revision(self.keys.leader(), CompareOp::Equal, revision(epoch.0))
    }

    /// Deletes the entries a snapshot covers, also those an earlier one left,
    /// and the chunks of earlier ones.
    async fn delete_covered(&self, manifest: &Manifest, listed: &[Found]) -> Result<(), CallError> {
        fail::fail_point!("log.truncate");
        let mut last = BTreeMap::new();
        for entry in listed.iter().filter(|entry| entry.revision <= manifest.revision) {
            let seq = last.entry(entry.writer).or_insert(entry.seq);
            *seq = entry.seq.max(*seq);
        }
        for (writer, seq) in last {
            let (from, to) = self.keys.entries_up_to(writer, seq);
            let all_covered = Compare::create_revision(from.as_str(), CompareOp::Less, manifest.revision + 1);
            let when = all_but([(mutant!(TruncatesLate), all_covered.with_range(to.as_str()))]);
            self.delete((from, to), when).await?;
        }
        self.delete(self.keys.chunks_before(manifest.index), Vec::new()).await
    }

    async fn delete(&self, (from, to): KeyRange, when: Vec<Compare>) -> Result<(), CallError> {
        let delete = TxnOp::delete(from, Some(DeleteOptions::new().with_range(to)));
        let txn = Txn::new().when(when).and_then([delete]);
        self.endpoints.txn(Purpose::Snapshot, "delete what a snapshot covers", txn).await?;
        Ok(())
    }

    /// The bytes of the snapshot in place at a revision.
    pub(super) async fn read_chunks(&self, manifest: &Manifest, revision: i64) -> Result<Vec<u8>, ReadError> {
        let options = GetOptions::new().with_revision(revision).with_limit(PAGE_CHUNKS);
        let chunks = self.read_pages(Purpose::CatchUp, self.keys.chunks(manifest.index), options).await?;
        // One of more chunks that was never put in place may be behind it.
        let bytes: Vec<u8> = chunks.iter().take(manifest.chunks).flat_map(KeyValue::value).copied().collect();
        if bytes.len() == manifest.bytes || mutant!(ChunksUncounted) {
            return Ok(bytes);
        }
        let (found, expected, index) = (bytes.len(), manifest.bytes, manifest.index);
        let what = format!("its snapshot at index {index} has {found} bytes of {expected}: keys were deleted");
        Err(LogError::Damaged { what }.into())
    }
}
