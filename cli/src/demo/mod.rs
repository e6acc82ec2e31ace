//! `muster demo mapreduce`: a word count in three regions, whose phases are
//! gated by barriers.
//!
//! ```text
//! input ─ split ─▶ workers: map ─┤demo/map├─ shuffle ─┤demo/shuffle├─ reduce ─┤demo/reduce├─▶ result
//! ```
//!
//! The [workers](worker) are processes that know their region's agents and the
//! run's folder. Nobody reads a file of that folder before the barrier behind
//! which it was written has released, which is all that makes reading safe; the
//! proof is that the result equals a count in a single pass. The
//! [supervisors](crew) stand for workers that die. Every wait has an end: a
//! release, a broken barrier, or the run's limit.

mod arguments;
mod barriers;
mod course;
mod crew;
mod folder;
mod follow;
mod input;
mod job;
mod mapreduce;
mod report;
mod roster;
mod screen;
mod services;
mod words;
pub(crate) mod worker;

pub(crate) use self::arguments::{DemoArguments, repeated};
pub(crate) use self::crew::WORKER;
pub(crate) use self::services::{REGIONS, ready};

use tracing::level_filters::LevelFilter;

use self::arguments::DemoCommand;
use crate::connect::Context;
use crate::failure::Failure;

/// Runs a demo.
///
/// # Errors
/// The counts differ (1), the input or an option is wrong (1, 2), the barrier
/// broke (3), a service can't be reached (75), it was interrupted (130, 143).
pub(crate) async fn demo(arguments: DemoArguments, context: &Context) -> Result<(), Failure> {
    let mut telemetry = muster_telemetry::Options::new("muster-demo", std::process::id().to_string());
    // A warning of a service is not for whoever looks at words.
    telemetry.log_level = LevelFilter::ERROR;
    let _guard = muster_telemetry::init(&telemetry).map_err(anyhow::Error::new)?;
    let DemoCommand::Mapreduce(arguments) = arguments.command;
    mapreduce::mapreduce(arguments, context).await
}
