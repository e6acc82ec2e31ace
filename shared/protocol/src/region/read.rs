//! What can be asked of a region's state. Nothing here changes it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Absence, Arrival, ArrivalOutcome, Barrier, Completed, Counts, Ended, Generation, Region, Zone};
use crate::caps;
use crate::fact::Fact;
use crate::generation::{GenerationId, State};
use crate::identity::{Digest, Epoch, History, Stamp, Timestamp, Writer};
use crate::name::{BarrierName, Key, ParticipantId, RegionName, ZoneName};
use crate::outcome::Failure;
use crate::participants::{IdSet, compress};
use crate::report::{Apart, Missing, RegionReport, ZoneReport};
use crate::spec::Slice;

/// What a fact is to a region that hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It must go on the log.
    New,
    /// It was applied before; who sent it has not heard that.
    Known,
    /// Another outcome was applied before (against I2).
    Different,
}

impl Region {
    /// The region's name.
    #[must_use]
    pub fn name(&self) -> &RegionName {
        &self.name
    }

    /// The life of the log this state was replayed from.
    #[must_use]
    pub fn history(&self) -> History {
        self.history
    }

    /// The index of the last entry applied.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Where this state stands in the log.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp { history: self.history, shard: self.shard, index: self.index }
    }

    /// Milliseconds the region's leaders have counted.
    #[must_use]
    pub fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// The incarnation of the leader that acts.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last sequence number of each living writer.
    #[must_use]
    pub fn writers(&self) -> &BTreeMap<Writer, u64> {
        &self.writers
    }

    /// All barriers the region has heard of.
    pub fn barriers(&self) -> impl Iterator<Item = (&BarrierName, &Barrier)> {
        self.barriers.iter()
    }

    /// One barrier.
    #[must_use]
    pub fn barrier(&self, name: &BarrierName) -> Option<&Barrier> {
        self.barriers.get(name)
    }

    /// One generation.
    #[must_use]
    pub fn generation(&self, barrier: &BarrierName, n: u64) -> Option<&Generation> {
        self.barriers.get(barrier)?.generations.get(&n)
    }

    /// The version of the machine that the region runs.
    #[must_use]
    pub fn machine_version(&self) -> u16 {
        self.machine_version
    }

    /// What a fact would be to this region.
    #[must_use]
    pub fn heard(&self, fact: &Fact) -> Heard {
        let id = fact.generation();
        if self.regional.contains_key(&id.barrier) {
            let taken = self.taken.get(&(id.barrier.clone(), id.n));
            let known = taken.is_some_and(|(_, applied)| applied.is_some() || matches!(fact, Fact::Opened(_)));
            return if known { Heard::Known } else { Heard::New };
        }
        let barrier = self.barriers.get(&id.barrier);
        let forgotten = barrier.is_some_and(|barrier| barrier.has_forgotten(id.n));
        let generation = self.generation(&id.barrier, id.n);
        match (fact, generation) {
            (Fact::Closed(closed), _) => match barrier {
                Some(barrier) if barrier.forgotten < closed.generation.n => Heard::New,
                _ => Heard::Known,
            },
            _ if forgotten && !crate::mutant!(ForgottenComesBack) => Heard::Known,
            (_, None) => Heard::New,
            (Fact::Opened(_), Some(_)) => Heard::Known,
            (Fact::Waived(waived), Some(generation)) => {
                let known = generation.ended.is_some() || generation.waiver >= waived.revision;
                if known { Heard::Known } else { Heard::New }
            }
            (Fact::Decided(decided), Some(generation)) => match &generation.ended {
                None => Heard::New,
                Some(ended) if ended.digest == decided.outcome.digest() => Heard::Known,
                Some(_) if crate::mutant!(SecondOutcomeOverwrites) => Heard::New,
                Some(_) => Heard::Different,
            },
        }
    }

    /// What the coordinator is told of one generation: of a name that is
    /// regional here, only that it is taken.
    #[must_use]
    pub fn report_up(&self, barrier: &BarrierName, n: u64) -> Option<RegionReport> {
        if !self.regional.contains_key(barrier) {
            return self.report(barrier, n);
        }
        let (id, applied) = self.taken.get(&(barrier.clone(), n))?;
        Some(RegionReport { applied: *applied, name_taken: true, ..RegionReport::empty(&self.name, self.stamp(), id) })
    }

    /// Every generation that the coordinator may lack something of: those that
    /// have not ended here, and all with their ends if it may have lost them.
    pub fn to_report(&self, ends: bool) -> impl Iterator<Item = (BarrierName, u64)> + '_ {
        let global = self.barriers.iter().filter(|(name, _)| !self.regional.contains_key(*name));
        let known = global.flat_map(move |(name, barrier)| {
            let open = barrier.generations.values().filter(move |generation| ends || generation.ended.is_none());
            open.map(move |generation| (name.clone(), generation.id.n))
        });
        known.chain(self.taken.keys().cloned())
    }

    /// Everything the region knows of one generation, stamped with the index
    /// at which it knows it.
    #[must_use]
    pub fn report(&self, barrier: &BarrierName, n: u64) -> Option<RegionReport> {
        let barrier = self.barriers.get(barrier)?;
        let generation = barrier.generations.get(&n)?;
        let slice = generation.spec.and_then(|spec| barrier.slices.get(&spec));
        let counts = generation.counts;
        let lost = generation.workers.values().filter(|worker| worker.lost.is_some()).count() as u32;
        let working = generation.workers.keys().filter(|id| !generation.arrivals.contains_key(*id)).count() as u32;
        Some(RegionReport {
            expected: slice.map_or(0, |slice| slice.participants.expected()),
            arrived: counts.ok,
            failed: counts.failed,
            retrying: counts.retrying,
            complete: generation.completed.is_some(),
            over_failures: slice.is_some_and(|slice| counts.over_failures(slice)),
            missing: slice.map(|slice| generation.missing(slice)).unwrap_or_default(),
            failures: slice.map(|slice| generation.failures(&self.name, slice)).unwrap_or_default(),
            outputs: slice.map(|slice| generation.outputs(slice)).unwrap_or_default(),
            first_arrival_at: generation.first_arrival_at,
            last_arrival_at: generation.last_arrival_at,
            applied: generation.ended.as_ref().map(|ended| ended.digest),
            spec: generation.spec,
            apart: Apart {
                excluded: counts.excluded,
                waived: counts.waived,
                working: working.saturating_sub(lost),
                lost,
                lost_for_good: counts.lost_for_good,
                waiver: generation.waiver,
            },
            zones: slice.map(|slice| generation.zone_reports(slice)).unwrap_or_default(),
            ..RegionReport::empty(&self.name, self.stamp(), &generation.id)
        })
    }
}

