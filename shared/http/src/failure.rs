//! Problem documents as responses.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use muster_wire::code::Code;
use muster_wire::problem::{PROBLEM_JSON, Problem};

/// What a handler gives: an answer, or the problem that kept it from one.
pub type Answer<T> = Result<T, Failure>;

/// A problem document as a response: `application/problem+json` with the
/// status of its code, and `Retry-After: 1` where the same call helps later.
#[derive(Debug)]
pub struct Failure(Box<Problem>);

impl Failure {
    /// The problem.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.0
    }

    /// A problem of this code, with a sentence about this case.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// The problem itself.
    #[must_use]
    pub fn into_problem(self) -> Problem {
        *self.0
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

/// Whether a caller should come again in a second: the codes of a poll keep
/// saying so when the caller chose another status for them.
fn comes_again(problem: &Problem) -> bool {
    matches!(problem.code, Code::StillGathering | Code::NotOpenYet) || matches!(problem.status, 408 | 429 | 503)
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (status, body).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if comes_again(&self.0) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_carries_its_status_and_when_to_come_again() {
        let response = Failure::new(Code::Unavailable, "the store does not answer").into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM_JSON);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let response = Failure::new(Code::Broken, "it broke").into_response();
        assert_eq!(response.status(), 409);
        assert!(!response.headers().contains_key(RETRY_AFTER));
    }
}
