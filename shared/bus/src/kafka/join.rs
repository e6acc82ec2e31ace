//! Taking part in the group that reads what comes up.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use muster_wire::record::Upward;
use rdkafka::consumer::{CommitMode, Consumer as _, StreamConsumer};
use rdkafka::error::KafkaResult;
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
    /// The same for what has had it and waits for the commit before.
    to_commit: BTreeMap<Partition, i64>,
    /// What ended the last batch, told by the next.
    failed: Option<BusError>,
    /// How often partitions had been taken away when that was handed out.
    revoked: u64,
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
        let reading = topics.into_iter().next().map(|topic| Reading { topic, begun_at: None });
        let watch = Watch::new(&link, reading);
        Ok(Self {
            link,
            consumer,
            watch,
            handed_out: BTreeMap::new(),
            to_commit: BTreeMap::new(),
            failed: None,
            revoked: 0,
        })
    }

    /// What was handed out of partitions that are others' now is theirs to say.
    fn forget_revoked(&mut self) {
        let revoked = self.consumer.context().revoked();
        if revoked != self.revoked {
            self.revoked = revoked;
            self.handed_out.clear();
            self.to_commit.clear();
        }
    }

    /// Sends one commit for everything that waits for it, if none is on its
    /// way: a queue of them would hold up the next rebalance until its end.
    fn send_commit(&mut self) -> Result<(), BusError> {
        self.forget_revoked();
        if self.to_commit.is_empty() || !self.consumer.context().begin_commit() {
            return Ok(());
        }
        let committed = commit(&self.consumer, &std::mem::take(&mut self.to_commit));
        committed.map_err(|error| {
            self.consumer.context().end_commit();
            self.link.unavailable("commit offsets", &error)
        })
    }
}

/// Hands the offsets over and does not wait.
fn commit(consumer: &Consumer, offsets: &BTreeMap<Partition, i64>) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    for ((topic, partition), offset) in offsets {
        list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
    }
    consumer.commit(&list, CommitMode::Async)
}

impl Drop for Member {
    /// Leaving the group waits for a commit on its way.
    fn drop(&mut self) {
        self.forget_revoked();
        if !self.to_commit.is_empty()
            && let Err(error) = commit(&self.consumer, &self.to_commit)
        {
            tracing::debug!(%error, "the last offsets were not committed; records will be repeated");
        }
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
        let (taken, failed) = loop {
            tokio::select! {
                biased;
                received = receive(&self.consumer, &self.link, max.max(1)) => break received,
                () = self.consumer.context().commit_ended() => self.send_commit()?,
                error = self.watch.stalled(&self.consumer) => return Err(error),
            }
        };
        match failed {
            Some(error) if taken.is_empty() => return Err(error),
            // First what came before it.
            failed => self.failed = failed,
        }
        self.link.answered();
        self.forget_revoked();
        let mut batch = Vec::with_capacity(taken.len());
        for Taken { after: (partition, offset), received } in taken {
            self.handed_out.insert(partition, offset);
            batch.push(received);
        }
        Ok(batch)
    }

    /// Does not wait for the brokers: offsets carry no meaning.
    async fn commit(&mut self) -> Result<(), BusError> {
        self.forget_revoked();
        self.to_commit.append(&mut self.handed_out);
        self.send_commit()
    }
}
