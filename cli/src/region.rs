//! Regions: list and declare.

use clap::{Args, Subcommand};
use muster_protocol::identity::Timestamp;
use muster_protocol::name::RegionName;
use muster_wire::answer::{Link, Region};

use crate::connect::Context;
use crate::failure::Failure;
use crate::render;

/// `muster region`.
#[derive(Debug, Args)]
pub(crate) struct RegionArguments {
    #[command(subcommand)]
    command: RegionCommand,
}

#[derive(Debug, Subcommand)]
enum RegionCommand {
    /// Declare a region, so that barriers may name it
    Declare {
        /// 1 to 63 of a-z 0-9 -
        #[arg(value_name = "REGION")]
        region: RegionName,
    },
}

pub(crate) async fn regions(context: &Context) -> Result<(), Failure> {
    let regions = context.client()?.regions().await?;
    let names = || regions.iter().map(|region| region.name.to_string()).collect();
    context.show(&regions, names, || table(&regions, render::now()))?;
    if regions.is_empty() {
        context.tell("no regions; `muster region declare NAME` declares one");
    }
    Ok(())
}

pub(crate) async fn region(arguments: RegionArguments, context: &Context) -> Result<(), Failure> {
    let RegionCommand::Declare { region } = arguments.command;
    let declared = context.client()?.declare_region(&region).await?;
    context.show_done(&declared, || region.to_string(), || format!("{region} is declared"))
}

fn table(regions: &[Region], now: Timestamp) -> String {
    let row = |region: &Region| {
        let link = match region.link {
            Link::Up => "up",
            Link::Silent => "silent",
            Link::Never => "never heard of",
            Link::Unknown => "unknown",
        };
        let agents: Vec<String> =
            region.agents.iter().map(|agent| format!("{} ({})", agent.name, agent.address)).collect();
        [
            region.name.to_string(),
            link.to_owned(),
            region.last_heard_at.as_ref().map(|at| render::ago(now, at)).unwrap_or_default(),
            agents.join(", "),
        ]
    };
    match regions.is_empty() {
        true => String::new(),
        false => render::table(["REGION", "LINK", "HEARD", "AGENTS"], regions.iter().map(row)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_wire::time::parse_rfc3339;

    #[test]
    fn regions_are_a_table() {
        let regions: Vec<Region> = serde_json::from_str(
            r#"[{"name":"us-east","link":"up","history":null,"index":3,"lastHeardAt":"2026-10-07T11:59:59Z",
                 "agents":[{"name":"a","instance":"i","address":"http://127.0.0.1:7171","lastHeardAt":""}]},
                {"name":"eu-west","link":"never","history":null,"index":null,"lastHeardAt":null,"agents":[]}]"#,
        )
        .unwrap();
        let expected = "\
REGION   LINK            HEARD     AGENTS
us-east  up              1.0s ago  a (http://127.0.0.1:7171)
eu-west  never heard of
";
        assert_eq!(table(&regions, parse_rfc3339("2026-10-07T12:00:00Z").unwrap()), expected);
    }
}
