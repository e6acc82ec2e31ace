//! A region's log as etcd keeps it: entries under (writer, seq), a head whose
//! version is the index, registrations and a leader on leases, snapshot chunks
//! and a manifest. Each request is one transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::identity::{Epoch, Writer};
use muster_protocol::mutant;
use muster_protocol::replica::{Appended, Logged};

/// How long a registration lives without being kept alive.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(10);
/// Chunks of a snapshot are of this size, so that small states have several.
const CHUNK_BYTES: usize = 512;

/// Where an entry lies.
#[derive(Clone, Debug)]
struct Stored {
    revision: u64,
    index: u64,
    bytes: Vec<u8>,
}

/// Which snapshot is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) index: u64,
    modified: u64,
    chunks: usize,
    bytes: usize,
}

/// Who follows the log from when on.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    pub(crate) agent: usize,
    pub(crate) life: u32,
    pub(crate) follower: u64,
    pub(crate) next: u64,
    /// A stream keeps its order: nothing of it arrives before this.
    pub(crate) not_before: Duration,
}

/// What a leader must know to put a snapshot in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) floor: u64,
    pub(crate) covered: u64,
    pub(crate) modified: u64,
}

/// A state and everything after it.
pub(crate) struct Read {
    pub(crate) snapshot: Option<Vec<u8>>,
    pub(crate) entries: Vec<Logged>,
    pub(crate) head: u64,
}

/// One region's log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    revision: u64,
    pub(crate) head: u64,
    entries: BTreeMap<(Writer, u64), Stored>,
    /// Until when each lease lives, and the machine version announced with it.
    agents: BTreeMap<Writer, (Duration, u16)>,
    leader: Option<(Writer, Epoch)>,
    chunks: BTreeMap<(u64, usize), Vec<u8>>,
    manifest: Option<Manifest>,
    pub(crate) followers: Vec<Follower>,
}

impl Log {
    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub(crate) fn register(&mut self, now: Duration, machine_version: u16) -> Writer {
        let writer = Writer(self.next_revision());
        self.agents.insert(writer, (now + LEASE_TTL, machine_version));
        writer
    }

    /// Keeps a lease alive; `false` if it is gone.
    pub(crate) fn keep_alive(&mut self, writer: Writer, now: Duration) -> bool {
        self.agents.get_mut(&writer).map(|(until, _)| *until = now + LEASE_TTL).is_some()
    }

    /// Ends the leases that have run out, and with them what stood on them.
    pub(crate) fn expire(&mut self, now: Duration) {
        self.agents.retain(|_, (until, _)| *until > now);
        self.leader = self.leader.filter(|(writer, _)| self.agents.contains_key(writer));
    }

    pub(crate) fn registrations(&self) -> Vec<(Writer, u16)> {
        self.agents.iter().map(|(writer, (_, version))| (*writer, *version)).collect()
    }

    pub(crate) fn append(&mut self, writer: Writer, seq: u64, bytes: &[u8], seen: u64) -> Appended {
        // A head that is lower than it was seen numbers nothing.
        if self.head < seen {
            return Appended::HeadGone;
        }
        if !self.agents.contains_key(&writer) {
            return Appended::WriterGone;
        }
        if self.entries.contains_key(&(writer, seq)) {
            return Appended::AlreadyThere;
        }
        self.head += 1;
        let (revision, index) = (self.next_revision(), self.head);
        self.entries.insert((writer, seq), Stored { revision, index, bytes: bytes.to_vec() });
        Appended::Landed { index }
    }

    pub(crate) fn read_head(&self) -> u64 {
        if mutant!(ReadIndexByRevision) { self.revision } else { self.head }
    }

    /// Everything after an index: a snapshot if the log no longer reaches back,
    /// and the entries, in order. `Err` if what should be there is not.
    pub(crate) fn catch_up(&self, applied: u64) -> Result<Read, String> {
        let snapshot = match self.manifest.as_ref().filter(|manifest| manifest.index > applied) {
            None => None,
            Some(manifest) => Some(self.read_chunks(manifest)?),
        };
        let from = applied.max(self.manifest.as_ref().map_or(0, |manifest| manifest.index));
        let entries = self.entries_after(from);
        let indices = entries.iter().map(|entry| entry.index);
        if self.head >= from && !indices.eq(from + 1..=self.head) {
            return Err(format!("{} entries lie between index {from} and head {}", entries.len(), self.head));
        }
        Ok(Read { snapshot, entries, head: self.head })
    }

