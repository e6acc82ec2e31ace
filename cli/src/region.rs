//! Regions: list, declare, plan their absence, and take another log for one.

use clap::{Args, Subcommand, ValueEnum};
use muster_protocol::identity::{History, Timestamp};
use muster_protocol::name::RegionName;
use muster_wire::answer::{Link, Region};
use muster_wire::request::{Adopt, Drain, DrainOpen};

use crate::config::ConfigArguments;
use crate::connect::Context;
use crate::failure::Failure;
use crate::{overrule, render, service};

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
    /// Let generations that open go on without a region for a time
    Drain {
        /// The region
        #[arg(value_name = "REGION")]
        region: RegionName,
        /// When that ends by itself: 2h, or an instant (RFC 3339)
        #[arg(long, required = true, value_name = "TIME")]
        until: String,
        /// What becomes of generations that gather now
        #[arg(long, value_enum, default_value = "keep", value_name = "WHAT")]
        open: OpenArgument,
        /// Why; kept in the audit log
        #[arg(long, required = true, value_name = "TEXT")]
        reason: String,
    },
    /// End a planned absence before its time
    Resume {
        /// The region
        #[arg(value_name = "REGION")]
        region: RegionName,
        /// Why; kept in the audit log
        #[arg(long, required = true, value_name = "TEXT")]
        reason: String,
    },
    /// Take another log for a region's, one that was restored or made anew
    Adopt {
        /// The region
        #[arg(value_name = "REGION")]
        region: RegionName,
        /// The log's history, as `muster regions` shows it
        #[arg(long, required = true, value_name = "HISTORY", value_parser = history)]
        history: History,
        /// Why; kept in the audit log
        #[arg(long, required = true, value_name = "TEXT")]
        reason: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Begin a region's log anew on its etcd, with what can still be read of it
    ///
    /// For a region whose etcd was restored from a backup or lost its log's head.
    /// Stop the region's agents first.
    Recover {
        #[command(flatten)]
        config: ConfigArguments,
        /// The highest index that the coordinator has of the region, as
        /// `muster regions -o json` shows it
        #[arg(long, required = true, value_name = "INDEX")]
        seen: u64,
        /// Why; kept in the agent's log
        #[arg(long, required = true, value_name = "TEXT")]
        reason: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// What becomes of generations that gather when a region is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OpenArgument {
    /// They wait for the region
    Keep,
    /// They go on without it
    Waive,
}

fn history(text: &str) -> Result<History, String> {
    text.parse().map_err(|error| format!("{error}"))
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
    if let RegionCommand::Recover { config, seen, reason, yes } = arguments.command {
        if !yes {
            overrule::may_ask("recover begins the region's log anew: what can't be read of it any more is lost")?;
            overrule::ask("Begin the region's log anew?")?;
        }
        return service::recover(&config, seen, &reason, context).await;
    }
    let client = context.client()?;
    let (region, sentence) = match arguments.command {
        RegionCommand::Recover { .. } => unreachable!("done above"),
        RegionCommand::Declare { region } => (client.declare_region(&region).await?, format!("{region} is declared")),
        RegionCommand::Drain { region, until, open, reason } => {
            let open = match open {
                OpenArgument::Keep => DrainOpen::Keep,
                OpenArgument::Waive => DrainOpen::Waive,
            };
            let drained = client.drain_region(&region, &Drain { until, open, reason }).await?;
            let until = drained.drained.as_ref().map(|drained| render::until(render::now(), &drained.until));
            let sentence = format!("{region} is drained; that ends {}", until.unwrap_or_else(|| "now".to_owned()));
            (drained, sentence)
        }
        RegionCommand::Resume { region, reason } => {
            (client.resume_region(&region, &reason).await?, format!("{region} is waited for again"))
        }
        RegionCommand::Adopt { region, history, reason, yes } => {
            if !yes {
                overrule::may_ask("adopt gives up what only the region's former log knows")?;
                overrule::ask(&format!("Take {history} for the log of {region}, and give up the former one?"))?;
            }
            let adopted = client.adopt_region(&region, &Adopt { history, reason }).await?;
            (adopted, format!("{history} is the log of {region}"))
        }
    };
    context.show_done(&region, || region.name.to_string(), || sentence)
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
            notes(region, now),
            agents.join(", "),
        ]
    };
    // A column of notes takes no room where there are none.
    let notes = if regions.iter().any(|region| !notes(region, now).is_empty()) { "NOTES" } else { "" };
    match regions.is_empty() {
        true => String::new(),
        false => render::table(["REGION", "LINK", "HEARD", notes, "AGENTS"], regions.iter().map(row)),
    }
}

/// What is out of the ordinary.
fn notes(region: &Region, now: Timestamp) -> String {
    let drained = region
        .drained
        .as_ref()
        .map(|drained| format!("drained ({}), ends {}", drained.reason, render::until(now, &drained.until)));
    let unknown = region.unknown_histories.iter().map(|history| format!("another log {history} asks to be adopted"));
    drained.into_iter().chain(unknown).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_wire::time::parse_rfc3339;

    #[test]
    fn regions_are_a_table() {
        let mut regions: Vec<Region> = serde_json::from_str(
            r#"[{"name":"us-east","link":"up","history":null,"index":3,"lastHeardAt":"2026-10-07T11:59:59Z",
                 "agents":[{"name":"a","instance":"i","address":"http://127.0.0.1:7171","lastHeardAt":""}]},
                {"name":"eu-west","link":"never","history":null,"index":null,"lastHeardAt":null,"agents":[]}]"#,
        )
        .unwrap();
        let now = parse_rfc3339("2026-10-07T12:00:00Z").unwrap();
        let expected = "\
REGION   LINK            HEARD     AGENTS
us-east  up              1.0s ago  a (http://127.0.0.1:7171)
eu-west  never heard of
";
        assert_eq!(table(&regions, now), expected);
        let drained = r#"{"until":"2026-10-07T13:00:00Z","actor":null,"reason":"upgrade"}"#;
        regions[0].drained = serde_json::from_str(drained).unwrap();
        regions[1].unknown_histories = vec!["ab12".to_owned()];
        let expected = "\
REGION   LINK            HEARD     NOTES                                AGENTS
us-east  up              1.0s ago  drained (upgrade), ends in 1h        a (http://127.0.0.1:7171)
eu-west  never heard of            another log ab12 asks to be adopted
";
        assert_eq!(table(&regions, now), expected);
    }
}
