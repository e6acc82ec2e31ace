//! The promises of Muster by number, each with the predicate that checks it
//! where a predicate over one state or a pair of states can; what the others
//! rest on is told in ARCHITECTURE.md. The same predicates serve tests and
//! production, where a violation is counted by its number in
//! `muster_invariant_violations_total`.

use alloc::string::String;
use core::fmt;

use crate::entry::Witness;
use crate::global;
use crate::identity::{Epoch, Timestamp};
use crate::name::{BarrierName, ParticipantId, RegionName};
use crate::outcome::{Outcome, Verdict};
use crate::region::{Command, Region, Reply};
use crate::spec::{Leaf, Spec};

/// A promise, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Released means that every region the rule requires had promised.
    ReleasedOnlyWhenComplete = 1,
    /// One outcome per generation, the same bytes everywhere.
    OneOutcome = 2,
    /// An acknowledged arrival is never lost.
    NothingAcknowledgedIsLost = 3,
    /// Nothing crosses from one generation to another.
    GenerationsApart = 4,
    /// Released and broken exclude each other in every region.
    NeverBoth = 5,
    /// Faults over, everything decidable is decided in bounded time.
    Live = 6,
    /// Nothing an old epoch does has effect after a newer one acted.
    OldEpochsPowerless = 7,
    /// "Refused", "not applied" and "withdrawn" are true for ever.
    RefusalsAreFinal = 8,
    /// Namespaces do not touch.
    NamespacesApart = 9,
    /// The state of finished generations is bounded.
    Bounded = 10,
    /// A report names exactly required minus arrived.
    MissingIsExact = 11,
    /// Replicas at one index have one hash.
    ReplicasAgree = 12,
    /// Permits granted never exceed the limit.
    PermitsWithinLimit = 13,
    /// Every entry takes effect at most once.
    AtMostOnce = 14,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "I{}", *self as u8)
    }
}

/// I1: a release rests on the promise of every region and zone that the rule
/// requires, unless they were waived or somebody forced it.
#[must_use]
pub fn released_only_when_complete(generation: &global::Generation, spec: &Spec) -> bool {
    let Some(Verdict::Released(release)) = generation.decided.as_ref().map(|decided| &decided.outcome.verdict) else {
        return true;
    };
    let waived = |region: &RegionName| release.waived.get(region).is_some_and(String::is_empty);
    let promised = |leaf: &Leaf| {
        let report = generation.reports.get(&leaf.region);
        let zone = || report.zip(leaf.zone.as_ref()).and_then(|(report, zone)| report.zones.get(zone));
        waived(&leaf.region) || report.is_some_and(|r| r.complete) || zone().is_some_and(|zone| zone.complete)
    };
    let rule_holds = || spec.release_when.holds(spec.regions.keys(), &promised);
    // A region that brought the end brings the proof that it was decided.
    let adopted = || generation.reports.values().any(|report| report.outcome.is_some());
    generation.closed || release.forced.is_some() || rule_holds() || adopted()
}

/// I2 and I5: two outcomes of one generation are the same bytes.
#[must_use]
pub fn one_outcome(one: &Outcome, other: &Outcome) -> bool {
    one.generation != other.generation || one.digest() == other.digest()
}

/// I1 as one region can see it: a release that it has applied found its own
/// promise given, or says that it did without.
#[must_use]
pub fn region_promised_before_release(region: &Region) -> bool {
    region.barriers().flat_map(|(_, barrier)| barrier.generations()).all(|generation| {
        let Some(Verdict::Released(release)) = generation.ended().map(|ended| &ended.outcome.verdict) else {
            return true;
        };
        let without = release.forced.is_some()
            || release.left_out.contains(region.name())
            || release.waived.contains_key(region.name());
        without || generation.spec().is_none() || generation.completed().is_some()
    })
}

/// I1: completion is a promise. While a generation gathers, in a region that
/// has completed nobody is missing.
#[must_use]
pub fn completion_is_kept(region: &Region) -> bool {
    region.barriers().all(|(_, barrier)| {
        let gathering = barrier.generations().filter(|generation| generation.ended().is_none());
        gathering.filter(|generation| generation.completed().is_some()).all(|generation| {
            let counts = generation.counts();
            let spoken = counts.ok + counts.failed + counts.apart();
            barrier.slice(generation).is_none_or(|slice| spoken == slice.participants.expected())
        })
    })
}

