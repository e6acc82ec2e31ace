//! Kafka's clients: what each is set to, how it logs, how it is closed.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::KafkaOptions;
use crate::BusError;

/// How long a question to the brokers may take.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// A client that got no answer for so long is replaced by a new one. The
/// library can lose every broker for good (see `stall`); when it was the
/// brokers that were away, a new client costs little.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// What the clients of one bus know together: the address, and whether it is
/// answering. Trouble is logged when it begins and when it ends, not at each
/// of the many attempts in between.
#[derive(Debug)]
pub(super) struct Link {
    bootstrap: String,
    down: AtomicBool,
    last_words: Mutex<String>,
}

impl Link {
    pub(super) fn new(bootstrap: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned(), down: AtomicBool::new(false), last_words: Mutex::default() }
    }

    /// A broker answered.
    pub(super) fn answered(&self) {
        if self.down.load(Ordering::Relaxed) && self.down.swap(false, Ordering::Relaxed) {
            tracing::info!(bootstrap = %self.bootstrap, "Kafka answers again");
        }
    }

    fn silent(&self, reason: &str) {
        if !self.down.swap(true, Ordering::Relaxed) {
            tracing::warn!(bootstrap = %self.bootstrap, reason, "Kafka does not answer; trying on");
        }
    }

    fn remember(&self, words: &str) {
        words.clone_into(&mut self.last_words.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What was tried in vain, as the caller is told it.
    pub(super) fn unavailable(&self, tried: &str, error: &KafkaError) -> BusError {
        let reason = error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string());
        if !error.rdkafka_error_code().is_some_and(is_silence) {
            return self.because(&format!("{tried}: {reason}"));
        }
        let last_words = self.last_words();
        let reason = if last_words.is_empty() { reason } else { format!("{reason}; {last_words}") };
        self.silent(&reason);
        self.because(&format!("{tried}: {reason}; check that it runs at that address"))
    }

    /// The same for a reason that is no error of the client.
    pub(super) fn because(&self, what: &str) -> BusError {
        BusError::Unavailable { what: format!("Kafka at {}: {what}", self.bootstrap) }
    }

    /// Why the last connection failed; empty before any did.
    fn last_words(&self) -> String {
        self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Codes that say that nobody answered, rather than what the answer was.
pub(super) fn is_silence(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::MessageTimedOut
            | Code::Authentication
            | Code::SSL
    )
}

/// Codes from which a consumer recovers by itself.
pub(super) fn is_passing(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    is_silence(code)
        || matches!(
            code,
            Code::RequestTimedOut
                | Code::NetworkException
                | Code::LeaderNotAvailable
                | Code::NotLeaderForPartition
                | Code::CoordinatorLoadInProgress
                | Code::CoordinatorNotAvailable
                | Code::NotCoordinator
                | Code::RebalanceInProgress
                | Code::WaitingForCoordinator
        )
}

/// What one client of the library reports to.
#[derive(Debug)]
pub(super) struct Context {
    link: Arc<Link>,
}

impl Context {
    pub(super) fn new(link: &Arc<Link>) -> Self {
        Self { link: Arc::clone(link) }
    }
}

impl ClientContext for Context {
    // The library's lines repeat at every attempt; what people must know of
    // them comes as an error too, and is logged once.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
                tracing::error!(target: "librdkafka", facility, "{message}");
            }
            _ if matches!(facility, "MAXPOLL" | "FATAL" | "CONFWARN") => {
                tracing::warn!(target: "librdkafka", facility, "{message}");
            }
            _ => tracing::debug!(target: "librdkafka", facility, "{message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, "{reason}");
        match error.rdkafka_error_code() {
            // It only counts how many are down; the reason came before it.
            Some(RDKafkaErrorCode::AllBrokersDown) => {
                let words = self.link.last_words();
                self.link.silent(if words.is_empty() { reason } else { &words });
            }
            Some(code) if is_silence(code) => self.link.remember(reason),
            _ => {}
        }
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        Err("this build makes no OAuth tokens; use another sasl.mechanism".into())
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => {
                self.link.answered();
                tracing::debug!(count = partitions.count(), "partitions assigned");
            }
            Rebalance::Revoke(partitions) => tracing::debug!(count = partitions.count(), "partitions revoked"),
            Rebalance::Error(error) => tracing::warn!(%error, "the group could not be rebalanced; it tries on"),
        }
    }

    // A commit that got lost costs a repeat, which is what rebalances do anyway.
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        match result {
            Ok(()) => self.link.answered(),
            Err(error) => tracing::debug!(%error, "offsets were not committed; records will be repeated"),
        }
    }
}

