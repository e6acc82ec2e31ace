//! Why not yet, for people: what is so, who is meant, what can be done.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::generation::State;
use muster_protocol::name::ParticipantId;
use muster_protocol::participants::IdSet;
use muster_protocol::spec::Generations;
use muster_wire::answer::{Action, Explanation, Link, Participant, ParticipantState};
use muster_wire::time::{format_duration, rfc3339};

use super::reason::{count, missing, names};
use super::{Part, View, status};

/// Participants that an explanation names; the list of participants has all.
const NAMED_MAX: usize = 20;

/// The explanation of a generation. `heard` are participants as agents of their
/// regions know them, who alone know when a session was last heard.
pub(crate) fn explain(view: &View<'_>, heard: &[Participant]) -> Explanation {
    let parts = view.parts();
    Explanation {
        status: status(view),
        lines: lines(view, &parts, heard),
        participants: participants(view, &parts, heard),
        actions: actions(view, &parts),
    }
}

fn lines(view: &View<'_>, parts: &[Part<'_>], heard: &[Participant]) -> Vec<String> {
    let id = &view.row.generation.id;
    let message = status(view).message;
    let mut lines = Vec::new();
    match view.row.generation.state() {
        State::Gathering => lines.push(format!("{id} has not released: {message}.")),
        State::Releasing | State::Released => lines.push(format!("{id} is {message}.")),
        State::Broken => lines.push(format!("{id} is broken: {message}.")),
    }
    if view.outcome().is_none() {
        lines.extend(parts.iter().filter(|part| part.pending()).map(region_line));
        lines.extend(heard.iter().filter_map(lost_line));
        lines.extend(parts.iter().filter_map(waiver_line));
        let complete: Vec<String> =
            parts.iter().filter(|part| part.complete() && !part.waived()).map(|part| part.name.to_string()).collect();
        if !complete.is_empty() {
            let is = if complete.len() == 1 { "is" } else { "are" };
            lines.push(format!("{} {is} complete.", names(&complete)));
        }
        lines.extend(view.needs().map(|needs| format!("Release needs {needs}.")));
        lines.push(clock_line(view));
        lines.extend(
            view.row
                .spec
                .after
                .as_ref()
                .map(|after| format!("It comes after {after}, and breaks if that breaks ({after}@{}).", id.label())),
        );
    } else if !view.row.generation.closed {
        let behind: Vec<String> = parts.iter().filter(|part| !part.applied).map(|p| p.name.to_string()).collect();
        if !behind.is_empty() {
            lines.push(format!("{} will hear of it once reached.", names(&behind)));
        }
    } else {
        lines.push("Who arrived when is past its retention; the verdict is kept longer.".to_owned());
    }
    lines.extend(parts.iter().filter_map(drained_line));
    lines
}

fn region_line(part: &Part<'_>) -> String {
    let link = match (part.link(), part.region.and_then(|region| region.silence)) {
        (Link::Silent, Some(silence)) => {
            format!(", not heard for {}", format_duration(Duration::from_secs(silence.as_secs())))
        }
        (Link::Never, _) => ", never heard".to_owned(),
        _ => String::new(),
    };
    let who = match part.missing_names() {
        "" => String::new(),
        names => format!(": {names}"),
    };
    let apart = part.apart();
    let kinds = [
        (part.failed(), "failed"),
        (part.retrying(), "retrying"),
        (apart.excluded, "excluded"),
        (apart.waived, "waived"),
    ];
    let kinds = kinds.into_iter().filter(|(number, _)| *number > 0);
    let others: String = kinds.map(|(number, what)| format!(", {number} {what}")).collect();
    let sessions = match (apart.working, apart.lost) {
        (0, 0) => String::new(),
        (working, 0) => format!(" ({working} working)"),
        (0, lost) => format!(" ({lost} lost)"),
        (working, lost) => format!(" ({working} working, {lost} lost)"),
    };
    let (arrived, expected) = (part.arrived(), part.expected());
    let missing = part.missing_count();
    format!("{}: {arrived} of {expected} arrived{others}, {missing} missing{sessions}{who}{link}.", part.name)
}

