//! Arriving by hand, or at the end of a script.

use clap::Args;
use muster_protocol::region::ArrivalOutcome;
use muster_wire::answer::Arrived;
use muster_wire::request::Arrival;

use crate::arguments::PartArguments;
use crate::connect::Context;
use crate::failure::Failure;
use crate::wait;

/// `muster arrive`.
#[derive(Debug, Args)]
pub(crate) struct ArriveArguments {
    #[command(flatten)]
    part: PartArguments,
    /// The work went wrong
    #[arg(long)]
    failed: bool,
    /// Something to leave for those who pass, at most 4 KiB
    #[arg(long, value_name = "TEXT")]
    output: Option<String>,
    /// A word about it, at most 1 KiB
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Wait for the release, too
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn arrive(arguments: ArriveArguments, context: &Context) -> Result<(), Failure> {
    let target = context.target(&arguments.part.target.target)?;
    let participant = arguments.part.participant.resolve()?;
    let arrival = Arrival {
        attempt: arguments.part.attempt,
        outcome: arguments.failed.then_some(ArrivalOutcome::Failed),
        note: arguments.note,
        output: arguments.output,
        session: None,
        region: participant.region,
    };
    let client = context.participant(context.until())?;
    if arguments.wait {
        let released = client.arrive_and_wait(&target, &participant.id, &arrival, context.until()).await?;
        return wait::show(&released, context);
    }
    let arrived = client.arrive(&target, &participant.id, &arrival).await?;
    context.show_done(&arrived, || arrived.participant.clone(), || sentence(&arrived))
}

/// What an arrival came to.
pub(crate) fn sentence(arrived: &Arrived) -> String {
    let how = match (arrived.outcome, arrived.first, arrived.late) {
        (_, _, true) => "came after the release",
        (ArrivalOutcome::Ok, true, _) => "has arrived",
        (ArrivalOutcome::Ok, false, _) => "had arrived before",
        (ArrivalOutcome::Failed, true, _) => "has failed",
        (ArrivalOutcome::Failed, false, _) => "had failed before",
    };
    let Arrived { barrier, generation, participant, arrived, expected, .. } = arrived;
    format!("{participant} {how} at {barrier}@{generation}; {arrived} of {expected} in its region")
}
