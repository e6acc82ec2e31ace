//! The built `muster` as people have it: the demo, the service in one process,
//! and the exit codes that scripts rely on. None of this needs a real service.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Outcome, block_on, on_processes};
use crate::ports::Port;
use crate::raw::Request;
use crate::services::muster_binary;
use crate::spawner::{mortal, spawn};
use crate::until::{DEADLINE, until, within};

const REGIONS: [&str; 3] = ["us-east", "eu-west", "ap-south"];
/// A demo does seconds of work; on a busy machine that takes long.
const DEMO_DEADLINE: Duration = Duration::from_secs(120);

/// A folder that ends with its test.
struct Folder(PathBuf);

impl Folder {
    fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("muster_binary_{:016x}", rand::random::<u64>()));
        std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A `muster` that ends with its test, and what it has said.
struct Muster {
    child: Child,
    said: Folder,
}

impl Muster {
    /// Starts it, untouched by what this program's environment says.
    fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_in(&[], arguments)
    }

    /// The same, with this in its environment.
    fn start_in(environment: &[(&str, &str)], arguments: &[&str]) -> anyhow::Result<Self> {
        let said = Folder::make()?;
        let mut command = mortal(&muster_binary()?);
        let foreign = std::env::vars_os().map(|(name, _)| name);
        for name in foreign.filter(|name| name.to_string_lossy().starts_with("MUSTER_")) {
            command.env_remove(name);
        }
        command.env_remove("FAILPOINTS").envs(environment.iter().copied()).args(arguments).stdin(Stdio::null());
        command.stdout(File::create(said.0.join("stdout"))?).stderr(File::create(said.0.join("stderr"))?);
        Ok(Self { child: spawn(command)?, said })
    }

    fn read(&self, stream: &str) -> String {
        std::fs::read(self.said.0.join(stream))
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends it a signal.
    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("it has no pid")?;
        kill_process(pid, signal).context("send a signal")
    }

    /// Waits until it ends by itself.
    async fn ended(mut self, deadline: Duration, what: &str) -> anyhow::Result<Done> {
        let status = within(deadline, what, || {
            let status = self.child.try_wait();
            let said = self.read("stderr");
            async move { status.ok().flatten().ok_or(said) }
        })
        .await?;
        Ok(Done { code: status.code(), stdout: self.read("stdout"), stderr: self.read("stderr") })
    }

    /// Ends it as SIGKILL does.
    fn kill(mut self) -> anyhow::Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "it had died before: {}", self.read("stderr"));
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Muster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command ended with.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs a command to its end.
async fn run(deadline: Duration, arguments: &[&str]) -> anyhow::Result<Done> {
    Muster::start(arguments)?.ended(deadline, &format!("muster {} ends", arguments.join(" "))).await
}

/// `muster dev`, ready, on ports that were free.
struct Dev {
    muster: Muster,
    /// Base URLs by region, and the coordinator's.
    urls: BTreeMap<String, String>,
}

impl Dev {
    async fn start(more: &[&str]) -> anyhow::Result<Self> {
        let mut muster = Muster::start(&[&["dev", "--port", "0"], more].concat())?;
        let greeting = until("muster dev is ready", || {
            let (greeting, ended) = (muster.read("stdout"), muster.child.try_wait());
            let said = muster.read("stderr");
            async move {
                match (greeting.lines().any(|line| line.starts_with("Next: ")), ended) {
                    (true, _) => Ok(Ok(greeting)),
                    (false, Ok(None)) => Err(said),
                    (false, ended) => Ok(Err(format!("{ended:?}: {said}"))),
                }
            }
        })
        .await?;
        let greeting = greeting.map_err(|died| anyhow::anyhow!("muster dev died at its start: {died}"))?;
        let pairs = greeting.lines().filter_map(|line| line.split_once(' '));
        let pairs = pairs.map(|(name, url)| (name.to_owned(), url.trim().to_owned()));
        Ok(Self { muster, urls: pairs.filter(|(_, url)| url.starts_with("http://")).collect() })
    }

