//! What travels when one participant of each region crosses: records of the
//! same form and size as the service's own.

use std::collections::BTreeMap;

use muster_protocol::entry::{Body, Witness};
use muster_protocol::fact::{Decided, Fact, Next};
use muster_protocol::generation::GenerationId;
use muster_protocol::identity::{Digest, History, Stamp, Timestamp};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::{Outcome, Release, Verdict};
use muster_protocol::region::{ArrivalOutcome, Arrive, Command};
use muster_protocol::report::{Missing, RegionReport};

pub(super) const HISTORY: History = History([7; 16]);
/// As long as the instants of these years are.
const NOW: Timestamp = Timestamp(1_791_374_400_123);

pub(super) fn barrier() -> BarrierName {
    "bench/crossing".parse().expect("a barrier's name")
}

fn generation(n: u64) -> GenerationId {
    GenerationId { barrier: barrier(), n, key: None, round: 0 }
}

/// The report of a region that is complete.
pub(super) fn report(region: &RegionName, n: u64, index: u64) -> RegionReport {
    RegionReport {
        region: region.clone(),
        stamp: Stamp { history: HISTORY, shard: 0, index },
        generation: generation(n),
        expected: 1,
        arrived: 1,
        failed: 0,
        retrying: 0,
        complete: true,
        over_failures: false,
        missing: Missing::default(),
        failures: Vec::new(),
        outputs: BTreeMap::new(),
        first_arrival_at: Some(NOW),
        last_arrival_at: Some(NOW),
        applied: None,
        name_taken: false,
        spec: None,
        era: None,
        outcome: None,
        apart: muster_protocol::report::Apart::default(),
        zones: BTreeMap::new(),
    }
}

/// The decision to release, which opens the next generation.
pub(super) fn decided(n: u64, regions: &[RegionName]) -> Decided {
    let verdict = Verdict::Released(Release { whole: true, ..Release::default() });
    Decided {
        outcome: Outcome { generation: generation(n), verdict, decided_at: NOW },
        regions: regions.to_vec(),
        next: Some(Next { generation: generation(n + 1), same_spec: true, opened_at: NOW }),
    }
}

/// The entry by which a participant arrives.
pub(super) fn arrival_entry(n: u64) -> Vec<u8> {
    entry(Command::Arrive(Arrive {
        barrier: barrier(),
        n,
        participant: "1".parse().expect("a participant's id"),
        attempt: 1,
        outcome: ArrivalOutcome::Ok,
        note: None,
        output: None,
        session: None,
        at: NOW,
    }))
}

/// The entry by which a region learns the decision.
pub(super) fn decision_entry(n: u64, regions: &[RegionName]) -> Vec<u8> {
    entry(Command::Fact(Fact::Decided(decided(n, regions))))
}

fn entry(command: Command) -> Vec<u8> {
    let witness = Witness { index: 1, hash: Digest([9; 32]) };
    Body { witness, commands: vec![command] }.encode()
}
