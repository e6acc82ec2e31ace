//! Sending: one idempotent producer, made anew when it breaks for good.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::metadata::Metadata;
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use tokio::time::Instant;

use super::KafkaOptions;
use super::client::{self, ClosedElsewhere, Context, Link};
use super::prepare::misconfigured;
use crate::record::Parcel;
use crate::{BusError, Headers};

/// How long a record waits for room in the producer's queue.
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// One producer of the library, until it breaks.
pub(super) struct Producer {
    inner: ClosedElsewhere<FutureProducer<Context>>,
}

impl Producer {
    fn new(options: &KafkaOptions, link: &Arc<Link>) -> Result<Self, BusError> {
        let producer = client::producer(options).create_with_context(Context::new(link));
        Ok(Self { inner: ClosedElsewhere::new(producer.map_err(|error| misconfigured(&error))?) })
    }

    /// Asks for one topic. Its thread serves it, so it does for questions too.
    pub(super) fn fetch_metadata(&self, topic: &str, wait: Duration) -> KafkaResult<Metadata> {
        self.inner.client().fetch_metadata(Some(topic), wait)
    }

    /// Asks where one partition begins and ends.
    pub(super) fn fetch_watermarks(&self, topic: &str, partition: i32, wait: Duration) -> KafkaResult<(i64, i64)> {
        self.inner.client().fetch_watermarks(topic, partition, wait)
    }

    /// Why it will never send again, when it won't.
    fn broken(&self) -> Option<String> {
        self.inner.client().fatal_error().map(|(_, reason)| reason)
    }

    async fn enqueue(&self, topic: &str, parcel: &Parcel) -> KafkaResult<DeliveryFuture> {
        let deadline = Instant::now() + ROOM_WAIT;
        let mut record =
            FutureRecord::to(topic).key(&parcel.key).payload(&parcel.bytes).headers(owned_headers(&parcel.headers));
        loop {
            match self.inner.send_result(record) {
                Ok(delivery) => return Ok(delivery),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back))
                    if Instant::now() < deadline =>
                {
                    record = back;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err((error, _)) => return Err(error),
            }
        }
    }
}

/// The producer there is now.
pub(super) struct Sender {
    options: KafkaOptions,
    link: Arc<Link>,
    producer: RwLock<Arc<Producer>>,
}

impl Sender {
    pub(super) fn new(options: &KafkaOptions, link: &Arc<Link>) -> Result<Self, BusError> {
        let producer = RwLock::new(Arc::new(Producer::new(options, link)?));
        Ok(Self { options: options.clone(), link: Arc::clone(link), producer })
    }

    pub(super) fn producer(&self) -> Arc<Producer> {
        Arc::clone(&self.producer.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends records in order; done when the brokers have all of them.
    pub(super) async fn send(&self, topic: &str, parcels: &[Parcel]) -> Result<(), BusError> {
        let producer = self.producer();
        let mut failed = None;
        let mut deliveries = Vec::with_capacity(parcels.len());
        for parcel in parcels {
            match producer.enqueue(topic, parcel).await {
                Ok(delivery) => deliveries.push(delivery),
                // Those after it would overtake it.
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        for (delivery, parcel) in future::join_all(deliveries).await.into_iter().zip(parcels) {
            match delivery {
                Ok(Ok(_)) => parcel.count_sent(),
                Ok(Err((error, _))) => failed = failed.or(Some(error)),
                Err(_) => failed = failed.or(Some(KafkaError::Canceled)),
            }
        }
        match failed {
            None => {
                self.link.answered();
                Ok(())
            }
            Some(error) => Err(self.failure(topic, &producer, &error)),
        }
    }

    fn failure(&self, topic: &str, producer: &Arc<Producer>, error: &KafkaError) -> BusError {
        if let Some(reason) = producer.broken() {
            self.replace(producer, &reason);
        }
        match error {
            KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge) => BusError::Misconfigured {
                what: format!("a record is larger than topic {topic} takes; raise max.message.bytes of the topic"),
            },
            KafkaError::MessageProduction(
                code @ (RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed),
            ) => BusError::Misconfigured {
                what: format!(
                    "the brokers don't let us write to {topic} ({code}); grant it to this service's principal"
                ),
            },
            error => self.link.unavailable(&format!("send to {topic}"), error),
        }
    }

    /// A fatal error is for ever (the broker lost the producer's sequence):
    /// whoever meets it first puts a new one in its place. What was in flight
    /// is unknown to its senders, who repeat it.
    fn replace(&self, broken: &Arc<Producer>, reason: &str) {
        let mut place = self.producer.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&place, broken) {
            return;
        }
        match Producer::new(&self.options, &self.link) {
            Ok(fresh) => {
                tracing::warn!(reason, "the producer broke and was made anew");
                *place = Arc::new(fresh);
            }
            Err(error) => tracing::error!(%error, reason, "the producer broke and can't be made anew yet"),
        }
    }
}

fn owned_headers(headers: &Headers) -> OwnedHeaders {
    headers
        .iter()
        .fold(OwnedHeaders::new(), |all, (key, value)| all.insert(Header { key, value: Some(value.as_str()) }))
}
