//! Names in paths: decoded once, then checked against their grammar, so that
//! `%2F` never becomes a separator and `..` never a folder.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use http::request::Parts;
use muster_protocol::identity::SessionId;
use muster_protocol::name::{BarrierName, InvalidName, ParticipantId, RegionName};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;

use crate::failure::Failure;

/// `{namespace}/{name}`.
#[derive(Clone, Debug)]
pub struct BarrierPath(pub BarrierName);

/// `{namespace}/{name}` and, where the route has it, `{id}`.
#[derive(Clone, Debug)]
pub struct GenerationPath {
    /// The barrier.
    pub barrier: BarrierName,
    /// Which of its generations.
    pub id: Reference,
}

/// `{namespace}/{name}`, `{id}` and `{participant}`.
#[derive(Clone, Debug)]
pub struct ParticipantPath {
    /// The barrier.
    pub barrier: BarrierName,
    /// Which of its generations.
    pub id: Reference,
    /// Who.
    pub participant: ParticipantId,
}

/// `{region}`.
#[derive(Clone, Debug)]
pub struct RegionPath(pub RegionName);

/// `{session}`.
#[derive(Clone, Copy, Debug)]
pub struct SessionPath(pub SessionId);

struct Segments(BTreeMap<String, String>);

impl Segments {
    async fn read<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let raw = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| Failure::new(Code::InvalidName, "a name in the path is not UTF-8 after percent-decoding"))?;
        Ok(Self(raw.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }

    fn segment(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn name<T: FromStr<Err = InvalidName>>(&self, name: &str) -> Result<T, Failure> {
        checked(self.segment(name))
    }

    fn barrier(&self) -> Result<BarrierName, Failure> {
        checked(&format!("{}/{}", self.segment("namespace"), self.segment("name")))
    }

    /// A path that names no generation means the only one there is: services
    /// refuse it where there are several.
    fn id(&self) -> Result<Reference, Failure> {
        match self.0.get("id") {
            Some(id) => Ok(id.parse::<Reference>()?),
            None => Ok(Reference::Latest),
        }
    }
}

fn checked<T: FromStr<Err = InvalidName>>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error: InvalidName| Problem::new(Code::InvalidName, error.to_string()).into())
}

fn session(text: &str) -> Result<SessionId, Failure> {
    text.parse().map_err(|error| {
        let text: String = text.chars().take(80).collect();
        Failure::new(Code::InvalidName, format!("the session {text:?} is not a session's name: {error}"))
    })
}

macro_rules! extractor {
    ($name:ident, $segments:ident => $build:expr) => {
        impl<S: Send + Sync> FromRequestParts<S> for $name {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
                let $segments = Segments::read(parts, state).await?;
                Ok($build)
            }
        }
    };
}

extractor!(BarrierPath, path => Self(path.barrier()?));
extractor!(SessionPath, path => Self(session(path.segment("session"))?));
extractor!(RegionPath, path => Self(path.name("region")?));
extractor!(GenerationPath, path => Self { barrier: path.barrier()?, id: path.id()? });
extractor!(ParticipantPath, path => Self {
    barrier: path.barrier()?,
    id: path.id()?,
    participant: path.name("participant")?,
});
