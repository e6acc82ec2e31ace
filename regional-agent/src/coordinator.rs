//! What the agent asks the coordinator over HTTP. No decision waits for it,
//! except that a key not yet open needs the coordinator to open it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use muster_http::{Answer, Call, Failure, Forwarder};
use muster_protocol::caps;
use muster_protocol::name::{BarrierName, Key};
use muster_wire::answer;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use serde::de::DeserializeOwned;

const DESTINATION: &str = "the coordinator";
/// How long one coordinator may take to answer a question of the agent's own,
/// before the next one is asked. It gives a call up itself when its store does
/// not answer for so long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// The coordinators this agent knows.
#[derive(Clone, Debug)]
pub(crate) struct Coordinator {
    forwarder: Forwarder,
    urls: Vec<String>,
    /// Which of them answered last, and is asked first.
    current: Arc<AtomicUsize>,
}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum NoWord {
    /// The coordinator says no.
    Refused(Box<Problem>),
    /// No coordinator answered.
    Away(Failure),
}

/// A coordinator's answer, whole.
type Said = (StatusCode, Bytes);

impl Coordinator {
    /// Asks the coordinators at these base URLs, in their order.
    #[must_use]
    pub(crate) fn new(forwarder: Forwarder, urls: Vec<String>) -> Self {
        Self { forwarder, urls, current: Arc::default() }
    }

    /// All of them, in the order in which they are asked now.
    fn in_turn(&self) -> impl Iterator<Item = (usize, &String)> {
        let first = self.current.load(Ordering::Relaxed);
        let (earlier, from_first) = self.urls.split_at(first.min(self.urls.len()));
        (first..).zip(from_first).chain(earlier.iter().enumerate())
    }

    /// Hands a call on as it is. What a coordinator handed on here is known
    /// neither there nor here.
    pub(crate) async fn forward(&self, call: &Call) -> Answer<Response> {
        if call.was_forwarded() {
            let detail = "neither the coordinator nor this region knows a barrier of that name";
            return Err(Failure::new(Code::NotDefined, detail));
        }
        let urls: Vec<&String> = self.in_turn().map(|(_, url)| url).collect();
        self.forwarder.forward(&urls, DESTINATION, call).await
    }

    /// Whether a coordinator answers now; if not, why.
    pub(crate) async fn answers(&self) -> Result<(), String> {
        let call = Call {
            method: Method::GET,
            uri: Uri::from_static("/livez"),
            headers: HeaderMap::new(),
            body: Default::default(),
        };
        match self.exchange(&call).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.into_problem().detail),
        }
    }

    /// Opens a generation of a key, or finds the one that is.
    pub(crate) async fn open(&self, barrier: &BarrierName, key: &Key) -> Result<answer::Opened, NoWord> {
        let body = serde_json::json!({ "key": key });
        self.ask(Method::POST, &format!("/v1/barriers/{barrier}/generations"), body.to_string()).await
    }

    /// How a barrier is defined.
    pub(crate) async fn barrier(&self, barrier: &BarrierName) -> Result<answer::Barrier, NoWord> {
        self.ask(Method::GET, &format!("/v1/barriers/{barrier}"), String::new()).await
    }

    /// What the coordinator knows of a generation.
    pub(crate) async fn status(&self, barrier: &BarrierName, id: &str) -> Result<answer::Status, NoWord> {
        self.ask(Method::GET, &format!("/v1/barriers/{barrier}/generations/{id}"), String::new()).await
    }

    /// What the first of them says that can say anything. What is asked so may
    /// be asked of several: doing it twice is the same as once.
    async fn exchange(&self, call: &Call) -> Answer<Said> {
        let mut said = Err(Failure::new(Code::Unavailable, "no coordinator's address is known"));
        for (at, url) in self.in_turn() {
            let asked = async { read(self.forwarder.forward(&[url], DESTINATION, call).await?).await };
            said = tokio::time::timeout(ANSWER_TIMEOUT, asked).await.unwrap_or_else(|_| {
                let detail = format!("{DESTINATION} at {url} did not answer within {} s", ANSWER_TIMEOUT.as_secs());
                Err(Failure::new(Code::Unavailable, detail))
            });
            if said.as_ref().is_ok_and(|(status, _)| !status.is_server_error()) {
                self.current.store(at, Ordering::Relaxed);
                break;
            }
        }
        said
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: String) -> Result<T, NoWord> {
        let internal = |what: String| NoWord::Away(Failure::new(Code::Internal, what));
        // Names are made of characters that a path takes as they are, but for
        // the `+` and `=` of keys, which it takes as well.
        let uri: Uri = path.parse().map_err(|error| internal(format!("the path {path}: {error}")))?;
        let call = Call { method, uri, headers: HeaderMap::new(), body: body.into() };
        let (status, body) = self.exchange(&call).await.map_err(NoWord::Away)?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|error| internal(format!("the coordinator's answer: {error}")));
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if status.is_client_error() => Err(NoWord::Refused(Box::new(problem))),
            Ok(problem) => Err(NoWord::Away(problem.into())),
            Err(error) => Err(internal(format!("the coordinator answered {status}: {error}"))),
        }
    }
}

async fn read(response: Response) -> Answer<Said> {
    let (parts, body): (_, Body) = response.into_parts();
    let body = to_bytes(body, caps::DEFINITION_BYTES_MAX).await;
    let body =
        body.map_err(|error| Failure::new(Code::Unavailable, format!("the coordinator's answer broke off: {error}")))?;
    Ok((parts.status, body))
}
