//! A consumer can fall silent without an error: it lost its place in the
//! group, missed a wake-up, or its topic was made anew under it. So its place
//! is compared with the topic's ends from time to time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::{ANSWER_WAIT, ClosedElsewhere, Context, Link};
use crate::BusError;

/// How often the places are compared.
const LOOK_EVERY: Duration = Duration::from_secs(10);

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
    /// How many partitions the followed topic has; `None` is not of interest.
    partitions: Option<usize>,
}

/// Watches one consumer.
pub(super) struct Watch {
    link: Arc<Link>,
    /// Where a follower began; a member begins where its group was.
    begun_at: BTreeMap<Partition, i64>,
    followed: Option<String>,
    next_look: Instant,
    looking: Option<JoinHandle<KafkaResult<Look>>>,
    last: BTreeMap<Partition, Standing>,
}

impl Watch {
    /// Watches a follower of one topic that began at these places.
    pub(super) fn follower(link: &Arc<Link>, topic: &str, begun_at: BTreeMap<Partition, i64>) -> Self {
        Self { begun_at, followed: Some(topic.to_owned()), ..Self::member(link) }
    }

    /// Watches a member of the group.
    pub(super) fn member(link: &Arc<Link>) -> Self {
        Self {
            link: Arc::clone(link),
            begun_at: BTreeMap::new(),
            followed: None,
            next_look: Instant::now() + LOOK_EVERY,
            looking: None,
            last: BTreeMap::new(),
        }
    }

    /// Looks from time to time; ends only with a reason to start anew. It may
    /// be dropped at any time and called again.
    pub(super) async fn stalled(&mut self, consumer: &Consumer) -> BusError {
        loop {
            if let Some(looking) = &mut self.looking {
                let found = looking.await;
                self.looking = None;
                // A look that got no answer says nothing: when the brokers are
                // away there is nothing to read, and the library connects again.
                if let Ok(Ok(look)) = found
                    && let Err(error) = self.compare(look)
                {
                    return error;
                }
            }
            tokio::time::sleep_until(self.next_look).await;
            self.next_look = Instant::now() + LOOK_EVERY;
            let (consumer, begun_at, followed) = (Arc::clone(consumer), self.begun_at.clone(), self.followed.clone());
            self.looking = Some(tokio::task::spawn_blocking(move || look(&consumer, &begun_at, followed.as_deref())));
        }
    }

    /// A stall is a consumer that stood still between two looks with records in
    /// front of it at the first: those had all the time to come.
    fn compare(&mut self, mut look: Look) -> Result<(), BusError> {
        self.link.answered();
        if let Some(partitions) = look.partitions {
            let topic = self.followed.as_deref().unwrap_or_default();
            if partitions != self.begun_at.len() {
                let began = self.begun_at.len();
                return Err(self
                    .link
                    .because(&format!("topic {topic} had {began} partitions, now it has {partitions}")));
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

fn look(
    consumer: &StreamConsumer<Context>,
    begun_at: &BTreeMap<Partition, i64>,
    followed: Option<&str>,
) -> KafkaResult<Look> {
    let partitions = match followed {
        Some(topic) => {
            let metadata = consumer.fetch_metadata(Some(topic), ANSWER_WAIT)?;
            metadata.topics().first().map(|topic| topic.partitions().len())
        }
        None => None,
    };
    let mut standings = BTreeMap::new();
    for (partition, read_to) in places(consumer, begun_at)? {
        let (low, end) = consumer.fetch_watermarks(&partition.0, partition.1, ANSWER_WAIT)?;
        // Nothing was read and nothing was committed: it begins at the lowest.
        standings.insert(partition, Standing { place: read_to.unwrap_or(low), end, still: 0 });
    }
    Ok(Look { standings, partitions })
}

/// Where the consumer stands in each partition that it has.
fn places(
    consumer: &StreamConsumer<Context>,
    begun_at: &BTreeMap<Partition, i64>,
) -> KafkaResult<BTreeMap<Partition, Option<i64>>> {
    let mut places: BTreeMap<Partition, Option<i64>> = offsets(&consumer.position()?);
    let unread = places.values().any(Option::is_none);
    let known = match (unread, begun_at.is_empty()) {
        (true, true) => offsets(&consumer.committed(ANSWER_WAIT)?),
        (true, false) => begun_at.iter().map(|(partition, &offset)| (partition.clone(), Some(offset))).collect(),
        (false, _) => BTreeMap::new(),
    };
    for (partition, place) in &mut places {
        if place.is_none() {
            *place = known.get(partition).copied().flatten();
        }
    }
    Ok(places)
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
    use super::*;

    fn look(standings: &[(i32, i64, i64)], partitions: usize) -> Look {
        let standings = standings
            .iter()
            .map(|&(partition, place, end)| {
                (("muster.global".to_owned(), partition), Standing { place, end, still: 0 })
            })
            .collect();
        Look { standings, partitions: Some(partitions) }
    }

    fn watch() -> Watch {
        let begun_at = (0..2).map(|partition| (("muster.global".to_owned(), partition), 0)).collect();
        Watch::follower(&Arc::new(Link::new("127.0.0.1:9")), "muster.global", begun_at)
    }

    #[tokio::test]
    async fn a_consumer_that_stands_still_before_records_is_a_stall() {
        let mut watch = watch();
        watch.compare(look(&[(0, 5, 5), (1, 3, 9)], 2)).unwrap();
        watch.compare(look(&[(0, 5, 7), (1, 4, 9)], 2)).unwrap();
        watch.compare(look(&[(0, 7, 7), (1, 9, 9)], 2)).unwrap();
        watch.compare(look(&[(0, 7, 8), (1, 9, 9)], 2)).unwrap();
        let error = watch.compare(look(&[(0, 7, 9), (1, 9, 9)], 2)).unwrap_err().to_string();
        assert!(error.contains("partition 0 of muster.global has 2 records that did not come for 10 s"), "{error}");
    }

    #[tokio::test]
    async fn one_partition_may_wait_for_others_but_not_for_ever() {
        let mut watch = watch();
        for read in 0..=5 {
            watch.compare(look(&[(0, 0, 8), (1, read, 99)], 2)).unwrap();
        }
        let error = watch.compare(look(&[(0, 0, 8), (1, 6, 99)], 2)).unwrap_err().to_string();
        assert!(error.contains("partition 0 of muster.global has 8 records that did not come for 60 s"), "{error}");
    }

    #[tokio::test]
    async fn a_topic_that_is_not_the_one_it_was_is_noticed() {
        let error = watch().compare(look(&[(0, 5, 2), (1, 0, 0)], 2)).unwrap_err().to_string();
        assert!(error.contains("partition 0 of muster.global ends at 2"), "{error}");
        let error = watch().compare(look(&[(0, 5, 5)], 3)).unwrap_err().to_string();
        assert!(error.contains("had 2 partitions, now it has 3"), "{error}");
    }
}
