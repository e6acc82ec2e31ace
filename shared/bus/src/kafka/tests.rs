//! The suite on real brokers, and what only this adapter does.

use std::time::Duration;

use futures::future;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::*;
use crate::conformance::{Subject, closed, in_time, region, report};
use crate::topic::PARTITIONS;

/// Topics of a random prefix on the brokers the tests are given.
struct OnBrokers {
    options: KafkaOptions,
}

impl OnBrokers {
    fn new() -> Self {
        let bootstrap = std::env::var("MUSTER_TEST_KAFKA")
            .expect("MUSTER_TEST_KAFKA names no broker: set it to host:port, or run `make test`, which starts one");
        let prefix = format!("muster-test-{:016x}", rand::random::<u64>());
        Self { options: KafkaOptions { bootstrap, prefix, ..KafkaOptions::default() } }
    }

    fn kafka(&self) -> Kafka {
        Kafka::new(self.options.clone()).unwrap()
    }

    fn plain_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.options.bootstrap);
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.plain_config().create().unwrap()
    }

    fn topics(&self) -> Topics {
        Topics::new(&self.options.prefix)
    }

    async fn put(&self, topic: &str, bytes: &[u8]) {
        let producer: FutureProducer = self.plain_config().create().unwrap();
        let record = FutureRecord::to(topic).key("anybody").payload(bytes);
        producer.send(record, Duration::from_secs(20)).await.unwrap();
    }

    async fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
        for (key, value) in settings {
            new = new.set(key, value);
        }
        let limits = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
        self.admin().create_topics([&new], &limits).await.unwrap()[0].as_ref().unwrap();
    }

    async fn delete(&self, topics: &[&str]) {
        let limits = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
        self.admin().delete_topics(topics, &limits).await.unwrap();
    }

    /// What the group has committed of a topic, over its partitions.
    fn committed(&self, topic: &str) -> i64 {
        let group = format!("{}.coordinator", self.options.prefix);
        let consumer: BaseConsumer = self.plain_config().set("group.id", group).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, 7);
        let committed = consumer.committed_offsets(list, Duration::from_secs(20)).unwrap();
        let offsets = committed.elements();
        offsets
            .iter()
            .filter_map(|one| if let Offset::Offset(offset) = one.offset() { Some(offset) } else { None })
            .sum()
    }
}

#[async_trait]
impl Subject for OnBrokers {
    async fn bus(&self) -> Arc<dyn Bus> {
        Arc::new(self.kafka())
    }

    async fn put_up(&self, region: &RegionName, bytes: &[u8]) {
        self.put(&self.topics().region(region), bytes).await;
    }

    async fn put_down(&self, bytes: &[u8]) {
        self.put(&self.topics().global(), bytes).await;
    }

