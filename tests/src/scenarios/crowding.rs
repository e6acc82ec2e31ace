//! Thousands who connect and then say nothing, half of something, or do not
//! read: those who work do not notice.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Outcome, special_processes};
use crate::cluster::processes::Extras;
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::until::until;
use crate::worker::Worker;
use crate::world::World;

const SILENT: usize = 2_000;
const SLOW: usize = 10;
/// What a slow one asks for in one breath.
const ASKED: usize = 300;
/// How long a slow one takes over a byte.
const READ_EVERY: Duration = Duration::from_millis(20);
const LAPS: usize = 10;
/// Fewer than the crowd: what a system gives a process that asks for no more.
const OPEN_FILES: u64 = 1_024;

#[test]
fn two_thousand_silent_clients_disturb_nobody() {
    let shape = Shape { regions: regions(["us-east"]), ..Shape::default() };
    let extras = Extras { open_files: Some(OPEN_FILES), ..Extras::default() };
    special_processes(shape, extras, async |world, cluster| {
        have_files_for(SILENT as u64 * 2)?;
        world.define("step", json!({"generations": "cyclic", "participants": ["1", "2"]})).await?;
        let workers = world.workers(&["1", "2"]);
        let mut laps = 1..;
        for part in cluster.shape().parts() {
            let crowd = Crowd::gather(world, &part).await?;
            for n in laps.by_ref().take(LAPS) {
                cross(world, n, &workers).await.with_context(|| format!("{part} is crowded, lap {n}"))?;
            }
            // Definitions and overrides are calls of their own.
            world.define(&format!("crowded-{part}"), json!({})).await?;
            crowd.end();
        }
        Ok(())
    });
}

async fn cross(world: &World<'_>, n: u64, workers: &[Worker]) -> Outcome {
    world.cross(&world.target("step", n), workers).await.map(drop)
}

/// Those who hold connections of one part, for as long as this lives.
struct Crowd {
    silent: Vec<TcpStream>,
    slow: Vec<tokio::task::JoinHandle<()>>,
}

impl Crowd {
    async fn gather(world: &World<'_>, part: &Part) -> anyhow::Result<Self> {
        let url = world.cluster.url(part);
        let address = url.strip_prefix("http://").context("no URL")?;
        let half_a_body = format!(
            "PUT /v1/barriers/{}/generations/1/arrivals/1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 64\r\n\r\n{{\"no",
            world.barrier("step")
        );
        // Whoever sends half a body may take longer than the others.
        let said = ["", "GET /v1/barriers HTTP/1.1\r\nhost: local", &half_a_body, &half_a_body, &half_a_body];
        let silent = try_join_all(said.iter().cycle().take(SILENT).map(async |said| {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(said.as_bytes()).await?;
            anyhow::Ok(stream)
        }))
        .await?;
        let slow = try_join_all((0..SLOW).map(|_| reads_slowly(address))).await?;
        let crowd = Self { silent, slow };
        crowd.until_let_in(&url).await?;
        Ok(crowd)
    }

    /// They are not merely waiting to be let in.
    async fn until_let_in(&self, url: &str) -> Outcome {
        let many = OPEN_FILES as f64;
        until("the crowd is let in", || async {
            let client = reqwest::Client::builder().no_proxy().build().map_err(|error| error.to_string())?;
            let answer = client.get(format!("{url}/metrics")).send().await.map_err(|error| error.to_string())?;
            let metrics = answer.text().await.map_err(|error| error.to_string())?;
            let open =
                metrics.lines().find_map(|line| line.strip_prefix("muster_http_connections ")?.parse::<f64>().ok());
            if open.is_some_and(|open| open > many) { Ok(()) } else { Err(format!("{open:?} are")) }
        })
        .await
    }

    fn end(self) {
        drop(self.silent);
        self.slow.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Asks for much at once, and reads it byte by byte.
async fn reads_slowly(address: &str) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let stream = TcpStream::connect(address).await?;
    let (mut answers, mut asks) = stream.into_split();
    Ok(tokio::spawn(async move {
        let asking = async move {
            for _ in 0..ASKED {
                asks.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
            }
            // Dropped, it would say that nothing more is asked.
            std::future::pending::<std::io::Result<()>>().await
        };
        let reading = async move {
            while answers.read_u8().await.is_ok() {
                tokio::time::sleep(READ_EVERY).await;
            }
            std::io::Result::Ok(())
        };
        // Only the part's end, or the crowd's, ends this.
        let _: std::io::Result<((), ())> = futures::try_join!(asking, reading);
    }))
}

/// Allows this program so many open files.
fn have_files_for(needed: u64) -> Outcome {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let allowed = limit.maximum.is_none_or(|maximum| maximum >= needed);
        ensure!(allowed, "{needed} open files are needed: raise the hard limit (ulimit -Hn)");
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum }).context("raise it")?;
    }
    Ok(())
}
