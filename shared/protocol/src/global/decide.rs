//! Whether what is known of a generation decides it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Generation;
use crate::identity::Timestamp;
use crate::mutant;
use crate::name::RegionName;
use crate::outcome::{Break, BreakReason, Release, Verdict};
use crate::report::RegionReport;
use crate::spec::{Rule, Spec};

/// The verdict that the reports and the clock force, if any. A deadline that
/// has passed wins over an arrival reported after it: one hard decision.
pub(super) fn verdict(generation: &Generation, spec: &Spec, now: Timestamp) -> Option<Verdict> {
    name_taken(generation)
        .or_else(|| deadline_exceeded(generation, spec, now))
        .or_else(|| failed(generation, spec))
        .map(Verdict::Broken)
        .or_else(|| released(generation, spec).map(Verdict::Released))
}

fn released(generation: &Generation, spec: &Spec) -> Option<Release> {
    let Rule::All = spec.release_when;
    let reports: Vec<(&RegionName, &RegionReport)> =
        spec.regions.keys().filter_map(|region| generation.reports.get_key_value(region)).collect();
    let complete = reports.iter().filter(|(_, report)| report.complete).count();
    let enough = if mutant!(OneRegionFewer) { spec.regions.len() - 1 } else { spec.regions.len() };
    if complete < enough {
        return None;
    }
    let outputs: BTreeMap<_, _> = reports
        .iter()
        .filter(|(_, report)| !report.outputs.is_empty())
        .map(|(region, report)| ((*region).clone(), report.outputs.clone()))
        .collect();
    let failed: u32 = reports.iter().map(|(_, report)| report.failed).sum();
    Some(Release { whole: failed == 0, failed, outputs, ..Release::default() })
}

fn failed(generation: &Generation, spec: &Spec) -> Option<Break> {
    let (region, report) = generation.reports.iter().find(|(_, report)| report.over_failures)?;
    let failures_max = spec.regions.get(region).map_or(0, |slice| slice.failures_max);
    let named: Vec<String> = report
        .failures
        .iter()
        .take(3)
        .map(|failure| match &failure.note {
            Some(note) => format!("{}/{} ({note})", failure.region, failure.participant),
            None => format!("{}/{}", failure.region, failure.participant),
        })
        .collect();
    let more = match (report.failed as usize).saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = named.join(", ");
    let (reason, message) = match failures_max {
        0 => (BreakReason::ParticipantFailed, format!("{names}{more} failed")),
        max => (
            BreakReason::MaxFailuresExceeded,
            format!("{} of {region} failed, more than the {max} that may: {names}{more}", report.failed),
        ),
    };
    Some(Break { reason, region: Some(region.clone()), failed: report.failures.clone(), actor: None, message })
}

fn deadline_exceeded(generation: &Generation, spec: &Spec, now: Timestamp) -> Option<Break> {
    generation.deadline_at.filter(|at| now >= *at || mutant!(DeadlineEarly))?;
    let mut missing = 0_u64;
    let mut behind: Vec<&str> = Vec::new();
    for (region, slice) in &spec.regions {
        let expected = slice.participants.expected();
        let lacking = generation.reports.get(region).map_or(expected, |report| report.missing.count + report.retrying);
        missing += u64::from(lacking);
        if lacking > 0 {
            behind.push(region.as_str());
        }
    }
    let message = match missing {
        0 => String::from("the deadline passed before the release was decided"),
        missing => format!("the deadline passed with {missing} participants missing in {}", behind.join(", ")),
    };
    let region = match behind.as_slice() {
        [only] => only.parse().ok(),
        _ => None,
    };
    Some(Break { reason: BreakReason::DeadlineExceeded, region, failed: Vec::new(), actor: None, message })
}

fn name_taken(generation: &Generation) -> Option<Break> {
    let (region, _) = generation.reports.iter().find(|(_, report)| report.name_taken)?;
    Some(Break {
        reason: BreakReason::NameTaken,
        region: Some(region.clone()),
        failed: Vec::new(),
        actor: None,
        message: format!("{region} holds {} for a barrier of its own", generation.id.barrier),
    })
}
