//! Queries and bodies. What can't be read is refused with its place; what is
//! not known is refused with what is.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use muster_protocol::caps::BODY_BYTES_MAX;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// How long a caller may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a body of this route may be; 64 KiB where none is set.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit(usize);

/// A layer that gives a route its own limit on bodies, in bytes.
pub fn body_limit(bytes_max: usize) -> Extension<BodyLimit> {
    Extension(BodyLimit(bytes_max))
}

/// Room for what long bodies have beyond 64 KiB while they are being sent, in
/// bytes. Short ones need none, so that arrivals go on whoever sends batches.
#[derive(Clone, Debug)]
pub(crate) struct LongBodies(Arc<Semaphore>);

impl LongBodies {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes_max)))
    }
}

/// A whole body, within its route's limit.
#[derive(Clone, Debug)]
pub struct Body(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let limit = request.extensions().get::<BodyLimit>().map_or(BODY_BYTES_MAX, |limit| limit.0);
        let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: usize| length > limit) {
            return Err(too_large(limit));
        }
        let room = request.extensions().get::<LongBodies>().cloned();
        match tokio::time::timeout(BODY_TIMEOUT, read(request.into_body(), limit, room.as_ref())).await {
            Ok(read) => read.map(Self),
            Err(_) => {
                let seconds = BODY_TIMEOUT.as_secs();
                Err(Failure::new(Code::BadRequest, format!("the body did not arrive within {seconds} seconds")))
            }
        }
    }
}

async fn read(body: axum::body::Body, limit: usize, room: Option<&LongBodies>) -> Result<Bytes, Failure> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut held) = (BytesMut::new(), Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Failure::new(Code::BadRequest, "the body broke off before its end"))?;
        if bytes.len() + chunk.len() > limit {
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
        if let Some(LongBodies(room)) = room.filter(|_| bytes.len() > BODY_BYTES_MAX) {
            let more = chunk.len().min(bytes.len() - BODY_BYTES_MAX);
            let count = u32::try_from(more).unwrap_or(u32::MAX);
            held.push(room.try_acquire_many(count).map_err(|_| no_room())?);
        }
    }
    Ok(bytes.freeze())
}

fn no_room() -> Failure {
    let detail = "as many long bodies are being sent as this service reads at once; nothing was done";
    Problem::new(Code::Busy, detail).hint("call again later, or send smaller batches").into()
}

fn too_large(limit: usize) -> Failure {
    Problem::new(Code::TooLarge, format!("the body is over the limit of {limit} bytes for this call"))
        .hint("GET /v1/limits lists every limit")
        .with("limit", limit)
        .into()
}

/// A JSON body of any content type. No body is an empty object, so that calls
/// whose fields are all optional need none.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let Body(bytes) = Body::from_request(request, state).await?;
        json(&bytes).map(Self)
    }
}

/// Reads a body that [`Body`] or a [`Call`](crate::Call) holds.
///
/// # Errors
/// `bad-request` with line, column and the field.
pub fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let text = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { bytes };
    // The items of an array would be taken for the fields of an object, in their order.
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Problem::new(Code::BadRequest, "the body can't be read: it is an array, not an object")
            .hint("send a JSON object, or no body where every field is optional")
            .into());
    }
    serde_json::from_slice(text).map_err(|error| {
        let hint = match error.classify() {
            serde_json::error::Category::Data => "the field names are in the message; unknown ones are refused",
            _ => "send a JSON object, or no body where every field is optional",
        };
        Problem::new(Code::BadRequest, format!("the body can't be read: {error}")).hint(hint).into()
    })
}

/// The parameters after `?`. Give the type `deny_unknown_fields`: a parameter
/// that is misspelt and ignored is an accident waiting.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        query(&parts.uri).map(Self)
    }
}

/// Reads the parameters of a [`Call`](crate::Call).
///
/// # Errors
/// `bad-request` with the parameter and those that are known.
pub fn query<T: DeserializeOwned>(uri: &http::Uri) -> Result<T, Failure> {
    axum::extract::Query::<T>::try_from_uri(uri).map(|query| query.0).map_err(|rejection| {
        let text = rejection.body_text();
        let cause = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, cause)| cause);
        let cause =
            cause.replace("unknown field", "unknown parameter").replace("there are no fields", "there are none");
        Problem::new(Code::BadRequest, format!("the query can't be read: {cause}")).into()
    })
}

/// A query without any parameter.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}