impl Barrier {
    /// All generations, by number.
    pub fn generations(&self) -> impl DoubleEndedIterator<Item = &Generation> {
        self.generations.values()
    }

    /// The generation with the highest number.
    #[must_use]
    pub fn latest(&self) -> Option<&Generation> {
        self.generations.values().next_back()
    }

    /// One generation by number.
    #[must_use]
    pub fn generation(&self, n: u64) -> Option<&Generation> {
        self.generations.get(&n)
    }

    /// A key's round; without one, the latest round of the key.
    #[must_use]
    pub fn keyed(&self, key: &Key, round: Option<u32>) -> Option<&Generation> {
        let rounds = (key.clone(), round.unwrap_or(0))..=(key.clone(), round.unwrap_or(u32::MAX));
        let (_, n) = self.rounds.range(rounds).next_back()?;
        self.generations.get(n)
    }

    /// The slice a generation was opened with.
    #[must_use]
    pub fn slice(&self, generation: &Generation) -> Option<&Slice> {
        self.slices.get(&generation.spec?)
    }
}

impl Generation {
    /// How it is named.
    #[must_use]
    pub fn id(&self) -> &GenerationId {
        &self.id
    }

    /// The digest of its slice.
    #[must_use]
    pub fn spec(&self) -> Option<Digest> {
        self.spec
    }

    /// When it was opened, on the coordinator's clock.
    #[must_use]
    pub fn opened_at(&self) -> Timestamp {
        self.opened_at
    }

    /// How many arrived, failed, or are trying again.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// When the region completed.
    #[must_use]
    pub fn completed(&self) -> Option<Completed> {
        self.completed
    }

