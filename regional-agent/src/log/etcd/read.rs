//! Reading the log as it was at one revision, and numbering what is found.
//!
//! The entries have no index of their own: in the order of their create
//! revisions they are exactly those from the snapshot's index to the head's.
//! So their number is checked against both; a listing that misses one would
//! otherwise give every entry before it a wrong index.

use etcd_client::{GetOptions, KeyValue, Txn, TxnOp};
use muster_protocol::identity::Writer;
use muster_protocol::mutant;

use super::Shared;
use super::keys::{KeyRange, after};
use super::origin::{Head, first_keys};
use super::requests::Purpose;
use super::snapshot::Manifest;
use super::verdict::{CallError, Verdict};
use crate::log::{CatchUp, LogError, Position, RawEntry};

/// Entries in one page: 16 MiB if each is as large as it may be.
const PAGE_ENTRIES: i64 = 64;
/// Keys in one page without values.
const PAGE_KEYS: i64 = 4_096;
/// Times one reading starts over because what it reads was compacted away.
const COMPACTIONS_MAX: usize = 5;

/// An entry that was found, without its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) writer: Writer,
    pub(super) seq: u64,
    /// The revision it was put at.
    pub(super) revision: i64,
    pub(super) bytes: Vec<u8>,
}

/// Everything there was at one revision.
pub(super) struct Listing {
    pub(super) revision: i64,
    pub(super) head: Head,
    pub(super) manifest: Option<Manifest>,
    /// The revision the manifest was put at, 0 if there is none.
    pub(super) manifest_modified: i64,
    pub(super) found: Vec<Found>,
}

/// Why a reading at one revision ended early.
pub(super) enum ReadError {
    Compacted(CallError),
    Other(LogError),
}

impl From<CallError> for ReadError {
    fn from(error: CallError) -> Self {
        match error.verdict {
            Verdict::Compacted => Self::Compacted(error),
            _ => Self::Other(error.into()),
        }
    }
}

impl From<LogError> for ReadError {
    fn from(error: LogError) -> Self {
        Self::Other(error)
    }
}

impl From<ReadError> for LogError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Compacted(error) => error.into(),
            ReadError::Other(error) => error,
        }
    }
}

impl Shared {
    pub(super) async fn read_since(&self, applied: u64) -> Result<CatchUp, LogError> {
        let mut compactions = 0;
        loop {
            match self.try_read_since(applied).await {
                Err(ReadError::Compacted(_)) if compactions < COMPACTIONS_MAX => compactions += 1,
                read => return read.map_err(LogError::from),
            }
        }
    }

    async fn try_read_since(&self, applied: u64) -> Result<CatchUp, ReadError> {
        let listing = self.list(Purpose::CatchUp, false).await?;
        let base = self.origin().await?.base;
        let snapshot = match &listing.manifest {
            Some(manifest) if manifest.index > applied => Some(self.read_chunks(manifest, listing.revision).await?),
            _ => None,
        };
        let (head, position) = (listing.head.index, Position(listing.revision.unsigned_abs() + 1));
        let numbered = listing.numbered(base)?;
        let entries = numbered.filter(|(index, _)| *index > applied).map(|(index, found)| found.at(index)).collect();
        Ok(CatchUp { snapshot, entries, head, position })
    }

    /// Lists the manifest, the head and all entries at one revision; without
    /// their bytes if only `keys` are wanted.
    pub(super) async fn list(&self, purpose: Purpose, keys: bool) -> Result<Listing, ReadError> {
        let origin = *self.origin().await?;
        let seen = self.seen.index();
        let gets = [TxnOp::get(self.keys.manifest(), None), TxnOp::get(self.keys.head(), None)];
        let txn = Txn::new().and_then(gets);
        let answer = self.endpoints.txn(purpose, "read the log's head", txn).await?;
        let [manifest, head] = first_keys(&answer);
        let head = origin.head(head.as_ref())?;
        self.seen.check(seen, head.index)?;
        let revision = answer.header().map_or(0, |header| header.revision());
        let manifest_modified = manifest.as_ref().map_or(0, KeyValue::mod_revision);
        let manifest = manifest.map(|one| Manifest::decode(one.value())).transpose()?;
        let limit = if keys { PAGE_KEYS } else { PAGE_ENTRIES };
        let mut options = GetOptions::new().with_revision(revision).with_limit(limit);
        if keys {
            options = options.with_keys_only();
        }
        let pages = self.read_pages(purpose, self.keys.entries(), options).await?;
        let found = pages.into_iter().map(|one| self.found(one)).collect::<Result<_, _>>()?;
        Ok(Listing { revision, head, manifest, manifest_modified, found })
    }

