//! Overrides: what people decide instead of participants. Each asks before it
//! acts, can say what it would do, and is kept with its reason.

use std::io::{IsTerminal, Write};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use muster_client::{Client, Error, Target};
use muster_protocol::name::RegionName;
use muster_protocol::participants::IdSet;
use muster_wire::answer::{Overruled, Status};
use muster_wire::request::{Keep, Waive};

use crate::arguments::TargetArgument;
use crate::connect::Context;
use crate::failure::Failure;
use crate::render::ranges;

/// What every override takes.
#[derive(Debug, Args)]
pub(crate) struct OverruleArguments {
    #[command(flatten)]
    target: TargetArgument,
    /// Why; everybody who asks is told
    #[arg(long, required = true, value_name = "TEXT")]
    reason: String,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// `muster release`.
#[derive(Debug, Args)]
pub(crate) struct ReleaseArguments {
    #[command(flatten)]
    overrule: OverruleArguments,
    /// Must be written: everybody passes although not everybody has arrived
    #[arg(long, required = true)]
    force: bool,
}

/// `muster waive`.
#[derive(Debug, Args)]
pub(crate) struct WaiveArguments {
    #[command(flatten)]
    overrule: OverruleArguments,
    /// The region to go on without, wholly unless --id says who
    #[arg(long, required = true, value_name = "REGION")]
    region: RegionName,
    /// Only without these, such as 17,204-205
    #[arg(long, value_name = "IDS")]
    id: Option<String>,
}

/// `muster retry`.
#[derive(Debug, Args)]
pub(crate) struct RetryArguments {
    #[command(flatten)]
    overrule: OverruleArguments,
    /// What is taken over from the round that broke
    #[arg(long, value_enum, default_value = "ok", value_name = "WHAT")]
    keep: KeepArgument,
}

/// What a retry takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeepArgument {
    /// Those that arrived ok have arrived
    Ok,
    /// Nothing: everybody arrives again
    None,
}

pub(crate) async fn abort(arguments: OverruleArguments, context: &Context) -> Result<(), Failure> {
    overrule(&arguments, Verb::Abort, context).await
}

pub(crate) async fn release(arguments: ReleaseArguments, context: &Context) -> Result<(), Failure> {
    overrule(&arguments.overrule, Verb::Release, context).await
}

pub(crate) async fn waive(arguments: WaiveArguments, context: &Context) -> Result<(), Failure> {
    let WaiveArguments { overrule: common, region, id } = arguments;
    let participants = id.map(|text| participants(&region, &text)).transpose()?;
    overrule(&common, Verb::Waive(Waive { region, participants, reason: common.reason.clone() }), context).await
}

pub(crate) async fn retry(arguments: RetryArguments, context: &Context) -> Result<(), Failure> {
    let keep = match arguments.keep {
        KeepArgument::Ok => Keep::Ok,
        KeepArgument::None => Keep::None,
    };
    overrule(&arguments.overrule, Verb::Retry(keep), context).await
}

/// Participants as people copy them from a status: `17,204-205`,
/// `[17,204-205]`, `ap-south/17`.
fn participants(region: &RegionName, text: &str) -> Result<String, Failure> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let prefix = format!("{region}/");
    let items: Vec<String> = ranges(text)
        .into_iter()
        .map(|item| item.trim())
        .map(|item| item.strip_prefix(&prefix).unwrap_or(item))
        .map(|item| match item.split_once('-') {
            // An id as well, but hardly ever meant as one.
            Some((first, last)) if number(first) && number(last) => format!("[{item}]"),
            _ => item.to_owned(),
        })
        .collect();
    match IdSet::parse(&items) {
        Ok(_) => Ok(items.join(",")),
        Err(error) => Err(Failure::usage(format!("--id: {error}"))),
    }
}

/// What is done instead of waiting.
enum Verb {
    Abort,
    Release,
    Waive(Waive),
    Retry(Keep),
}

impl Verb {
    async fn call(&self, client: &Client, target: &Target, reason: &str, dry_run: bool) -> Result<Overruled, Error> {
        match self {
            Self::Abort => client.abort(target, reason, dry_run).await,
            Self::Release => client.release(target, reason, dry_run).await,
            Self::Waive(waive) => client.waive(target, waive, dry_run).await,
            Self::Retry(keep) => client.retry(target, *keep, reason, dry_run).await,
        }
    }

    /// What it means, for whom it has not been meant.
    fn meaning(&self) -> String {
        match self {
            Self::Abort => "abort ends the generation for everybody".to_owned(),
            Self::Release => "release lets everybody pass before everybody has arrived".to_owned(),
            Self::Waive(waive) => format!("waive goes on without {}, for good", whom(waive)),
            Self::Retry(_) => "retry opens the next round for everybody".to_owned(),
        }
    }

    fn question(&self, target: &Target, status: &Status) -> String {
        let arrived = format!("where {} of {} have arrived", status.arrived, status.expected);
        match self {
            Self::Abort => format!("Break {target}, {arrived}?"),
            Self::Release => format!("Release {target}, {arrived}?"),
            Self::Waive(waive) => format!("Go on with {target}, {arrived}, without {}?", whom(waive)),
            Self::Retry(Keep::Ok) => {
                format!("Open the next round of {target}, with the {} that arrived?", status.arrived)
            }
            Self::Retry(Keep::None) => format!("Open the next round of {target}, where everybody arrives again?"),
        }
    }