/// What every client is set to. Nobody creates a topic by mentioning it: it
/// would have the broker's settings instead of ours.
fn base(options: &KafkaOptions) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("client.id", "muster")
        .set("reconnect.backoff.ms", "100")
        .set("reconnect.backoff.max.ms", "1000")
        .set("socket.connection.setup.timeout.ms", "5000")
        // Of a broker that lost a request while it came up nothing is heard.
        .set("socket.timeout.ms", "10000")
        .set("socket.keepalive.enable", "true");
    for (key, value) in &options.properties {
        config.set(key, value);
    }
    config
        .set("bootstrap.servers", &options.bootstrap)
        .set("socket.nagle.disable", "true")
        .set("log.connection.close", "false")
        .set("allow.auto.create.topics", "false");
    config
}

/// An idempotent producer that waits for nothing and gives up in bounded time.
pub(super) fn producer(options: &KafkaOptions) -> ClientConfig {
    let mut config = base(options);
    config
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", "0")
        .set("message.timeout.ms", "10000")
        .set("queue.buffering.max.messages", "100000")
        .set("queue.buffering.max.kbytes", "65536")
        // Where keys go must be the same for every producer there ever was.
        .set("partitioner", "consistent_random");
    config
}

/// The administrator that creates topics and asks for their settings.
pub(super) fn admin(options: &KafkaOptions) -> ClientConfig {
    base(options)
}

/// A reader of everything from places it names itself. The library needs a
/// group's name even so; nothing joins it and nothing is committed to it.
pub(super) fn follower(options: &KafkaOptions) -> ClientConfig {
    let mut config = consumer(options);
    config.set("group.id", format!("{}.follower", options.prefix)).set("auto.offset.reset", "error");
    config
}

/// A member of the group that reads what comes up. Only the classic protocol
/// with ranges gives a barrier's partition of every topic to the same member.
/// It commits offsets by itself, of what it was told has had its effect: of a
/// commit that is sent by hand and not waited for, nobody hears what became
/// (rust-rdkafka issue 856).
pub(super) fn member(options: &KafkaOptions) -> ClientConfig {
    let mut config = consumer(options);
    config
        .set("group.id", format!("{}.coordinator", options.prefix))
        .set("group.protocol", "classic")
        .set("partition.assignment.strategy", "range")
        // The shortest that brokers take unless they are told otherwise: what a
        // dead member read waits for so long, and twice where two died in turn.
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "2000")
        .set("enable.auto.commit", "true")
        .set("auto.commit.interval.ms", "500")
        .set("auto.offset.reset", "earliest");
    config
}

fn consumer(options: &KafkaOptions) -> ClientConfig {
    let mut config = base(options);
    config
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("fetch.min.bytes", "1")
        .set("fetch.wait.max.ms", "100")
        .set("fetch.error.backoff.ms", "10")
        .set("fetch.queue.backoff.ms", "5")
        .set("queued.max.messages.kbytes", "16384");
    config
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, BusError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| BusError::Unavailable { what: format!("the work was given up ({error})") })
}

/// Dropping a client talks to the brokers, and may take as long as they do:
/// it happens on a thread that may block.
pub(super) struct ClosedElsewhere<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> ClosedElsewhere<T> {
    pub(super) fn new(client: T) -> Self {
        Self(Some(client))
    }
}

impl<T: Send + 'static> Deref for ClosedElsewhere<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // Empty only while it is being dropped.
        self.0.as_ref().expect("the client is there until it is dropped")
    }
}

impl<T: Send + 'static> Drop for ClosedElsewhere<T> {
    fn drop(&mut self) {
        let client = self.0.take();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || drop(client));
        }
    }
}
