//! The region's words as bodies and problem documents.

use std::collections::BTreeMap;

use muster_http::Failure;
use muster_protocol::caps;
use muster_protocol::generation::{GenerationId, State};
use muster_protocol::name::{ParticipantId, RegionName};
use muster_protocol::participants::Participants;
use muster_protocol::region::{self, Generation, Refusal, Region};
use muster_protocol::replica::NotDone;
use muster_wire::answer;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::verdict;

use crate::driver::NoAnswer;

/// The index of an answer, for a blocking read.
pub(super) fn index(region: &Region) -> String {
    format!("{}:{}", region.history(), region.index())
}

/// A call without a reply. What was not done and what may be done have codes
/// of their own.
pub(super) fn no_answer(none: NoAnswer) -> Failure {
    match none {
        NoAnswer::NotDone(NotDone::Busy) => {
            Failure::new(Code::Busy, "as many commands wait for the region's log as may; nothing was done")
        }
        NoAnswer::NotDone(NotDone::Full) => {
            Failure::new(Code::StorageFull, "the region's log has no room; nothing was done")
        }
        NoAnswer::NotDone(NotDone::Refused) => Failure::new(
            Code::Unavailable,
            "the region's log refused the entry; nothing was done. The agent's log says why",
        ),
        NoAnswer::NotDone(NotDone::Unavailable) => {
            Failure::new(Code::Unavailable, "the region's log did not answer in time; nothing was done")
        }
        NoAnswer::NotDone(NotDone::Stopped) => Failure::new(
            Code::Unavailable,
            "this agent has stopped replaying the region's log; nothing was done. /readyz says why",
        ),
        NoAnswer::Unknown => Problem::new(
            Code::OutcomeUnknown,
            "the region's log did not answer in time: it may or may not have been done",
        )
        .hint("send the same call again: done twice is the same as once")
        .into(),
    }
}

/// Whom a refusal is about.
pub(super) struct About<'a> {
    pub(super) id: &'a GenerationId,
    pub(super) region: &'a RegionName,
    pub(super) participant: &'a ParticipantId,
    pub(super) attempt: u32,
}

/// A refusal by the region's machine, with what helps.
pub(super) fn refused(state: &Region, about: &About<'_>, refusal: &Refusal) -> Failure {
    let About { id, region, participant, attempt } = about;
    let who = format!("{region}/{participant}");
    let generation = state.generation(&id.barrier, id.n);
    let expected = generation.and_then(|generation| expected(state, generation));
    let problem = match refusal {
        Refusal::NotExpected => {
            let set = expected.unwrap_or_default();
            Problem::new(Code::NotExpected, format!("{who} is not a participant of {id}; expected here: {set}"))
                .with("expected", set)
        }
        Refusal::Full { latest } => {
            let latest: Vec<String> = latest.iter().map(ToString::to_string).collect();
            let places = expected.unwrap_or_default();
            Problem::new(
                Code::Full,
                format!("all {places} places of {region} in {id} are taken; the last to arrive: {}", latest.join(", ")),
            )
            .hint("if this participant arrived before under another id, use that id again")
            .with("latest", latest)
        }
        Refusal::StaleAttempt { known } => Problem::new(
            Code::StaleAttempt,
            format!("{who} is at attempt {known} in {id}, which is later than {attempt}"),
        )
        .with("attempt", *known),
        Refusal::Withdrawn { through } => Problem::new(
            Code::Withdrawn,
            format!("attempts of {who} up to {through} were withdrawn from {id}, and {attempt} is one of them"),
        )
        .hint("arrive with a higher attempt")
        .with("attempt", *through),
        Refusal::Sealed => {
            let whole = generation.is_some_and(|generation| generation.completed().is_some());
            let part = if whole { region.to_string() } else { format!("the zone of {who}") };
            let detail = format!("{part} is complete in {id} and has promised so: nothing can be withdrawn");
            Problem::new(Code::Sealed, detail).hint("wait for the outcome")
        }
        Refusal::AlreadyReleased => {
            Problem::new(Code::AlreadyDecided, format!("{id} was released; nothing can be withdrawn"))
        }
        Refusal::Broken => return broken(generation, id),
        Refusal::Expired => Problem::new(Code::Expired, format!("the details of {id} are past their retention")),
        Refusal::OutputsFull { limit } => Problem::new(
            Code::OutputsFull,
            format!("the outputs of {region} in {id} may take {limit} bytes in all, and this one does not fit"),
        )
        .hint("outputs are for paths and counts; leave the data where the others can read it")
        .with("limit", *limit),
        Refusal::TooManyWithdrawn => Problem::new(
            Code::Busy,
            format!("too many attempts were withdrawn from {id} by participants that never arrived"),
        ),
        Refusal::NoSuchGeneration => {
            Problem::new(Code::Behind, format!("{id} is not open in {region} yet")).hint("send the same call again")
        }
        Refusal::Fenced => Problem::new(Code::Fenced, format!("a later session works for {who} in {id}"))
            .hint("stop working: another worker has taken the place"),
        Refusal::SessionLost => Problem::new(
            Code::SessionLost,
            format!("the session does not work for {who} in {id}: it never did, fell silent or was ended"),
        )
        .hint("stop working; open a new session to begin again"),
        Refusal::VersionTooLow => version_too_low(region),
        Refusal::TooManySessions => too_many_sessions(region),
        // Answers to the coordinator's and leaders' commands, which no caller sends.
        Refusal::OldEpoch { .. }
        | Refusal::ClockMoved
        | Refusal::SliceUnknown { .. }
        | Refusal::Conflict
        | Refusal::NotOwner
        | Refusal::NameTaken
        | Refusal::VersionTooHigh => Problem::new(Code::Internal, format!("unexpected refusal: {refusal:?}")),
    };
    problem.with("generation", id.label().to_string()).into()
}

