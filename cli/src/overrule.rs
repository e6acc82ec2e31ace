//! Ending a generation for everybody.

use std::io::{IsTerminal, Write};

use anyhow::Context as _;
use clap::Args;
use muster_client::{Client, Target};

use crate::arguments::TargetArgument;
use crate::connect::Context;
use crate::failure::Failure;

/// `muster abort`.
#[derive(Debug, Args)]
pub(crate) struct AbortArguments {
    #[command(flatten)]
    target: TargetArgument,
    /// Why; everybody who waits is told
    #[arg(long, required = true, value_name = "TEXT")]
    reason: String,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn abort(arguments: AbortArguments, context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let target = client.resolve(&context.target(&arguments.target.target)?).await?;
    if !(arguments.yes || arguments.dry_run) {
        confirm(&client, &target).await?;
    }
    let aborted = client.abort(&target, &arguments.reason, arguments.dry_run).await?;
    context.show_done(
        &aborted,
        || target.to_string(),
        || {
            let status = &aborted.status;
            match (aborted.changed, arguments.dry_run) {
                (true, true) => format!("{target} would break; {} of {} have arrived", status.arrived, status.expected),
                (true, false) => format!("{target} is broken"),
                (false, _) => format!("{target} was {} already; nothing changed", status.state.as_str()),
            }
        },
    )
}

/// A person is asked; a script must say that it means it.
async fn confirm(client: &Client, target: &Target) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("abort ends the generation for everybody; add --yes to mean it, or --dry-run"));
    }
    let status = client.status(target, None).await?;
    eprint!("Break {target}, where {} of {} have arrived? [y/N] ", status.arrived, status.expected);
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("read the answer")?;
    match matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => Err(anyhow::anyhow!("not aborted").into()),
    }
}
