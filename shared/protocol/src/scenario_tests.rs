//! Stories told in text: `scenarios/*.txt` hold commands and, below `----`,
//! what came of them, in a world of pure machines whose messages arrive at once
//! unless a region is cut off. `MUSTER_SCENARIOS=write` writes the outcomes
//! anew; read the difference before it is kept.
//!
//! ```text
//! define etl/map participants=[1-2] generations=cyclic     a barrier in all regions
//! open|abort|release|retry etl/map@k · waive etl/map@k us-east[/2]
//! us-east arrive|fail|withdraw etl/map@k 1 [attempt=2] [session=a]
//! us-east session a etl/map@k 1 2 · us-east silent a · us-east close a
//! cut us-east · heal us-east · advance 10s · collect etl/map
//! status etl/map@k
//! ```

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use std::path::PathBuf;

use crate::entry::{Body, Entry, Witness};
use crate::fact::Fact;
use crate::generation::GenerationId;
use crate::global::{self, Barrier, Context, Declared, Expect, Names};
use crate::identity::{Digest, Epoch, Era, History, SessionId, Timestamp, Writer};
use crate::invariant;
use crate::name::{BarrierName, ParticipantId, RegionName};
use crate::outcome::{Outcome, Override, Verdict};
use crate::participants::{IdSet, Participants};
use crate::region::{ArrivalOutcome, Arrive, Command, OpenSession, Refusal, Region, Reply, Withdraw, Work};
use crate::spec::{Generations, Leaf, Liveness, OnLost, Rule, Scope, Slice, Spec};

const REGIONS: [&str; 2] = ["eu-west", "us-east"];

#[test]
fn stories_end_as_they_are_told() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 5, "the stories are gone");
    for file in files {
        let told = std::fs::read_to_string(&file).unwrap();
        let played = play(&told);
        if std::env::var_os("MUSTER_SCENARIOS").is_some_and(|value| value == "write") {
            std::fs::write(&file, &played).unwrap();
        } else {
            assert!(told == played, "{} ends otherwise:\n{played}", file.display());
        }
    }
}

/// The same story with its outcomes as they are.
fn play(story: &str) -> String {
    let mut world = World::new();
    let mut played = String::new();
    for block in story.split("\n\n") {
        let commands = block.split("\n----").next().unwrap_or_default().trim_end();
        played += commands;
        played += "\n";
        let lines: Vec<&str> = commands.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        played += if lines.is_empty() { "" } else { "----\n" };
        for line in &lines {
            if lines.len() > 1 {
                played += &format!("> {line}\n");
            }
            for said in world.command(line) {
                played += &format!("{said}\n");
            }
        }
        played += "\n";
    }
    played.trim_end().to_string() + "\n"
}