    /// How it ended, as applied here.
    #[must_use]
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Whether only the bare verdict is left.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// The state as far as this region knows. A region that has applied a
    /// release says released: others may still be applying it.
    #[must_use]
    pub fn state(&self) -> State {
        match &self.ended {
            None => State::Gathering,
            Some(ended) if ended.outcome.verdict.is_released() => State::Released,
            Some(_) => State::Broken,
        }
    }

    /// All arrivals, by participant.
    pub fn arrivals(&self) -> impl Iterator<Item = (&ParticipantId, &Arrival)> {
        self.arrivals.iter()
    }

    /// One participant's arrival.
    #[must_use]
    pub fn arrival(&self, participant: &ParticipantId) -> Option<&Arrival> {
        self.arrivals.get(participant)
    }

    /// The highest attempt a participant withdrew.
    #[must_use]
    pub fn withdrawn(&self, participant: &ParticipantId) -> Option<u32> {
        self.withdrawn.get(participant).copied()
    }

    /// Every participant that has no arrival; empty when they have no names.
    pub fn missing_ids<'a>(&'a self, slice: &'a Slice) -> impl Iterator<Item = ParticipantId> + 'a {
        let expected = slice.participants.sets().flat_map(|set| set.iter());
        expected.filter(|id| !self.arrivals.contains_key(id) && !self.absent.contains_key(id))
    }

    /// How many are missing, and the first of them (I11).
    #[must_use]
    pub fn missing(&self, slice: &Slice) -> Missing {
        let spoken = self.arrivals.len() as u32 + self.counts.apart();
        let count = slice.participants.expected().saturating_sub(spoken);
        let names: Vec<ParticipantId> = match count {
            0 => Vec::new(),
            _ => self.missing_ids(slice).take(caps::MISSING_NAMES_MAX).collect(),
        };
        Missing { count, names: compress(&names) }
    }

    fn failures(&self, region: &RegionName, slice: &Slice) -> Vec<Failure> {
        if self.counts.failed == 0 {
            return Vec::new();
        }
        let for_good = |arrival: &Arrival| arrival.lost || arrival.attempt >= slice.attempts;
        let failed = self.arrivals.iter().filter(|(_, arrival)| arrival.outcome == ArrivalOutcome::Failed);
        let failed = failed.filter(|(_, arrival)| for_good(arrival));
        failed
            .take(caps::FAILURES_NAMED_MAX)
            .map(|(participant, arrival)| Failure {
                region: region.clone(),
                participant: participant.clone(),
                attempt: arrival.attempt,
                note: arrival.note.clone(),
            })
            .collect()
    }

    /// What participants of promised zones and regions left, while it gathers.
    fn outputs(&self, slice: &Slice) -> BTreeMap<ParticipantId, alloc::string::String> {
        if self.ended.is_some() {
            return BTreeMap::new();
        }
        let left = self.arrivals.iter().filter(|(_, arrival)| arrival.output.is_some());
        let promised = left.filter(|(id, _)| self.is_sealed(slice, id));
        promised.filter_map(|(id, arrival)| Some((id.clone(), arrival.output.clone()?))).collect()
    }

    fn zone_reports(&self, slice: &Slice) -> BTreeMap<ZoneName, ZoneReport> {
        let report = |(name, set): (&ZoneName, &IdSet)| {
            let zone = self.zones.get(name).copied().unwrap_or_default();
            let report = ZoneReport {
                expected: set.len(),
                arrived: zone.counts.ok,
                failed: zone.counts.failed,
                complete: zone.completed.is_some(),
            };
            (name.clone(), report)
        };
        slice.participants.zones().map(report).collect()
    }

    /// What has been said in one zone.
    #[must_use]
    pub fn zone(&self, name: &ZoneName) -> Option<&Zone> {
        self.zones.get(name)
    }

    /// Everybody who is not expected any more.
    pub fn absences(&self) -> impl Iterator<Item = (&ParticipantId, Absence)> {
        self.absent.iter().map(|(id, absence)| (id, *absence))
    }

    /// Why a participant is not expected any more.
    #[must_use]
    pub fn absence(&self, id: &ParticipantId) -> Option<Absence> {
        self.absent.get(id).copied()
    }
}
