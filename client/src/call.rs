//! One call, sent once, and what its answer means.

use std::time::Duration;

use http::header::{CONTENT_TYPE, IF_MATCH, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::time::format_duration;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Client;

/// How long a service may take to answer, beyond what it was asked to wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A request as it is sent, any number of times.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// Statuses that carry the answer rather than a problem.
    pub(crate) answers: &'static [u16],
    /// How long the service was asked to hold the call.
    pub(crate) held: Duration,
    /// Whether a lost answer leaves something that may have been done.
    pub(crate) mutation: bool,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        let mutation = !method.is_safe();
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Vec::new(),
            answers: &[200, 201, 204],
            held: Duration::ZERO,
            mutation,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    pub(crate) fn query_if(self, name: &'static str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Asks the service to hold the call, replacing what was asked before.
    pub(crate) fn hold(mut self, wait: Duration) -> Self {
        self.query.retain(|(name, _)| *name != "wait");
        self.held = wait;
        self.query("wait", format!("{}ms", wait.as_millis()))
    }

    /// A body that can't fail to be JSON: a plain struct of texts and numbers.
    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        self.body = serde_json::to_vec(body).unwrap_or_default();
        self.header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(crate) fn if_match(self, revision: u64) -> Self {
        match HeaderValue::from_str(&format!("\"{revision}\"")) {
            Ok(value) => self.header(IF_MATCH, value),
            Err(_) => self,
        }
    }
}

/// What one try came to.
pub(crate) enum Attempt<T> {
    /// The answer.
    Done(T),
    /// A problem that no repeat changes.
    Refused(Problem),
    /// The generation is still open; the same call again.
    NotYet(Problem, Option<Duration>),
    /// Not now: later, or at another address.
    Later(Problem, Option<Duration>),
    /// No answer that Muster gave. `sent` is false when nothing can have been
    /// done.
    Lost { why: String, sent: bool },
}

impl Client {
    /// Sends a call to one address and reads its answer with `read`.
    pub(crate) async fn attempt<T>(
        &self,
        address: &str,
        call: &Call,
        read: &(impl Fn(&[u8]) -> Result<T, String> + Sync),
        patience: Option<Duration>,
    ) -> Attempt<T> {
        let normal = call.held.saturating_add(ANSWER_TIMEOUT);
        let limit = patience.map_or(normal, |patience| patience.min(normal));
        let request = self
            .http
            .request(call.method.clone(), format!("{address}{}", call.path))
            .query(&call.query)
            .headers(self.headers.clone())
            .headers(call.headers.clone())
            .body(call.body.clone());
        let exchange = async {
            let response = request.send().await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Ok::<_, reqwest::Error>((status, headers, response.bytes().await?))
        };
        match tokio::time::timeout(limit, exchange).await {
            Err(_) => Attempt::Lost { why: format!("no answer within {}", format_duration(limit)), sent: true },
            Ok(Err(error)) => {
                let sent = !(error.is_connect() || error.is_builder());
                Attempt::Lost { why: reason(&error), sent }
            }
            Ok(Ok((status, headers, body))) => interpret(call, status, &headers, &body, read),
        }
    }
}

fn interpret<T>(
    call: &Call,
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    read: &impl Fn(&[u8]) -> Result<T, String>,
) -> Attempt<T> {
    if call.answers.contains(&status) {
        return match read(body) {
            Ok(answer) => Attempt::Done(answer),
            Err(why) => Attempt::Lost { why: format!("an answer {status} that is not Muster's: {why}"), sent: true },
        };
    }
    let after = retry_after(headers);
    let problem = match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem,
        Err(_) => {
            return Attempt::Lost {
                why: format!("an answer {status} that is not Muster's: {}", cut(body)),
                sent: true,
            };
        }
    };
    match (problem.code, status) {
        (Code::StillGathering | Code::NotOpenYet, _) => Attempt::NotYet(problem, after),
        (_, 429 | 503) => Attempt::Later(problem, after),
        // A problem under a status of success would be a contradiction.
        (_, 0..400) => Attempt::Lost { why: format!("an answer {status} that is also a problem"), sent: true },
        _ => Attempt::Refused(problem),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Reads an answer; an empty one is `null`.
pub(crate) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let body = if body.is_empty() { b"null" } else { body };
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn cut(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(120).collect();
    if line.is_empty() { "no body".to_owned() } else { line }
}

/// The innermost cause, which names what the system said.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
