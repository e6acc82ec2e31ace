//! Topics: created where they are missing, refused where they are not what
//! the design needs.

use std::sync::Arc;
use std::time::Duration;

use muster_wire::time::format_duration;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use tokio::time::Instant;

use super::Kafka;
use super::client::{self, ANSWER_WAIT, ClosedElsewhere, Context, blocking};
use crate::BusError;
use crate::topic::PARTITIONS;

/// How long created topics may take to get leaders.
const LEADERS_WAIT: Duration = Duration::from_secs(20);

/// What the brokers say of one topic.
pub(super) struct Found {
    pub(super) partitions: usize,
    with_leader: usize,
    replicas: usize,
}

impl Found {
    fn of(topic: &MetadataTopic) -> Self {
        let partitions = topic.partitions();
        Self {
            partitions: partitions.len(),
            with_leader: partitions.iter().filter(|one| one.leader() >= 0).count(),
            replicas: partitions.iter().map(|one| one.replicas().len()).min().unwrap_or(0),
        }
    }
}

impl Kafka {
    /// Creates the topics that are missing, and checks all of them.
    pub(super) async fn prepare_topics(&self, topics: Vec<String>) -> Result<(), BusError> {
        let missing = self.missing(&topics).await?;
        let admin: AdminClient<Context> = client::admin(self.options())
            .create_with_context(Context::new(self.link()))
            .map_err(|error| misconfigured(&error))?;
        let admin = ClosedElsewhere::new(admin);
        if !missing.is_empty() {
            self.create(&admin, &missing).await?;
        }
        let mut replicas = Vec::new();
        for topic in &topics {
            let found = self.with_leaders(topic).await?;
            check_partitions(topic, found.partitions)?;
            replicas.push(found.replicas);
        }
        let settings = self.settings(&admin, &topics).await?;
        for ((topic, settings), replicas) in topics.iter().zip(settings).zip(replicas) {
            check_settings(topic, &settings)?;
            warn_of_loss(topic, replicas, &settings);
        }
        Ok(())
    }

    /// What the brokers say of a topic; `None` when there is none.
    pub(super) async fn find(&self, topic: &str) -> Result<Option<Found>, BusError> {
        let producer = self.producer();
        let (asked, name) = (Arc::clone(&producer), topic.to_owned());
        let metadata = blocking(move || asked.fetch_metadata(&name, ANSWER_WAIT)).await?;
        let metadata = metadata.map_err(|error| {
            self.sender.replace_if_spent(&producer, &error);
            self.link().unavailable(&format!("asked for topic {topic}"), &error)
        })?;
        self.link().answered();
        let Some(found) = metadata.topics().first() else { return Ok(None) };
        match found.error().map(RDKafkaErrorCode::from) {
            None | Some(RDKafkaErrorCode::LeaderNotAvailable) => Ok(Some(Found::of(found))),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
            Some(code) => Err(self.refused(&format!("describe topic {topic}"), code)),
        }
    }

    async fn missing(&self, topics: &[String]) -> Result<Vec<String>, BusError> {
        let mut missing = Vec::new();
        for topic in topics {
            if self.find(topic).await?.is_none() {
                missing.push(topic.clone());
            }
        }
        Ok(missing)
    }

