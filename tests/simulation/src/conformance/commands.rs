//! Commands drawn from a seed, about few enough names that they meet.

use std::collections::BTreeMap;

use muster_protocol::generation::GenerationId;
use muster_protocol::global::{Command, Expect, Generation};
use muster_protocol::identity::{Digest, Era, History, Stamp, Timestamp};
use muster_protocol::name::{BarrierName, Key, RegionName};
use muster_protocol::outcome::Override;
use muster_protocol::participants::{IdSet, Participants};
use muster_protocol::report::{Apart, Missing, RegionReport};
use muster_protocol::spec::{Generations, Rule, Scope, Slice, Spec};

use crate::chance::Chance;
use crate::store::Store;

/// The declared regions.
pub(super) const REGIONS: [&str; 3] = ["ap", "eu", "us"];
/// The barriers that anything may be done to.
pub(super) const BARRIERS: [&str; 4] = ["a/loop", "a/once", "b/after", "b/keys"];

pub(super) fn named<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn one_of<T: std::str::FromStr<Err: std::fmt::Debug>>(chance: &mut Chance, texts: &[&'static str]) -> T {
    named(texts[chance.below(texts.len())])
}

fn by() -> Override {
    Override { actor: None, reason: "chance".to_owned() }
}

/// Commands for one transaction; what they speak of is mostly there.
pub(super) fn batch(chance: &mut Chance, store: &Store, era: &Era) -> Vec<(BarrierName, Command)> {
    let command = |chance: &mut Chance| {
        let name: BarrierName = one_of(chance, &BARRIERS);
        let command = command(chance, store, &name, era);
        (name, command)
    };
    (0..chance.within(1..=5)).map(|_| command(chance)).collect()
}

fn command(chance: &mut Chance, store: &Store, name: &BarrierName, era: &Era) -> Command {
    let id = generation(chance, store, name);
    let n = id.n;
    match chance.within(0..=99) {
        0..=7 => Command::Define { spec: Box::new(spec(chance, name)), expect: expect(chance) },
        8 => Command::Delete { force: chance.permille(700), by: by() },
        9..=27 => Command::Open { key: chance.permille(800).then(|| key(chance)) },
        28..=30 => Command::Abort { n, by: by() },
        31 => Command::Release { n, by: by() },
        32..=37 => waive(chance, n),
        38..=43 => Command::Retry { n, key: id.key.clone(), keep: chance.permille(500), by: by() },
        44 => {
            let before: BarrierName = one_of(chance, &BARRIERS);
            Command::PredecessorBroke { n, predecessor: generation(chance, store, &before) }
        }
        45..=47 => Command::Collect { tell: chance.permille(500) },
        48..=55 => Command::Expire { n },
        _ => Command::Report(Box::new(report(chance, store, id, era))),
    }
}

fn key(chance: &mut Chance) -> Key {
    one_of(chance, &["k", "l", "m"])
}

fn expect(chance: &mut Chance) -> Expect {
    match chance.within(0..=9) {
        0..=3 => Expect::NewOrEqual,
        4 => Expect::Revision(chance.within(0..=3)),
        _ => Expect::Anything,
    }
}

/// One that there is, mostly one that gathers; now and then one that was lost.
fn generation(chance: &mut Chance, store: &Store, name: &BarrierName) -> GenerationId {
    let barrier = store.barrier(name);
    let all: Vec<&Generation> = barrier.iter().flat_map(|barrier| barrier.generations.values()).collect();
    let gathering: Vec<&Generation> = all.iter().copied().filter(|one| one.decided.is_none()).collect();
    if chance.permille(40) || all.is_empty() {
        let n = barrier.map_or(1, |barrier| barrier.next_n) + chance.within(0..=1);
        let keyed = name.as_str().ends_with("keys") || name.as_str().ends_with("after");
        return GenerationId { barrier: name.clone(), n, key: keyed.then(|| key(chance)), round: 0 };
    }
    let of = if gathering.is_empty() || chance.permille(350) { &all } else { &gathering };
    chance.pick(of).id.clone()
}

fn waive(chance: &mut Chance, n: u64) -> Command {
    let ids = ["[1-2]", "3", "9"];
    let ids = ids[chance.below(ids.len())];
    let participants = chance.permille(700).then(|| IdSet::parse([ids]).unwrap());
    Command::Waive { n, region: one_of(chance, &REGIONS), participants, by: by() }
}

fn spec(chance: &mut Chance, name: &BarrierName) -> Spec {
    let (generations, after) = match name.as_str() {
        "a/loop" => (Generations::Cyclic, None),
        "a/once" => (Generations::Single, None),
        "b/after" => (Generations::Keyed { max_open: 2 }, Some(named("b/keys"))),
        _ => (Generations::Keyed { max_open: 2 }, None),
    };
    let slice = Slice {
        participants: Participants::Set(IdSet::parse(["[1-3]"]).unwrap()),
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: 1_024,
        deadline_ms: None,
        retention_ms: 1_000,
    };
    let regions = REGIONS.iter().take(chance.within(1..=3) as usize);
    Spec {
        name: name.clone(),
        description: String::new(),
        owner: if chance.permille(500) { "one" } else { "other" }.to_owned(),
        labels: BTreeMap::new(),
        scope: Scope::Global,
        regions: regions.map(|region| (named(region), slice.clone())).collect(),
        generations,
        deadline_ms: chance.permille(500).then(|| chance.within(50..=2_000)),
        release_when: Rule::All,
        retention_ms: chance.within(500..=5_000),
        retention_generations: chance.within(1..=4) as u32,
        failures_max: 0,
        after,
    }
}

fn report(chance: &mut Chance, store: &Store, generation: GenerationId, era: &Era) -> RegionReport {
    let known = store.barrier(&generation.barrier).and_then(|barrier| barrier.generations.get(&generation.n));
    let outcome = known.and_then(|one| one.decided.as_ref()).map(|decided| decided.outcome.clone());
    let region: RegionName = one_of(chance, &REGIONS);
    let complete = chance.permille(600);
    let over_failures = !complete && chance.permille(80);
    let arrived = if complete { 3 } else { chance.within(0..=2) as u32 };
    let missing = Missing { count: 3 - arrived, names: String::new() };
    let applied = outcome.as_ref().filter(|_| chance.permille(700)).map(|outcome| match chance.permille(950) {
        true => outcome.digest(),
        false => Digest([7; 32]),
    });
    let waiver = known.and_then(|one| one.waived.get(&region)).map_or(0, |waiver| waiver.revision);
    RegionReport {
        stamp: Stamp {
            history: History([if chance.permille(970) { 1 } else { 2 }; 16]),
            shard: 0,
            index: chance.within(1..=400),
        },
        region,
        generation,
        expected: 3,
        arrived,
        failed: u32::from(over_failures),
        retrying: 0,
        complete,
        over_failures,
        missing,
        failures: Vec::new(),
        outputs: BTreeMap::new(),
        first_arrival_at: (arrived > 0).then_some(Timestamp(1)),
        last_arrival_at: (arrived > 0).then_some(Timestamp(2)),
        applied,
        name_taken: false,
        spec: None,
        era: chance.permille(800).then(|| era.clone()),
        outcome: outcome.filter(|_| chance.permille(300)).map(Box::new),
        apart: Apart { waiver: if chance.permille(700) { waiver } else { 0 }, ..Apart::default() },
        zones: BTreeMap::new(),
    }
}
