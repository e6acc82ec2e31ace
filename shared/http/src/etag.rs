//! A definition's revision as an ETag, and what a caller believes of it.

use axum::response::{IntoResponse, Response};
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use muster_wire::code::Code;
use serde::Serialize;

use crate::failure::{Answer, Failure};

/// What `If-Match` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// Any revision, as long as there is one.
    Any,
    /// This revision.
    Revision(u64),
}

/// What the caller believes of the present revision, if it says so.
///
/// # Errors
/// `bad-request` for a tag that this service never gave.
pub fn if_match(headers: &HeaderMap) -> Answer<Option<IfMatch>> {
    let Some(tag) = headers.get(IF_MATCH) else { return Ok(None) };
    let tag = tag.to_str().unwrap_or_default().trim();
    if tag == "*" {
        return Ok(Some(IfMatch::Any));
    }
    let revision = tag.strip_prefix("W/").unwrap_or(tag).strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
    match revision.and_then(|revision| revision.parse().ok()) {
        Some(revision) => Ok(Some(IfMatch::Revision(revision))),
        None => {
            let given: String = tag.chars().take(40).collect();
            let detail = format!("If-Match must be an ETag that this service gave, like \"3\", not {given}");
            Err(Failure::new(Code::BadRequest, detail))
        }
    }
}

/// A body with its revision as the ETag.
pub fn tagged<T: Serialize>(revision: u64, status: StatusCode, body: T) -> Response {
    let mut response = (status, axum::Json(body)).into_response();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_they_are_given() {
        let read = |tag: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MATCH, tag.parse().unwrap());
            if_match(&headers).map_err(|failure| failure.problem().code)
        };
        assert_eq!(if_match(&HeaderMap::new()).unwrap(), None);
        assert_eq!(read("*"), Ok(Some(IfMatch::Any)));
        for tag in ["\"3\"", "W/\"3\"", " \"3\" "] {
            assert_eq!(read(tag), Ok(Some(IfMatch::Revision(3))), "{tag}");
        }
        for tag in ["3", "\"x\"", "\"\"", "\"3"] {
            assert_eq!(read(tag), Err(Code::BadRequest), "{tag}");
        }
        assert_eq!(tagged(7, StatusCode::OK, ()).headers()[ETAG], "\"7\"");
    }
}
