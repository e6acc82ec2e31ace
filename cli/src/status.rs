//! How far a generation has come; with `-w`, live until it ends.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use muster_client::{Client, Error, Target};
use muster_protocol::generation::State;
use muster_wire::answer::Status;

use crate::arguments::{Format, TargetArgument};
use crate::connect::{Context, print};
use crate::failure::Failure;
use crate::render;

/// How long one blocking read waits for something new. On a terminal it is
/// drawn again after so long, so that "12m ago" stays true.
const READ: Duration = Duration::from_secs(30);
const REDRAW: Duration = Duration::from_secs(5);

/// `muster status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    target: TargetArgument,
    /// Watch it until it ends
    #[arg(short, long)]
    watch: bool,
}

pub(crate) async fn status(arguments: StatusArguments, context: &Context) -> Result<(), Failure> {
    let target = context.target(&arguments.target.target)?;
    let client = context.client()?;
    let status = client.status(&target, None).await?;
    match arguments.watch {
        false => show(&status, context),
        true => watch(&client, &target, status, context).await,
    }
}

fn show(status: &Status, context: &Context) -> Result<(), Failure> {
    let name = format!("{}@{}", status.barrier, status.generation);
    context.show(status, || vec![name], || render::tree(status, render::now()))
}

async fn watch(client: &Client, target: &Target, mut status: Status, context: &Context) -> Result<(), Failure> {
    // What is latest now is watched to its end, though another opens meanwhile.
    let id = status.generation.parse().map_err(|problem| Error::Refused(Box::new(problem)))?;
    let target = Target { barrier: target.barrier.clone(), generation: Some(id) };
    let mut screen = Screen::new(context.format());
    loop {
        screen.draw(&status)?;
        if matches!(status.state, State::Released | State::Broken) {
            return Ok(());
        }
        let left = context.until().map(|until| until.saturating_duration_since(tokio::time::Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::TimedOut { last: None }.into());
        }
        let wait = left.map_or(screen.read, |left| left.min(screen.read));
        status = client.status(&target, Some((&status.index, wait))).await?;
    }
}

/// Where a watched status is drawn: over itself on a terminal, else a line for
/// each change.
struct Screen {
    format: Format,
    live: bool,
    read: Duration,
    drawn_lines: usize,
    last: String,
}

impl Screen {
    fn new(format: Format) -> Self {
        let live = format == Format::Table && std::io::stdout().is_terminal();
        Self { format, live, read: if live { REDRAW } else { READ }, drawn_lines: 0, last: String::new() }
    }

    fn draw(&mut self, status: &Status) -> Result<(), Failure> {
        print(&self.frame(status))
    }

    /// What to write so that `status` is what is seen.
    fn frame(&mut self, status: &Status) -> String {
        let now = render::now();
        if self.live {
            let tree = render::tree(status, now);
            // Up to where the last one began, and away with it.
            let up = if self.drawn_lines > 0 { format!("\x1b[{}A\x1b[J", self.drawn_lines) } else { String::new() };
            self.drawn_lines = tree.lines().count();
            return up + &tree;
        }
        // The same but for the time that passed is not a change.
        let essence = essence(status);
        if essence == self.last {
            return String::new();
        }
        self.last = essence;
        match self.format {
            Format::Table => format!("{}\n", render::line(status, now)),
            Format::Name => format!("{}@{}\n", status.barrier, status.generation),
            Format::Json => format!("{}\n", serde_json::to_string(status).unwrap_or_default()),
            Format::Yaml => format!("---\n{}", serde_saphyr::to_string(status).unwrap_or_default()),
        }
    }
}

fn essence(status: &Status) -> String {
    let regions: Vec<_> = status
        .regions
        .iter()
        .map(|region| {
            let counts = [region.failed, region.retrying, region.working, region.lost, region.excluded, region.waived];
            (&region.name, region.state, region.arrived, counts, &region.zones, region.applied, region.link)
        })
        .collect();
    format!("{:?} {:?} {regions:?}", status.state, status.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(arrived: u64, index: &str) -> Status {
        serde_json::from_value(serde_json::json!({
            "barrier": "a/b", "generation": "7", "n": 7, "round": 0, "state": "gathering", "reason": "idle", "message": "",
            "expected": 2, "arrived": arrived, "failed": 0, "waiting": 0, "openedAt": "x", "index": index, "owner": "",
            "regions": [{"name": "a", "state": "gathering", "arrived": arrived, "expected": 2, "failed": 0,
                "applied": false, "link": "up"}], "links": {}
        }))
        .unwrap()
    }

    #[test]
    fn a_terminal_is_drawn_over_and_a_pipe_gets_each_change_once() {
        let mut pipe = Screen { format: Format::Table, live: false, read: READ, drawn_lines: 0, last: String::new() };
        assert_eq!(pipe.frame(&status(0, "1")), "a/b@7  gathering  0/2   opened x\n");
        assert_eq!(pipe.frame(&status(0, "2")), "");
        assert_eq!(pipe.frame(&status(1, "3")), "a/b@7  gathering  1/2   opened x\n");
        let mut terminal = Screen { live: true, last: String::new(), drawn_lines: 0, ..pipe };
        let first = terminal.frame(&status(0, "1"));
        assert_eq!(first.lines().count(), 2);
        assert_eq!(terminal.frame(&status(0, "1")), format!("\x1b[2A\x1b[J{first}"));
    }
}
