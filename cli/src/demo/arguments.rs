//! What can be written after `muster demo`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use muster_protocol::name::RegionName;

use super::roster::{Slow, WorkerName};

/// Processes that one machine bears.
const WORKERS_MAX: i64 = 64;

#[derive(Debug, Args)]
pub(crate) struct DemoArguments {
    #[command(subcommand)]
    pub(crate) command: DemoCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Count words in three regions; map, shuffle and reduce each end at a barrier
    Mapreduce(MapreduceArguments),
}

#[derive(Debug, Args)]
pub(crate) struct MapreduceArguments {
    /// Count the text files below this folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) input: PathBuf,
    /// Workers in each region
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=WORKERS_MAX))]
    pub(crate) workers: u32,
    /// Who is slow in map, such as ap-south/2 or ap-south/2=5s; none: nobody
    #[arg(long, value_name = "REGION/N", num_args = 0..=1, default_value = "some", default_missing_value = "some")]
    pub(crate) slow: Slow,
    /// Kill this worker with SIGKILL in the middle of map
    #[arg(long, value_name = "REGION/N")]
    pub(crate) kill: Option<WorkerName>,
    /// The coordinator of running services; else services of its own, in this process
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The regions, with commas between [default: us-east,eu-west,ap-south, or all that are declared at --server]
    #[arg(long, value_name = "REGIONS", value_delimiter = ',')]
    pub(crate) regions: Option<Vec<RegionName>>,
    /// Keep the folder with the files that workers left for each other
    #[arg(long)]
    pub(crate) keep: bool,
}

impl MapreduceArguments {
    /// A region that is named twice would expect its workers twice.
    pub(crate) fn repeated_region(&self) -> Option<&RegionName> {
        repeated(self.regions.as_deref().unwrap_or_default())
    }
}

/// The first region that is named again.
pub(crate) fn repeated(regions: &[RegionName]) -> Option<&RegionName> {
    regions.iter().enumerate().find(|(index, region)| regions[..*index].contains(region)).map(|(_, region)| region)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::time::Duration;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        demo: DemoArguments,
    }

    fn parse(line: &str) -> Result<MapreduceArguments, clap::Error> {
        let line = Line::try_parse_from(std::iter::once("demo").chain(line.split_whitespace()))?;
        let DemoCommand::Mapreduce(arguments) = line.demo.command;
        Ok(arguments)
    }

    #[test]
    fn options_are_read() {
        let plain = parse("mapreduce").unwrap();
        assert_eq!((plain.workers, plain.slow, plain.kill), (3, Slow::Some, None));
        assert_eq!(parse("mapreduce --slow --workers 5").unwrap().slow, Slow::Some);
        assert_eq!(parse("mapreduce --slow none").unwrap().slow, Slow::Nobody);
        let slow = parse("mapreduce --slow a/1=300ms").unwrap().slow;
        assert_eq!(slow, Slow::One("a/1".parse().unwrap(), Duration::from_millis(300)));
        let full = parse("mapreduce --input x --kill ap-south/2 --server u --regions a,b --keep").unwrap();
        assert_eq!(full.kill.unwrap().to_string(), "ap-south/2");
        assert_eq!(full.regions.unwrap().len(), 2);
    }

    #[test]
    fn mistakes_are_usage() {
        for line in [
            "",
            "fly",
            "mapreduce --workers 0",
            "mapreduce --workers 65",
            "mapreduce --workers x",
            "mapreduce --kill ap-south",
            "mapreduce --kill",
            "mapreduce --slow ap-south/2=soon",
            "mapreduce --regions A",
            "mapreduce --regions a,,b",
            "mapreduce folder",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
        assert_eq!(parse("mapreduce --regions a,b,a").unwrap().repeated_region().unwrap().as_str(), "a");
        assert!(parse("mapreduce --regions a,b").unwrap().repeated_region().is_none());
    }
}