    /// Reads a range page by page; the order of keys, a limit and a revision
    /// are all that etcd does without reading the whole range each time.
    pub(super) async fn read_pages(
        &self,
        purpose: Purpose,
        (mut from, to): KeyRange,
        options: GetOptions,
    ) -> Result<Vec<KeyValue>, CallError> {
        let mut read = Vec::new();
        loop {
            let options = options.clone().with_range(to.as_str());
            let mut page = self.endpoints.get(purpose, "read a page of the log", &from, Some(options)).await?;
            read.extend(page.take_kvs());
            match read.last() {
                Some(last) if page.more() => from = after(&String::from_utf8_lossy(last.key())),
                _ => return Ok(read),
            }
        }
    }

    pub(super) fn found(&self, key: KeyValue) -> Result<Found, LogError> {
        let Some((writer, seq)) = self.keys.place(key.key()) else {
            let name = String::from_utf8_lossy(key.key());
            return Err(LogError::Damaged { what: format!("{name} is among its entries and is none") });
        };
        if key.version() != 1 {
            let name = String::from_utf8_lossy(key.key());
            return Err(LogError::Damaged { what: format!("{name} was overwritten: {} times put", key.version()) });
        }
        let revision = key.create_revision();
        let (_, bytes) = key.into_key_value();
        Ok(Found { writer, seq, revision, bytes })
    }
}

impl Listing {
    /// The index the snapshot stands for, or the log's origin.
    pub(super) fn floor(&self, base: u64) -> u64 {
        self.manifest.as_ref().map_or(base, |manifest| manifest.index)
    }

    /// The entries after the snapshot, with their indices, in order.
    pub(super) fn numbered(self, base: u64) -> Result<impl Iterator<Item = (u64, Found)>, LogError> {
        let floor = self.floor(base);
        let covered = self.manifest.as_ref().map_or(0, |manifest| manifest.revision);
        let mut entries = self.found;
        // What a snapshot covers may still be there: it is deleted after it.
        entries.retain(|entry| entry.revision > covered);
        entries.sort_by_key(|entry| entry.revision);
        let expected = self.head.index.checked_sub(floor);
        let found = u64::try_from(entries.len()).unwrap_or(u64::MAX);
        if expected != Some(found) && !mutant!(GapUnnoticed) {
            let head = self.head.index;
            let what = format!("{found} entries lie between index {floor} and its head {head}: keys were deleted");
            return Err(LogError::Damaged { what });
        }
        let last = entries.last().map_or(self.head.modified, |entry| entry.revision);
        if last != self.head.modified {
            let head = self.head.modified;
            let what = format!("its newest entry is of revision {last}, its head of {head}: keys were changed by hand");
            return Err(LogError::Damaged { what });
        }
        Ok((floor + 1..).zip(entries))
    }
}

impl Found {
    pub(super) fn at(self, index: u64) -> RawEntry {
        RawEntry { index, writer: self.writer, seq: self.seq, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(revision: i64) -> Found {
        Found { writer: Writer(1), seq: revision.unsigned_abs(), revision, bytes: Vec::new() }
    }

    fn listing(revisions: &[i64], head: u64, manifest: Option<(u64, i64)>) -> Listing {
        let modified = revisions.iter().copied().max().unwrap_or_default();
        let manifest = manifest.map(|(index, revision)| Manifest::of(index, revision));
        let found = revisions.iter().copied().map(found).collect();
        Listing { revision: 99, head: Head { index: head, modified }, manifest, manifest_modified: 0, found }
    }

    fn indices(listing: Listing) -> Result<Vec<(u64, i64)>, String> {
        let numbered = listing.numbered(0).map_err(|error| error.to_string())?;
        Ok(numbered.map(|(index, found)| (index, found.revision)).collect())
    }

    #[test]
    fn entries_are_numbered_in_the_order_of_revisions() {
        assert_eq!(indices(listing(&[30, 10, 20], 3, None)).unwrap(), [(1, 10), (2, 20), (3, 30)]);
    }

    #[test]
    fn what_the_snapshot_covers_is_left_out() {
        assert_eq!(indices(listing(&[10, 20, 30], 9, Some((8, 20)))).unwrap(), [(9, 30)]);
    }

    #[test]
    fn a_missing_entry_is_damage() {
        assert!(indices(listing(&[10, 30], 3, None)).unwrap_err().contains("2 entries lie between index 0"));
        assert!(indices(listing(&[10], 3, Some((4, 5)))).unwrap_err().contains("head 3"));
    }

    #[test]
    fn a_head_of_another_revision_is_damage() {
        let mut listing = listing(&[10, 20], 2, None);
        listing.head.modified = 25;
        assert!(indices(listing).unwrap_err().contains("changed by hand"));
    }
}
