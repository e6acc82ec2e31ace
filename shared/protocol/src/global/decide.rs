//! Whether what is known of a generation decides it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Context, Generation, Waiver};
use crate::mutant;
use crate::name::RegionName;
use crate::outcome::{Break, BreakReason, Override, Release, Verdict};
use crate::report::RegionReport;
use crate::spec::{Leaf, Slice, Spec};

/// A generation as it can be judged: only what still counts of the reports.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The generation.
    pub generation: &'a Generation,
    /// The spec it was opened with.
    pub spec: &'a Spec,
    /// The world around it.
    pub context: &'a Context<'a>,
}

impl<'a> View<'a> {
    /// The latest report of a region, if it is of the log that counts and the
    /// region has spoken since the database may have lost commits.
    #[must_use]
    pub fn report(&self, region: &RegionName) -> Option<&'a RegionReport> {
        let report = self.generation.reports.get(region)?;
        let current = self.context.regions.get(region).and_then(|declared| declared.history);
        let in_era = self.generation.era == *self.context.era || report.era.as_ref() == Some(self.context.era);
        (current == Some(report.stamp.history) && in_era).then_some(report)
    }

    /// The first region that has to speak again before anything may be decided
    /// of a generation that has not ended: one from an older life of the
    /// database it may have applied an end of that the database lost, and one
    /// that says it has must bring that end.
    #[must_use]
    pub fn behind(&self) -> Option<&'a RegionName> {
        let old = self.generation.era != *self.context.era && !mutant!(EraIgnored);
        let view = *self;
        let behind = move |region: &&RegionName| match view.report(region) {
            None => old,
            Some(report) => report.lacks_end() && !mutant!(EndMadeAnew),
        };
        self.spec.regions.keys().find(behind)
    }

    /// Whether a region or zone has promised, or is waived.
    #[must_use]
    pub fn promised(&self, leaf: &Leaf) -> bool {
        let report = self.report(&leaf.region);
        let zone = || report.zip(leaf.zone.as_ref()).and_then(|(report, zone)| report.zones.get(zone));
        self.waived(&leaf.region)
            || mutant!(OneRegionFewer) && self.spec.regions.keys().next() == Some(&leaf.region)
            || report.is_some_and(|report| report.complete)
            || zone().is_some_and(|zone| zone.complete)
    }

    /// Whether the rule holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.spec.release_when.holds(self.spec.regions.keys(), &|leaf| self.promised(leaf))
    }

    /// What the rule still needs, as people say it.
    #[must_use]
    pub fn needs(&self) -> Option<String> {
        self.spec.release_when.needs(self.spec.regions.keys(), &|leaf| self.promised(leaf))
    }

    /// Whether the whole region is waived.
    fn waived(&self, region: &RegionName) -> bool {
        self.generation.waives(region)
    }

    /// The regions that are not waived as a whole, with what each last said.
    fn judged(&self) -> impl Iterator<Item = (&'a RegionName, &'a Slice, Option<&'a RegionReport>)> {
        let view = *self;
        let judged = self.spec.regions.iter().filter(move |(region, _)| !view.waived(region));
        judged.map(move |(region, slice)| (region, slice, view.report(region)))
    }

    /// The verdict that the reports and the clock force, if any. A deadline
    /// that has passed wins over an arrival reported after it: one hard
    /// decision.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        if self.behind().is_some() {
            return None;
        }
        self.name_taken()
            .or_else(|| self.deadline_exceeded())
            .or_else(|| self.failed())
            .map(Verdict::Broken)
            .or_else(|| self.holds().then(|| Verdict::Released(self.release(None))))
    }

    /// The release as things stand.
    pub(super) fn release(&self, forced: Option<Override>) -> Release {
        let mut release = Release { forced, ..Release::default() };
        for (region, _, report) in self.judged() {
            if let Some(report) = report {
                release.failed += report.failed;
                release.excluded += report.apart.excluded;
                if !report.outputs.is_empty() {
                    release.outputs.insert(region.clone(), report.outputs.clone());
                }
            }
            if report.is_none_or(|report| !report.complete) {
                release.left_out.push(region.clone());
            }
        }
        release.waived = self.waivers();
        release.whole = release.failed == 0
            && release.excluded == 0
            && release.left_out.is_empty()
            && release.waived.is_empty()
            && release.forced.is_none();
        release
    }

    fn waivers(&self) -> BTreeMap<RegionName, String> {
        let text = |waiver: &Waiver| waiver.participants.as_ref().map_or_else(String::new, ToString::to_string);
        self.generation.waived.iter().map(|(region, waiver)| (region.clone(), text(waiver))).collect()
    }

    fn failed(&self) -> Option<Break> {
        let spoken = || self.judged().all(|(_, _, report)| report.is_some_and(RegionReport::everybody_spoke));
        let total: u32 = self.judged().filter_map(|(_, _, report)| report).map(|report| report.failed).sum();
        let over = self.judged().find_map(|(region, slice, report)| {
            let report = report.filter(|report| report.failed > slice.failures_max)?;
            Some((Some(region), slice.failures_max, report.failed))
        });
        let over = over.or_else(|| (total > self.spec.failures_max).then_some((None, self.spec.failures_max, total)));
        let (region, limit, failed) = over.filter(|_| self.spec.fail_fast() || spoken())?;
        Some(self.broken_by_failures(region, limit, failed))
    }

    fn broken_by_failures(&self, region: Option<&RegionName>, limit: u32, failed: u32) -> Break {
        let reports = || {
            let judged = self.judged().filter(move |(name, ..)| region.is_none_or(|region| region == *name));
            judged.filter_map(|(_, _, report)| report).filter(|report| report.failed > 0)
        };
        let failures: Vec<_> = reports().flat_map(|report| report.failures.iter().cloned()).collect();
        let named: Vec<String> = failures.iter().take(3).map(named).collect();
        let names = match (failed as usize).saturating_sub(named.len()) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        };
        let lost: u32 = reports().map(|report| report.apart.lost_for_good).sum();
        let (reason, message) = match (limit, region) {
            (0, _) if lost == failed => (BreakReason::ParticipantLost, format!("{names} fell silent for good")),
            (0, _) => (BreakReason::ParticipantFailed, format!("{names} failed")),
            (limit, Some(region)) => {
                let message = format!("{failed} of {region} failed, more than the {limit} that may: {names}");
                (BreakReason::MaxFailuresExceeded, message)
            }
            (limit, None) => {
                let message = format!("{failed} failed in all, more than the {limit} that may: {names}");
                (BreakReason::MaxFailuresExceeded, message)
            }
        };
        let region = reports().map(|report| report.region.clone()).next();
        let failed = failures.into_iter().take(crate::caps::FAILURES_NAMED_MAX).collect();
        Break { reason, region, failed, actor: None, message }
    }

    fn deadline_exceeded(&self) -> Option<Break> {
        self.generation.deadline_at.filter(|at| self.context.now >= *at || mutant!(DeadlineEarly))?;
        let mut missing = 0_u64;
        let mut behind: Vec<&str> = Vec::new();
        for (region, slice, report) in self.judged() {
            let expected = slice.participants.expected();
            let lacking = report.map_or(expected, |report| report.missing.count + report.retrying);
            missing += u64::from(lacking);
            if lacking > 0 {
                behind.push(region.as_str());
            }
        }
        let message = match missing {
            0 => String::from("the deadline passed before the release was decided"),
            1 => format!("the deadline passed with 1 participant missing in {}", behind.join(", ")),
            missing => format!("the deadline passed with {missing} participants missing in {}", behind.join(", ")),
        };
        let region = match behind.as_slice() {
            [only] => only.parse().ok(),
            _ => None,
        };
        Some(Break { reason: BreakReason::DeadlineExceeded, region, failed: Vec::new(), actor: None, message })
    }

    fn name_taken(&self) -> Option<Break> {
        let (region, ..) = self.judged().find(|(_, _, report)| report.is_some_and(|report| report.name_taken))?;
        Some(Break {
            reason: BreakReason::NameTaken,
            region: Some(region.clone()),
            failed: Vec::new(),
            actor: None,
            message: format!("{region} holds {} for a barrier of its own", self.generation.id.barrier),
        })
    }
}

fn named(failure: &crate::outcome::Failure) -> String {
    match &failure.note {
        Some(note) => format!("{}/{} ({note})", failure.region, failure.participant),
        None => format!("{}/{}", failure.region, failure.participant),
    }
}