    pub(crate) fn entries_after(&self, index: u64) -> Vec<Logged> {
        let after = self.entries.iter().filter(|(_, stored)| stored.index > index);
        let mut entries: Vec<Logged> = after
            .map(|((writer, seq), stored)| Logged {
                index: stored.index,
                writer: *writer,
                seq: *seq,
                bytes: stored.bytes.clone(),
            })
            .collect();
        entries.sort_by_key(|entry| entry.index);
        entries
    }

    fn read_chunks(&self, manifest: &Manifest) -> Result<Vec<u8>, String> {
        let chunks = self.chunks.range((manifest.index, 0)..(manifest.index + 1, 0)).take(manifest.chunks);
        let bytes: Vec<u8> = chunks.flat_map(|(_, chunk)| chunk.iter().copied()).collect();
        match bytes.len() == manifest.bytes {
            true => Ok(bytes),
            false => Err(format!("the snapshot at {} has {} bytes of {}", manifest.index, bytes.len(), manifest.bytes)),
        }
    }

    /// Stands for election.
    pub(crate) fn campaign(&mut self, writer: Writer) -> Option<Epoch> {
        if !self.agents.contains_key(&writer) {
            return None;
        }
        if self.leader.is_none() {
            self.leader = Some((writer, Epoch(self.next_revision())));
        }
        self.leader.filter(|(leader, _)| *leader == writer).map(|(_, epoch)| epoch)
    }

    fn leads(&self, epoch: Epoch) -> bool {
        self.leader.is_some_and(|(_, leading)| leading == epoch)
    }

    /// What a snapshot at an index would cover.
    pub(crate) fn list(&self, index: u64) -> Listed {
        let covered = self.entries.values().find(|stored| stored.index == index).map_or(0, |stored| stored.revision);
        let manifest = self.manifest.as_ref();
        let floor = manifest.map_or(0, |manifest| manifest.index);
        Listed { floor, covered, modified: manifest.map_or(0, |manifest| manifest.modified) }
    }

    /// Puts one chunk; `false` if another leads.
    pub(crate) fn put_chunk(&mut self, epoch: Epoch, index: u64, number: usize, bytes: &[u8]) -> bool {
        let leads = self.leads(epoch);
        if leads {
            self.chunks.insert((index, number), bytes.to_vec());
        }
        leads
    }

    /// Puts a snapshot in place over the one that was listed; `false` if
    /// another leads or another was put.
    pub(crate) fn put_manifest(&mut self, epoch: Epoch, index: u64, listed: Listed, bytes: usize) -> bool {
        let modified = self.manifest.as_ref().map_or(0, |manifest| manifest.modified);
        if !self.leads(epoch) && !mutant!(ManifestWithoutEpoch) {
            return false;
        }
        if modified != listed.modified && !mutant!(ManifestFalls) {
            return false;
        }
        let (modified, chunks) = (self.next_revision(), chunks(bytes));
        self.manifest = Some(Manifest { index, modified, chunks, bytes });
        true
    }

    /// Deletes what the snapshot in place covers, as far as it is all of a
    /// writer's, and the chunks of earlier ones.
    pub(crate) fn truncate(&mut self, index: u64, covered: u64) {
        let mut last: BTreeMap<Writer, u64> = BTreeMap::new();
        for ((writer, seq), stored) in &self.entries {
            if stored.revision <= covered {
                last.insert(*writer, *seq);
            }
        }
        self.entries.retain(|(writer, seq), stored| {
            let last = last.get(writer).copied().unwrap_or(0);
            *seq > last || stored.revision > covered
        });
        self.chunks.retain(|(at, _), _| *at >= index);
    }

    pub(crate) fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// A log that begins another life at an index, with a snapshot of what could
    /// be read, if anything could.
    pub(crate) fn anew(base: u64, snapshot: &[u8]) -> Self {
        let mut log = Self { head: base, ..Self::default() };
        if base > 0 {
            let (modified, bytes) = (log.next_revision(), snapshot.len());
            log.chunks = cut(snapshot).into_iter().enumerate().map(|(at, chunk)| ((base, at), chunk)).collect();
            log.manifest = Some(Manifest { index: base, modified, chunks: chunks(bytes), bytes });
        }
        log
    }

    /// Brings the log back to what it was at an index, as a backup would: the
    /// cluster's identity stays, and so does the history.
    pub(crate) fn restore(&mut self, index: u64) {
        self.entries.retain(|_, stored| stored.index <= index);
        self.head = index;
        self.agents.clear();
        self.leader = None;
        self.followers.clear();
    }
}

/// The chunks of a snapshot of so many bytes.
fn chunks(bytes: usize) -> usize {
    bytes.div_ceil(CHUNK_BYTES)
}

/// A snapshot's bytes in chunks.
pub(crate) fn cut(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.chunks(CHUNK_BYTES).map(<[u8]>::to_vec).collect()
}
