//! Handing a request on to the service it belongs to: one hop, never a second.
//!
//! The answer is handed back unchanged. Whether a request that failed may have
//! been done is told apart: a connection that was refused did nothing; one that
//! broke after a mutation was sent leaves its outcome unknown.

use std::time::Duration;

use axum::body::Body as AxumBody;
use axum::extract::{FromRequest, Request};
use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, IF_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use muster_telemetry::TraceContext;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use tracing::Instrument;

use crate::extract::Body;
use crate::failure::Failure;
use crate::poll::Wait;

/// Marks a request that was handed on; such a one is never handed on again.
pub const FORWARDED: HeaderName = HeaderName::from_static("muster-forwarded");

/// How long an answer may take to begin, beyond what the call itself waits for:
/// an address that takes a call and says nothing may be asleep.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// What of a request's headers is handed on, beside trace context.
const HANDED_ON: [HeaderName; 4] = [ACCEPT, AUTHORIZATION, CONTENT_TYPE, IF_MATCH];
/// Headers that belong to one connection, not to the answer.
const OF_A_CONNECTION: [&str; 5] = ["connection", "keep-alive", "transfer-encoding", "upgrade", "content-length"];

/// A whole request, to be handed on or read.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub uri: Uri,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, within the route's limit.
    pub body: Bytes,
}

impl Call {
    /// Whether another service handed it on.
    #[must_use]
    pub fn was_forwarded(&self) -> bool {
        self.headers.contains_key(FORWARDED)
    }
}

impl<S: Send + Sync> FromRequest<S> for Call {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let (method, uri, headers) = (request.method().clone(), request.uri().clone(), request.headers().clone());
        let Body(body) = Body::from_request(request, state).await?;
        Ok(Self { method, uri, headers, body })
    }
}

/// Hands requests on. Cheap to clone; connections are shared and kept.
#[derive(Clone, Debug)]
pub struct Forwarder(reqwest::Client);

/// How one address answered.
enum Attempt {
    Answered(Response),
    /// Nothing was sent, or a read was lost: another address may be asked.
    Next(String),
    /// A mutation was sent and its answer lost.
    Lost(String),
}

impl Forwarder {
    /// A forwarder with its own connections.
    ///
    /// # Errors
    /// The HTTP client refuses its own settings: a defect.
    pub fn new() -> Result<Self, reqwest::Error> {
        // No total timeout: an answer that has begun may go on for long.
        // No proxy: these are Muster's own services, whatever the environment says.
        reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map(Self)
    }

    /// Hands `call` on to the first of `bases` (such as `http://127.0.0.1:7171`)
    /// that takes it. `destination` names them in sentences: "region us-east".
    ///
    /// # Errors
    /// `unavailable` when none could be reached or the call was handed on
    /// before: nothing was done. `outcome-unknown` when a mutation was sent and
    /// its answer lost.
    pub async fn forward<S: AsRef<str>>(
        &self,
        bases: &[S],
        destination: &str,
        call: &Call,
    ) -> Result<Response, Failure> {
        if call.was_forwarded() {
            return Err(unavailable(destination, "the call was handed on once already, and is not handed on twice"));
        }
        let mut failed = Vec::new();
        for base in bases {
            match self.attempt(base.as_ref(), call).await {
                Attempt::Answered(response) => return Ok(response),
                Attempt::Next(why) => failed.push(format!("{}: {why}", base.as_ref())),
                Attempt::Lost(why) => {
                    let detail =
                        format!("{destination} took the call at {}, and its answer was lost: {why}", base.as_ref());
                    return Err(Problem::new(Code::OutcomeUnknown, detail)
                        .hint("send the same call again; doing it twice is the same as once")
                        .into());
                }
            }
        }
        let why = if failed.is_empty() { "no address of it is known".to_owned() } else { failed.join("; ") };
        Err(unavailable(destination, &why))
    }

    async fn attempt(&self, base: &str, call: &Call) -> Attempt {
        let path = call.uri.path_and_query().map_or("/", |path| path.as_str());
        let url = format!("{}{path}", base.trim_end_matches('/'));
        let span =
            tracing::info_span!("forward", otel.kind = "client", http.request.method = call.method.as_str(), to = base);
        let request = self.0.request(call.method.clone(), url).headers(headers(call, &span)).body(call.body.clone());
        let read = call.method.is_safe();
        let limit = Wait::of(&call.uri) + ANSWER_TIMEOUT;
        let Ok(answer) = tokio::time::timeout(limit, request.send().instrument(span)).await else {
            let why = format!("no answer within {} s", limit.as_secs());
            return if read { Attempt::Next(why) } else { Attempt::Lost(why) };
        };
        match answer {
            Ok(answer) => hand_back(answer, read).await,
            Err(error) if error.is_connect() || error.is_builder() || read => Attempt::Next(reason(&error)),
            Err(error) => Attempt::Lost(reason(&error)),
        }
    }
}

fn headers(call: &Call, span: &tracing::Span) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in HANDED_ON {
        headers.extend(call.headers.get_all(&name).iter().map(|value| (name.clone(), value.clone())));
    }
    let context = TraceContext::of(span).or_else(|| TraceContext::from_headers(&call.headers));
    if let Some(context) = context {
        context.to_headers(&mut headers);
    }
    headers.insert(FORWARDED, HeaderValue::from_static("1"));
    headers
}

/// Reads stream through; the answer to a mutation is read to its end first, so
/// that a broken one is told as what it is.
async fn hand_back(answer: reqwest::Response, read: bool) -> Attempt {
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    for name in OF_A_CONNECTION {
        headers.remove(name);
    }
    let body = if read {
        AxumBody::new(reqwest::Body::from(answer))
    } else {
        match answer.bytes().await {
            Ok(bytes) => AxumBody::from(bytes),
            Err(error) => return Attempt::Lost(reason(&error)),
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Attempt::Answered(response)
}

fn unavailable(destination: &str, why: &str) -> Failure {
    Problem::new(Code::Unavailable, format!("{destination} can't be reached: {why}"))
        .hint("nothing was done; call again later, or call an agent of that region")
        .into()
}

/// The innermost cause, which names what the system said.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
