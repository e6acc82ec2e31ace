//! Why a generation is where it is: one word of a closed list, and the same as
//! a sentence with names and numbers.

use std::time::Duration;

use muster_protocol::generation::State;
use muster_protocol::outcome::{BreakReason, Release, Verdict};
use muster_wire::answer::{Link, Reason};
use muster_wire::time::format_duration;
use muster_wire::verdict;

use super::{Part, View};

/// Regions that a sentence names before it counts the rest.
const NAMED_MAX: usize = 3;

pub(super) fn reason(view: &View<'_>, parts: &[Part<'_>]) -> (Reason, String) {
    match view.row.generation.state() {
        State::Gathering => gathering(view, parts),
        State::Releasing => {
            let behind: Vec<String> = parts.iter().filter(|part| !part.applied).map(|p| p.name.to_string()).collect();
            let has = if behind.len() == 1 { "has" } else { "have" };
            (Reason::ReleasePropagating, format!("released; {} {has} not applied it yet", names(&behind)))
        }
        State::Released => released(view, parts),
        State::Broken => broken(view),
    }
}

fn released(view: &View<'_>, parts: &[Part<'_>]) -> (Reason, String) {
    let Some(Verdict::Released(release)) = view.outcome().map(|outcome| &outcome.verdict) else {
        // The state says released only with such a verdict.
        return (Reason::Released, "released".to_owned());
    };
    if let Some(by) = &release.forced {
        let who = by.actor.as_deref().map(|actor| format!(" by {actor}")).unwrap_or_default();
        return (Reason::Forced, format!("released by force{who}: {}", by.reason));
    }
    if release.whole {
        let expected: u64 = parts.iter().map(|part| u64::from(part.expected())).sum();
        let among = count(parts.len() as u64, "region");
        return (Reason::Released, format!("released: all {} of {among} arrived", count(expected, "participant")));
    }
    (Reason::Released, format!("released, not whole: {}", without(release).join("; ")))
}

/// What a release did without.
pub(super) fn without(release: &Release) -> Vec<String> {
    let mut parts = Vec::new();
    if release.failed > 0 {
        parts.push(format!("{} failed", count(release.failed.into(), "participant")));
    }
    if release.excluded > 0 {
        let were = if release.excluded == 1 { "was" } else { "were" };
        parts.push(format!("{} {were} lost and excluded", count(release.excluded.into(), "participant")));
    }
    if !release.left_out.is_empty() {
        let regions: Vec<String> = release.left_out.iter().map(ToString::to_string).collect();
        let were = if regions.len() == 1 { "was" } else { "were" };
        parts.push(format!("{} {were} left out", names(&regions)));
    }
    let waived = release.waived.iter().map(|(region, ids)| match ids.as_str() {
        "" => format!("{region} was waived"),
        ids => format!("{ids} of {region} waived"),
    });
    parts.extend(waived);
    parts
}

fn broken(view: &View<'_>) -> (Reason, String) {
    match view.outcome().map(|outcome| &outcome.verdict) {
        Some(Verdict::Broken(cause)) => {
            let by = cause.actor.as_deref().map(|actor| format!(" by {actor}")).unwrap_or_default();
            let message = match cause.reason {
                BreakReason::Aborted => format!("aborted{by}: {}", cause.message),
                BreakReason::Deleted => format!("its barrier was deleted{by}: {}", cause.message),
                _ => cause.message.clone(),
            };
            (verdict::reason(cause.reason), message)
        }
        // The state says broken only with such a verdict.
        _ => (Reason::Aborted, "broken".to_owned()),
    }
}