/// A participant whose session fell silent, and what it still has.
fn lost_line(one: &Participant) -> Option<String> {
    let seconds = |seconds: f64| format_duration(Duration::from_secs(seconds.max(0.0) as u64));
    if one.state != ParticipantState::Lost {
        return None;
    }
    let seen = one.last_seen_seconds.map_or_else(String::new, |ago| format!(", last heard {} ago", seconds(ago)));
    let left = one.rejoin_seconds.map_or_else(String::new, |left| format!(", {} left to come back", seconds(left)));
    Some(format!("{} is lost{seen}{left}.", one.participant))
}

fn waiver_line(part: &Part<'_>) -> Option<String> {
    let waiver = part.waiver?;
    let by = waiver.by.actor.as_deref().map(|actor| format!(" by {actor}")).unwrap_or_default();
    let whom = match &waiver.participants {
        None => part.name.to_string(),
        Some(ids) => format!("{ids} of {}", part.name),
    };
    Some(format!("{whom} waived{by}: {}.", waiver.by.reason))
}

/// What is said of a region that is absent by plan.
fn drained_line(part: &Part<'_>) -> Option<String> {
    let drained = part.region?.drained.as_ref()?;
    let (until, reason) = (rfc3339(drained.until), &drained.by.reason);
    Some(format!("{} is drained until {until}: {reason}. What opens meanwhile goes on without it.", part.name))
}

fn clock_line(view: &View<'_>) -> String {
    match (view.row.generation.deadline_at, view.row.spec.deadline_ms) {
        (Some(at), _) if at <= view.now => "Its deadline has passed; it breaks now.".to_owned(),
        (Some(at), _) => {
            let left = Duration::from_millis(at.since_ms(view.now));
            format!("It breaks in {} (deadline).", format_duration(Duration::from_secs(left.as_secs())))
        }
        (None, Some(ms)) => {
            let deadline = format_duration(Duration::from_millis(ms));
            format!("Its deadline of {deadline} counts from its first arrival.")
        }
        (None, None) => "It has no deadline.".to_owned(),
    }
}

fn participants(view: &View<'_>, parts: &[Part<'_>], heard: &[Participant]) -> Vec<Participant> {
    if view.outcome().is_some_and(|outcome| outcome.verdict.is_released()) {
        return Vec::new();
    }
    let failed = parts.iter().filter_map(|part| part.report).flat_map(|report| &report.failures).map(|failure| {
        let participant = format!("{}/{}", failure.region, failure.participant);
        let (attempt, note) = (Some(failure.attempt), failure.note.clone());
        Participant { attempt, note, ..plain(participant, ParticipantState::Failed) }
    });
    let missing = parts.iter().flat_map(|part| missing_ids(part).map(move |id| format!("{}/{id}", part.name)));
    let missing = missing.map(|participant| plain(participant, ParticipantState::Missing));
    let known = |one: &Participant| heard.iter().any(|heard| heard.participant == one.participant);
    let rest = failed.chain(missing).filter(|one| !known(one));
    heard.iter().cloned().chain(rest).take(NAMED_MAX).collect()
}

/// A participant of whom only its state is known.
pub(super) fn plain(participant: String, state: ParticipantState) -> Participant {
    Participant {
        participant,
        state,
        attempt: None,
        arrived_at: None,
        note: None,
        withdrawn: None,
        session: None,
        last_seen_seconds: None,
        rejoin_seconds: None,
        progress: None,
    }
}

/// The names that the region's report gives, if they have any.
fn missing_ids(part: &Part<'_>) -> impl Iterator<Item = ParticipantId> {
    let set = IdSet::parse([part.missing_names()]).ok();
    let ids: Vec<ParticipantId> = set.iter().flat_map(IdSet::iter).take(NAMED_MAX).collect();
    ids.into_iter()
}

