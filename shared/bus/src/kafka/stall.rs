//! A consumer can fall silent without an error: it lost its place in the
//! group, missed a wake-up, its topic was made anew under it, or its client
//! forgot every broker, which the library does when one that was cut off
//! answers that there are none (librdkafka issue 5301). So from time to time
//! its client is asked, and its place is compared with the topic's ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::{ANSWER_WAIT, ClosedElsewhere, Context, Link, SILENCE_MAX};
use crate::BusError;

/// How often the places are compared.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How soon for the first time: most of what goes wrong does so at the
/// beginning, while the brokers come back.
const LOOK_FIRST: Duration = Duration::from_secs(3);

/// How soon again after a look that got no answer.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// In so many looks one partition may stand still while others move: its
/// records wait behind theirs when the reader is slow.
const STILL_LOOKS_MAX: u32 = 6;

/// A topic and one of its partitions.
pub(super) type Partition = (String, i32);

/// A consumer of the library, shared with whoever looks at it.
pub(super) type Consumer = ClosedElsewhere<Arc<StreamConsumer<Context>>>;

/// Where a consumer stands in one partition, and where that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    place: i64,
    end: i64,
    /// In how many looks it has stood still before records.
    still: u32,
}

/// What one look found.
struct Look {
    standings: BTreeMap<Partition, Standing>,
    /// How many partitions each topic has; one that is not there has none.
    partitions: Vec<(String, usize)>,
}

/// What is watched.
#[derive(Clone)]
pub(super) struct Reading {
    /// The topics.
    pub(super) topics: Vec<String>,
    /// Where a follower began; a member begins where its group was.
    pub(super) begun_at: Option<BTreeMap<Partition, i64>>,
}

/// Watches one consumer.
pub(super) struct Watch {
    link: Arc<Link>,
    /// `None` reads nothing, and is never stalled.
    reading: Option<Reading>,
    next_look: Instant,
    /// A look, and when it began.
    looking: Option<(Instant, JoinHandle<KafkaResult<Look>>)>,
    silent_since: Option<Instant>,
    last: BTreeMap<Partition, Standing>,
}

impl Watch {
    pub(super) fn new(link: &Arc<Link>, reading: Option<Reading>) -> Self {
        Self {
            link: Arc::clone(link),
            reading,
            next_look: Instant::now() + LOOK_FIRST,
            looking: None,
            silent_since: None,
            last: BTreeMap::new(),
        }
    }

    /// Looks from time to time; ends only with a reason to start anew. It may
    /// be dropped at any time and called again.
    pub(super) async fn stalled(&mut self, consumer: &Consumer) -> BusError {
        let Some(reading) = self.reading.clone() else {
            return std::future::pending().await;
        };
        loop {
            if let Some((began, looking)) = &mut self.looking {
                let (began, found) = (*began, looking.await);
                self.looking = None;
                // Only a runtime that ends gives up a look.
                if let Ok(found) = found
                    && let Err(error) = self.judge(&reading, began, found)
                {
                    return error;
                }
            }
            tokio::time::sleep_until(self.next_look).await;
            self.next_look = Instant::now() + LOOK_EVERY;
            let (consumer, reading) = (Arc::clone(consumer), reading.clone());
            self.looking = Some((Instant::now(), tokio::task::spawn_blocking(move || look(&consumer, &reading))));
        }
    }

    /// A client that gets no answer for long may never get one again, so a new
    /// one is made, whether it was the client's fault or the brokers'.
    fn judge(&mut self, reading: &Reading, began: Instant, found: KafkaResult<Look>) -> Result<(), BusError> {
        match found {
            Ok(look) => {
                self.silent_since = None;
                self.link.answered();
                self.compare(reading, look)
            }
            Err(error) => {
                self.next_look = Instant::now() + LOOK_AGAIN;
                let since = *self.silent_since.get_or_insert(began);
                if since.elapsed() < SILENCE_MAX {
                    return Ok(());
                }
                Err(self.link.unavailable(&format!("read {}", reading.topics.join(", ")), &error))
            }
        }
    }

