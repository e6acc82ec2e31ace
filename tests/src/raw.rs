//! One HTTP request as somebody with `curl` sends it, and its bare answer.

use http::header::CONTENT_TYPE;
use muster_wire::code::Code;
use muster_wire::problem::{PROBLEM_JSON, Problem};
use serde_json::Value;

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The content type.
    pub content_type: String,
    /// The body.
    pub body: String,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    method: &'static str,
    url: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request without a body.
    #[must_use]
    pub fn new(method: &'static str, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// With a JSON body.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// With any body.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Sends it once.
    ///
    /// # Errors
    /// There was no answer.
    pub async fn send(self) -> reqwest::Result<Answer> {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let method = http::Method::from_bytes(self.method.as_bytes()).unwrap_or_default();
        let mut request = client.request(method, &self.url).body(self.body);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let content_type = response.headers().get(CONTENT_TYPE).map(|value| value.as_bytes().to_vec());
        let content_type = String::from_utf8_lossy(&content_type.unwrap_or_default()).into_owned();
        Ok(Answer { status, content_type, body: response.text().await? })
    }
}

impl Answer {
    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The problem this is, which must have this code and its status.
    ///
    /// # Panics
    /// It is anything else.
    #[must_use]
    #[track_caller]
    pub fn problem(&self, code: Code) -> Problem {
        let problem: Problem = match serde_json::from_str(&self.body) {
            Ok(problem) => problem,
            Err(error) => panic!("not a problem document, {error}: {self:?}"),
        };
        assert_eq!(problem.code, code, "{self:?}");
        assert_eq!((self.status, problem.status), (code.status(), code.status()), "{self:?}");
        assert_eq!(self.content_type.split(';').next(), Some(PROBLEM_JSON), "{self:?}");
        assert!(!problem.detail.is_empty() && !problem.title.is_empty(), "{self:?}");
        problem
    }
}
