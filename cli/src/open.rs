//! Opening a generation ahead of its first arrival.

use clap::Args;
use muster_client::Target;
use muster_wire::reference::Reference;

use crate::arguments::TargetArgument;
use crate::connect::Context;
use crate::failure::Failure;

/// `muster open`.
#[derive(Debug, Args)]
pub(crate) struct OpenArguments {
    #[command(flatten)]
    target: TargetArgument,
}

pub(crate) async fn open(arguments: OpenArguments, context: &Context) -> Result<(), Failure> {
    let Target { barrier, generation } = context.target(&arguments.target.target)?;
    if generation.as_ref().is_some_and(|id| id.round().is_some() || *id == Reference::Latest) {
        return Err(Failure::usage("open takes a key without a round, such as etl/map@2026-10-07"));
    }
    let opened = context.client()?.open(&barrier, generation.as_ref().and_then(Reference::key)).await?;
    let name = format!("{barrier}@{}", opened.generation);
    context.show_done(
        &opened,
        || name.clone(),
        || match opened.created {
            true => format!("{name} is open"),
            false => format!("{name} was open already ({})", opened.state.as_str()),
        },
    )
}
