//! Waiting for releases.

use clap::Args;
use muster_client::{Target, Waiting};
use muster_wire::answer::Released;
use muster_wire::code::Code;

use crate::connect::Context;
use crate::failure::Failure;

/// `muster wait`.
#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// What to wait for: namespace/name, with @key or @number where there are
    /// many
    #[arg(required = true, value_name = "BARRIER[@GENERATION]", value_parser = crate::arguments::target)]
    pub(crate) targets: Vec<Target>,
    /// One release is enough
    #[arg(long)]
    pub(crate) any: bool,
    /// Only a whole release counts: nobody failed or was left out
    #[arg(long)]
    pub(crate) whole: bool,
    /// Wait for what is not defined or not open yet, too
    #[arg(long)]
    pub(crate) await_definition: bool,
}

pub(crate) async fn wait(arguments: WaitArguments, context: &Context) -> Result<(), Failure> {
    let targets: Vec<Target> = arguments.targets.iter().map(|one| context.target(one)).collect::<Result<_, _>>()?;
    let client = context.participant(context.until())?;
    let how = Waiting { until: context.until(), await_definition: arguments.await_definition };
    let released = match (arguments.any, targets.as_slice()) {
        (true, targets) => vec![client.wait_any(targets, how).await?],
        (false, targets) => client.wait_all(targets, how).await?,
    };
    if let Some(partial) = released.iter().find(|one| arguments.whole && !one.whole) {
        let name = name(partial);
        return Err(Failure::refused(Code::NotWhole, format!("{name} was released, but not whole")));
    }
    match released.as_slice() {
        [one] => show(one, context),
        many => {
            many.iter().for_each(|one| context.tell(&sentence(one)));
            context.show(&many, || many.iter().map(name).collect(), String::new)
        }
    }
}

/// Tells of one release.
pub(crate) fn show(released: &Released, context: &Context) -> Result<(), Failure> {
    context.show_done(released, || name(released), || sentence(released))
}

fn name(released: &Released) -> String {
    format!("{}@{}", released.barrier, released.generation)
}

fn sentence(released: &Released) -> String {
    let whole = if released.whole { "" } else { ", but not whole" };
    format!("{} is released{whole}", name(released))
}