struct World {
    barriers: BTreeMap<BarrierName, Barrier>,
    regions: BTreeMap<RegionName, Region>,
    cut: BTreeSet<RegionName>,
    /// What the coordinator said while a region was cut off.
    unheard: BTreeMap<RegionName, Vec<Fact>>,
    now_ms: u64,
    seq: u64,
    said: Vec<String>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            barriers: BTreeMap::new(),
            regions: BTreeMap::new(),
            cut: BTreeSet::new(),
            unheard: BTreeMap::new(),
            now_ms: 0,
            seq: 0,
            said: Vec::new(),
        };
        for name in REGIONS {
            let name: RegionName = name.parse().unwrap();
            world.regions.insert(name.clone(), Region::new(name.clone(), History([1; 16]), 0));
            world.region(&name, Command::TookOver { epoch: Epoch(1) });
            world.region(&name, Command::VersionRaised { epoch: Epoch(1), version: crate::region::MACHINE_VERSION });
        }
        world.said.clear();
        world
    }

    fn command(&mut self, line: &str) -> Vec<String> {
        self.said.clear();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["define", name, ref fields @ ..] => self.define(name, fields),
            ["delete", name] => self.coordinator(name, global::Command::Delete { force: true, by: by() }),
            ["advance", time] => self.advance(time),
            ["cut", region] => drop(self.cut.insert(region.parse().unwrap())),
            ["heal", region] => self.heal(&region.parse().unwrap()),
            ["collect", name] => self.coordinator(name, global::Command::Collect { tell: false }),
            ["status", target] => self.status(target),
            ["waive", target, who] => self.waive(target, who),
            [act @ ("open" | "abort" | "release" | "retry"), target] => self.overrule(act, target),
            [region, act, ref rest @ ..] => self.in_region(&region.parse().unwrap(), act, rest),
            _ => panic!("not a command: {line}"),
        }
        core::mem::take(&mut self.said)
    }

    fn define(&mut self, name: &str, fields: &[&str]) {
        let spec = spec(name, fields);
        self.coordinator(name, global::Command::Define { spec: Box::new(spec), expect: Expect::Anything });
    }

    fn coordinator(&mut self, name: &str, command: global::Command) {
        let name: BarrierName = name.parse().unwrap();
        let era = Era::new("1/1");
        let declared = Declared { history: Some(History([1; 16])), era: Some(era.clone()), drained: None };
        let regions = self.regions.keys().map(|name| (name.clone(), declared.clone())).collect();
        let barrier = self.barriers.entry(name.clone()).or_insert_with(|| Barrier::new(name.clone()));
        let mut names = Names::default();
        names.add(&command);
        let now = Timestamp(self.now_ms);
        let context = Context { now, at: now, era: &era, regions: &regions, barriers_in_namespace: 1 };
        let step = global::apply(barrier, &context, &command);
        for (n, generation) in &barrier.generations {
            let (_, spec) = barrier.loaded(*n).unwrap();
            assert!(invariant::released_only_when_complete(generation, spec), "I1");
        }
        if !matches!(command, global::Command::Report(_)) {
            self.said.push(format!("  {}", global_reply(&step.reply)));
        }
        for fact in step.facts {
            self.send(fact);
        }
    }

    fn send(&mut self, fact: Fact) {
        if let Fact::Decided(decided) = &fact {
            self.said.push(format!("  decided: {}", outcome(&decided.outcome)));
        }
        let concerned: Vec<RegionName> = self.regions.keys().filter(|region| fact.concerns(region)).cloned().collect();
        for region in concerned {
            if self.cut.contains(&region) {
                self.unheard.entry(region).or_default().push(fact.clone());
            } else {
                self.region(&region, Command::Fact(fact.clone()));
            }
        }
    }

    /// One command on a region's log, and what it makes the region report.
    fn region(&mut self, name: &RegionName, command: Command) -> Reply {
        self.seq += 1;
        let region = self.regions.get_mut(name).unwrap();
        let witness = Witness { index: 0, hash: Digest([0; 32]) };
        let body = Body { witness, commands: vec![command] };
        let entry = Entry { index: region.index() + 1, writer: Writer(1), seq: self.seq, body };
        let mut effects = Vec::new();
        let reply = region.apply(&entry, &mut effects).remove(0);
        assert!(invariant::missing_is_exact(region), "I11");
        assert!(invariant::region_promised_before_release(region), "I1");
        let changed = effects.iter().filter_map(|effect| match effect {
            crate::region::Effect::Changed { barrier, n, .. } => Some((barrier.clone(), *n)),
            _ => None,
        });
        for (barrier, n) in changed.collect::<BTreeSet<_>>() {
            self.report(name, &barrier, n);
        }
        reply
    }

    fn report(&mut self, region: &RegionName, barrier: &BarrierName, n: u64) {
        if !self.cut.contains(region)
            && let Some(report) = self.regions[region].report_up(barrier, n)
        {
            self.coordinator(barrier.as_str(), global::Command::Report(Box::new(report)));
        }
    }

    fn heal(&mut self, region: &RegionName) {
        self.cut.remove(region);
        // Level-triggered: the region says what it knows, and hears what it missed.
        for (barrier, n) in self.regions[region].to_report(false).collect::<Vec<_>>() {
            self.report(region, &barrier, n);
        }
        for fact in self.unheard.remove(region).unwrap_or_default() {
            let reply = self.region(region, Command::Fact(fact));
            self.said.push(format!("  {region} hears what it missed: {}", region_reply(&reply)));
        }
    }

    fn advance(&mut self, time: &str) {
        let by_ms = milliseconds(time);
        self.now_ms += by_ms;
        for name in self.regions.keys().cloned().collect::<Vec<_>>() {
            let from_ms = self.regions[&name].clock_ms();
            let at = Timestamp(self.now_ms);
            self.region(&name, Command::Ticked { epoch: Epoch(1), from_ms, to_ms: from_ms, at });
            self.region(&name, Command::Ticked { epoch: Epoch(1), from_ms, to_ms: from_ms, at });
            self.region(&name, Command::Ticked { epoch: Epoch(1), from_ms, to_ms: from_ms + by_ms, at });
        }
        let due = self.barriers.values().flat_map(|barrier| barrier.generations.values());
        let due = due.filter(|g| g.decided.is_none() && g.deadline_at.is_some_and(|at| at.0 <= self.now_ms));
        for id in due.map(|generation| generation.id.clone()).collect::<Vec<_>>() {
            self.coordinator(id.barrier.as_str(), global::Command::Expire { n: id.n });
        }
    }

    fn overrule(&mut self, act: &str, target: &str) {
        let (name, label) = target.split_once('@').unwrap_or((target, ""));
        let key = label.parse().ok().filter(|_| self.is_keyed(name));
        if act == "open" {
            return self.coordinator(name, global::Command::Open { key });
        }
        let GenerationId { n, key, .. } = self.find(target);
        let command = match act {
            "abort" => global::Command::Abort { n, by: by() },
            "release" => global::Command::Release { n, by: by() },
            _ => global::Command::Retry { n, key, keep: true, by: by() },
        };
        self.coordinator(name, command);
    }

    fn waive(&mut self, target: &str, who: &str) {
        let id = self.find(target);
        let (region, ids) = who.split_once('/').map_or((who, None), |(region, ids)| (region, Some(ids)));
        let participants = ids.map(|ids| IdSet::parse([ids]).unwrap());
        let region = region.parse().unwrap();
        self.coordinator(id.barrier.as_str(), global::Command::Waive { n: id.n, region, participants, by: by() });
    }

    fn in_region(&mut self, region: &RegionName, act: &str, rest: &[&str]) {
        let fields = fields(rest);
        let session = fields.get("session").map(|name| session(name));
        let command = match (act, rest) {
            ("arrive" | "fail", [target, who, ..]) => {
                let id = self.find(target);
                Command::Arrive(Arrive {
                    barrier: id.barrier,
                    n: id.n,
                    participant: who.parse().unwrap(),
                    attempt: fields.get("attempt").map_or(1, |text| text.parse().unwrap()),
                    outcome: if act == "fail" { ArrivalOutcome::Failed } else { ArrivalOutcome::Ok },
                    note: None,
                    output: fields.get("output").map(|text| (*text).to_string()),
                    session,
                    at: Timestamp(self.now_ms),
                })
            }
            ("withdraw", [target, who, ..]) => {
                let id = self.find(target);
                let attempt = fields.get("attempt").map_or(1, |text| text.parse().unwrap());
                Command::Withdraw(Withdraw { barrier: id.barrier, n: id.n, participant: who.parse().unwrap(), attempt })
            }
            ("session", [name, target, who @ ..]) => {
                let id = self.find(target);
                let work =
                    |who: &&str| Work { barrier: id.barrier.clone(), n: id.n, participant: who.parse().unwrap() };
                let works = who.iter().map(work).collect();
                let at = Timestamp(self.now_ms);
                Command::OpenSession(OpenSession { id: self::session(name), ttl_ms: 30_000, works, at })
            }
            ("silent", [name]) => {
                let id = self::session(name);
                let attach = self.regions[region].session(id).map_or(1, |session| session.attach);
                Command::ExpireSession { session: id, attach }
            }
            ("close", [name]) => Command::CloseSession(self::session(name)),
            _ => panic!("not a command of a region: {act} {rest:?}"),
        };
        let at = self.said.len();
        let reply = self.region(region, command);
        self.said.insert(at, format!("  {}", region_reply(&reply)));
    }

    fn is_keyed(&self, name: &str) -> bool {
        let barrier = self.barriers.get(&name.parse().unwrap()).and_then(Barrier::spec);
        barrier.is_some_and(|spec| spec.generations.are_keyed())
    }

    /// A generation by its number, its key, or `key~round`.
    fn find(&self, target: &str) -> GenerationId {
        let (name, label) = target.split_once('@').unwrap_or_else(|| panic!("no generation: {target}"));
        let barrier = &self.barriers[&name.parse().unwrap()];
        let labelled = |id: &GenerationId| {
            id.label().to_string() == label || id.key.as_ref().is_some_and(|key| key.as_str() == label)
        };
        let found = barrier.generations.values().rev().map(|generation| &generation.id).find(|id| labelled(id));
        let number = || GenerationId { barrier: barrier.name.clone(), n: label.parse().unwrap(), key: None, round: 0 };
        found.cloned().unwrap_or_else(number)
    }

    fn status(&mut self, target: &str) {
        let id = self.find(target);
        let barrier = &self.barriers[&id.barrier];
        let Some(generation) = barrier.generations.get(&id.n) else {
            return self.said.push(format!("  {target}: forgotten"));
        };
        self.said.push(format!("  {}: {}", generation.id, generation.state().as_str()));
        for (name, region) in &self.regions {
            let Some(report) = region.report(&id.barrier, id.n) else { continue };
            let mut line = format!("  {name}: {}/{}", report.arrived, report.expected);
            let apart = [
                ("failed", report.failed),
                ("retrying", report.retrying),
                ("working", report.apart.working),
                ("lost", report.apart.lost),
                ("excluded", report.apart.excluded),
                ("waived", report.apart.waived),
            ];
            for (what, count) in apart.into_iter().filter(|(_, count)| *count > 0) {
                line += &format!(" {count} {what}");
            }
            if !report.missing.names.is_empty() {
                line += &format!(" missing {}", report.missing.names);
            }
            line += if report.complete { " complete" } else { "" };
            line += if report.applied.is_some() { " applied" } else { "" };
            self.said.push(line);
        }
    }
}

