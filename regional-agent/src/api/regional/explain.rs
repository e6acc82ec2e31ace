//! Why a regional generation is not released yet, for people: what is so, who
//! is meant, what can be done.

use std::time::Duration;

use muster_protocol::generation::State;
use muster_protocol::name::ParticipantId;
use muster_protocol::region::Region;
use muster_wire::answer::{Action, Explanation, Participant, ParticipantState};
use muster_wire::time::format_duration;

use super::super::participant::Roll;
use super::status::{Seen, count, missing, status};
use crate::sessions::Sessions;

/// Participants that an explanation names; the list of participants has all.
const NAMED_MAX: usize = 20;

/// The explanation of a generation.
pub(super) fn explain(region: &Region, sessions: &Sessions, seen: &Seen<'_>) -> Explanation {
    let status = status(seen);
    let id = seen.generation.id();
    let mut lines = match status.state {
        State::Gathering => vec![format!("{id} has not released: {}.", status.message)],
        State::Releasing | State::Released => vec![format!("{id} is {}.", status.message)],
        State::Broken => vec![format!("{id} is broken: {}.", status.message)],
    };
    if seen.outcome().is_none() {
        lines.push(clock_line(seen));
        lines.push(format!("It is decided in {} alone.", region.name()));
    }
    Explanation { status, lines, participants: participants(region, sessions, seen), actions: actions(region, seen) }
}

fn clock_line(seen: &Seen<'_>) -> String {
    match (seen.deadline_at(), seen.spec.and_then(|spec| spec.deadline_ms)) {
        (Some(at), _) if at <= seen.now => "Its deadline has passed; it breaks within seconds.".to_owned(),
        (Some(at), _) => {
            let left = Duration::from_millis(at.since_ms(seen.now));
            format!("It breaks in {} (deadline).", format_duration(Duration::from_secs(left.as_secs())))
        }
        (None, Some(ms)) => {
            let deadline = format_duration(Duration::from_millis(ms));
            format!("Its deadline of {deadline} counts from its first arrival.")
        }
        (None, None) => "It has no deadline.".to_owned(),
    }
}

/// Those that keep it from a release: the failed, the lost, the others.
fn participants(region: &Region, sessions: &Sessions, seen: &Seen<'_>) -> Vec<Participant> {
    if seen.outcome().is_some_and(|outcome| outcome.verdict.is_released()) {
        return Vec::new();
    }
    let generation = seen.generation;
    let slice = region.barrier(&generation.id().barrier).and_then(|barrier| barrier.slice(generation));
    let roll = Roll { region, generation, slice, sessions };
    let order = [
        ParticipantState::Failed,
        ParticipantState::Lost,
        ParticipantState::Retrying,
        ParticipantState::Working,
        ParticipantState::Missing,
    ];
    let arrived = generation.arrivals().map(|(id, _)| id.clone());
    let known = arrived.chain(generation.workers().map(|(id, _)| id.clone()));
    let missing = slice.into_iter().flat_map(|slice| generation.missing_ids(slice)).take(NAMED_MAX);
    let all: std::collections::BTreeSet<ParticipantId> = known.chain(missing).collect();
    let in_order = order.iter().flat_map(|state| all.iter().filter(|id| roll.state(id) == *state));
    in_order.take(NAMED_MAX).map(|id| roll.participant(id)).collect()
}

fn actions(region: &Region, seen: &Seen<'_>) -> Vec<Action> {
    if seen.outcome().is_some() {
        return Vec::new();
    }
    let (id, report, name) = (seen.generation.id(), &seen.report, region.name());
    let mut actions = Vec::new();
    if !report.missing.names.is_empty() {
        let names = &report.missing.names;
        let effect = format!("go on without {}", count(report.missing.count, "participant"));
        actions
            .push(Action { command: format!("muster waive {id} --region {name} --id {names} --reason …"), effect });
    }
    let lost = if report.arrived == 0 { String::new() } else { format!("; {} are for nothing", report.arrived) };
    actions.push(Action {
        command: format!("muster abort {id} --reason …"),
        effect: format!("break it: every wait ends ({}{lost})", missing(seen)),
    });
    actions
}
