//! Generations: open, look at, explain.

use std::time::Duration;

use http::Method;
use muster_protocol::generation::State;
use muster_protocol::name::{BarrierName, Key};
use muster_wire::answer::{Explanation, GenerationRow, Opened, Participant, Status};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request::Open;
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
    /// The generation that a target without one can only mean: that of a
    /// barrier of single generations. Every call that changes something or
    /// waits does this first, so that none ever meets the wrong one.
    ///
    /// # Errors
    /// `generation-required` with what is open, when there are several.
    pub async fn resolve(&self, target: &Target) -> Result<Target, Error> {
        if target.generation.is_some() {
            return Ok(target.clone());
        }
        let definition = self.barrier(&target.barrier).await?;
        if definition.effective["generations"] == "single" {
            let latest = self.status(target, None).await?;
            let id = latest.generation.parse().map_err(|problem| Error::Refused(Box::new(problem)))?;
            return Ok(Target { barrier: target.barrier.clone(), generation: Some(id) });
        }
        let open: Vec<String> = self.history(&target.barrier).await?.into_iter().filter(is_open).map(label).collect();
        let barrier = &target.barrier;
        let detail = match open.as_slice() {
            [] => format!("{barrier} has many generations and none is open; write {barrier}@KEY"),
            [one] => format!("{barrier} has many generations; write {barrier}@{one} for the one that is open"),
            many => format!("{barrier} has many generations; write one of those open: {}", many.join(", ")),
        };
        Err(Error::Refused(Box::new(Problem::new(Code::GenerationRequired, detail).with("open", open))))
    }

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
        self.pages_up_to(&call, filter.limit).await
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
        let mut call = Call::get(target.path());
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
        self.call(Call::get(format!("{}/explain", target.path())), json).await
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
        let call = Call::get(format!("{}/participants", target.path()));
        self.pages(&call.query_if("state", state).query_if("region", region)).await
    }

    /// What participants left, by `region/id`, as the service prints it.
    ///
    /// # Errors
    /// `no-such-generation`, `expired`.
    pub async fn outputs(&self, target: &Target) -> Result<Value, Error> {
        self.call(Call::get(format!("{}/outputs", target.path())), json).await
    }
}

fn is_open(row: &GenerationRow) -> bool {
    row.state == State::Gathering
}

fn label(row: GenerationRow) -> String {
    row.generation
}