fn by() -> Override {
    Override { actor: None, reason: "ops".to_string() }
}

fn session(name: &str) -> SessionId {
    SessionId([name.as_bytes()[0]; 16])
}

fn fields<'a>(words: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    words.iter().filter_map(|word| word.split_once('=')).collect()
}

fn milliseconds(text: &str) -> u64 {
    let (number, unit) = text.split_at(text.len() - 1);
    let factor = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => panic!("not a time: {text}"),
    };
    number.parse::<u64>().unwrap() * factor
}

fn spec(name: &str, words: &[&str]) -> Spec {
    let fields = fields(words);
    let text = |field: &str, default: &'static str| fields.get(field).copied().unwrap_or(default).to_string();
    let number = |field: &str, default: u32| fields.get(field).map_or(default, |text| text.parse().unwrap());
    let participants = text("participants", "[1-2]");
    let participants = match participants.parse() {
        Ok(count) => Participants::Count(count),
        Err(_) => Participants::Set(IdSet::parse([participants]).unwrap()),
    };
    let on_lost = fields.get("onLost").map(|on_lost| match *on_lost {
        "fail" => OnLost::Fail,
        "exclude" => OnLost::Exclude,
        _ => OnLost::Wait,
    });
    let slice = Slice {
        participants,
        attempts: number("attempts", 1),
        failures_max: number("maxFailures", 0),
        fail_fast: text("failFast", "true") == "true",
        keep_arrivals: text("keepArrivals", "true") == "true",
        liveness: on_lost.map(|on_lost| Liveness { ttl_ms: 30_000, rejoin_ms: 300_000, on_lost }),
        outputs_bytes_max: 1_000,
        deadline_ms: None,
        retention_ms: 86_400_000,
    };
    let leaf = |name: &&str| Rule::Leaf(Leaf { region: name.parse().unwrap(), zone: None });
    Spec {
        name: name.parse().unwrap(),
        description: String::new(),
        owner: String::new(),
        labels: BTreeMap::new(),
        scope: Scope::Global,
        regions: REGIONS.iter().map(|name| (name.parse().unwrap(), slice.clone())).collect(),
        generations: match &*text("generations", "single") {
            "single" => Generations::Single,
            "cyclic" => Generations::Cyclic,
            _ => Generations::Keyed { max_open: number("maxOpen", 16) },
        },
        deadline_ms: fields.get("deadline").map(|text| milliseconds(text)),
        release_when: match fields.get("atLeast") {
            None => Rule::All,
            Some(count) => Rule::AtLeast { count: count.parse().unwrap(), of: REGIONS.iter().map(leaf).collect() },
        },
        retention_ms: 86_400_000,
        retention_generations: number("retention", 1_000),
        failures_max: number("maxFailures", 0),
        after: None,
    }
}