    async fn clear(&self) {
        let topics = self.topics();
        let mut names = vec![topics.global()];
        names.extend(["us-east", "eu-west", "ap-south"].map(|name| topics.region(&region(name))));
        self.delete(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
}

mod suite {
    crate::conformance_suite!(super::OnBrokers::new());
}

fn misconfigured(result: Result<(), BusError>) -> String {
    match result {
        Err(error @ BusError::Misconfigured { .. }) => error.to_string(),
        other => panic!("expected a refusal, not {other:?}"),
    }
}

#[tokio::test]
async fn topics_that_are_not_what_the_design_needs_are_refused() {
    let days = ("retention.ms", "604800000");
    for (partitions, settings, expected) in [
        (3, vec![], "has 3 partitions, and every topic of Muster must have 8; delete it"),
        (8, vec![("cleanup.policy", "compact"), days], "has cleanup.policy=compact"),
        (8, vec![("cleanup.policy", "compact,delete"), days], "--add-config cleanup.policy=delete"),
        (8, vec![("retention.ms", "-1")], "retention.ms=-1 and would grow for ever"),
    ] {
        let subject = OnBrokers::new();
        let topic = subject.topics().region(&region("eu-west"));
        subject.create(&topic, partitions, &settings).await;
        let refusal = misconfigured(subject.kafka().prepare(&[region("us-east"), region("eu-west")]).await);
        assert!(refusal.contains(&topic) && refusal.contains(expected), "{refusal}");
        subject.clear().await;
    }
}

#[tokio::test]
async fn topics_made_by_hand_as_needed_are_taken() {
    let subject = OnBrokers::new();
    subject.create(&subject.topics().global(), 8, &[("retention.ms", "3600000")]).await;
    subject.kafka().prepare(&[region("us-east")]).await.unwrap();
    subject.clear().await;
}

#[tokio::test]
async fn nothing_creates_a_topic_but_preparing() {
    let subject = OnBrokers::new();
    let kafka = subject.kafka();
    kafka.check().await.unwrap();
    let follow = kafka.follow_down().await.map(drop).unwrap_err().to_string();
    assert!(follow.contains(&subject.topics().global()) && follow.contains("does not exist"), "{follow}");
    let join = kafka.join_up(&[region("us-east")]).await.map(drop).unwrap_err().to_string();
    assert!(join.contains("does not exist; prepare creates it"), "{join}");
    assert!(kafka.find(&subject.topics().global()).await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_sent_while_nobody_reads_is_kept_and_what_is_committed_is_not_repeated() {
    let subject = OnBrokers::new();
    let (kafka, us) = (subject.kafka(), region("us-east"));
    kafka.prepare(std::slice::from_ref(&us)).await.unwrap();
    // One barrier, so one partition: the order is known.
    for n in 1..=2 {
        kafka.send_up(&report("us-east", "etl/map", n), Headers::new()).await.unwrap();
    }
    let mut member = kafka.join_up(std::slice::from_ref(&us)).await.unwrap();
    let first = in_time("the first report", member.next_batch(1)).await.unwrap();
    assert_eq!(first[0].content, Ok(report("us-east", "etl/map", 1)));
    assert_eq!(first.len(), 1);
    member.commit();
    let second = in_time("the second report", member.next_batch(1)).await.unwrap();
    assert_eq!(second[0].content, Ok(report("us-east", "etl/map", 2)));
    // Leaving without a commit of the second: leaving sends that of the first.
    drop(member);
    let topic = subject.topics().region(&us);
    in_time("the commit", async {
        while subject.committed(&topic) != 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let mut member = kafka.join_up(&[us]).await.unwrap();
    let again = in_time("the second report again", member.next_batch(16)).await.unwrap();
    assert_eq!(again[0].content, Ok(report("us-east", "etl/map", 2)));
    subject.clear().await;
}

#[tokio::test]
async fn a_member_that_stays_commits_one_batch_after_another() {
    let subject = OnBrokers::new();
    let (kafka, us) = (subject.kafka(), region("us-east"));
    kafka.prepare(std::slice::from_ref(&us)).await.unwrap();
    let mut member = kafka.join_up(std::slice::from_ref(&us)).await.unwrap();
    let topic = subject.topics().region(&us);
    for n in 1..=20 {
        let barrier = format!("etl/{n}");
        kafka.send_up(&report("us-east", &barrier, n), Headers::new()).await.unwrap();
        let batch = in_time("a report", member.next_batch(1)).await.unwrap();
        assert_eq!(batch.len(), 1);
        member.commit();
    }
    // Nothing more comes: the library commits by itself.
    in_time("all commits", async {
        while subject.committed(&topic) != 20 {
            let waited = tokio::time::timeout(Duration::from_millis(50), member.next_batch(1)).await;
            assert!(waited.is_err(), "nothing was sent");
        }
    })
    .await;
    subject.clear().await;
}

#[tokio::test]
async fn a_follower_of_a_topic_that_is_made_anew_is_told_to_follow_anew() {
    let subject = OnBrokers::new();
    let (kafka, global) = (subject.kafka(), subject.topics().global());
    kafka.prepare(&[]).await.unwrap();
    for n in 1..=5 {
        kafka.send_down(vec![(closed("etl/map", n), Headers::new())]).await.unwrap();
    }
    let mut follower = kafka.follow_down().await.unwrap();
    subject.delete(&[&global]).await;
    in_time("the topic made anew", async {
        while kafka.find(&global).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        kafka.prepare(&[]).await.unwrap();
    })
    .await;
    let error = in_time("the error", follower.next()).await.unwrap_err();
    assert!(matches!(error, BusError::Unavailable { .. }), "{error}");
    let mut follower = kafka.follow_down().await.unwrap();
    kafka.send_down(vec![(closed("etl/map", 6), Headers::new())]).await.unwrap();
    assert_eq!(in_time("the fact", follower.next()).await.unwrap().content, Ok(closed("etl/map", 6)));
    subject.delete(&[&global]).await;
}

#[tokio::test]
async fn every_member_of_a_topic_that_is_gone_is_told_to_join_anew() {
    let subject = OnBrokers::new();
    let (kafka, us) = (subject.kafka(), [region("us-east")]);
    kafka.prepare(&us).await.unwrap();
    let topic = subject.topics().region(&us[0]);
    // One more than there are partitions: it reads nothing, and no read of its fails.
    let mut members = Vec::new();
    for _ in 0..=PARTITIONS {
        members.push(kafka.join_up(&us).await.unwrap());
    }
    let told = members.into_iter().map(|mut member| async move {
        loop {
            match member.next_batch(1).await {
                Ok(_) => member.commit(),
                Err(error) => return error,
            }
        }
    });
    let deleted = async {
        kafka.send_up(&report("us-east", "etl/map", 1), Headers::new()).await.unwrap();
        while subject.committed(&topic) == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        subject.delete(&[&topic]).await;
    };
    let (told, ()) = in_time("all are told", future::join(future::join_all(told), deleted)).await;
    assert!(told.iter().all(|error| matches!(error, BusError::Unavailable { .. })), "{told:?}");
    subject.delete(&[&subject.topics().global()]).await;
}

#[tokio::test]
async fn an_address_where_nobody_is_is_named_in_bounded_time() {
    // Port 9 discards, where anything listens at all.
    let options = KafkaOptions { bootstrap: "127.0.0.1:9".to_owned(), ..KafkaOptions::default() };
    let kafka = Kafka::new(options).unwrap();
    let (regions, message) = ([region("us-east")], report("us-east", "etl/map", 1));
    let (check, prepare, sent, follow, join) = in_time("five refusals", async {
        tokio::join!(
            kafka.check(),
            kafka.prepare(&regions),
            kafka.send_up(&message, Headers::new()),
            async { kafka.follow_down().await.map(drop) },
            async { kafka.join_up(&regions).await.map(drop) },
        )
    })
    .await;
    for result in [check, prepare, sent, follow, join] {
        let error = result.unwrap_err();
        assert!(matches!(error, BusError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("the bus does not answer: Kafka at 127.0.0.1:9: "), "{error}");
    }
}

#[tokio::test]
async fn options_the_client_refuses_are_told_without_their_values() {
    for (key, value) in [("sasl.pasword", "hunter2"), ("security.protocol", "hunter2")] {
        let mut options = KafkaOptions::default();
        options.properties.insert(key.to_owned(), value.to_owned());
        let refusal = misconfigured(Kafka::new(options).map(drop));
        assert!(refusal.contains(key) && !refusal.contains("hunter2"), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_got_no_answer_for_long_is_made_anew() {
    let kafka = Kafka::new(KafkaOptions::default()).unwrap();
    let before = kafka.producer();
    let silence = KafkaError::MetadataFetch(RDKafkaErrorCode::OperationTimedOut);
    kafka.sender.replace_if_spent(&before, &silence);
    assert!(Arc::ptr_eq(&before, &kafka.producer()), "replaced after no time");
    tokio::time::advance(client::SILENCE_MAX).await;
    let answer = KafkaError::MetadataFetch(RDKafkaErrorCode::TopicAuthorizationFailed);
    kafka.sender.replace_if_spent(&before, &answer);
    assert!(Arc::ptr_eq(&before, &kafka.producer()), "replaced though it was answered");
    kafka.sender.replace_if_spent(&before, &silence);
    assert!(!Arc::ptr_eq(&before, &kafka.producer()), "the silent producer is still in place");
}

/// Needs no broker: the library brings one that fails as it is told.
#[tokio::test]
async fn a_producer_that_broke_for_good_is_made_anew() {
    let brokers = MockCluster::new(1).unwrap();
    brokers.create_topic("muster.global", 8, 1).unwrap();
    let options = KafkaOptions { bootstrap: brokers.bootstrap_servers(), ..KafkaOptions::default() };
    let kafka = Kafka::new(options).unwrap();
    let fact = || vec![(closed("etl/map", 1), Headers::new())];
    in_time("the first fact", kafka.send_down(fact())).await.unwrap();
    let before = kafka.producer();
    brokers.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER]);
    let error = in_time("the failure", kafka.send_down(fact())).await.unwrap_err();
    assert!(error.to_string().contains(&format!("{:?}", RDKafkaErrorCode::OutOfOrderSequenceNumber)), "{error}");
    assert!(!Arc::ptr_eq(&before, &kafka.producer()), "the broken producer is still in place");
    in_time("the fact on the new producer", kafka.send_down(fact())).await.unwrap();
}
