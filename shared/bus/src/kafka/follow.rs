//! Following what comes down, from a place that is known before anything else
//! is said.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use muster_wire::record::Downward;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::Instant;

use super::client::{self, ANSWER_WAIT, ClosedElsewhere, Context, Link, blocking};
use super::prepare::{check_partitions, misconfigured};
use super::produce::Producer;
use super::stall::{Consumer, Partition, Reading, Watch};
use super::{Kafka, judge, read};
use crate::{BusError, Down, Received};

/// One follower of the global topic.
pub(super) struct Follower {
    link: Arc<Link>,
    topic: String,
    consumer: Consumer,
    watch: Watch,
}

impl Follower {
    /// Fetches where every partition ends and assigns there: to assign "the
    /// end" would leave it to a later moment where that is, and miss what is
    /// sent in between.
    pub(super) async fn open(kafka: &Kafka) -> Result<Self, BusError> {
        let (link, topic) = (Arc::clone(kafka.link()), kafka.topics.global());
        let Some(found) = kafka.find(&topic).await? else {
            return Err(link.because(&format!("topic {topic} does not exist; a coordinator creates it")));
        };
        check_partitions(&topic, found.partitions)?;
        let ends = ends(kafka, &topic, found.partitions).await?;
        let consumer: StreamConsumer<Context> = client::follower(kafka.options())
            .create_with_context(Context::new(&link))
            .map_err(|error| misconfigured(&error))?;
        let consumer = ClosedElsewhere::new(Arc::new(consumer));
        assign(&consumer, &ends).map_err(|error| link.unavailable(&format!("assign {topic}"), &error))?;
        let watch = Watch::new(&link, Some(Reading { topics: vec![topic.clone()], begun_at: Some(ends) }));
        Ok(Self { link, topic, consumer, watch })
    }
}

async fn ends(kafka: &Kafka, topic: &str, partitions: usize) -> Result<BTreeMap<Partition, i64>, BusError> {
    let deadline = Instant::now() + ANSWER_WAIT;
    loop {
        let (producer, name) = (kafka.producer(), topic.to_owned());
        let fetched = blocking(move || fetch_ends(&producer, &name, partitions)).await?;
        match fetched {
            Ok(ends) => return Ok(ends),
            // A topic's leaders are announced a moment before they know it.
            Err(KafkaError::MetadataFetch(code)) if client::is_passing(code) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => return Err(kafka.link().unavailable(&format!("asked where topic {topic} ends"), &error)),
        }
    }
}

fn fetch_ends(producer: &Producer, topic: &str, partitions: usize) -> KafkaResult<BTreeMap<Partition, i64>> {
    let end = |partition| {
        let (_, end) = producer.fetch_watermarks(topic, partition, ANSWER_WAIT)?;
        Ok(((topic.to_owned(), partition), end))
    };
    (0..).take(partitions).map(end).collect()
}

fn assign(consumer: &StreamConsumer<Context>, ends: &BTreeMap<Partition, i64>) -> KafkaResult<()> {
    let mut list = TopicPartitionList::new();
    for ((topic, partition), end) in ends {
        list.add_partition_offset(topic, *partition, Offset::Offset(*end))?;
    }
    consumer.assign(&list)
}

#[async_trait]
impl Down for Follower {
    async fn next(&mut self) -> Result<Received<Downward>, BusError> {
        loop {
            tokio::select! {
                biased;
                received = self.consumer.recv() => match received {
                    Ok(message) => {
                        self.link.answered();
                        return Ok(read(&message));
                    }
                    Err(error) => judge(&self.link, &self.topic, &error)?,
                },
                error = self.watch.stalled(&self.consumer) => return Err(error),
            }
        }
    }
}
