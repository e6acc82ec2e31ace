//! Taking part in the group that reads what comes up.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use muster_wire::record::Upward;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::client::{self, ClosedElsewhere, Context, Link};
use super::prepare::misconfigured;
use super::stall::{Consumer, Partition, Reading, Watch};
use super::{Kafka, judge, read};
use crate::{BusError, Received, Up};

const READING: &str = "what the regions send";

/// One member of the group.
pub(super) struct Member {
    link: Arc<Link>,
    consumer: Consumer,
    watch: Watch,
    /// Where the group would go on, for what was handed out and has not had its
    /// effect yet.
    handed_out: BTreeMap<Partition, i64>,
    /// What ended the last batch, told by the next.
    failed: Option<BusError>,
}

impl Member {
    /// Subscribes to the topics by name: a pattern would see a new topic only
    /// minutes later. For no topics the member waits, since the library would
    /// take that for an error.
    pub(super) async fn open(kafka: &Kafka, topics: Vec<String>) -> Result<Self, BusError> {
        let link = Arc::clone(kafka.link());
        for topic in &topics {
            if kafka.find(topic).await?.is_none() {
                return Err(link.because(&format!("topic {topic} does not exist; prepare creates it")));
            }
        }
        let consumer: StreamConsumer<Context> = client::member(kafka.options())
            .create_with_context(Context::new(&link))
            .map_err(|error| misconfigured(&error))?;
        let consumer = ClosedElsewhere::new(Arc::new(consumer));
        if !topics.is_empty() {
            let names: Vec<&str> = topics.iter().map(String::as_str).collect();
            consumer.subscribe(&names).map_err(|error| link.unavailable("join the group", &error))?;
        }
        let reading = (!topics.is_empty()).then_some(Reading { topics, begun_at: None });
        let watch = Watch::new(&link, reading);
        Ok(Self { link, consumer, watch, handed_out: BTreeMap::new(), failed: None })
    }
}

/// Waits for one record, then takes what is there without waiting; with the
/// error that ended the taking, if one did.
async fn receive(consumer: &Consumer, link: &Link, max: usize) -> (Vec<Taken>, Option<BusError>) {
    let mut taken = Vec::new();
    while taken.len() < max {
        let received = match taken.is_empty() {
            true => Some(consumer.recv().await),
            false => consumer.recv().now_or_never(),
        };
        match received {
            None => break,
            Some(Ok(message)) => taken.push(Taken::of(&message)),
            Some(Err(error)) => {
                if let Err(error) = judge(link, READING, &error) {
                    return (taken, Some(error));
                }
            }
        }
    }
    (taken, None)
}

/// A record with where the group would go on after it.
struct Taken {
    after: (Partition, i64),
    received: Received<Upward>,
}

impl Taken {
    fn of(message: &BorrowedMessage<'_>) -> Self {
        let after = ((message.topic().to_owned(), message.partition()), message.offset() + 1);
        Self { after, received: read(message) }
    }
}

#[async_trait]
impl Up for Member {
    async fn next_batch(&mut self, max: usize) -> Result<Vec<Received<Upward>>, BusError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (taken, failed) = tokio::select! {
            biased;
            received = receive(&self.consumer, &self.link, max.max(1)) => received,
            error = self.watch.stalled(&self.consumer) => return Err(error),
        };
        match failed {
            Some(error) if taken.is_empty() => return Err(error),
            // First what came before it.
            failed => self.failed = failed,
        }
        self.link.answered();
        let mut batch = Vec::with_capacity(taken.len());
        for Taken { after: (partition, offset), received } in taken {
            self.handed_out.insert(partition, offset);
            batch.push(received);
        }
        Ok(batch)
    }

    /// Leaves the offsets to the library, which commits what it has of them from
    /// time to time, when it gives partitions away and when it leaves the group.
    /// They carry no meaning: one that was not committed costs a repeat.
    fn commit(&mut self) {
        let mut list = TopicPartitionList::new();
        let stored = std::mem::take(&mut self.handed_out)
            .into_iter()
            .try_for_each(|((topic, partition), offset)| {
                list.add_partition_offset(&topic, partition, Offset::Offset(offset))
            })
            .and_then(|()| self.consumer.store_offsets(&list));
        // What came of partitions that are others' by now is theirs to commit.
        if let Err(error) = stored {
            tracing::debug!(%error, "offsets were not stored; records will be repeated");
        }
    }
}
