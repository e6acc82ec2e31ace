//! The records that an installation's topics hold, sent again: doubled, late and
//! in another order, as a broker may that was asked for at least once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::until::DEADLINE;

/// How long the broker is asked for something.
const ANSWER: Duration = Duration::from_secs(10);

/// Sends the records of the topics that begin with `prefix` again, each up to
/// `times` times, in an order of chance; but not the latest of a key, which
/// would make up for all that came late. Returns how many were sent.
///
/// # Errors
/// The broker does not answer.
pub async fn replay(broker: &str, prefix: &str, times: usize, seed: u64) -> anyhow::Result<usize> {
    let (broker, prefix) = (broker.to_owned(), prefix.to_owned());
    tokio::task::spawn_blocking(move || {
        let mut chance = StdRng::seed_from_u64(seed);
        let records = read(&broker, &prefix)?;
        let again = |record| vec![record; chance.random_range(1..=times)];
        let mut records: Vec<OwnedMessage> = late(records).into_iter().flat_map(again).collect();
        records.shuffle(&mut chance);
        send(&broker, &records)?;
        Ok(records.len())
    })
    .await?
}

/// Everything that is there now, to the end of each partition.
fn read(broker: &str, prefix: &str) -> anyhow::Result<Vec<OwnedMessage>> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker).set("group.id", "replay").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.set("enable.partition.eof", "true").create().context("make a consumer")?;
    let metadata = consumer.fetch_metadata(None, ANSWER).context("ask which topics there are")?;
    let mut places = TopicPartitionList::new();
    for topic in metadata.topics().iter().filter(|topic| topic.name().starts_with(prefix)) {
        for partition in topic.partitions() {
            places.add_partition_offset(topic.name(), partition.id(), Offset::Beginning)?;
        }
    }
    consumer.assign(&places)?;
    let (mut records, mut left, until) = (Vec::new(), places.count(), Instant::now() + DEADLINE);
    while left > 0 {
        ensure!(Instant::now() < until, "{left} partitions are not read to their end");
        match consumer.poll(ANSWER) {
            Some(Ok(record)) => records.push(record.detach()),
            Some(Err(KafkaError::PartitionEOF(_))) => left -= 1,
            Some(Err(error)) => return Err(error).context("read a record"),
            None => {}
        }
    }
    Ok(records)
}

/// Those after which another of their key was said.
fn late(records: Vec<OwnedMessage>) -> Vec<OwnedMessage> {
    let of = |record: &OwnedMessage| (record.topic().to_owned(), record.key().map(<[u8]>::to_vec));
    let mut latest = BTreeMap::new();
    for record in &records {
        let last = latest.entry(of(record)).or_insert(record.offset());
        *last = record.offset().max(*last);
    }
    records.into_iter().filter(|record| latest.get(&of(record)) != Some(&record.offset())).collect()
}

fn send(broker: &str, records: &[OwnedMessage]) -> anyhow::Result<()> {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", broker).create().context("make a producer")?;
    for record in records {
        let mut again = BaseRecord::<[u8], [u8]>::to(record.topic()).partition(record.partition());
        again.key = record.key();
        again.payload = record.payload();
        again.headers = record.headers().cloned();
        producer.send(again).map_err(|(error, _)| error).context("send a record again")?;
    }
    producer.flush(ANSWER).context("send the records again")
}