    fn sentence(&self, target: &Target, overruled: &Overruled, dry_run: bool) -> String {
        let status = &overruled.status;
        let arrived = format!("{} of {} have arrived", status.arrived, status.expected);
        let next = format!("{}@{}", status.barrier, status.generation);
        match (self, overruled.changed, dry_run) {
            (Self::Abort, true, true) => format!("{target} would break; {arrived}"),
            (Self::Abort, true, false) => format!("{target} is broken"),
            (Self::Release, true, true) => format!("{target} would be released; {arrived}"),
            (Self::Release, true, false) => format!("{target} is released; {arrived}"),
            (Self::Waive(waive), true, true) => format!("{target} would go on without {}; {arrived}", whom(waive)),
            (Self::Waive(waive), true, false) => {
                format!("{target} goes on without {}; {arrived} and it is {}", whom(waive), status.state.as_str())
            }
            (Self::Waive(waive), false, _) => format!("{} had been waived in {target}; nothing changed", whom(waive)),
            (Self::Retry(_), true, true) => format!("{next} would open; {arrived}"),
            (Self::Retry(_), true, false) => format!("{next} is open; {arrived}"),
            (Self::Retry(_), false, _) => format!("{next} was open already ({})", status.state.as_str()),
            (Self::Abort | Self::Release, false, _) => {
                format!("{target} was {} already; nothing changed", status.state.as_str())
            }
        }
    }
}

fn whom(waive: &Waive) -> String {
    match &waive.participants {
        Some(participants) => format!("{participants} of {}", waive.region),
        None => format!("all of {}", waive.region),
    }
}

async fn overrule(arguments: &OverruleArguments, verb: Verb, context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let target = client.resolve(&context.target(&arguments.target.target)?).await?;
    if !(arguments.yes || arguments.dry_run) {
        may_ask(&verb.meaning())?;
        ask(&verb.question(&target, &client.status(&target, None).await?))?;
    }
    let overruled = verb.call(&client, &target, &arguments.reason, arguments.dry_run).await?;
    let name = format!("{}@{}", overruled.status.barrier, overruled.status.generation);
    context.show_done(&overruled, || name, || verb.sentence(&target, &overruled, arguments.dry_run))
}

/// A script must say that it means it.
pub(crate) fn may_ask(meaning: &str) -> Result<(), Failure> {
    match std::io::stdin().is_terminal() {
        true => Ok(()),
        false => Err(Failure::usage(format!("{meaning}; add --yes to mean it"))),
    }
}

/// A person is asked.
pub(crate) fn ask(question: &str) -> Result<(), Failure> {
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("read the answer")?;
    match matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => Err(anyhow::anyhow!("nothing was done").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn participants_are_read_as_they_are_shown() {
        let read = |text: &str| participants(&"ap-south".parse().unwrap(), text).map_err(|f| f.sentence().unwrap());
        assert_eq!(read("17,204-205").unwrap(), "17,[204-205]");
        assert_eq!(read("[17,204-205]").unwrap(), "[17,204-205]");
        assert_eq!(read("ap-south/17").unwrap(), "17");
        assert_eq!(read("w-a, w-b").unwrap(), "w-a,w-b");
        assert!(read("us-east/17").unwrap_err().contains("--id"));
        assert!(read("9-3").unwrap_err().contains("ends before"));
    }

    #[test]
    fn what_was_done_is_one_sentence() {
        let mut status = crate::render::tests::gathering();
        status.arrived = 3069;
        let target: Target = "etl/map@2026-10-07".parse().unwrap();
        let waive = |participants: Option<&str>| {
            let participants = participants.map(str::to_owned);
            Verb::Waive(Waive { region: "ap-south".parse().unwrap(), participants, reason: String::new() })
        };
        let said = |verb: &Verb, changed, dry_run| {
            verb.sentence(&target, &Overruled { status: status.clone(), changed, dry_run }, dry_run)
        };
        assert_eq!(said(&Verb::Abort, true, false), "etl/map@2026-10-07 is broken");
        assert_eq!(said(&Verb::Abort, false, false), "etl/map@2026-10-07 was gathering already; nothing changed");
        assert_eq!(said(&Verb::Release, true, true), "etl/map@2026-10-07 would be released; 3069 of 3072 have arrived");
        assert_eq!(
            said(&waive(Some("17")), true, false),
            "etl/map@2026-10-07 goes on without 17 of ap-south; 3069 of 3072 have arrived and it is gathering"
        );
        assert_eq!(
            said(&waive(None), false, false),
            "all of ap-south had been waived in etl/map@2026-10-07; nothing changed"
        );
        assert!(said(&Verb::Retry(Keep::Ok), true, true).starts_with("etl/map@2026-10-07 would open"));
        assert!(waive(None).question(&target, &status).ends_with("without all of ap-south?"));
    }
}