    /// A stall is a consumer that stood still between two looks with records in
    /// front of it at the first: those had all the time to come.
    fn compare(&mut self, reading: &Reading, mut look: Look) -> Result<(), BusError> {
        // A member is left without them in silence, and would not hear of the
        // topic that takes its place.
        let began = reading.begun_at.as_ref().map(BTreeMap::len);
        for (topic, now) in look.partitions {
            match began {
                _ if now == 0 => return Err(self.link.because(&format!("topic {topic} is not there any more"))),
                Some(began) if began != now => {
                    let what = format!("topic {topic} had {began} partitions, now it has {now}");
                    return Err(self.link.because(&what));
                }
                _ => {}
            }
        }
        let moved = look
            .standings
            .iter()
            .any(|(partition, now)| self.last.get(partition).is_some_and(|before| before.place != now.place));
        let still_max = if moved { STILL_LOOKS_MAX } else { 1 };
        for ((topic, partition), now) in &mut look.standings {
            if now.place > now.end {
                return Err(self.link.because(&format!(
                    "partition {partition} of {topic} ends at {}, before what was read of it ({}): it was made anew",
                    now.end, now.place
                )));
            }
            let before = self.last.get(&(topic.clone(), *partition));
            let before = before.filter(|before| before.place == now.place && before.end > before.place);
            now.still = before.map_or(0, |before| before.still + 1);
            if now.still >= still_max {
                return Err(self.link.because(&format!(
                    "partition {partition} of {topic} has {} records that did not come for {} s",
                    now.end - now.place,
                    u64::from(now.still) * LOOK_EVERY.as_secs()
                )));
            }
        }
        self.last = look.standings;
        Ok(())
    }
}

fn look(consumer: &StreamConsumer<Context>, reading: &Reading) -> KafkaResult<Look> {
    let mut partitions = Vec::new();
    for topic in &reading.topics {
        let metadata = consumer.fetch_metadata(Some(topic), ANSWER_WAIT)?;
        let found = metadata.topics().first().map_or(0, |topic| topic.partitions().len());
        partitions.push((topic.clone(), found));
    }
    let begun_at = match &reading.begun_at {
        Some(begun_at) => begun_at.iter().map(|(partition, offset)| (partition.clone(), Some(*offset))).collect(),
        None => committed(consumer, &reading.topics)?,
    };
    let (mut standings, mut silent) = (BTreeMap::new(), None);
    for (partition, read_to) in offsets(&consumer.position()?) {
        match consumer.fetch_watermarks(&partition.0, partition.1, ANSWER_WAIT) {
            Ok((low, end)) => {
                let begun = begun_at.get(&partition).copied().flatten();
                let place = match (read_to, begun) {
                    (Some(read_to), _) => read_to,
                    (None, Some(begun)) if reading.begun_at.is_some() => begun,
                    // The library goes on from the lowest where nothing was
                    // committed, or what was is not there any more.
                    (None, committed) => committed.unwrap_or(low).clamp(low, end),
                };
                standings.insert(partition, Standing { place, end, still: 0 });
            }
            // It may have no leader: the others are read all the same.
            Err(error) => silent = Some(error),
        }
    }
    match silent {
        Some(error) if standings.is_empty() => Err(error),
        _ => Ok(Look { standings, partitions }),
    }
}

/// Where the group is. Asked even of a member without partitions: only the
/// group's own broker answers, and who does not reach it gets none.
fn committed(consumer: &StreamConsumer<Context>, topics: &[String]) -> KafkaResult<BTreeMap<Partition, Option<i64>>> {
    let mut asked = consumer.assignment()?;
    if let Some(topic) = topics.first().filter(|_| asked.count() == 0) {
        asked.add_partition(topic, 0);
    }
    Ok(offsets(&consumer.committed_offsets(asked, ANSWER_WAIT)?))
}

