//! Why a generation is not released yet.

use crate::arguments::TargetArgument;
use crate::connect::Context;
use crate::failure::Failure;
use crate::render;

pub(crate) async fn why(arguments: TargetArgument, context: &Context) -> Result<(), Failure> {
    let target = context.target(&arguments.target)?;
    let explanation = context.client()?.explain(&target).await?;
    let names = || explanation.participants.iter().map(|one| one.participant.clone()).collect();
    context.show(&explanation, names, || render::why(&explanation, render::now()))
}
