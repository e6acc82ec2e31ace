//! Regions, and the services themselves.

use http::Method;
use muster_protocol::name::RegionName;
use muster_wire::answer::{Ready, Region, Version};
use muster_wire::request::Region as Declaration;

use crate::call::{Call, json};
use crate::{Client, Error};

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