    /// The URL of `path` at a region's agent, or at the coordinator.
    fn url(&self, at: &str, path: &str) -> anyhow::Result<String> {
        let base =
            self.urls.get(at).with_context(|| format!("muster dev tells no address of {at}: {:?}", self.urls))?;
        Ok(format!("{base}{path}"))
    }

    /// Calls it; the answer must have this status.
    async fn call(&self, request: Request, status: u16) -> anyhow::Result<Value> {
        let what = format!("{request:?}");
        let answer = request.send().await?;
        ensure!(answer.status == status, "{what}: {answer:?}");
        serde_json::from_str(&answer.body).with_context(|| what)
    }

    async fn get(&self, at: &str, path: &str) -> anyhow::Result<Value> {
        self.call(Request::new("GET", self.url(at, path)?), 200).await
    }

    /// Defines a barrier of one participant, `0`, in each of these regions.
    async fn define(&self, name: &str, regions: &[&str]) -> anyhow::Result<()> {
        let url = self.url("coordinator", &format!("/v1/barriers/{name}"))?;
        let definition = json!({"regions": regions, "participants": "[0-0]", "deadline": "1h"});
        self.call(Request::new("PUT", url).json(&definition), 201).await?;
        Ok(())
    }
}

/// Text files, and what a plain count finds in them.
fn texts(folder: &Path) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for file in 0..5_usize {
        let mut text = String::new();
        for line in 0..400_usize {
            let letter = |number: usize| char::from(b'a' + u8::try_from(number % 26).unwrap_or(0));
            let own = format!("w{}{}", letter(line), letter(line / 26 + file));
            for word in ["the", "Quick", own.as_str(), "fox"] {
                *counts.entry(word.to_ascii_lowercase()).or_default() += 1;
                text.push_str(word);
                text.push_str(if line.is_multiple_of(3) { ", 42 " } else { "\n" });
            }
        }
        std::fs::write(folder.join(format!("text-{file}.txt")), text)?;
    }
    Ok(counts)
}

/// The JSON object that a demo prints last.
fn report(done: &Done) -> anyhow::Result<Value> {
    let last = done.stdout.lines().last().with_context(|| format!("nothing on standard output: {done:?}"))?;
    let report: Value = serde_json::from_str(last).with_context(|| format!("{done:?}"))?;
    ensure!(report.is_object(), "{report}");
    Ok(report)
}

