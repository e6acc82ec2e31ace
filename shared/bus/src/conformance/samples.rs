//! Records to send.

use std::collections::BTreeMap;

use muster_protocol::fact::{
    AgentId, Closed, Decided, Fact, Heartbeat, Hello, Next, Opened, Standing, Waived, Welcome,
};
use muster_protocol::generation::GenerationId;
use muster_protocol::identity::{Digest, Era, History, Stamp, Timestamp};
use muster_protocol::name::RegionName;
use muster_protocol::outcome::{Break, BreakReason, Failure, Outcome, Release, Verdict};
use muster_protocol::participants::{IdSet, Participants};
use muster_protocol::report::{Missing, RegionReport};
use muster_protocol::spec::Slice;
use muster_wire::record::{Downward, Upward};

const HISTORY: History = History([7; 16]);
const NOW: Timestamp = Timestamp(1_791_374_400_123);

/// A region's name.
pub fn region(name: &str) -> RegionName {
    name.parse().expect("a region's name")
}

/// A region's report of the barrier's `n`th generation.
pub fn report(region_name: &str, barrier: &str, n: u64) -> Upward {
    Upward::Report(RegionReport {
        region: region(region_name),
        stamp: Stamp { history: HISTORY, shard: 0, index: n },
        generation: generation(barrier, n),
        expected: 3,
        arrived: 1,
        failed: 1,
        retrying: 0,
        complete: false,
        over_failures: true,
        missing: Missing { count: 1, names: "2".to_owned() },
        failures: vec![failure(region_name)],
        outputs: BTreeMap::from([("0".parse().expect("a participant"), "s3://a/\u{1f980}".to_owned())]),
        first_arrival_at: Some(NOW),
        last_arrival_at: None,
        applied: Some(Digest([9; 32])),
        name_taken: false,
        spec: None,
        era: None,
        outcome: None,
        apart: muster_protocol::report::Apart::default(),
        zones: BTreeMap::new(),
    })
}

/// That the barrier's `n`th generation is past its retention.
pub fn closed(barrier: &str, n: u64) -> Downward {
    Downward::Fact(Fact::Closed(Closed {
        generation: generation(barrier, n),
        regions: vec![region("us-east"), region("eu-west")],
        kept: vec![1],
    }))
}

/// One of each kind that goes up, from one region.
pub fn upward_of_every_kind(region_name: &str) -> Vec<Upward> {
    let hello = Hello {
        region: region(region_name),
        agent: agent(),
        history: HISTORY,
        shard: 0,
        head: 41,
        machine_version: 1,
        address: "http://127.0.0.1:7171".to_owned(),
        era: None,
    };
    let heartbeat = Heartbeat {
        region: region(region_name),
        agent: agent(),
        history: HISTORY,
        shard: 0,
        index: 42,
        address: hello.address.clone(),
        era: Some(Era::new("1/1")),
    };
    vec![report(region_name, "etl/map", 1), Upward::Hello(hello), Upward::Heartbeat(heartbeat)]
}

/// One of each kind that goes down, the outcomes both ways.
pub fn downward_of_every_kind(region_name: &str) -> Vec<Downward> {
    let opened = Opened {
        generation: generation("etl/map", 1),
        region: region(region_name),
        spec: Digest([1; 32]),
        slice: Some(slice()),
        opened_at: NOW,
        carry: None,
    };
    let broken = Verdict::Broken(Break {
        reason: BreakReason::ParticipantFailed,
        region: Some(region(region_name)),
        failed: vec![failure(region_name)],
        actor: None,
        message: "2 of us-east failed: disk full".to_owned(),
    });
    let outputs = BTreeMap::from([("0".parse().expect("a participant"), "s3://a/b".to_owned())]);
    let outputs = BTreeMap::from([(region(region_name), outputs)]);
    let released = Verdict::Released(Release { whole: true, outputs, ..Release::default() });
    let next = Next { generation: generation("etl/map", 2), same_spec: true, opened_at: NOW };
    let welcome = Welcome {
        region: region(region_name),
        agent: agent(),
        history: HISTORY,
        standing: Standing::Current,
        index: 41,
        era: Some(Era::new("1/1")),
        tell_ends: true,
    };
    let regions = vec![region(region_name)];
    vec![
        Downward::Fact(Fact::Opened(opened)),
        Downward::Fact(Fact::Decided(Decided {
            outcome: outcome("etl/map", released),
            next: Some(next),
            regions: regions.clone(),
        })),
        Downward::Fact(Fact::Decided(Decided { outcome: outcome("etl/reduce", broken), next: None, regions })),
        closed("etl/shuffle", 4),
        Downward::Fact(Fact::Waived(waived(region_name))),
        Downward::Welcome(welcome),
    ]
}

fn waived(region_name: &str) -> Waived {
    let participants = IdSet::parse(["[2-7]"]).expect("participants");
    Waived { generation: generation("etl/map", 1), region: region(region_name), revision: 2, participants }
}

fn outcome(barrier: &str, verdict: Verdict) -> Outcome {
    Outcome { generation: generation(barrier, 1), verdict, decided_at: NOW }
}

fn generation(barrier: &str, n: u64) -> GenerationId {
    let key = Some("2026-10-07".parse().expect("a key"));
    GenerationId { barrier: barrier.parse().expect("a barrier's name"), n, key, round: 1 }
}

fn failure(region_name: &str) -> Failure {
    Failure {
        region: region(region_name),
        participant: "2".parse().expect("a participant"),
        attempt: 1,
        note: Some("disk full".to_owned()),
    }
}

fn agent() -> AgentId {
    AgentId { name: "agent-1".to_owned(), instance: "f00d".to_owned() }
}

fn slice() -> Slice {
    Slice {
        participants: Participants::Count(3),
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: Slice::outputs_share(3),
        deadline_ms: None,
        retention_ms: 86_400_000,
    }
}
