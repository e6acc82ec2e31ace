//! What the agent asks the coordinator over HTTP. No decision waits for it,
//! except that a key not yet open needs the coordinator to open it.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use muster_http::{Answer, Call, Failure, Forwarder};
use muster_protocol::caps;
use muster_protocol::name::{BarrierName, Key};
use muster_wire::answer;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use serde::de::DeserializeOwned;

const DESTINATION: &str = "the coordinator";
/// How long a coordinator may take to show that it lives.
const ANSWER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// The coordinators this agent knows.
#[derive(Clone, Debug)]
pub(crate) struct Coordinator {
    forwarder: Forwarder,
    urls: Vec<String>,
}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum NoWord {
    /// The coordinator says no.
    Refused(Box<Problem>),
    /// No coordinator answered.
    Away(Failure),
}

impl Coordinator {
    /// Asks the coordinators at these base URLs, in their order.
    #[must_use]
    pub(crate) fn new(forwarder: Forwarder, urls: Vec<String>) -> Self {
        Self { forwarder, urls }
    }

    /// Hands a call on as it is. What a coordinator handed on here is known
    /// neither there nor here.
    pub(crate) async fn forward(&self, call: &Call) -> Answer<Response> {
        if call.was_forwarded() {
            let detail = "neither the coordinator nor this region knows a barrier of that name";
            return Err(Failure::new(Code::NotDefined, detail));
        }
        self.forwarder.forward(&self.urls, DESTINATION, call).await
    }

    /// Whether a coordinator answers now; if not, why.
    pub(crate) async fn answers(&self) -> Result<(), String> {
        let call = Call {
            method: Method::GET,
            uri: Uri::from_static("/livez"),
            headers: HeaderMap::new(),
            body: Default::default(),
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, self.forward(&call)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(failure.into_problem().detail),
            Err(_) => Err(format!("no coordinator answered within {} s", ANSWER_TIMEOUT.as_secs())),
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

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: String) -> Result<T, NoWord> {
        let internal = |what: String| NoWord::Away(Failure::new(Code::Internal, what));
        // Names are made of characters that a path takes as they are, but for
        // the `+` and `=` of keys, which it takes as well.
        let uri: Uri = path.parse().map_err(|error| internal(format!("the path {path}: {error}")))?;
        let call = Call { method, uri, headers: HeaderMap::new(), body: body.into() };
        let response = self.forward(&call).await.map_err(NoWord::Away)?;
        let (status, body) = read(response).await.map_err(NoWord::Away)?;
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

async fn read(response: Response) -> Answer<(axum::http::StatusCode, axum::body::Bytes)> {
    let (parts, body): (_, Body) = response.into_parts();
    let body = to_bytes(body, caps::DEFINITION_BYTES_MAX).await;
    let body =
        body.map_err(|error| Failure::new(Code::Unavailable, format!("the coordinator's answer broke off: {error}")))?;
    Ok((parts.status, body))
}