    async fn create(&self, admin: &AdminClient<Context>, missing: &[String]) -> Result<(), BusError> {
        let retention_ms = self.options().retention.as_millis().to_string();
        // -1: as many as the broker makes by default.
        let replicas = self.options().replication.unwrap_or(-1);
        let new: Vec<NewTopic<'_>> = missing
            .iter()
            .map(|topic| {
                NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(replicas))
                    .set("cleanup.policy", "delete")
                    .set("retention.ms", &retention_ms)
            })
            .collect();
        let limits = AdminOptions::new().request_timeout(Some(LEADERS_WAIT)).operation_timeout(Some(LEADERS_WAIT));
        let created = admin.create_topics(&new, &limits).await;
        for result in created.map_err(|error| self.link().unavailable("create topics", &error))? {
            match result {
                Ok(topic) => tracing::info!(topic, "created the topic"),
                // Another process was faster: it is checked like any other.
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, code)) => return Err(self.refused(&format!("create topic {topic}"), code)),
            }
        }
        Ok(())
    }

    /// Waits until a topic that is new has what it needs to be used.
    async fn with_leaders(&self, topic: &str) -> Result<Found, BusError> {
        let deadline = Instant::now() + LEADERS_WAIT;
        loop {
            let found = self.find(topic).await?;
            if let Some(found) = found.filter(|found| found.partitions > 0 && found.with_leader == found.partitions) {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                let what = format!("topic {topic} has partitions without a leader; are enough brokers running?");
                return Err(self.link().because(&what));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn settings(&self, admin: &AdminClient<Context>, topics: &[String]) -> Result<Vec<ConfigResource>, BusError> {
        let asked: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
        let limits = AdminOptions::new().request_timeout(Some(ANSWER_WAIT));
        let answered = admin.describe_configs(&asked, &limits).await;
        answered
            .map_err(|error| self.link().unavailable("describe the topics' settings", &error))?
            .into_iter()
            .map(|result| result.map_err(|code| self.refused("describe the topics' settings", code)))
            .collect()
    }

    /// A broker answered, but not with a yes.
    fn refused(&self, tried: &str, code: RDKafkaErrorCode) -> BusError {
        use RDKafkaErrorCode as Code;
        match code {
            Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed | Code::GroupAuthorizationFailed => {
                BusError::Misconfigured {
                    what: format!("the brokers don't let us {tried} ({code}); grant it to this service's principal"),
                }
            }
            Code::InvalidReplicationFactor | Code::PolicyViolation | Code::InvalidConfig | Code::InvalidPartitions => {
                BusError::Misconfigured {
                    what: format!(
                        "the brokers refuse to {tried} ({code}); set replication to at most the number of brokers, or \
                         create the topic by hand with {PARTITIONS} partitions, cleanup.policy=delete and a finite \
                         retention.ms"
                    ),
                }
            }
            code => self.link().because(&format!("tried to {tried}: {code}")),
        }
    }
}

/// A client that can't even be made: its options are wrong. The refused value
/// may be a secret under a misspelt name, so it is not repeated.
pub(super) fn misconfigured(error: &KafkaError) -> BusError {
    let reason = match error {
        KafkaError::ClientConfig(_, reason, key, value) if value.is_empty() => format!("{key}: {reason}"),
        KafkaError::ClientConfig(_, reason, key, value) => format!("{key}: {}", reason.replace(value.as_str(), "***")),
        error => error.to_string(),
    };
    BusError::Misconfigured { what: format!("the Kafka client refuses its properties ({reason})") }
}

/// Topics with different numbers of partitions would scatter a barrier.
pub(super) fn check_partitions(topic: &str, found: usize) -> Result<(), BusError> {
    if u32::try_from(found).is_ok_and(|found| found == PARTITIONS.unsigned_abs()) {
        return Ok(());
    }
    Err(BusError::Misconfigured {
        what: format!(
            "topic {topic} has {found} partitions, and every topic of Muster must have {PARTITIONS}; delete it while \
             the services are stopped, and it is created anew (Kafka holds nothing that is not elsewhere)"
        ),
    })
}

fn check_settings(topic: &str, settings: &ConfigResource) -> Result<(), BusError> {
    let value = |name: &str| settings.get(name).and_then(|entry| entry.value.as_deref()).unwrap_or_default();
    let alter = |setting: &str| {
        format!(
            "set it with: kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {setting}"
        )
    };
    let policy = value("cleanup.policy");
    if policy != "delete" {
        let what = format!(
            "topic {topic} has cleanup.policy={policy}, and compaction would remove states that are not superseded; {}",
            alter("cleanup.policy=delete")
        );
        return Err(BusError::Misconfigured { what });
    }
    let retention = value("retention.ms");
    if retention.parse::<i64>().is_ok_and(|ms| ms > 0) {
        return Ok(());
    }
    let day = Duration::from_secs(86_400);
    let what = format!(
        "topic {topic} has retention.ms={retention} and would grow for ever; {}, which is {}",
        alter(&format!("retention.ms={}", day.as_millis())),
        format_duration(day)
    );
    Err(BusError::Misconfigured { what })
}

/// Loss of the topics costs time only, so this is no reason to refuse.
fn warn_of_loss(topic: &str, replicas: usize, settings: &ConfigResource) {
    let in_sync = settings.get("min.insync.replicas").and_then(|entry| entry.value.as_deref()).unwrap_or("1");
    if replicas >= 3 && in_sync.parse::<u32>().is_ok_and(|count| count < 2) {
        tracing::warn!(
            topic,
            replicas,
            "min.insync.replicas is 1: a broker that fails may lose records, which are then repeated late; set it to 2"
        );
    }
}