fn gathering(view: &View<'_>, parts: &[Part<'_>]) -> (Reason, String) {
    if let Some(region) = view.behind() {
        let message = format!(
            "the coordinator's database was set back or failed over; nothing is decided before {region} has said what \
             it knows"
        );
        return (Reason::RegionBehind, message);
    }
    let waiting: Vec<&Part<'_>> = parts.iter().filter(|part| part.pending()).collect();
    let silent: Vec<String> = waiting
        .iter()
        .filter(|part| part.link() == Link::Silent)
        .map(|part| format!("{} has not been heard for {}", part.name, silence(part)))
        .collect();
    let unopened: Vec<&&Part<'_>> = waiting.iter().filter(|part| part.report.is_none()).collect();
    let nobody = parts.iter().all(|part| part.arrived() == 0 && part.failed() == 0);
    let missing = format!("{}{}", missing(parts), apart(&waiting));
    if !waiting.is_empty() && view.needs().is_none() {
        (Reason::Deciding, "enough of its regions are complete; the decision is on its way".to_owned())
    } else if waiting.is_empty() {
        let expected: u64 = parts.iter().map(|part| u64::from(part.expected())).sum();
        let among = count(parts.len() as u64, "region");
        let everybody = count(expected, "participant");
        (Reason::Deciding, format!("all {everybody} of {among} arrived; the decision is on its way"))
    } else if !silent.is_empty() {
        (Reason::RegionSilent, format!("{}; {missing}", names(&silent)))
    } else if !unopened.is_empty() {
        let sentences: Vec<String> = unopened.iter().map(|part| unopened_sentence(part)).collect();
        (Reason::WaitingForRegions, format!("{}; {missing}", names(&sentences)))
    } else if nobody && view.row.generation.deadline_at.is_none() {
        (Reason::Idle, format!("nobody has arrived and no time runs; {missing}"))
    } else {
        (Reason::WaitingForParticipants, missing)
    }
}

/// What those who are missing are doing, as far as it is known.
fn apart(waiting: &[&Part<'_>]) -> String {
    let sum = |of: fn(&Part<'_>) -> u32| waiting.iter().map(|part| of(part)).sum::<u32>();
    let kinds = [
        (sum(|part| part.apart().working), "working"),
        (sum(|part| part.apart().lost), "lost"),
        (sum(|part| part.retrying()), "retrying"),
    ];
    let kinds = kinds.into_iter().filter(|(number, _)| *number > 0);
    let kinds: Vec<String> = kinds.map(|(number, what)| format!("{number} {what}")).collect();
    if kinds.is_empty() { String::new() } else { format!("; {}", kinds.join(", ")) }
}

fn unopened_sentence(part: &Part<'_>) -> String {
    match part.link() {
        Link::Never => format!("no agent of {} was ever heard", part.name),
        _ => format!("{} has not said that it opened it", part.name),
    }
}

fn silence(part: &Part<'_>) -> String {
    let silence = part.region.and_then(|region| region.silence).unwrap_or_default();
    format_duration(Duration::from_secs(silence.as_secs()))
}

/// "3 of 3072 participants missing, all in ap-south", or who misses how many.
pub(super) fn missing(parts: &[Part<'_>]) -> String {
    let expected: u64 = parts.iter().map(|part| u64::from(part.expected())).sum();
    let behind: Vec<&Part<'_>> = parts.iter().filter(|part| part.missing() > 0).collect();
    let missing: u64 = behind.iter().map(|part| u64::from(part.missing())).sum();
    let each: Vec<String> = behind.iter().map(|part| format!("{} in {}", part.missing(), part.name)).collect();
    match behind.as_slice() {
        [] => format!("none of {} missing", count(expected, "participant")),
        [only] if parts.len() > 1 => {
            format!("{missing} of {} missing, all in {}", count(expected, "participant"), only.name)
        }
        [_] => format!("{missing} of {} missing", count(expected, "participant")),
        _ => format!("{missing} of {} missing: {}", count(expected, "participant"), names(&each)),
    }
}

/// "a, b and c", or the first few and how many more.
pub(super) fn names(list: &[String]) -> String {
    match list {
        [] => "nobody".to_owned(),
        [only] => only.clone(),
        _ if list.len() > NAMED_MAX => {
            format!("{} and {} more", list[..NAMED_MAX].join(", "), list.len() - NAMED_MAX)
        }
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

/// "1 participant", "3 participants".
pub(super) fn count(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