/// I1: what a zone counts is what its own participants did, and while a
/// generation gathers, in a zone that has promised nobody is missing.
#[must_use]
pub fn zones_add_up(region: &Region) -> bool {
    let zones = region.barriers().flat_map(|(_, barrier)| {
        let open = barrier.generations().filter(|generation| !generation.is_closed());
        let slices = open.filter_map(|generation| Some((generation, barrier.slice(generation)?)));
        slices.flat_map(|(generation, slice)| slice.participants.zones().map(move |zone| (generation, zone)))
    });
    zones.into_iter().all(|(generation, (name, ids))| {
        let Some(zone) = generation.zone(name) else { return true };
        let arrived = generation.arrivals().filter(|(id, _)| ids.contains(id)).count() as u32;
        let apart = generation.absences().filter(|(id, _)| ids.contains(id)).count() as u32;
        let counts = zone.counts;
        let gathering = generation.ended().is_none() && zone.completed.is_some();
        counts.ok + counts.failed + counts.retrying == arrived
            && counts.apart() == apart
            && (!gathering || arrived + apart == ids.len() && counts.retrying == 0)
    })
}

/// I4 and I11: in every generation the arrived are among the expected, no more
/// than expected, and the missing are exactly the rest.
#[must_use]
pub fn missing_is_exact(region: &Region) -> bool {
    region.barriers().all(|(_, barrier)| {
        barrier.generations().filter(|generation| !generation.is_closed()).all(|generation| {
            let Some(slice) = barrier.slice(generation) else { return true };
            let present = generation.arrivals().count() as u32 + generation.counts().apart();
            let expected = slice.participants.expected();
            present <= expected
                && generation.missing(slice).count == expected - present
                && generation.arrivals().all(|(id, _)| slice.participants.admits(id))
        })
    })
}

/// I3 and I8: what a participant was told for certain, as it has to be found in
/// every later state of its region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// At which barrier.
    pub barrier: BarrierName,
    /// In which generation.
    pub n: u64,
    /// Who.
    pub participant: ParticipantId,
    /// Which attempt; a later one may have taken its place.
    pub attempt: u32,
    /// What it was told.
    pub what: Acknowledgement,
}

/// What a participant was told for certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// That it has arrived (I3).
    Arrived,
    /// That its attempts up to this one are withdrawn (I8).
    Withdrawn,
}

impl Acknowledged {
    /// Whether a region still holds what it acknowledged.
    #[must_use]
    pub fn is_kept(&self, region: &Region) -> bool {
        let Some(generation) = region.generation(&self.barrier, self.n) else {
            return region.barrier(&self.barrier).is_some_and(|barrier| barrier.has_forgotten(self.n));
        };
        // Who is waived, or lost and excluded, need not have arrived any more.
        if generation.is_closed() || generation.absence(&self.participant).is_some() {
            return true;
        }
        let withdrawn = generation.withdrawn(&self.participant).is_some_and(|through| through >= self.attempt);
        let counts = generation.arrival(&self.participant).map(|arrival| arrival.attempt);
        match self.what {
            Acknowledgement::Arrived => withdrawn || counts.is_some_and(|attempt| attempt >= self.attempt),
            Acknowledgement::Withdrawn => withdrawn && counts.is_none_or(|attempt| attempt > self.attempt),
        }
    }
}

/// I4: an arrival that counts in another generation than it was sent for, found
/// by its stamp; `sent_for` knows which one that was.
#[must_use]
pub fn counted_elsewhere(region: &Region, sent_for: impl Fn(Timestamp) -> Option<u64>) -> Option<Timestamp> {
    let generations = region.barriers().flat_map(|(_, barrier)| barrier.generations());
    // Who was lost never arrived, and has a stamp of the generation's.
    let stamps = generations.flat_map(|generation| {
        let arrived = generation.arrivals().filter(|(_, arrival)| !arrival.lost);
        arrived.map(move |(_, arrival)| (generation.id(), arrival.at))
    });
    // A retry carries over what arrived in the round before it.
    stamps.filter(|(id, _)| id.round == 0).find(|(id, at)| sent_for(*at).is_some_and(|n| n != id.n)).map(|(_, at)| at)
}

/// I7: what a leader of an older epoch than the one that acts says is refused.
#[must_use]
pub fn old_epoch_powerless(command: &Command, acting: Epoch, reply: &Reply) -> bool {
    let epoch = match command {
        Command::TookOver { epoch }
        | Command::ClockAdvanced { epoch, .. }
        | Command::Ticked { epoch, .. }
        | Command::AgentLost { epoch, .. }
        | Command::VersionRaised { epoch, .. } => *epoch,
        _ => return true,
    };
    epoch >= acting || matches!(reply, Reply::Refused(_))
}

/// I12: no command is on the log that some build in the region may not know.
#[must_use]
pub fn version_respected(command: &Command, version: u16) -> bool {
    command.machine_version() <= version
}

/// I12: two replicas at one index have one hash.
#[must_use]
pub fn replicas_agree(one: Witness, other: Witness) -> bool {
    one.index != other.index || one.hash == other.hash
}

/// I14: an entry that took effect before has none now.
#[must_use]
pub fn at_most_once(before: bool, replies: &[Reply]) -> bool {
    !before || replies.is_empty()
}
