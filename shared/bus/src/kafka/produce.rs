//! Sending: one idempotent producer, made anew when it breaks for good.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::future;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::metadata::Metadata;
use rdkafka::producer::future_producer::DeliveryFuture;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use tokio::time::Instant;

use super::KafkaOptions;
use super::client::{self, ClosedElsewhere, Context, Link, SILENCE_MAX, is_silence};
use super::prepare::misconfigured;
use crate::record::Parcel;
use crate::{BusError, Headers};

/// How long a record waits for room in the producer's queue.
const ROOM_WAIT: Duration = Duration::from_secs(5);

/// One producer of the library, until it breaks or falls silent.
pub(super) struct Producer {
    inner: ClosedElsewhere<FutureProducer<Context>>,
    answered: Mutex<Instant>,
}

impl Producer {
    fn new(options: &KafkaOptions, link: &Arc<Link>) -> Result<Self, BusError> {
        let producer = client::producer(options).create_with_context(Context::new(link));
        let inner = ClosedElsewhere::new(producer.map_err(|error| misconfigured(&error))?);
        Ok(Self { inner, answered: Mutex::new(Instant::now()) })
    }

    fn answered(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether it should be replaced, given an error it just gave.
    fn is_spent(&self, error: &KafkaError) -> bool {
        let answered = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.client().fatal_error().is_some()
            || error.rdkafka_error_code().is_some_and(is_silence) && answered.elapsed() >= SILENCE_MAX
    }

    /// Asks for one topic. Its thread serves it, so it does for questions too.
    pub(super) fn fetch_metadata(&self, topic: &str, wait: Duration) -> KafkaResult<Metadata> {
        self.inner.client().fetch_metadata(Some(topic), wait).inspect(|_| self.answered())
    }

    /// Asks where one partition begins and ends.
    pub(super) fn fetch_watermarks(&self, topic: &str, partition: i32, wait: Duration) -> KafkaResult<(i64, i64)> {
        self.inner.client().fetch_watermarks(topic, partition, wait)
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
                producer.answered();
                self.link.answered();
                Ok(())
            }
            Some(error) => Err(self.failure(topic, &producer, &error)),
        }
    }

    fn failure(&self, topic: &str, producer: &Arc<Producer>, error: &KafkaError) -> BusError {
        self.replace_if_spent(producer, error);
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

    /// A fatal error is for ever (the brokers lost the producer's sequence), and
    /// so may be silence: whoever meets it first puts a new producer in its
    /// place. What was in flight is unknown to its senders, who repeat it.
    pub(super) fn replace_if_spent(&self, spent: &Arc<Producer>, error: &KafkaError) {
        if !spent.is_spent(error) {
            return;
        }
        let mut place = self.producer.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&place, spent) {
            return;
        }
        match Producer::new(&self.options, &self.link) {
            Ok(fresh) => {
                match spent.inner.client().fatal_error() {
                    Some((_, reason)) => tracing::warn!(reason, "the producer broke and was made anew"),
                    None => tracing::debug!(%error, "the producer got no answer and was made anew"),
                }
                *place = Arc::new(fresh);
            }
            Err(error) => tracing::error!(%error, "the producer is spent and can't be made anew"),
        }
    }
}

fn owned_headers(headers: &Headers) -> OwnedHeaders {
    headers
        .iter()
        .fold(OwnedHeaders::new(), |all, (key, value)| all.insert(Header { key, value: Some(value.as_str()) }))
}
