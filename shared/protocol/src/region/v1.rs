//! The region's state as version 1 of the machine wrote it. Written for as
//! long as an agent of the region may still run that version, and read for
//! ever.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{ArrivalOutcome, Completed, Ended};
use crate::generation::GenerationId;
use crate::identity::{Digest, Epoch, History, SessionId, Timestamp, Writer};
use crate::name::{BarrierName, Key, ParticipantId, RegionName};
use crate::spec::Slice;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Region {
    name: RegionName,
    history: History,
    shard: u16,
    index: u64,
    clock_ms: u64,
    epoch: Epoch,
    machine_version: u16,
    writers: BTreeMap<Writer, u64>,
    barriers: BTreeMap<BarrierName, Barrier>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Barrier {
    generations: BTreeMap<u64, Generation>,
    rounds: BTreeMap<(Key, u32), u64>,
    slices: BTreeMap<Digest, Slice>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Generation {
    id: GenerationId,
    spec: Option<Digest>,
    opened_at: Timestamp,
    opened_clock_ms: u64,
    arrivals: BTreeMap<ParticipantId, Arrival>,
    withdrawn: BTreeMap<ParticipantId, u32>,
    counts: Counts,
    outputs_bytes: u32,
    first_arrival_at: Option<Timestamp>,
    last_arrival_at: Option<Timestamp>,
    completed: Option<Completed>,
    ended: Option<Ended>,
    closed: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Counts {
    ok: u32,
    failed: u32,
    retrying: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Arrival {
    attempt: u32,
    outcome: ArrivalOutcome,
    note: Option<String>,
    output: Option<String>,
    session: Option<SessionId>,
    at: Timestamp,
}

impl From<&super::Region> for Region {
    fn from(region: &super::Region) -> Self {
        Self {
            name: region.name.clone(),
            history: region.history,
            shard: region.shard,
            index: region.index,
            clock_ms: region.clock_ms,
            epoch: region.epoch,
            machine_version: region.machine_version,
            writers: region.writers.clone(),
            barriers: region.barriers.iter().map(|(name, barrier)| (name.clone(), barrier.into())).collect(),
        }
    }
}

impl From<Region> for super::Region {
    fn from(region: Region) -> Self {
        Self {
            name: region.name,
            history: region.history,
            shard: region.shard,
            index: region.index,
            clock_ms: region.clock_ms,
            epoch: region.epoch,
            machine_version: region.machine_version,
            writers: region.writers,
            barriers: region.barriers.into_iter().map(|(name, barrier)| (name, barrier.into())).collect(),
            sessions: BTreeMap::new(),
            regional: BTreeMap::new(),
            taken: BTreeMap::new(),
            timers: BTreeSet::new(),
            armed: Vec::new(),
            ripe: 0,
            retentions: BTreeSet::new(),
            audit: VecDeque::new(),
        }
    }
}

impl From<&super::Barrier> for Barrier {
    fn from(barrier: &super::Barrier) -> Self {
        Self {
            generations: barrier.generations.iter().map(|(n, generation)| (*n, generation.into())).collect(),
            rounds: barrier.rounds.clone(),
            slices: barrier.slices.clone(),
        }
    }
}

impl From<Barrier> for super::Barrier {
    fn from(barrier: Barrier) -> Self {
        Self {
            generations: barrier.generations.into_iter().map(|(n, generation)| (n, generation.into())).collect(),
            rounds: barrier.rounds,
            slices: barrier.slices,
            ..Self::default()
        }
    }
}

impl From<&super::Generation> for Generation {
    fn from(generation: &super::Generation) -> Self {
        let super::Counts { ok, failed, retrying, .. } = generation.counts;
        Self {
            id: generation.id.clone(),
            spec: generation.spec,
            opened_at: generation.opened_at,
            opened_clock_ms: generation.opened_clock_ms,
            arrivals: generation.arrivals.iter().map(|(id, arrival)| (id.clone(), arrival.into())).collect(),
            withdrawn: generation.withdrawn.clone(),
            counts: Counts { ok, failed, retrying },
            outputs_bytes: generation.outputs_bytes,
            first_arrival_at: generation.first_arrival_at,
            last_arrival_at: generation.last_arrival_at,
            completed: generation.completed,
            ended: generation.ended.clone(),
            closed: generation.closed,
        }
    }
}

impl From<Generation> for super::Generation {
    fn from(generation: Generation) -> Self {
        let Counts { ok, failed, retrying } = generation.counts;
        Self {
            counts: super::Counts { ok, failed, retrying, ..super::Counts::default() },
            outputs_bytes: generation.outputs_bytes,
            arrivals: generation.arrivals.into_iter().map(|(id, arrival)| (id, arrival.into())).collect(),
            withdrawn: generation.withdrawn,
            first_arrival_at: generation.first_arrival_at,
            last_arrival_at: generation.last_arrival_at,
            completed: generation.completed,
            ended: generation.ended,
            closed: generation.closed,
            ..Self::new(generation.id, generation.spec, generation.opened_at, generation.opened_clock_ms)
        }
    }
}

impl From<&super::Arrival> for Arrival {
    fn from(arrival: &super::Arrival) -> Self {
        let super::Arrival { attempt, outcome, note, output, session, at, .. } = arrival.clone();
        Self { attempt, outcome, note, output, session, at }
    }
}

impl From<Arrival> for super::Arrival {
    fn from(arrival: Arrival) -> Self {
        let Arrival { attempt, outcome, note, output, session, at } = arrival;
        Self { attempt, outcome, note, output, session, at, lost: false }
    }
}