fn offsets(list: &TopicPartitionList) -> BTreeMap<Partition, Option<i64>> {
    list.elements()
        .iter()
        .map(|one| {
            let offset = if let Offset::Offset(offset) = one.offset() { Some(offset) } else { None };
            ((one.topic().to_owned(), one.partition()), offset)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rdkafka::error::{KafkaError, RDKafkaErrorCode};

    use super::*;

    fn look(standings: &[(i32, i64, i64)], partitions: usize) -> Look {
        let standings = standings
            .iter()
            .map(|&(partition, place, end)| {
                (("muster.global".to_owned(), partition), Standing { place, end, still: 0 })
            })
            .collect();
        Look { standings, partitions: vec![("muster.global".to_owned(), partitions)] }
    }

    fn reading() -> Reading {
        let begun_at = (0..2).map(|partition| (("muster.global".to_owned(), partition), 0)).collect();
        Reading { topics: vec!["muster.global".to_owned()], begun_at: Some(begun_at) }
    }

    fn watch() -> Watch {
        Watch::new(&Arc::new(Link::new("127.0.0.1:9")), Some(reading()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_gets_no_answer_for_long_is_given_up() {
        let silence = || Err(KafkaError::MetadataFetch(RDKafkaErrorCode::OperationTimedOut));
        let mut watch = watch();
        watch.judge(&reading(), Instant::now(), silence()).unwrap();
        tokio::time::advance(SILENCE_MAX / 2).await;
        watch.judge(&reading(), Instant::now(), silence()).unwrap();
        watch.judge(&reading(), Instant::now(), Ok(look(&[], 2))).unwrap();
        tokio::time::advance(SILENCE_MAX).await;
        watch.judge(&reading(), Instant::now(), silence()).unwrap();
        tokio::time::advance(SILENCE_MAX).await;
        let error = watch.judge(&reading(), Instant::now(), silence()).unwrap_err().to_string();
        assert!(error.contains("Kafka at 127.0.0.1:9: read muster.global: OperationTimedOut"), "{error}");
    }

    #[tokio::test]
    async fn a_consumer_that_stands_still_before_records_is_a_stall() {
        let mut watch = watch();
        watch.compare(&reading(), look(&[(0, 5, 5), (1, 3, 9)], 2)).unwrap();
        watch.compare(&reading(), look(&[(0, 5, 7), (1, 4, 9)], 2)).unwrap();
        watch.compare(&reading(), look(&[(0, 7, 7), (1, 9, 9)], 2)).unwrap();
        watch.compare(&reading(), look(&[(0, 7, 8), (1, 9, 9)], 2)).unwrap();
        let error = watch.compare(&reading(), look(&[(0, 7, 9), (1, 9, 9)], 2)).unwrap_err().to_string();
        assert!(error.contains("partition 0 of muster.global has 2 records that did not come for 10 s"), "{error}");
    }

    #[tokio::test]
    async fn one_partition_may_wait_for_others_but_not_for_ever() {
        let mut watch = watch();
        for read in 0..=5 {
            watch.compare(&reading(), look(&[(0, 0, 8), (1, read, 99)], 2)).unwrap();
        }
        let error = watch.compare(&reading(), look(&[(0, 0, 8), (1, 6, 99)], 2)).unwrap_err().to_string();
        assert!(error.contains("partition 0 of muster.global has 8 records that did not come for 60 s"), "{error}");
    }

    #[tokio::test]
    async fn a_topic_that_is_not_the_one_it_was_is_noticed() {
        let error = watch().compare(&reading(), look(&[(0, 5, 2), (1, 0, 0)], 2)).unwrap_err().to_string();
        assert!(error.contains("partition 0 of muster.global ends at 2"), "{error}");
        let error = watch().compare(&reading(), look(&[(0, 5, 5)], 3)).unwrap_err().to_string();
        assert!(error.contains("had 2 partitions, now it has 3"), "{error}");
        let member = Reading { begun_at: None, ..reading() };
        let error = watch().compare(&member, look(&[], 0)).unwrap_err().to_string();
        assert!(error.contains("topic muster.global is not there any more"), "{error}");
    }
}