fn actions(view: &View<'_>, parts: &[Part<'_>]) -> Vec<Action> {
    let id = &view.row.generation.id;
    match view.row.generation.state() {
        State::Gathering => {}
        State::Broken if view.row.spec.generations != Generations::Cyclic => return vec![retry(view)],
        State::Broken | State::Releasing | State::Released => return Vec::new(),
    }
    let pending: Vec<&Part<'_>> = parts.iter().filter(|part| part.pending()).collect();
    let mut actions: Vec<Action> = pending.iter().filter(|part| part.link() != Link::Up).map(|p| start(p)).collect();
    // Nothing can be decided about it before that region has spoken.
    if view.behind().is_some() {
        return actions;
    }
    actions.extend(pending.iter().filter_map(|part| waive_some(view, part)));
    actions.extend(pending.iter().map(|part| waive_region(view, part)));
    let arrived: u64 = parts.iter().map(|part| u64::from(part.arrived())).sum();
    let ignored = if arrived == 0 { String::new() } else { format!("; {} are for nothing", count(arrived, "arrival")) };
    actions.push(Action {
        command: format!("muster abort {id} --reason …"),
        effect: format!("break it: every wait ends, in every region ({}{ignored})", missing(parts)),
    });
    actions
}

fn start(part: &Part<'_>) -> Action {
    Action {
        command: "muster agent --config …".to_owned(),
        effect: format!("start an agent of {}; without one its participants can't arrive", part.name),
    }
}

/// Only when all who are missing have names: a waiver of some would not do.
fn waive_some(view: &View<'_>, part: &Part<'_>) -> Option<Action> {
    let (id, names) = (&view.row.generation.id, part.missing_names());
    let set = IdSet::parse([names]).ok().filter(|set| set.len() == part.missing_count())?;
    let plain = names.strip_prefix('[').and_then(|names| names.strip_suffix(']')).unwrap_or(names);
    Some(Action {
        command: format!("muster waive {id} --region {} --id {plain} --reason …", part.name),
        effect: format!("go on without {}", count(set.len().into(), "participant")),
    })
}

fn waive_region(view: &View<'_>, part: &Part<'_>) -> Action {
    let ignored = match part.arrived() {
        0 => String::new(),
        1 => ": 1 arrival is ignored".to_owned(),
        arrived => format!(": {arrived} arrivals are ignored"),
    };
    Action {
        command: format!("muster waive {} --region {} --reason …", view.row.generation.id, part.name),
        effect: format!("go on without the region{ignored}"),
    }
}

fn retry(view: &View<'_>) -> Action {
    let keep = match view.row.generation.closed {
        false => "those that arrived ok have arrived there too",
        true => "everybody arrives anew",
    };
    let keep_none = if view.row.generation.closed { " --keep none" } else { "" };
    Action {
        command: format!("muster retry {}{keep_none} --reason …", view.row.generation.id),
        effect: format!("open its next round; {keep}"),
    }
}

/// What a call that can't be answered with yes adds to its problem.
pub(crate) fn gathering_members(view: &View<'_>) -> BTreeMap<&'static str, serde_json::Value> {
    let status = status(view);
    let missing: BTreeMap<String, serde_json::Value> = status
        .regions
        .iter()
        .filter(|region| region.missing_count + region.retrying > 0)
        .map(|region| {
            let (count, retrying) = (region.missing_count, region.retrying);
            let names = serde_json::json!({ "count": count, "names": region.missing, "retrying": retrying });
            (region.name.to_string(), names)
        })
        .collect();
    BTreeMap::from([
        ("generation", status.generation.clone().into()),
        ("n", status.n.into()),
        ("state", status.state.as_str().into()),
        ("reason", serde_json::json!(status.reason)),
        ("arrived", status.arrived.into()),
        ("expected", status.expected.into()),
        ("missing", serde_json::json!(missing)),
        ("index", status.index.into()),
    ])
}
