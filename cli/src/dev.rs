//! `muster dev`: the whole service in this process, until it is told to end.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use muster_embedded::{Embedded, Options};
use muster_protocol::name::RegionName;
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;

use crate::demo::{REGIONS, ready, repeated};
use crate::failure::Failure;
use crate::signals::Signals;

const PORT: u16 = 7170;
/// More agents share a line.
const AGENT_LINES_MAX: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct DevArguments {
    /// The coordinator's port; the agents take the next ones
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Keep definitions, arrivals and outcomes here; without it nothing is stored
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The regions, with commas between
    #[arg(long, value_name = "REGIONS", value_delimiter = ',', default_values = REGIONS)]
    regions: Vec<RegionName>,
}

/// Runs the service until SIGINT or SIGTERM; the second one ends it at once.
///
/// # Errors
/// A port is taken, the data folder can't be used.
pub(crate) async fn dev(arguments: DevArguments) -> Result<(), Failure> {
    if let Some(region) = repeated(&arguments.regions) {
        return Err(Failure::usage(format!("--regions names {region} twice")));
    }
    let mut telemetry = muster_telemetry::Options::new("muster-dev", std::process::id().to_string());
    telemetry.log_level = LevelFilter::WARN;
    let _guard = muster_telemetry::init(&telemetry).map_err(anyhow::Error::new)?;
    let mut signals = Signals::listen()?;
    let options = Options { port: arguments.port, regions: arguments.regions, data_dir: arguments.data_dir };
    ports_are_free(&options)?;
    let shutdown = CancellationToken::new();
    let service = tokio::select! {
        service = start(&options, &shutdown) => service?,
        code = signals.next() => return Err(Failure::Code(code)),
    };
    crate::connect::print(&greeting(&service, &options))?;
    signals.next().await;
    shutdown.cancel();
    tokio::select! {
        () = service.stopped() => Ok(()),
        code = signals.next() => Err(Failure::Code(code)),
    }
}

/// Starts everything, and returns when it can be used.
async fn start(options: &Options, shutdown: &CancellationToken) -> Result<Embedded, Failure> {
    let service = Embedded::start(options, shutdown.clone()).await?;
    ready(&service, &options.regions).await?;
    Ok(service)
}

/// Refuses a port that is taken with a sentence that a bind error has not.
fn ports_are_free(options: &Options) -> anyhow::Result<()> {
    if options.port == 0 {
        return Ok(());
    }
    let names = std::iter::once("the coordinator".to_owned())
        .chain(options.regions.iter().map(|region| format!("the agent of {region}")));
    for (place, name) in names.enumerate() {
        let Some(port) = u16::try_from(place).ok().and_then(|place| options.port.checked_add(place)) else {
            bail!("there is no port for {name}: ports end at 65535; choose a lower one with --port");
        };
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| {
            format!(
                "port {port}, for {name}, can't be used; choose another with --port, or any free ones with --port 0"
            )
        })?;
    }
    Ok(())
}

/// At most six lines, the last of which is the command to try next.
fn greeting(service: &Embedded, options: &Options) -> String {
    let agents: Vec<(&RegionName, &str)> =
        options.regions.iter().filter_map(|region| Some((region, service.agents.get(region)?.as_str()))).collect();
    lines(&service.coordinator, &agents, options.data_dir.as_deref())
}

fn lines(coordinator: &str, agents: &[(&RegionName, &str)], data_dir: Option<&Path>) -> String {
    let title = "coordinator";
    let width = agents.iter().map(|(region, _)| region.as_str().len()).chain([title.len()]).max().unwrap_or(0);
    let mut text = format!("{title:width$}  {coordinator}\n");
    if agents.len() <= AGENT_LINES_MAX {
        agents.iter().for_each(|(region, url)| text.push_str(&format!("{region:width$}  {url}\n")));
    } else {
        let all: Vec<String> = agents.iter().map(|(region, url)| format!("{region} {url}")).collect();
        text.push_str(&format!("{:width$}  {}\n", "agents", all.join(", ")));
    }
    match data_dir {
        Some(dir) => text.push_str(&format!("Stored in {}: start it again with the same --data-dir.\n", dir.display())),
        None => text.push_str("Nothing is stored: all is gone when this ends. --data-dir DIR keeps it.\n"),
    }
    let regions: Vec<&str> = agents.iter().map(|(region, _)| region.as_str()).collect();
    let definition = serde_json::json!({"regions": regions, "participants": 1, "deadline": "1h"});
    text.push_str(&format!("Next: curl -X PUT {coordinator}/v1/barriers/hello/world -d '{definition}'\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(names: &[&str]) -> Vec<RegionName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn six_lines_at_most_and_one_command() {
        for names in [&REGIONS[..], &["a", "b", "c", "d", "e"]] {
            let regions = regions(names);
            let agents: Vec<(&RegionName, &str)> =
                regions.iter().map(|region| (region, "http://127.0.0.1:7171")).collect();
            let text = lines("http://127.0.0.1:7170", &agents, None);
            assert!(text.lines().count() <= 6, "{text}");
            assert!(names.iter().all(|name| text.contains(name)), "{text}");
            assert!(text.contains("Nothing is stored"), "{text}");
            assert_eq!(text.matches("Next:").count(), 1);
        }
    }

    #[test]
    fn the_next_command_defines_a_good_barrier() {
        let regions = regions(&["a", "b"]);
        let agents: Vec<(&RegionName, &str)> = regions.iter().map(|region| (region, "x")).collect();
        let text = lines("http://127.0.0.1:7170", &agents, Some(Path::new("/d")));
        let body = text.split('\'').nth(1).unwrap();
        muster_wire::definition::parse(&"hello/world".parse().unwrap(), body.as_bytes()).unwrap();
        assert!(text.contains("Stored in /d"), "{text}");
    }

    #[test]
    fn a_port_that_is_taken_is_named_with_the_option() {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let options = |port| Options { port, regions: regions(&["a"]), data_dir: None };
        let refused = format!("{:#}", ports_are_free(&options(port)).unwrap_err());
        assert!(
            refused.contains(&format!("port {port}, for the coordinator")) && refused.contains("--port"),
            "{refused}"
        );
        let refused = ports_are_free(&options(port - 1)).unwrap_err().to_string();
        assert!(refused.contains("the agent of a") || refused.contains("the coordinator"), "{refused}");
        assert!(ports_are_free(&options(0)).is_ok());
        let refused = ports_are_free(&options(65_535)).unwrap_err().to_string();
        assert!(refused.contains("--port"), "{refused}");
    }
}
