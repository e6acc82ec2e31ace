//! Overrides: what people decide instead of participants. Each names one
//! generation, is safe to repeat, and can be asked for what it would do.

use http::Method;
use muster_wire::answer::Overruled;
use muster_wire::request::{Keep, Override, Release, Retry, Waive};
use serde::Serialize;

use crate::call::{Call, json};
use crate::{Client, Error, Target};

impl Client {
    /// Breaks a generation. One that has ended is told, not changed.
    ///
    /// # Errors
    /// `already-decided`, `no-such-generation`.
    pub async fn abort(&self, target: &Target, reason: &str, dry_run: bool) -> Result<Overruled, Error> {
        let target = self.resolve(target).await?;
        self.overrule(&target, "abort", &Override { reason: reason.to_owned() }, dry_run).await
    }

    /// Releases a generation before it is complete: everybody passes, and the
    /// release is not whole.
    ///
    /// # Errors
    /// `already-decided`, `no-such-generation`.
    pub async fn release(&self, target: &Target, reason: &str, dry_run: bool) -> Result<Overruled, Error> {
        let target = self.resolve(target).await?;
        self.overrule(&target, "release", &Release { force: true, reason: reason.to_owned() }, dry_run).await
    }

    /// Goes on without a region, or without some participants of one.
    ///
    /// # Errors
    /// `already-decided`, `not-expected`, `unknown-region`.
    pub async fn waive(&self, target: &Target, waive: &Waive, dry_run: bool) -> Result<Overruled, Error> {
        let target = self.resolve(target).await?;
        self.overrule(&target, "waive", waive, dry_run).await
    }

    /// Opens the next round of a generation that broke; one that is open already
    /// is told, not changed.
    ///
    /// # Errors
    /// `not-broken`, `already-decided`, `expired`.
    pub async fn retry(&self, target: &Target, keep: Keep, reason: &str, dry_run: bool) -> Result<Overruled, Error> {
        let target = self.resolve(target).await?;
        self.overrule(&target, "retry", &Retry { keep, reason: reason.to_owned() }, dry_run).await
    }

    async fn overrule(
        &self,
        target: &Target,
        what: &str,
        body: &impl Serialize,
        dry_run: bool,
    ) -> Result<Overruled, Error> {
        let mut call = Call::new(Method::POST, format!("{}/{what}", target.path()))
            .query_if("dryRun", dry_run.then_some(true))
            .json(body);
        call.mutation = !dry_run;
        self.call(call, json).await
    }
}
