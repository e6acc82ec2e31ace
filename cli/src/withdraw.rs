//! Taking an attempt back.

use crate::arguments::PartArguments;
use crate::connect::Context;
use crate::failure::Failure;

pub(crate) async fn withdraw(part: PartArguments, context: &Context) -> Result<(), Failure> {
    let target = context.target(&part.target.target)?;
    let participant = part.participant.resolve()?;
    let region = participant.region.as_ref().map(|region| region.as_str());
    let client = context.participant(context.until())?;
    client.withdraw(&target, &participant.id, part.attempt, region).await?;
    context.tell(&format!("attempt {} of {} is withdrawn, for good", part.attempt.unwrap_or(1), participant.id));
    Ok(())
}
