//! Regions, what was done to them and to generations, and the services
//! themselves.

use http::Method;
use muster_protocol::name::{BarrierName, RegionName};
use muster_wire::answer::{AuditRow, Ready, Region, Version};
use muster_wire::request::{Adopt, Drain, Override, Region as Declaration};
use serde::Serialize;

use crate::call::{Call, json};
use crate::{Client, Error};

/// Which entries of the audit log to list; every field that is set must match.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Who did it.
    pub actor: Option<String>,
    /// To which barrier.
    pub barrier: Option<BarrierName>,
    /// Not before: an instant (RFC 3339), or so long ago, such as `7d`.
    pub since: Option<String>,
    /// At most so many.
    pub limit: Option<u32>,
}

impl Client {
    /// Every region that is declared.
    ///
    /// # Errors
    /// Nobody answered.
    pub async fn regions(&self) -> Result<Vec<Region>, Error> {
        self.pages(&Call::get("/v1/regions")).await
    }

    /// Declares a region; one that is declared stays as it is.
    ///
    /// # Errors
    /// Nobody answered.
    pub async fn declare_region(&self, region: &RegionName) -> Result<Region, Error> {
        let call = Call::new(Method::PUT, format!("/v1/regions/{region}"));
        self.call(call.json(&Declaration::default()), json).await
    }

    /// Lets generations that open go on without a region for a time.
    ///
    /// # Errors
    /// `unknown-region`, `bad-request` for a time that can't be read.
    pub async fn drain_region(&self, region: &RegionName, drain: &Drain) -> Result<Region, Error> {
        self.act_on_region(region, "drain", drain).await
    }

    /// Ends a planned absence before its time.
    ///
    /// # Errors
    /// `unknown-region`.
    pub async fn resume_region(&self, region: &RegionName, reason: &str) -> Result<Region, Error> {
        self.act_on_region(region, "resume", &Override { reason: reason.to_owned() }).await
    }

    /// Takes another log for a region's: one that was restored or made anew.
    ///
    /// # Errors
    /// `unknown-region`.
    pub async fn adopt_region(&self, region: &RegionName, adopt: &Adopt) -> Result<Region, Error> {
        self.act_on_region(region, "adopt", adopt).await
    }

    async fn act_on_region(&self, region: &RegionName, what: &str, body: &impl Serialize) -> Result<Region, Error> {
        self.call(Call::new(Method::POST, format!("/v1/regions/{region}/{what}")).json(body), json).await
    }

    /// Who overrode what, the newest first.
    ///
    /// # Errors
    /// `bad-request` for a filter that can't be read.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, Error> {
        let call = Call::get("/v1/audit")
            .query_if("actor", filter.actor.as_ref())
            .query_if("barrier", filter.barrier.as_ref())
            .query_if("since", filter.since.as_ref())
            .query_if("limit", filter.limit);
        self.pages_up_to(&call, filter.limit).await
    }

    /// Whether traffic may be sent there, and what is missing if not. `global`
    /// adds what only work across regions needs.
    ///
    /// # Errors
    /// Nobody answered.
    pub async fn ready(&self, global: bool) -> Result<Ready, Error> {
        let mut call = Call::get("/readyz").query("verbose", true).query_if("need", global.then_some("global"));
        call.answers = &[200, 503];
        self.call(call, json).await
    }

    /// What runs there.
    ///
    /// # Errors
    /// Nobody answered.
    pub async fn version(&self) -> Result<Version, Error> {
        self.call(Call::get("/version"), json).await
    }
}
