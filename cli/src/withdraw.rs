//! Taking an attempt back.

use clap::Args;

use crate::arguments::TargetArgument;
use crate::connect::Context;
use crate::failure::Failure;
use crate::participant::ParticipantArgument;

/// `muster withdraw`.
#[derive(Debug, Args)]
pub(crate) struct WithdrawArguments {
    #[command(flatten)]
    target: TargetArgument,
    #[command(flatten)]
    participant: ParticipantArgument,
    /// This attempt, and all before it; 1 when left out
    #[arg(long, env = "MUSTER_ATTEMPT", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    attempt: Option<u32>,
}

pub(crate) async fn withdraw(arguments: WithdrawArguments, context: &Context) -> Result<(), Failure> {
    let target = context.target(&arguments.target.target)?;
    let participant = arguments.participant.resolve()?;
    let region = participant.region.as_ref().map(|region| region.as_str());
    let client = context.participant(context.until())?;
    client.withdraw(&target, &participant.id, arguments.attempt, region).await?;
    context.tell(&format!("attempt {} of {} is withdrawn, for good", arguments.attempt.unwrap_or(1), participant.id));
    Ok(())
}
