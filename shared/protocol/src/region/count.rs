//! Who has spoken, and whether that is enough.

use serde::{Deserialize, Serialize};

use super::{Absence, Arrival, ArrivalOutcome, Generation};
use crate::identity::Timestamp;
use crate::mutant;
use crate::name::ParticipantId;
use crate::spec::Slice;

/// How many participants there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Arrived ok.
    pub ok: u32,
    /// Failed for good.
    pub failed: u32,
    /// Failed, and may try again.
    pub retrying: u32,
    /// Lost, and no longer expected.
    pub excluded: u32,
    /// Waived before they arrived.
    pub waived: u32,
    /// Of those that failed for good, by the loss of their session.
    pub lost_for_good: u32,
}

/// When a region or zone completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// The log index of what completed it.
    pub index: u64,
    /// The stamp of the last arrival; for people.
    pub at: Timestamp,
}

/// One zone's part of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Who has spoken in it.
    pub counts: Counts,
    /// When it completed.
    pub completed: Option<Completed>,
}

impl Counts {
    /// Those who are not expected any more.
    #[must_use]
    pub fn apart(self) -> u32 {
        self.excluded + self.waived
    }

    /// More failed than may.
    pub(super) fn over_failures(self, slice: &Slice) -> bool {
        self.failed > slice.failures_max
    }

    /// Everybody has spoken, and no more failed than may. Those who are lost
    /// never complete what nobody arrived in.
    fn complete(self, expected: u32, slice: &Slice) -> bool {
        let somebody = self.excluded == 0 || self.ok > 0 || mutant!(ExcludedCompleteEmpty);
        self.ok + self.failed + self.apart() == expected && !self.over_failures(slice) && somebody
    }

    fn kinds(&mut self, slice: &Slice, arrival: &Arrival) -> [Option<&mut u32>; 2] {
        match arrival.outcome {
            ArrivalOutcome::Ok => [Some(&mut self.ok), None],
            ArrivalOutcome::Failed if arrival.lost || arrival.attempt >= slice.attempts => {
                [Some(&mut self.failed), arrival.lost.then_some(&mut self.lost_for_good)]
            }
            ArrivalOutcome::Failed => [Some(&mut self.retrying), None],
        }
    }

    fn absent(&mut self, absence: Absence) -> &mut u32 {
        match absence {
            Absence::Excluded => &mut self.excluded,
            Absence::Waived => &mut self.waived,
        }
    }
}

impl Generation {
    fn counts_of(&mut self, slice: &Slice, id: &ParticipantId) -> impl Iterator<Item = &mut Counts> {
        let mut zone = slice.participants.zone_of(id);
        if mutant!(ZoneOfAnother) {
            zone = slice.participants.zones().next().map(|(zone, _)| zone);
        }
        let zone = zone.and_then(|zone| self.zones.get_mut(zone));
        core::iter::once(&mut self.counts).chain(zone.map(|zone| &mut zone.counts))
    }

    /// Begins to count by zone, with all who have spoken so far. Version 1 of
    /// the machine knew no zones: what it opened has none until all agents of
    /// the region do.
    pub(super) fn count_zones(&mut self, index: u64, slice: &Slice) {
        self.zones = slice.participants.zones().map(|(zone, _)| (zone.clone(), Zone::default())).collect();
        for (id, arrival) in &self.arrivals {
            if let Some(zone) = slice.participants.zone_of(id).and_then(|zone| self.zones.get_mut(zone)) {
                zone.counts.kinds(slice, arrival).into_iter().flatten().for_each(|count| *count += 1);
            }
        }
        for (id, absence) in &self.absent {
            if let Some(zone) = slice.participants.zone_of(id).and_then(|zone| self.zones.get_mut(zone)) {
                *zone.counts.absent(*absence) += 1;
            }
        }
        self.promise(index, slice);
    }

    /// Puts an arrival in its participant's place.
    pub(super) fn put(&mut self, slice: &Slice, id: &ParticipantId, arrival: Arrival) {
        self.take(slice, id);
        self.take_absence(slice, id);
        for counts in self.counts_of(slice, id) {
            counts.kinds(slice, &arrival).into_iter().flatten().for_each(|count| *count += 1);
        }
        self.outputs_bytes += arrival.output.as_ref().map_or(0, |text| text.len() as u32);
        self.first_arrival_at = Some(self.first_arrival_at.map_or(arrival.at, |first| first.min(arrival.at)));
        self.last_arrival_at = Some(self.last_arrival_at.map_or(arrival.at, |last| last.max(arrival.at)));
        self.arrivals.insert(id.clone(), arrival);
    }

    /// Takes a participant's arrival away.
    pub(super) fn take(&mut self, slice: &Slice, id: &ParticipantId) -> Option<Arrival> {
        let arrival = self.arrivals.remove(id)?;
        for counts in self.counts_of(slice, id) {
            counts.kinds(slice, &arrival).into_iter().flatten().for_each(|count| *count -= 1);
        }
        self.outputs_bytes -= arrival.output.as_ref().map_or(0, |text| text.len() as u32);
        Some(arrival)
    }

    /// A participant is not expected any more. Should it come back, none of
    /// the attempts it had counts again.
    pub(super) fn put_absence(&mut self, slice: &Slice, id: &ParticipantId, absence: Absence) {
        let arrived = self.take(slice, id).map(|arrival| arrival.attempt);
        let worked = self.workers.remove(id).map(|worker| worker.attempt);
        if let Some(attempt) = arrived.max(worked) {
            let used = self.withdrawn.entry(id.clone()).or_default();
            *used = attempt.max(*used);
        }
        self.take_absence(slice, id);
        self.counts_of(slice, id).for_each(|counts| *counts.absent(absence) += 1);
        self.absent.insert(id.clone(), absence);
    }

    fn take_absence(&mut self, slice: &Slice, id: &ParticipantId) {
        if let Some(absence) = self.absent.remove(id) {
            self.counts_of(slice, id).for_each(|counts| *counts.absent(absence) -= 1);
        }
    }

    /// Whether there is room for one more whose name is not known.
    pub(super) fn has_room(&self, slice: &Slice) -> bool {
        let taken = self.arrivals.len() as u64 + u64::from(self.counts.apart());
        taken < u64::from(slice.participants.expected())
    }

    /// Makes the promise where everybody has spoken: of each zone, and of the
    /// region. It is never taken back.
    pub(super) fn promise(&mut self, index: u64, slice: &Slice) {
        let at = self.last_arrival_at.unwrap_or(self.opened_at);
        let completed = Completed { index, at };
        for (zone, set) in slice.participants.zones() {
            if let Some(zone) = self.zones.get_mut(zone)
                && zone.completed.is_none()
                && zone.counts.complete(set.len(), slice)
            {
                zone.completed = Some(completed);
            }
        }
        if self.completed.is_none() && self.counts.complete(slice.participants.expected(), slice) {
            self.completed = Some(completed);
        }
    }

    /// Whether the region has promised with this participant counted in.
    pub(super) fn is_sealed(&self, slice: &Slice, id: &ParticipantId) -> bool {
        let zone = || self.zones.get(slice.participants.zone_of(id)?)?.completed;
        self.completed.is_some() || zone().is_some() && !mutant!(ZoneNotSealed)
    }
}
