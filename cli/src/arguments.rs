//! What can be written after `muster`. Each command's own arguments stand in
//! its file.

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use muster_client::Target;
use muster_wire::time::parse_duration;

use crate::participant::ParticipantArgument;

/// Barriers across regions: nobody passes until every region has arrived.
#[derive(Debug, Parser)]
#[command(name = "muster", version, propagate_version = false, arg_required_else_help = true, after_help = CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const CODES: &str = "Exit codes: 0 released or done, 1 error, 2 usage, 3 broken, 4 refused, 5 session lost or fenced,
75 nobody reachable or outcome unknown, 124 timed out.";

/// Apart from what a command has of its own.
const EVERYWHERE: &str = "Options of every command";

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Services to talk to, with commas between; the first that answers serves
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "MUSTER_ADDR", default_value = "http://127.0.0.1:7170", value_name = "URL")]
    pub(crate) addr: String,
    /// Give up after so long, such as 30s or 2h
    #[arg(long, global = true, help_heading = EVERYWHERE, value_parser = parse_duration, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
    /// How to print data
    #[arg(short = 'o', long = "format", global = true, help_heading = EVERYWHERE, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
}

/// How to print data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// The service's own document
    Json,
    /// The same as YAML
    Yaml,
    /// Names alone, one a line
    Name,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Define barriers from a file; an equal definition changes nothing
    Apply(crate::apply::ApplyArguments),
    /// Show what applying a file would change
    Diff(crate::apply::DiffArguments),
    /// Delete the barriers of a file
    Delete(crate::apply::DeleteArguments),
    /// List what is open
    Ls(crate::ls::LsArguments),
    /// List the generations of a barrier
    History(crate::ls::HistoryArguments),
    /// Show how far a generation has come
    Status(crate::status::StatusArguments),
    /// Say why a generation is not released yet, and what can be done
    Why(TargetArgument),
    /// Open a generation ahead of its first arrival
    Open(crate::open::OpenArguments),
    /// Arrive, once the work is done
    Arrive(crate::arrive::ArriveArguments),
    /// Take an attempt back, and all before it, for good
    Withdraw(PartArguments),
    /// Wait until generations are released
    Wait(crate::wait::WaitArguments),
    /// Print what participants left
    Outputs(TargetArgument),
    /// Run a command, arrive with its outcome, and wait
    Run(crate::run::RunArguments),
    /// Go on without a region, or without some of its participants
    Waive(crate::overrule::WaiveArguments),
    /// End a generation for everybody, without a release
    Abort(crate::overrule::OverruleArguments),
    /// Open the next round of a generation that broke
    Retry(crate::overrule::RetryArguments),
    /// Let everybody pass before everybody has arrived
    Release(crate::overrule::ReleaseArguments),
    /// List who overrode what
    Audit(crate::audit::AuditArguments),
    /// List the regions
    Regions,
    /// Manage a region
    Region(crate::region::RegionArguments),
    /// Print the version of this program, or of the services
    Version(crate::version::VersionArguments),
    /// Print a completion script for a shell
    Completion(crate::completion::CompletionArguments),
    /// Bring the coordinator's Postgres to this version's schema
    Migrate(crate::migrate::MigrateArguments),
    /// Run the agent of a region
    Agent(crate::service::AgentArguments),
    /// Run a coordinator
    Coordinator(crate::service::CoordinatorArguments),
    /// Run the whole service in one process, for your own scripts
    Dev(crate::dev::DevArguments),
    /// See it work: a job in three regions whose phases are gated by barriers
    Demo(crate::demo::DemoArguments),
    /// One worker of the demo, which starts it
    #[command(name = crate::demo::WORKER, hide = true)]
    DemoWorker,
}

/// One generation.
#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgument {
    /// namespace/name, with @key or @number where there are many; else
    /// MUSTER_GENERATION says which
    #[arg(value_name = "BARRIER[@GENERATION]", value_parser = target)]
    pub(crate) target: Target,
}

/// One participant's part in one generation.
#[derive(Clone, Debug, Args)]
pub(crate) struct PartArguments {
    #[command(flatten)]
    pub(crate) target: TargetArgument,
    #[command(flatten)]
    pub(crate) participant: ParticipantArgument,
    /// Which attempt of the participant; left out, run takes the next one and
    /// the others mean the first
    #[arg(long, env = "MUSTER_ATTEMPT", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
}

/// Reads a target; the problem's sentence is what clap prints.
pub(crate) fn target(text: &str) -> Result<Target, String> {
    text.parse().map_err(|problem: Box<muster_wire::problem::Problem>| problem.detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_table_of_commands_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn mistakes_are_usage() {
        for line in [
            "muster fly",
            "muster status",
            "muster status etl",
            "muster status etl/map@a~b",
            "muster wait",
            "muster run etl/map@1",
            "muster abort etl/map@1",
            "muster retry etl/map@1",
            "muster retry etl/map@1 --reason x --keep some",
            "muster release etl/map@1 --reason x",
            "muster waive etl/map@1 --reason x",
            "muster region drain us-east --reason x",
            "muster region adopt us-east --history 12 --reason x",
            "muster audit --limit 0",
            "muster ls --timeout soon",
            "muster ls -o xml",
            "muster arrive etl/map@1 --failed --outcome",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
        assert!(parse("muster status etl").unwrap_err().to_string().contains("namespace/name"));
    }

    #[test]
    fn commands_are_read() {
        let Arguments { global, command } =
            parse("muster wait etl/map@1 etl/x@k~2 --any --timeout 1m30s -o json").unwrap();
        assert_eq!(global.timeout, Some(Duration::from_secs(90)));
        assert_eq!(global.format, Some(Format::Json));
        let Command::Wait(wait) = command else { panic!("{command:?}") };
        assert!(wait.any && wait.targets.len() == 2);
        let Command::Run(run) = parse("muster run etl/map@1 --id 3 --no-wait -- ./map.sh -x --id 7").unwrap().command
        else {
            panic!()
        };
        assert_eq!(run.command, ["./map.sh", "-x", "--id", "7"]);
        assert!(run.no_wait);
    }
}
