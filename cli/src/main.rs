//! `muster`: barriers across regions, at the command line.
//!
//! Verdicts and mistakes go to standard error, data to standard output. The
//! exit code tells what happened: 0 released or done, 1 an error, 2 usage,
//! 3 broken, 4 refused, 5 session lost or fenced, 75 nobody reachable or the
//! outcome unknown, 124 timed out.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apply;
mod arguments;
mod arrive;
mod audit;
mod completion;
mod config;
mod connect;
mod demo;
mod dev;
#[cfg(feature = "failpoints")]
mod failpoints;
mod failure;
mod ls;
mod migrate;
mod open;
mod outputs;
mod overrule;
mod participant;
mod region;
mod render;
mod run;
mod service;
mod signals;
mod status;
mod version;
mod wait;
mod why;
mod withdraw;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::connect::Context;
use crate::failure::Failure;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    failpoints::arm();
    let Arguments { global, command } = Arguments::parse();
    let context = Context::new(global);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(&Failure::from(anyhow::Error::new(error).context("start the runtime"))),
    };
    let outcome = runtime.block_on(dispatch(command, &context));
    // A read of standard input that nobody waits for must not hold the exit.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure),
    }
}

fn end(failure: &Failure) -> ExitCode {
    if let Some(sentence) = failure.sentence() {
        eprintln!("muster: {sentence}");
    }
    ExitCode::from(failure.exit_code())
}

async fn dispatch(command: Command, context: &Context) -> Result<(), Failure> {
    match command {
        Command::Apply(arguments) => apply::apply(arguments, context).await,
        Command::Diff(arguments) => apply::diff(arguments, context).await,
        Command::Delete(arguments) => apply::delete(arguments, context).await,
        Command::Ls(arguments) => ls::ls(arguments, context).await,
        Command::History(arguments) => ls::history(arguments, context).await,
        Command::Status(arguments) => status::status(arguments, context).await,
        Command::Why(arguments) => why::why(arguments, context).await,
        Command::Open(arguments) => open::open(arguments, context).await,
        Command::Arrive(arguments) => arrive::arrive(arguments, context).await,
        Command::Withdraw(arguments) => withdraw::withdraw(arguments, context).await,
        Command::Wait(arguments) => wait::wait(arguments, context).await,
        Command::Outputs(arguments) => outputs::outputs(arguments, context).await,
        Command::Run(arguments) => run::run(arguments, context).await,
        Command::Waive(arguments) => overrule::waive(arguments, context).await,
        Command::Abort(arguments) => overrule::abort(arguments, context).await,
        Command::Retry(arguments) => overrule::retry(arguments, context).await,
        Command::Release(arguments) => overrule::release(arguments, context).await,
        Command::Audit(arguments) => audit::audit(arguments, context).await,
        Command::Regions => region::regions(context).await,
        Command::Region(arguments) => region::region(arguments, context).await,
        Command::Version(arguments) => version::version(arguments, context).await,
        Command::Completion(arguments) => completion::completion(arguments),
        Command::Migrate(arguments) => migrate::migrate(arguments, context).await,
        Command::Agent(arguments) => service::agent(arguments).await,
        Command::Coordinator(arguments) => service::coordinator(arguments).await,
        Command::Dev(arguments) => dev::dev(arguments).await,
        Command::Demo(arguments) => demo::demo(arguments, context).await,
        Command::DemoWorker => demo::worker::run().await,
    }
}