#[test]
fn demo_counts_as_a_single_pass() {
    on_processes(async || {
        let folder = Folder::make()?;
        let counts = texts(&folder.0)?;
        let input = folder.0.to_string_lossy();
        let done =
            run(DEMO_DEADLINE, &["demo", "mapreduce", "--input", &input, "--slow", "none", "-o", "json"]).await?;
        ensure!(done.code == Some(0), "{done:?}");
        let report = report(&done)?;
        ensure!(report["words"] == counts.values().sum::<u64>(), "{report}");
        ensure!(report["distinct"] == counts.len(), "{report}");
        ensure!(report["match"] == true, "{report}");
        let mut top: Vec<(&String, &u64)> = counts.iter().collect();
        top.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        ensure!(report["top"] == json!(top[..10]), "{report}, not {:?}", &top[..10]);
        let barriers = report["barriers"].as_array().context("barriers")?;
        let names: Vec<&str> = barriers.iter().filter_map(|barrier| barrier["name"].as_str()).collect();
        ensure!(names == ["demo/map", "demo/shuffle", "demo/reduce"], "{report}");
        for barrier in barriers {
            ensure!(barrier["state"] == "released", "{barrier}");
            ensure!(barrier["generation"].as_str().is_some_and(|generation| !generation.is_empty()), "{barrier}");
            ensure!(barrier["arrived"] == 9 && barrier["expected"] == 9, "{barrier}");
            ensure!(barrier["skewSeconds"].as_f64().is_some_and(|seconds| seconds >= 0.0), "{barrier}");
            ensure!(barrier["releaseSeconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{barrier}");
        }
        Ok(())
    });
}

#[test]
fn demo_names_the_killed_worker() {
    on_processes(async || {
        let folder = Folder::make()?;
        texts(&folder.0)?;
        let input = folder.0.to_string_lossy();
        let kill = ["demo", "mapreduce", "--input", &input, "--kill", "ap-south/2", "-o", "json"];
        let done = run(DEMO_DEADLINE, &kill).await?;
        ensure!(done.code == Some(3), "{done:?}");
        let report = report(&done)?;
        ensure!(report["match"] == false && report["words"] == 0, "{report}");
        ensure!(report["barriers"][0]["state"] == "broken", "{report}");
        let named = done.stderr.lines().any(|line| line.contains("ap-south/2") && line.contains("signal 9"));
        ensure!(named, "nobody names the killed worker: {}", done.stderr);
        Ok(())
    });
}

const GENERATION: &str = "/v1/barriers/kept/map/generations/1";

/// Whether `0` of this region has arrived.
async fn arrived(dev: &Dev, region: &str) -> anyhow::Result<bool> {
    let participant = dev.get(region, &format!("{GENERATION}/arrivals/0")).await?;
    Ok(participant["state"] == "arrived")
}

/// The outcome was decided before the kill; what a region or the coordinator
/// had yet to hear of it, it hears after.
async fn all_are_released(dev: &Dev, digest: &Value) -> Outcome {
    let decided = dev.get("coordinator", GENERATION).await?;
    ensure!(decided["release"]["digest"] == *digest, "the coordinator forgot the release: {decided}");
    for part in ["coordinator"].into_iter().chain(REGIONS) {
        until(&format!("{part} knows that all are released"), || async {
            let status = dev.get(part, GENERATION).await?;
            ensure!(status["state"] == "released" && status["release"]["digest"] == *digest, "{status}");
            Ok::<_, anyhow::Error>(())
        })
        .await?;
    }
    Ok(())
}

#[test]
fn dev_with_a_data_dir_survives_kill_9() {
    on_processes(async || {
        let folder = Folder::make()?;
        let data = folder.0.to_string_lossy();
        let arguments = ["--data-dir", &*data];
        let start = || Dev::start(&arguments);

        let first = start().await?;
        first.define("kept/map", &REGIONS).await?;
        let defined = first.get("coordinator", "/v1/barriers/kept/map").await?;
        for region in &REGIONS[..2] {
            let url = first.url(region, &format!("{GENERATION}/arrivals/0"))?;
            // The region may not have heard of the generation yet.
            until(&format!("0 arrives in {region}"), || first.call(Request::new("PUT", &url), 201)).await?;
            ensure!(arrived(&first, region).await?, "0 arrived in {region}, which does not know it");
        }
        first.muster.kill()?;

        let second = start().await?;
        let found = second.get("coordinator", "/v1/barriers/kept/map").await?;
        ensure!(found == defined, "{found}, not {defined}");
        for (region, expected) in REGIONS.into_iter().zip([true, true, false]) {
            ensure!(arrived(&second, region).await? == expected, "0 of {region} arrived: not {expected}");
        }
        let status = second.get("coordinator", GENERATION).await?;
        ensure!(status["state"] != "released", "{status}");
        let last = second.url("ap-south", &format!("{GENERATION}/arrivals/0?wait=60s"))?;
        let released = second.call(Request::new("PUT", last), 200).await?;
        ensure!(released["state"] == "released", "{released}");
        second.muster.kill()?;

        all_are_released(&start().await?, &released["digest"]).await
    });
}

/// Commands against one service.
struct Script {
    dev: Dev,
}

impl Script {
    /// A command must end with this code; a bad end is told in a sentence.
    async fn ends(&self, code: i32, arguments: &[&str]) -> Outcome {
        let addr = self.dev.url("coordinator", "")?;
        let done = run(DEADLINE, &[&["--addr", addr.as_str()], arguments].concat()).await?;
        if done.code != Some(code) || (code != 0 && done.stderr.trim().is_empty()) {
            bail!("muster {}: expected {code}, not {done:?}", arguments.join(" "));
        }
        Ok(())
    }
}

#[test]
fn exit_codes() {
    on_processes(async || {
        let script = Script { dev: Dev::start(&["--regions", "here"]).await? };
        for name in ["code/gathers", "code/aborted", "code/failed", "code/released", "code/ran"] {
            script.dev.define(name, &["here"]).await?;
        }
        // Long enough to find the service, on a busy machine too.
        script.ends(124, &["wait", "code/gathers", "--timeout", "3s"]).await?;
        script.ends(4, &["arrive", "code/gathers", "--id", "here/stranger"]).await?;
        script.ends(4, &["wait", "code/nowhere", "--timeout", "30s"]).await?;
        script.ends(4, &["status", "code/nowhere"]).await?;

        // It hurts everybody, so it has to be meant.
        script.ends(2, &["abort", "code/aborted", "--reason", "to see it broken"]).await?;
        script.ends(0, &["abort", "code/aborted", "--reason", "to see it broken", "--yes"]).await?;
        script.ends(3, &["wait", "code/aborted", "--timeout", "30s"]).await?;
        script.ends(7, &["run", "code/failed", "--id", "here/0", "--", "sh", "-c", "exit 7"]).await?;
        script.ends(3, &["wait", "code/failed", "--timeout", "30s"]).await?;

        script.ends(2, &["wait"]).await?;
        script.ends(2, &["arrive", "code/gathers", "--no-such-option"]).await?;

        script.ends(0, &["arrive", "code/released", "--id", "here/0", "--wait", "--timeout", "30s"]).await?;
        script.ends(0, &["wait", "code/released", "--timeout", "30s"]).await?;
        script.ends(0, &["run", "code/ran", "--id", "here/0", "--timeout", "30s", "--", "true"]).await?;

        // Reserved, so that nobody listens there.
        let nobody = Port::reserve()?;
        let addr = format!("http://127.0.0.1:{}", nobody.number);
        script.ends(75, &["status", "code/gathers", "--addr", &addr, "--timeout", "1s"]).await
    });
}

/// What a participant notes is anything: people are shown it without its
/// effect on a terminal, programs get it as it is.
#[test]
fn a_note_cannot_command_a_terminal() {
    const NOTE: &str = "disk full\u{1b}[2J\u{9b}31m\r\nmap is released";
    on_processes(async || {
        let dev = Dev::start(&["--regions", "here"]).await?;
        dev.define("note/map", &["here"]).await?;
        let addr = dev.url("coordinator", "")?;
        let told = async |arguments: &[&str]| {
            let done = run(DEADLINE, &[&["--addr", addr.as_str(), "--timeout", "30s"], arguments].concat()).await?;
            anyhow::Ok((done.stdout.clone() + &done.stderr, done))
        };
        told(&["arrive", "note/map", "--id", "here/0", "--failed", "--note", NOTE]).await?;
        for arguments in [&["wait", "note/map"][..], &["status", "note/map"], &["why", "note/map"]] {
            let (said, done) = told(arguments).await?;
            ensure!(said.contains(r"disk full\u{1b}[2J\u{9b}31m\r"), "{arguments:?}: {done:?}");
            ensure!(!said.contains(|letter: char| letter.is_control() && letter != '\n'), "{arguments:?}: {done:?}");
        }
        let (said, done) = told(&["status", "note/map", "-o", "json"]).await?;
        let status: Value = serde_json::from_str(&said).with_context(|| format!("{done:?}"))?;
        ensure!(status["message"].as_str().is_some_and(|message| message.contains(NOTE)), "{status}");
        Ok(())
    });
}

/// Its work is done and it waits for the others: a signal ends the wait, and
/// nobody takes that for a failure of the work.
#[test]
fn a_run_that_waits_can_be_interrupted() {
    on_processes(async || {
        let dev = Dev::start(&["--regions", "here"]).await?;
        for (signal, name, code) in [(Signal::TERM, "stop/term", 143), (Signal::INT, "stop/int", 130)] {
            let url = dev.url("coordinator", &format!("/v1/barriers/{name}"))?;
            let definition = json!({"regions": ["here"], "participants": "[0-1]", "deadline": "1h"});
            dev.call(Request::new("PUT", url).json(&definition), 201).await?;
            let addr = dev.url("coordinator", "")?;
            let waits = Muster::start(&["--addr", &addr, "run", name, "--id", "here/0", "--", "true"])?;
            let generation = format!("/v1/barriers/{name}/generations/1");
            until("it waits", || async {
                let status = dev.get("coordinator", &generation).await?;
                ensure!(status["waiting"] == 1, "{status}");
                Ok::<_, anyhow::Error>(())
            })
            .await?;
            waits.signal(signal)?;
            let done = waits.ended(DEADLINE, "an interrupted run ends").await?;
            ensure!(done.code == Some(code), "{done:?}");
            ensure!(done.stderr.contains("interrupted before the release"), "{done:?}");
            let arrival = dev.get("here", &format!("{generation}/arrivals/0")).await?;
            ensure!(arrival["state"] == "arrived", "{arrival}");
            let status = dev.get("coordinator", &generation).await?;
            ensure!(status["state"] == "gathering", "{status}");
        }
        Ok(())
    });
}

#[test]
fn a_data_dir_in_use_is_refused() {
    on_processes(async || {
        let folder = Folder::make()?;
        let data = folder.0.to_string_lossy();
        let arguments = ["--data-dir", &*data, "--regions", "here"];
        let first = Dev::start(&arguments).await?;
        let second = run(DEADLINE, &[&["dev", "--port", "0"], &arguments[..]].concat()).await?;
        ensure!(second.code == Some(1), "{second:?}");
        ensure!(second.stderr.contains(&format!("the data folder {data} is in use")), "{second:?}");
        // What it holds belongs to whoever comes after the first, however that ended.
        first.muster.kill()?;
        Dev::start(&arguments).await?.muster.kill()
    });
}

/// Each layer goes over the one before, setting by setting.
#[test]
fn the_environment_goes_over_the_file_and_under_the_command_line() {
    block_on(async {
        let folder = Folder::make()?;
        let file = folder.0.join("agent.toml");
        let text = "region = \"file\"\nname = \"file\"\nlease_seconds = 7\n[etcd]\nendpoints = [\"http://file:1\"]\n";
        std::fs::write(&file, text)?;
        let environment = [
            ("MUSTER_AGENT__NAME", "environment"),
            ("MUSTER_AGENT__LEASE_SECONDS", "8"),
            ("MUSTER_AGENT__ETCD__ENDPOINTS", "[\"http://environment:1\"]"),
        ];
        let arguments = ["agent", "--config", &*file.to_string_lossy(), "--set", "lease_seconds=9", "--print-config"];
        let print = async |environment: &[(&str, &str)]| {
            Muster::start_in(environment, &arguments)?.ended(DEADLINE, "the configuration is printed").await
        };
        let printed = print(&environment).await?;
        ensure!(printed.code == Some(0), "{printed:?}");
        for line in [
            "region = \"file\"",
            "name = \"environment\"",
            "lease_seconds = 9",
            "endpoints = [\"http://environment:1\"]",
            "listen = \"127.0.0.1:7171\"",
        ] {
            ensure!(printed.stdout.lines().any(|printed| printed == line), "{line} is not in\n{}", printed.stdout);
        }
        let refused = print(&[("MUSTER_AGENT__ETCD__ENDPOINT", "http://a:1")]).await?;
        ensure!(refused.code == Some(2), "{refused:?}");
        let names = "etcd.endpoint (MUSTER_AGENT__ETCD__ENDPOINT): there is no such setting; endpoints is one";
        ensure!(refused.stderr.contains(names), "{refused:?}");
        Ok(())
    });
}