/// Not every agent of the region can run what a command needs.
pub(super) fn version_too_low(region: &RegionName) -> Problem {
    let detail = format!(
        "not every agent of {region} runs a version that knows sessions and regional barriers; nothing was done"
    );
    Problem::new(Code::Unavailable, detail)
        .hint("upgrade the region's other agents; a few seconds after the last one it works")
}

fn too_many_sessions(region: &RegionName) -> Problem {
    let limit = caps::SESSIONS_PER_REGION_MAX;
    Problem::new(Code::Busy, format!("{region} has {limit} sessions, as many as may be open"))
        .hint("one session may stand for many participants: open fewer")
        .with("limit", limit)
}

fn broken(generation: Option<&Generation>, id: &GenerationId) -> Failure {
    let problem = generation.and_then(Generation::ended).and_then(|ended| verdict::broken(&ended.outcome));
    problem.unwrap_or_else(|| Problem::new(Code::Broken, format!("{id} is broken"))).into()
}

fn expected(state: &Region, generation: &Generation) -> Option<String> {
    let slice = state.barrier(&generation.id().barrier)?.slice(generation)?;
    Some(match &slice.participants {
        Participants::Count(count) => count.to_string(),
        sets => sets.sets().map(ToString::to_string).collect::<Vec<_>>().join(","),
    })
}

/// A positive answer to an arrival.
pub(super) fn arrived(
    state: &Region,
    id: &GenerationId,
    who: &ParticipantId,
    arrived: &region::Arrived,
) -> answer::Arrived {
    let generation = format!("/v1/barriers/{}/generations/{}", id.barrier, id.label());
    let links = BTreeMap::from([
        ("wait".to_owned(), format!("{generation}/wait")),
        ("status".to_owned(), generation.clone()),
        ("explain".to_owned(), format!("{generation}/explain")),
    ]);
    answer::Arrived {
        barrier: id.barrier.clone(),
        generation: id.label().to_string(),
        n: id.n,
        participant: format!("{}/{who}", state.name()),
        attempt: arrived.attempt,
        outcome: arrived.outcome,
        first: arrived.first,
        late: arrived.late,
        state: state.generation(&id.barrier, id.n).map_or(State::Gathering, Generation::state),
        arrived: arrived.arrived,
        expected: arrived.expected,
        index: index(state),
        links,
    }
}
