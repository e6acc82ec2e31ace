//! Following the log: one long watch. A watch may hang, skip or be cancelled
//! without an error, so whatever is not plainly the next put ends it, and
//! silence is questioned. Ending costs one catch-up; trusting costs the log.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{KeyValue, WatchFilterType, WatchOptions, WatchResponse, WatchStream};
use muster_protocol::mutant;
use tokio::time::{Instant, timeout, timeout_at};

use super::Shared;
use super::append::revision;
use super::endpoints::{Clients, Endpoint};
use super::origin::Origin;
use super::pairing::{Half, Pairing, Put};
use super::requests::Purpose;
use super::verdict::EtcdError;
use crate::log::{Follow, LogError, Position, RawEntry};

const WHAT: &str = "watch the log";

impl Shared {
    pub(super) async fn watch_from(self: &Arc<Self>, position: Position) -> Result<EtcdFollow, LogError> {
        let origin = *self.origin().await?;
        let limit = self.endpoints.timeout();
        let from = revision(position.0) + i64::from(mutant!(FollowsLate));
        // One revision early: a server does not answer for the progress of a
        // watch that begins behind its newest revision, so that one opened on
        // an idle etcd could not be told from one that hangs.
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision((from - 1).max(1))
            .with_fragment()
            .with_filters([WatchFilterType::NoDelete]);
        let open = async |clients: Arc<Clients>| {
            let stream = clients.watch.clone().watch(self.keys.log(), Some(options)).await;
            stream.map_err(Some)
        };
        let at = self.endpoints.current().0;
        let stream = match self.endpoints.send(Purpose::Watch, limit, open).await {
            Ok(stream) => stream,
            Err((at, error)) => return Err(self.watch_failed(at, error)),
        };
        let deadline = Instant::now() + limit;
        let log = Arc::clone(self);
        // The first answer says that the watch stands; it is due like any other.
        Ok(EtcdFollow { log, at, stream, origin, from, pairing: Pairing::default(), asked: true, deadline })
    }
}

impl Shared {
    fn watch_failed(&self, at: usize, error: EtcdError) -> LogError {
        self.endpoints.failed(at);
        LogError::Unavailable { what: WHAT, source: Box::new(error) }
    }
}

/// The log from a revision on.
pub(super) struct EtcdFollow {
    log: Arc<Shared>,
    /// Which member serves the watch.
    at: usize,
    stream: WatchStream,
    origin: Origin,
    /// The first revision that is of interest.
    from: i64,
    pairing: Pairing,
    /// Whether an answer is due at the deadline; else a question is.
    asked: bool,
    deadline: Instant,
}

#[async_trait]
impl Follow for EtcdFollow {
    // Nothing is lost when this future is dropped: the stream keeps what it has
    // received, and all else is in `self`.
    async fn next(&mut self) -> Result<Vec<RawEntry>, LogError> {
        loop {
            let response = match timeout_at(self.deadline, self.stream.message()).await {
                Ok(Ok(Some(response))) => response,
                Ok(Ok(None)) => return Err(self.over(|endpoint, _| endpoint.ended())),
                Ok(Err(source)) => return Err(self.over(|endpoint, _| endpoint.answered(source))),
                Err(_) if self.asked && !mutant!(SilenceTrusted) => {
                    return Err(self.over(|endpoint, answer| endpoint.silent(answer)));
                }
                Err(_) => {
                    self.ask().await?;
                    continue;
                }
            };
            self.asked = false;
            self.deadline = Instant::now() + Duration::from_millis(self.log.options.watch_idle_ms);
            let entries = self.read(&response)?;
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
    }
}

impl EtcdFollow {
    /// Asks an idle watch for its progress.
    async fn ask(&mut self) -> Result<(), LogError> {
        let answer = self.answer();
        self.asked = true;
        self.deadline = Instant::now() + answer;
        self.log.endpoints.counters().count(Purpose::Watch);
        match timeout(answer, self.stream.request_progress()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(self.over(|endpoint, _| endpoint.answered(source))),
            Err(_) => Err(self.over(|endpoint, answer| endpoint.silent(answer))),
        }
    }

    fn answer(&self) -> Duration {
        Duration::from_millis(self.log.options.watch_answer_ms)
    }

    fn over(&self, why: impl FnOnce(&Endpoint, Duration) -> EtcdError) -> LogError {
        let error = why(self.log.endpoints.at(self.at), self.answer());
        self.log.watch_failed(self.at, error)
    }

    fn read(&mut self, response: &WatchResponse) -> Result<Vec<RawEntry>, LogError> {
        if (response.canceled() || response.compact_revision() > 0) && !mutant!(FollowsOverGap) {
            let reason = match response.compact_revision() {
                0 => response.cancel_reason().to_owned(),
                compacted => format!("its position is compacted, up to revision {compacted}"),
            };
            let url = self.log.endpoints.at(self.at).url().to_owned();
            let source = Box::new(EtcdError::Cancelled { url, reason });
            return Err(LogError::Unavailable { what: WHAT, source });
        }
        let mut entries = Vec::new();
        let early = |key: &KeyValue| key.mod_revision() < self.from;
        for event in response.events().iter().filter(|event| !event.kv().is_some_and(early)) {
            let Some(put) = event.kv().and_then(|key| self.put(key)) else {
                let key = event.kv().map(KeyValue::key).unwrap_or_default();
                let what = format!("{} is not what an append puts", String::from_utf8_lossy(key));
                return Err(LogError::Damaged { what });
            };
            let paired = self.pairing.take(put);
            entries.extend(paired.map_err(|source| LogError::Unavailable { what: WHAT, source: Box::new(source) })?);
        }
        if let Some(last) = entries.last() {
            self.log.seen.note(last.index);
        }
        Ok(entries)
    }

    /// What an append put; `None` is anything else. A deletion has version 0,
    /// which says it without asking for the kind of an event: the client
    /// panics on kinds it does not know.
    fn put(&self, key: &KeyValue) -> Option<Put> {
        let revision = key.mod_revision();
        if key.key() == self.log.keys.head().as_bytes() {
            let ours = key.create_revision() == self.origin.birth && key.version() > 1;
            return ours.then(|| Put { revision, half: Half::Head(self.origin.index_of(key.version())) });
        }
        let (writer, seq) = self.log.keys.place(key.key()).filter(|_| key.version() == 1)?;
        let bytes = key.value().to_vec();
        Some(Put { revision, half: Half::Entry(RawEntry { index: 0, writer, seq, bytes }) })
    }
}
