//! The bytes of every version ever written stay readable. Each fixture was
//! written by the build that introduced its version; set `MUSTER_FIXTURES` to
//! `write` to add those of a new one, never to change an old one.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use std::path::PathBuf;

use super::*;
use crate::fact::{Closed, Decided, Fact, Next, Opened, Waived};
use crate::generation::GenerationId;
use crate::global;
use crate::identity::{Digest, Epoch, History, SessionId, Timestamp};
use crate::outcome::{Break, BreakReason, Failure, Outcome, Override, Release, Verdict};
use crate::participants::{IdSet, Participants};
use crate::region::{ArrivalOutcome, Arrive, Effect, OpenSession, Regional, Withdraw, Work};
use crate::spec::{Generations, Leaf, Liveness, OnLost, Rule, Scope, Slice, Spec};

fn id(n: u64) -> GenerationId {
    GenerationId { barrier: "etl/map".parse().unwrap(), n, key: Some("2026-10-07".parse().unwrap()), round: 1 }
}

fn slice() -> Slice {
    Slice {
        participants: Participants::Set(IdSet::parse(["[0-9]", "p-[007-120]", "x"]).unwrap()),
        attempts: 3,
        failures_max: 1,
        fail_fast: false,
        keep_arrivals: true,
        liveness: Some(Liveness { ttl_ms: 30_000, rejoin_ms: 300_000, on_lost: OnLost::Fail }),
        outputs_bytes_max: 4_096,
        deadline_ms: Some(7_200_000),
        retention_ms: 2_592_000_000,
    }
}

fn opened(n: u64) -> Fact {
    Fact::Opened(Opened {
        generation: id(n),
        region: "us-east".parse().unwrap(),
        spec: slice().digest(),
        slice: Some(slice()),
        opened_at: Timestamp(1_791_374_400_000),
        carry: (n > 1).then_some(n - 1),
    })
}

fn decided(n: u64, verdict: Verdict) -> Fact {
    Fact::Decided(Decided {
        outcome: Outcome { generation: id(n), verdict, decided_at: Timestamp(1_791_374_400_999) },
        regions: vec!["eu-west".parse().unwrap(), "us-east".parse().unwrap()],
        next: Some(Next { generation: id(n + 10), same_spec: true, opened_at: Timestamp(1_791_374_400_999) }),
    })
}

/// Every variant there is, with every optional field both ways.
fn commands() -> Vec<Command> {
    let failure = Failure {
        region: "us-east".parse().unwrap(),
        participant: "7".parse().unwrap(),
        attempt: 3,
        note: Some("exit 1".to_string()),
    };
    let released = Release {
        whole: false,
        failed: 1,
        excluded: 2,
        left_out: vec!["eu-west".parse().unwrap()],
        waived: [("ap-south".parse().unwrap(), "[4-9]".to_string())].into(),
        forced: Some(Override { actor: Some("ops".to_string()), reason: "night is over".to_string() }),
        outputs: [("us-east".parse().unwrap(), [("7".parse().unwrap(), "s3://x".to_string())].into())].into(),
    };
    let broken = Break {
        reason: BreakReason::ParticipantFailed,
        region: Some("us-east".parse().unwrap()),
        failed: vec![failure],
        actor: Some("ops".to_string()),
        message: "us-east/7 (exit 1) failed".to_string(),
    };
    let arrive = Arrive {
        barrier: "etl/map".parse().unwrap(),
        n: 1,
        participant: "7".parse().unwrap(),
        attempt: 2,
        outcome: ArrivalOutcome::Failed,
        note: Some("exit 1".to_string()),
        output: Some("s3://x".to_string()),
        session: Some(SessionId([5; 16])),
        at: Timestamp(1_791_374_400_500),
    };
    let plain = Arrive { outcome: ArrivalOutcome::Ok, note: None, output: None, session: None, ..arrive.clone() };
    vec![
        Command::TookOver { epoch: Epoch(17) },
        Command::Fact(opened(1)),
        Command::Fact(opened(2)),
        Command::Arrive(arrive),
        Command::Arrive(Arrive { participant: "8".parse().unwrap(), ..plain }),
        Command::Withdraw(Withdraw {
            barrier: "etl/map".parse().unwrap(),
            n: 1,
            participant: "8".parse().unwrap(),
            attempt: 2,
        }),
        Command::Fact(decided(1, Verdict::Broken(broken))),
        Command::Fact(decided(2, Verdict::Released(released))),
        Command::ClockAdvanced { epoch: Epoch(17), from_ms: 0, to_ms: 60_000 },
        Command::AgentLost { epoch: Epoch(17), writer: Writer(3) },
        Command::VersionRaised { epoch: Epoch(17), version: 1 },
    ]
}

