//! The bus inside one process: bounded channels, nothing stored.
//!
//! ```text
//! send_down ──▶ broadcast ──▶ every follower        too slow: it loses its place
//! send_up   ──▶ hash(key) ──▶ one member's queue    full: the sender waits, then Unavailable
//!                                                   nobody joined: gone
//! ```
//!
//! Bytes travel, not values, so that the records' formats are the ones Kafka
//! carries. That nothing is stored is on purpose: it keeps the rule that the
//! bus holds no unique state true every day.

mod faults;
mod group;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use muster_protocol::name::RegionName;
use muster_wire::record::{Downward, Upward};
use tokio::sync::broadcast::{self, error::RecvError};

pub use self::faults::Faults;
use self::faults::Line;
use self::group::{Group, Member};
use crate::record::{Parcel, unpack};
use crate::topic::{PARTITIONS, Topics};
use crate::{Bus, BusError, Down, Headers, Place, Received, Up};

/// How long a sender waits for room in a member's queue.
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// A record on its way, with the place it was given.
#[derive(Clone, Debug)]
struct Carried {
    place: Place,
    headers: Headers,
    bytes: Vec<u8>,
}

/// The bus inside one process. Clones are the same bus.
#[derive(Clone, Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    topics: Topics,
    down: broadcast::Sender<Arc<Carried>>,
    group: Arc<Group>,
    next_offset: AtomicI64,
    line_up: Mutex<Line>,
    line_down: Mutex<Line>,
}

impl Embedded {
    /// A bus whose queues hold `capacity` records each: one per member, one
    /// for what goes down. Followers that lag by more lose their place.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let shared = Shared {
            topics: Topics::new("muster"),
            down: broadcast::Sender::new(capacity),
            group: Arc::new(Group::new(capacity)),
            next_offset: AtomicI64::new(0),
            line_up: Mutex::default(),
            line_down: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// From here on, harms records as told, in both directions: for tests.
    pub fn set_faults(&self, faults: Faults) {
        for line in [&self.shared.line_up, &self.shared.line_down] {
            line.lock().unwrap_or_else(PoisonError::into_inner).set(faults);
        }
    }

    /// Puts bytes on a region's way up as if somebody had sent them: for tests.
    pub async fn inject_up(&self, region: &RegionName, bytes: Vec<u8>) -> Result<(), BusError> {
        self.carry_up(region, region.as_str(), Headers::new(), bytes).await
    }

    /// Puts bytes on the way down as if somebody had sent them: for tests.
    pub fn inject_down(&self, bytes: Vec<u8>) {
        self.carry_down("", Headers::new(), bytes);
    }

    async fn carry_up(&self, region: &RegionName, key: &str, headers: Headers, bytes: Vec<u8>) -> Result<(), BusError> {
        let place = self.place(self.shared.topics.region(region), key);
        for carried in self.pass(&self.shared.line_up, Carried { place, headers, bytes }) {
            let topic = carried.place.topic.clone();
            let given = self.shared.group.give(carried);
            if tokio::time::timeout(ROOM_WAIT, given).await.is_err() {
                let what = format!("the member that reads {topic} has had no room for {} s", ROOM_WAIT.as_secs());
                return Err(BusError::Unavailable { what });
            }
        }
        Ok(())
    }

    fn carry_down(&self, key: &str, headers: Headers, bytes: Vec<u8>) {
        let place = self.place(self.shared.topics.global(), key);
        for carried in self.pass(&self.shared.line_down, Carried { place, headers, bytes }) {
            // An error says that nobody follows: allowed, nothing is stored.
            let _ = self.shared.down.send(Arc::new(carried));
        }
    }

    fn pass(&self, line: &Mutex<Line>, carried: Carried) -> Vec<Carried> {
        line.lock().unwrap_or_else(PoisonError::into_inner).pass(carried)
    }

    fn place(&self, topic: String, key: &str) -> Place {
        let offset = self.shared.next_offset.fetch_add(1, Ordering::Relaxed);
        Place { topic, partition: partition(key), offset }
    }
}

/// The same key is the same partition in every topic (FNV-1a, 32 bits).
fn partition(key: &str) -> i32 {
    let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash % PARTITIONS.unsigned_abs()).cast_signed()
}

#[async_trait]
impl Bus for Embedded {
    async fn prepare(&self, _regions: &[RegionName]) -> Result<(), BusError> {
        Ok(())
    }

    async fn send_up(&self, message: &Upward, headers: Headers) -> Result<(), BusError> {
        let parcel = Parcel::pack(message, headers)?;
        let (bytes, headers) = (parcel.bytes.clone(), parcel.headers.clone());
        self.carry_up(message.region(), &parcel.key, headers, bytes).await?;
        parcel.count_sent();
        Ok(())
    }

    async fn send_down(&self, messages: Vec<(Downward, Headers)>) -> Result<(), BusError> {
        for (message, headers) in messages {
            let parcel = Parcel::pack(&message, headers)?;
            parcel.count_sent();
            self.carry_down(&parcel.key, parcel.headers, parcel.bytes);
        }
        Ok(())
    }

    async fn follow_down(&self) -> Result<Box<dyn Down>, BusError> {
        Ok(Box::new(Follower { records: self.shared.down.subscribe() }))
    }

    async fn join_up(&self, regions: &[RegionName]) -> Result<Box<dyn Up>, BusError> {
        let topics = regions.iter().map(|region| self.shared.topics.region(region)).collect();
        Ok(Box::new(Member::join(&self.shared.group, topics)))
    }

    async fn check(&self) -> Result<(), BusError> {
        Ok(())
    }
}

/// One follower. It holds no part of the bus, so the bus can end before it.
struct Follower {
    records: broadcast::Receiver<Arc<Carried>>,
}

#[async_trait]
impl Down for Follower {
    async fn next(&mut self) -> Result<Received<Downward>, BusError> {
        let what = match self.records.recv().await {
            Ok(carried) => return Ok(unpack(carried.place.clone(), carried.headers.clone(), &carried.bytes)),
            Err(RecvError::Lagged(lost)) => format!("this follower was too slow and lost {lost} records"),
            Err(RecvError::Closed) => "it has ended with the process's services".to_owned(),
        };
        Err(BusError::Unavailable { what })
    }
}

#[cfg(test)]
mod tests;
