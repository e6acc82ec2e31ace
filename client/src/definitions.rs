//! Barriers: apply, list, read, delete.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use muster_protocol::name::BarrierName;
use muster_wire::answer::{Applied, Barrier, Deleted, Page};
use serde::de::DeserializeOwned;

use crate::call::{Call, json};
use crate::target::barrier_path;
use crate::{Client, Error};

/// How to apply a definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Apply {
    /// Only tell what would happen.
    pub dry_run: bool,
    /// Replace a different definition that is in force.
    pub replace: bool,
    /// Replace it only at this revision.
    pub if_match: Option<u64>,
}

impl Client {
    /// Applies a definition, JSON or YAML. An equal one changes nothing.
    ///
    /// # Errors
    /// `conflict` with a `diff` when another is in force and neither `replace`
    /// nor `if_match` was given; `invalid-definition` with `errors`; `precondition` when it is at another revision.
    pub async fn apply(
        &self,
        barrier: &BarrierName,
        definition: impl Into<Vec<u8>>,
        how: Apply,
    ) -> Result<Applied, Error> {
        let mut call = Call::new(Method::PUT, barrier_path(barrier));
        call.body = definition.into();
        // A definition says itself which it is: JSON begins with a brace.
        call = call.header(CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
        if call.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
            call = call.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        call = call.query_if("dryRun", how.dry_run.then_some(true)).query_if("replace", how.replace.then_some(true));
        if let Some(revision) = how.if_match {
            call = call.if_match(revision);
        }
        call.mutation = !how.dry_run;
        self.call(call, json).await
    }

    /// Every barrier that is defined.
    ///
    /// # Errors
    /// Nobody answered.
    pub async fn barriers(&self) -> Result<Vec<Barrier>, Error> {
        self.pages(&Call::get("/v1/barriers")).await
    }

    /// One barrier as it is defined.
    ///
    /// # Errors
    /// `not-defined`.
    pub async fn barrier(&self, barrier: &BarrierName) -> Result<Barrier, Error> {
        self.call(Call::get(barrier_path(barrier)), json).await
    }

    /// Deletes a barrier. `force` is the reason for which what is open is
    /// broken with it.
    ///
    /// # Errors
    /// `conflict` with what is open, when `force` was not given.
    pub async fn delete(&self, barrier: &BarrierName, force: Option<&str>) -> Result<Deleted, Error> {
        let call = Call::new(Method::DELETE, barrier_path(barrier))
            .query_if("force", force.map(|_| true))
            .query_if("reason", force);
        self.call(call, json).await
    }

    /// Reads a list: every page, or the first when the call has a limit, which is
    /// meant for the whole list.
    pub(crate) async fn pages_up_to<T: DeserializeOwned>(
        &self,
        call: &Call,
        limit: Option<u32>,
    ) -> Result<Vec<T>, Error> {
        match limit {
            Some(_) => Ok(self.call(call.clone(), json::<Page<T>>).await?.items),
            None => self.pages(call).await,
        }
    }

    /// Reads every page of a list.
    pub(crate) async fn pages<T: DeserializeOwned>(&self, call: &Call) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page: Page<T> = self.call(call.clone().query_if("cursor", cursor.as_ref()), json).await?;
            items.extend(page.items);
            // The same cursor twice would never end.
            match page.cursor {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(items),
            }
        }
    }
}
