//! The bus on Kafka.
//!
//! ```text
//! <prefix>.region.<r>   8 partitions by barrier   group <prefix>.coordinator, classic, range, earliest
//! <prefix>.global       8 partitions by barrier   no group: high watermarks are fetched and assigned
//! ```
//!
//! Sending is done when all in-sync replicas have the record. Everything that
//! waits for a broker does so in bounded time, except waiting for records;
//! that is watched instead (`stall`), since a consumer can fall silent without
//! an error. A consumer that meets an error from which it does not recover by
//! itself gives it to the caller, who follows or joins anew.

mod client;
mod follow;
mod join;
mod options;
mod prepare;
mod produce;
mod stall;

use std::sync::Arc;

use async_trait::async_trait;
use muster_protocol::name::RegionName;
use muster_wire::record::{Downward, Upward};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};

use self::client::Link;
pub use self::options::KafkaOptions;
use self::produce::{Producer, Sender};
use crate::record::{Parcel, Record, unpack};
use crate::topic::Topics;
use crate::{Bus, BusError, Down, Headers, Place, Received, Up};

/// The bus on Kafka. Making one connects nothing yet.
pub struct Kafka {
    options: KafkaOptions,
    topics: Topics,
    link: Arc<Link>,
    sender: Sender,
}

impl Kafka {
    /// A bus with these options; refuses those that can't work, without asking
    /// the brokers.
    pub fn new(options: KafkaOptions) -> Result<Self, BusError> {
        options.check()?;
        let link = Arc::new(Link::new(&options.bootstrap));
        let sender = Sender::new(&options, &link)?;
        Ok(Self { topics: Topics::new(&options.prefix), options, link, sender })
    }

    fn options(&self) -> &KafkaOptions {
        &self.options
    }

    fn link(&self) -> &Arc<Link> {
        &self.link
    }

    fn producer(&self) -> Arc<Producer> {
        self.sender.producer()
    }
}

#[async_trait]
impl Bus for Kafka {
    async fn prepare(&self, regions: &[RegionName]) -> Result<(), BusError> {
        let mut topics = vec![self.topics.global()];
        topics.extend(regions.iter().map(|region| self.topics.region(region)));
        self.prepare_topics(topics).await
    }

    async fn send_up(&self, message: &Upward, headers: Headers) -> Result<(), BusError> {
        let topic = self.topics.region(message.region());
        self.sender.send(&topic, &[Parcel::pack(message, headers)?]).await
    }

    async fn send_down(&self, messages: Vec<(Downward, Headers)>) -> Result<(), BusError> {
        let parcels: Result<Vec<Parcel>, BusError> =
            messages.into_iter().map(|(message, headers)| Parcel::pack(&message, headers)).collect();
        self.sender.send(&self.topics.global(), &parcels?).await
    }

    async fn follow_down(&self) -> Result<Box<dyn Down>, BusError> {
        Ok(Box::new(follow::Follower::open(self).await?))
    }

    async fn join_up(&self, regions: &[RegionName]) -> Result<Box<dyn Up>, BusError> {
        let topics = regions.iter().map(|region| self.topics.region(region)).collect();
        Ok(Box::new(join::Member::open(self, topics).await?))
    }

    async fn check(&self) -> Result<(), BusError> {
        self.find(&self.topics.global()).await.map(drop)
    }
}

/// A record as the library hands it out, read.
fn read<T: Record>(message: &BorrowedMessage<'_>) -> Received<T> {
    let place = Place { topic: message.topic().to_owned(), partition: message.partition(), offset: message.offset() };
    let mut headers = Headers::new();
    for header in message.headers().into_iter().flat_map(rdkafka::message::Headers::iter) {
        // Only text travels in ours; others' headers are not our concern.
        if let Ok(value) = std::str::from_utf8(header.value.unwrap_or_default()) {
            headers.insert(header.key.to_owned(), value.to_owned());
        }
    }
    unpack(place, headers, message.payload().unwrap_or_default())
}

/// Whether a consumer goes on after this error, or the caller must start anew.
fn judge(link: &Link, reading: &str, error: &KafkaError) -> Result<(), BusError> {
    match error {
        KafkaError::MessageConsumption(code) if client::is_passing(*code) => Ok(()),
        error => Err(link.unavailable(&format!("read {reading}"), error)),
    }
}

#[cfg(test)]
mod tests;
