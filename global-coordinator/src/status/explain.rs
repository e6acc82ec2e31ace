//! Why not yet, for people: what is so, who is meant, what can be done.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::generation::State;
use muster_protocol::name::ParticipantId;
use muster_protocol::participants::IdSet;
use muster_wire::answer::{Action, Explanation, Link, Participant, ParticipantState};
use muster_wire::time::format_duration;

use super::reason::{count, missing, names};
use super::{Part, View, status};

/// Participants that an explanation names; the list of participants has all.
const NAMED_MAX: usize = 20;

/// The explanation of a generation.
pub(crate) fn explain(view: &View<'_>) -> Explanation {
    let parts = view.parts();
    Explanation {
        status: status(view),
        lines: lines(view, &parts),
        participants: participants(view, &parts),
        actions: actions(view, &parts),
    }
}

fn lines(view: &View<'_>, parts: &[Part<'_>]) -> Vec<String> {
    let id = &view.row.generation.id;
    let message = status(view).message;
    let mut lines = Vec::new();
    match view.row.generation.state() {
        State::Gathering => lines.push(format!("{id} has not released: {message}.")),
        State::Releasing | State::Released => lines.push(format!("{id} is {message}.")),
        State::Broken => lines.push(format!("{id} is broken: {message}.")),
    }
    if view.outcome().is_none() {
        lines.extend(parts.iter().filter(|part| !part.complete()).map(region_line));
        let complete: Vec<String> =
            parts.iter().filter(|part| part.complete()).map(|part| part.name.to_string()).collect();
        if !complete.is_empty() {
            let is = if complete.len() == 1 { "is" } else { "are" };
            lines.push(format!("{} {is} complete. Release needs all regions.", names(&complete)));
        }
        lines.push(clock_line(view));
    } else {
        let behind: Vec<String> = parts.iter().filter(|part| !part.applied).map(|p| p.name.to_string()).collect();
        if !behind.is_empty() {
            lines.push(format!("{} will hear of it as soon as it can be reached.", names(&behind)));
        }
    }
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
    let failed = match part.failed() {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    let (arrived, expected) = (part.arrived(), part.expected());
    let missing = part.missing();
    format!("{}: {arrived} of {expected} arrived{failed}, {missing} missing{who}{link}.", part.name)
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

fn participants(view: &View<'_>, parts: &[Part<'_>]) -> Vec<Participant> {
    if view.outcome().is_some_and(|outcome| outcome.verdict.is_released()) {
        return Vec::new();
    }
    let failed = parts.iter().filter_map(|part| part.report).flat_map(|report| &report.failures).map(|failure| {
        let participant = format!("{}/{}", failure.region, failure.participant);
        let (attempt, note) = (Some(failure.attempt), failure.note.clone());
        let state = ParticipantState::Failed;
        Participant { participant, state, attempt, arrived_at: None, note, withdrawn: None }
    });
    let missing = parts.iter().flat_map(|part| missing_ids(part).map(move |id| (part.name, id))).map(|(region, id)| {
        let participant = format!("{region}/{id}");
        let state = ParticipantState::Missing;
        Participant { participant, state, attempt: None, arrived_at: None, note: None, withdrawn: None }
    });
    failed.chain(missing).take(NAMED_MAX).collect()
}

/// The names that the region's report gives, if they have any.
fn missing_ids(part: &Part<'_>) -> impl Iterator<Item = ParticipantId> {
    let set = IdSet::parse([part.missing_names()]).ok();
    let ids: Vec<ParticipantId> = set.iter().flat_map(IdSet::iter).take(NAMED_MAX).collect();
    ids.into_iter()
}

fn actions(view: &View<'_>, parts: &[Part<'_>]) -> Vec<Action> {
    let id = &view.row.generation.id;
    if view.outcome().is_some() {
        return Vec::new();
    }
    let mut actions = Vec::new();
    let arrived: u64 = parts.iter().map(|part| u64::from(part.arrived())).sum();
    for part in parts.iter().filter(|part| !part.complete() && part.link() != Link::Up) {
        actions.push(Action {
            command: "muster agent --config …".to_owned(),
            effect: format!("start an agent of {}; without one its participants can't arrive", part.name),
        });
    }
    let ignored = if arrived == 0 { String::new() } else { format!("; {} are for nothing", count(arrived, "arrival")) };
    actions.push(Action {
        command: format!("muster abort {id} --reason …"),
        effect: format!("break it: every wait ends, in every region ({}{ignored})", missing(parts)),
    });
    actions
}

/// What a call that can't be answered with yes adds to its problem.
pub(crate) fn gathering_members(view: &View<'_>) -> BTreeMap<&'static str, serde_json::Value> {
    let status = status(view);
    let missing: BTreeMap<String, serde_json::Value> = status
        .regions
        .iter()
        .filter(|region| region.missing_count > 0)
        .map(|region| {
            let names = serde_json::json!({ "count": region.missing_count, "names": region.missing });
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