fn outcome(outcome: &Outcome) -> String {
    let id = &outcome.generation;
    match &outcome.verdict {
        Verdict::Released(release) => {
            let mut text = format!("{id} released{}", if release.whole { "" } else { ", not whole" });
            for (what, count) in [("failed", release.failed), ("excluded", release.excluded)] {
                text += &if count > 0 { format!(", {count} {what}") } else { String::new() };
            }
            for region in &release.left_out {
                text += &format!(", without {region}");
            }
            for (region, who) in &release.waived {
                text += &format!(", waived {region}{}{who}", if who.is_empty() { "" } else { "/" });
            }
            text
        }
        Verdict::Broken(broken) => format!("{id} broken, {}: {}", broken.reason.as_str(), broken.message),
    }
}

fn global_reply(reply: &Result<global::Reply, global::Refusal>) -> String {
    match reply {
        Ok(global::Reply::Defined { revision, created, changed }) => {
            format!(
                "defined at revision {revision}, {}",
                if *created {
                    "new"
                } else if *changed {
                    "changed"
                } else {
                    "equal"
                }
            )
        }
        Ok(global::Reply::Opened { generation, created, .. }) => {
            format!("{} {generation}, n={}", if *created { "opened" } else { "is open or was:" }, generation.n)
        }
        Ok(global::Reply::Ended { changed, .. }) => format!("ended{}", if *changed { "" } else { " before" }),
        Ok(global::Reply::Waived { changed, .. }) => format!("{}waived", if *changed { "" } else { "is " }),
        Ok(global::Reply::Collected { count }) => format!("{count} closed or forgotten"),
        Ok(other) => format!("{other:?}"),
        Err(global::Refusal::AlreadyDecided { outcome }) => {
            format!("refused: already decided, {}", self::outcome(outcome))
        }
        Err(other) => format!("refused: {other:?}"),
    }
}

fn region_reply(reply: &Reply) -> String {
    match reply {
        Reply::Arrived(arrived) => format!(
            "arrived, {}attempt {}{}{}: {}/{}",
            if arrived.first { "" } else { "as before, " },
            arrived.attempt,
            if arrived.outcome == ArrivalOutcome::Failed { ", failed" } else { "" },
            if arrived.late { ", late" } else { "" },
            arrived.arrived,
            arrived.expected
        ),
        Reply::Done { changed } => if *changed { "done" } else { "nothing new" }.to_string(),
        Reply::SessionOpened(opened) => {
            let attempts = opened
                .attempts
                .iter()
                .map(|given| format!("attempt {}{}", given.attempt, if given.done { " done" } else { "" }));
            format!("session open: {}", attempts.collect::<Vec<_>>().join(", "))
        }
        Reply::Refused(Refusal::Full { latest }) => {
            let latest: Vec<String> = latest.iter().map(ParticipantId::to_string).collect();
            format!("refused: full, lately came {}", latest.join(" "))
        }
        Reply::Refused(refusal) => format!("refused: {refusal:?}"),
        other => format!("{other:?}"),
    }
}
