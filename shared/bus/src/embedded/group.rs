//! The one group that reads what comes up: who is in it, and whose a record is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use muster_wire::record::Upward;
use tokio::sync::mpsc;

use super::Carried;
use crate::record::unpack;
use crate::topic::PARTITIONS;
use crate::{BusError, Received, Up};

/// The members, in the order they joined.
#[derive(Debug)]
pub(super) struct Group {
    capacity: usize,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    next_id: u64,
    by_id: BTreeMap<u64, Seat>,
}

#[derive(Debug)]
struct Seat {
    topics: BTreeSet<String>,
    queue: mpsc::Sender<Carried>,
}

impl Group {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, members: Mutex::default() }
    }

    /// Gives a record to the member whose it is, when that has room. With
    /// nobody there to read it, it is gone.
    pub(super) async fn give(&self, carried: Carried) {
        while let Some(queue) = self.queue_of(&carried) {
            if let Ok(room) = queue.reserve().await {
                room.send(carried);
                return;
            }
            // The member left while we waited: now it is another's.
        }
    }

    /// Partitions go to members in ranges, in each topic alike: with the same
    /// topics the same key is the same member, whatever the region.
    fn queue_of(&self, carried: &Carried) -> Option<mpsc::Sender<Carried>> {
        let members = self.lock();
        let reading: Vec<&Seat> = members
            .by_id
            .values()
            .filter(|seat| seat.topics.contains(&carried.place.topic) && !seat.queue.is_closed())
            .collect();
        let partition = carried.place.partition.unsigned_abs() as usize;
        let index = partition * reading.len() / PARTITIONS.unsigned_abs() as usize;
        reading.get(index).map(|seat| seat.queue.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One member; it leaves when it is dropped, and what it has not taken is gone.
pub(super) struct Member {
    id: u64,
    group: Arc<Group>,
    queue: mpsc::Receiver<Carried>,
}

impl Member {
    pub(super) fn join(group: &Arc<Group>, topics: BTreeSet<String>) -> Self {
        let (sender, queue) = mpsc::channel(group.capacity);
        let mut members = group.lock();
        let id = members.next_id;
        members.next_id += 1;
        members.by_id.insert(id, Seat { topics, queue: sender });
        drop(members);
        Self { id, group: Arc::clone(group), queue }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.group.lock().by_id.remove(&self.id);
    }
}

#[async_trait]
impl Up for Member {
    async fn next_batch(&mut self, max: usize) -> Result<Vec<Received<Upward>>, BusError> {
        let mut batch = Vec::new();
        self.queue.recv_many(&mut batch, max.max(1)).await;
        Ok(batch.into_iter().map(|one| unpack(one.place, one.headers, &one.bytes)).collect())
    }

    fn commit(&mut self) {}
}
