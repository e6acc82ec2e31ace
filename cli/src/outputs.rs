//! What participants left.

use serde_json::Value;

use crate::arguments::TargetArgument;
use crate::connect::Context;
use crate::failure::Failure;
use crate::render;

pub(crate) async fn outputs(arguments: TargetArgument, context: &Context) -> Result<(), Failure> {
    let target = context.target(&arguments.target)?;
    let document = context.client()?.outputs(&target).await?;
    let rows = rows(&document);
    let names = || rows.iter().map(|[participant, _]| participant.clone()).collect();
    context.show(&document, names, || render::table(["PARTICIPANT", "OUTPUT"], rows.iter().cloned()))
}

/// Participant and text of each output.
fn rows(document: &Value) -> Vec<[String; 2]> {
    let outputs = document.get("outputs").and_then(Value::as_object);
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    outputs.into_iter().flatten().map(|(participant, value)| [participant.clone(), text(value)]).collect()
}