/// The same of what version 2 of the machine added.
fn commands_2() -> Vec<Command> {
    let by = || Override { actor: Some("ops".to_string()), reason: "night is over".to_string() };
    let ids = IdSet::parse(["[4-9]"]).unwrap();
    let work = |n, who: &str| Work { barrier: "etl/map".parse().unwrap(), n, participant: who.parse().unwrap() };
    let session = |byte, works| {
        Command::OpenSession(OpenSession { id: SessionId([byte; 16]), ttl_ms: 30_000, works, at: Timestamp(7) })
    };
    let say = |command| {
        let barrier = "local/step".parse().unwrap();
        Command::Regional(Box::new(Regional { barrier, command, at: Timestamp(8) }))
    };
    let zones = [("a", "[0-4]"), ("b", "[5-9]")];
    let zones = zones.map(|(zone, ids)| (zone.parse().unwrap(), IdSet::parse([ids]).unwrap()));
    let regional = Slice { participants: Participants::Zones(zones.into()), ..slice() };
    let leaf = |zone: &str| Rule::Leaf(Leaf { region: "us-east".parse().unwrap(), zone: Some(zone.parse().unwrap()) });
    let spec = Spec {
        name: "local/step".parse().unwrap(),
        description: "a step".to_string(),
        owner: "us".to_string(),
        labels: [("app".to_string(), "etl".to_string())].into(),
        scope: Scope::Regional,
        regions: [("us-east".parse().unwrap(), regional)].into(),
        generations: Generations::Keyed { max_open: 2 },
        deadline_ms: Some(60_000),
        release_when: Rule::AtLeast { count: 1, of: vec![Rule::Every(vec![leaf("a")]), leaf("b")] },
        retention_ms: 1_000,
        retention_generations: 10,
        failures_max: 1,
        after: Some("local/before".parse().unwrap()),
    };
    let key = || Some("k".parse().unwrap());
    vec![
        Command::TookOver { epoch: Epoch(17) },
        Command::VersionRaised { epoch: Epoch(17), version: 2 },
        Command::Fact(opened(3)),
        Command::Fact(Fact::Waived(Waived {
            generation: id(3),
            region: "us-east".parse().unwrap(),
            revision: 1,
            participants: ids.clone(),
        })),
        session(1, vec![work(3, "1"), work(3, "2")]),
        session(2, vec![work(3, "2")]),
        session(3, vec![work(3, "3")]),
        Command::AttachSession(SessionId([2; 16])),
        Command::CloseSession(SessionId([1; 16])),
        Command::ExpireSession { session: SessionId([3; 16]), attach: 1 },
        say(global::Command::Define { spec: Box::new(spec), expect: global::Expect::NewOrEqual }),
        say(global::Command::Open { key: key() }),
        say(global::Command::Waive { n: 1, region: "us-east".parse().unwrap(), participants: Some(ids), by: by() }),
        say(global::Command::Abort { n: 1, by: by() }),
        say(global::Command::Retry { n: 1, key: key(), keep: true, by: by() }),
        say(global::Command::Release { n: 2, by: by() }),
        say(global::Command::Expire { n: 2 }),
        say(global::Command::Delete { force: true, by: by() }),
        Command::Ticked { epoch: Epoch(17), from_ms: 0, to_ms: 6_000, at: Timestamp(9) },
        Command::Fact(Fact::Closed(Closed {
            generation: id(2),
            regions: vec!["us-east".parse().unwrap()],
            kept: vec![1],
        })),
    ]
}

fn body(commands: Vec<Command>) -> Body {
    Body { witness: Witness { index: 41, hash: Digest([7; 32]) }, commands }
}

fn snapshot(commands: Vec<Command>) -> Snapshot {
    let mut region = Region::new("us-east".parse().unwrap(), History([1; 16]), 0);
    let mut effects: Vec<Effect> = Vec::new();
    let entry = Entry { index: 1, writer: Writer(9), seq: 1, body: body(commands) };
    let _ = region.apply(&entry, &mut effects);
    Snapshot { hash: Digest([8; 32]), region }
}

fn fixture(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    if std::env::var_os("MUSTER_FIXTURES").is_some_and(|value| value == "write") && !path.exists() {
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn entries_stay_readable() {
    for (name, commands) in [("entry-v1.bin", commands()), ("entry-v1-machine-2.bin", commands_2())] {
        let body = body(commands);
        let bytes = fixture(name, &body.encode());
        assert_eq!(Body::decode(&bytes).unwrap(), body, "{name}");
        assert_eq!(body.encode(), bytes, "the form of {name} changed: raise ENTRY_VERSION and keep reading this one");
    }
}

#[test]
fn snapshots_stay_readable() {
    for (name, commands) in [("snapshot-v1.bin", commands()), ("snapshot-v2.bin", commands_2())] {
        let snapshot = snapshot(commands);
        let bytes = fixture(name, &snapshot.encode());
        assert_eq!(Snapshot::decode(&bytes).unwrap(), snapshot, "{name}");
        let form = "changed: raise SNAPSHOT_VERSION and keep reading this one";
        assert_eq!(snapshot.encode(), bytes, "the form of {name} {form}");
    }
}

/// A region whose agents do not all run version 2 writes what version 1 reads.
#[test]
fn a_snapshot_has_the_form_of_the_machine_that_runs() {
    assert_eq!(snapshot(commands()).encode()[0], 1);
    assert_eq!(snapshot(commands_2()).encode()[0], 2);
}

#[test]
fn what_can_not_be_read_is_told_apart() {
    assert_eq!(Body::decode(&[]), Err(Unreadable::Empty));
    assert_eq!(Body::decode(&[2]), Err(Unreadable::Version { found: 2, known: 1 }));
    let mut bytes = body(commands()).encode();
    bytes.push(0);
    assert_eq!(Body::decode(&bytes), Err(Unreadable::Trailing(1)));
    bytes.truncate(bytes.len() / 2);
    assert!(matches!(Body::decode(&bytes), Err(Unreadable::Damaged(_))));
}
