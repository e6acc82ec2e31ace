//! Generations: open, look at, explain, abort.

use std::time::Duration;

use http::Method;
use muster_protocol::name::{BarrierName, Key};
use muster_wire::answer::{Aborted, Explanation, GenerationRow, Opened, Participant, Status};
use muster_wire::request::{Open, Override};
use serde_json::Value;

use crate::call::{Call, json};
use crate::target::barrier_path;
use crate::{Client, Error, Target};

/// Which generations to list; every field that is set must match.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// `gathering`, `releasing`, `released` or `broken`; open ones when unset.
    pub state: Option<String>,
    /// Barriers whose name begins so.
    pub prefix: Option<String>,
    /// Barriers with this label, `name=value`.
    pub label: Option<String>,
    /// Barriers of this region.
    pub region: Option<String>,
    /// At most so many.
    pub limit: Option<u32>,
}

impl Client {
    /// Opens a generation ahead of its first arrival. The same key again is the
    /// one that is open.
    ///
    /// # Errors
    /// `too-many-open`, `not-defined`.
    pub async fn open(&self, barrier: &BarrierName, key: Option<&Key>) -> Result<Opened, Error> {
        let call = Call::new(Method::POST, format!("{}/generations", barrier_path(barrier)));
        self.call(call.json(&Open { key: key.cloned() }), json).await
    }

    /// The generations of all barriers.
    ///
    /// # Errors
    /// `bad-request` for a filter that can't be read.
    pub async fn generations(&self, filter: &Filter) -> Result<Vec<GenerationRow>, Error> {
        let call = Call::get("/v1/generations")
            .query_if("state", filter.state.as_ref())
            .query_if("prefix", filter.prefix.as_ref())
            .query_if("label", filter.label.as_ref())
            .query_if("region", filter.region.as_ref())
            .query_if("limit", filter.limit);
        match filter.limit {
            // A limit is meant for the whole list, not for a page.
            Some(_) => Ok(self.call(call, json::<muster_wire::answer::Page<_>>).await?.items),
            None => self.pages(&call).await,
        }
    }

    /// The generations of one barrier, the latest first.
    ///
    /// # Errors
    /// `not-defined`.
    pub async fn history(&self, barrier: &BarrierName) -> Result<Vec<GenerationRow>, Error> {
        self.pages(&Call::get(format!("{}/generations", barrier_path(barrier)))).await
    }

    /// The status document. With `newer_than` (its `index` and how long) the
    /// answer comes when it has changed, or time is up.
    ///
    /// # Errors
    /// `no-such-generation`, `expired`.
    pub async fn status(&self, target: &Target, newer_than: Option<(&str, Duration)>) -> Result<Status, Error> {
        let mut call = Call::get(target.path_to_read());
        if let Some((index, wait)) = newer_than {
            call = call.query("index", index).hold(wait);
        }
        self.call(call, json).await
    }

    /// Why a generation is not released yet.
    ///
    /// # Errors
    /// `no-such-generation`, `expired`.
    pub async fn explain(&self, target: &Target) -> Result<Explanation, Error> {
        self.call(Call::get(format!("{}/explain", target.path_to_read())), json).await
    }

    /// Who is expected, and how far each has come.
    ///
    /// # Errors
    /// `no-such-generation`, `expired`.
    pub async fn participants(
        &self,
        target: &Target,
        state: Option<&str>,
        region: Option<&str>,
    ) -> Result<Vec<Participant>, Error> {
        let call = Call::get(format!("{}/participants", target.path_to_read()));
        self.pages(&call.query_if("state", state).query_if("region", region)).await
    }

    /// What participants left, by `region/id`, as the service prints it.
    ///
    /// # Errors
    /// `no-such-generation`, `expired`.
    pub async fn outputs(&self, target: &Target) -> Result<Value, Error> {
        self.call(Call::get(format!("{}/outputs", target.path_to_read())), json).await
    }

    /// Breaks a generation. One that has ended is told, not changed.
    ///
    /// # Errors
    /// `already-decided`, `no-such-generation`.
    pub async fn abort(&self, target: &Target, reason: &str, dry_run: bool) -> Result<Aborted, Error> {
        let mut call = Call::new(Method::POST, format!("{}/abort", target.path()))
            .query_if("dryRun", dry_run.then_some(true))
            .json(&Override { reason: reason.to_owned() });
        call.mutation = !dry_run;
        self.call(call, json).await
    }
}
