//! How an outcome is told over HTTP: the same bodies from whoever is asked.

use std::collections::BTreeMap;

use muster_protocol::generation::State;
use muster_protocol::outcome::{BreakReason, Outcome, Verdict};

use crate::answer::{BrokenStatus, ForcedBy, Reason, ReleaseStatus, Released};
use crate::code::Code;
use crate::problem::Problem;
use crate::time::rfc3339;

/// The release as those who pass are handed it. `state` is `releasing` where
/// other regions may still be applying it.
#[must_use]
pub fn released(outcome: &Outcome, state: State) -> Option<Released> {
    let Verdict::Released(release) = &outcome.verdict else { return None };
    let outputs: BTreeMap<String, String> = release
        .outputs
        .iter()
        .flat_map(|(region, of)| of.iter().map(move |(id, output)| (format!("{region}/{id}"), output.clone())))
        .collect();
    Some(Released {
        barrier: outcome.generation.barrier.clone(),
        generation: outcome.generation.label().to_string(),
        n: outcome.generation.n,
        round: outcome.generation.round,
        state,
        whole: release.whole,
        decided_at: rfc3339(outcome.decided_at),
        outputs,
        digest: outcome.digest().to_string(),
    })
}

/// The release as a status tells it.
#[must_use]
pub fn release_status(outcome: &Outcome) -> Option<ReleaseStatus> {
    let Verdict::Released(release) = &outcome.verdict else { return None };
    let forced = release.forced.as_ref();
    Some(ReleaseStatus {
        whole: release.whole,
        failed: release.failed,
        excluded: release.excluded,
        left_out: release.left_out.clone(),
        waived: release.waived.clone(),
        forced: forced.map(|by| ForcedBy { actor: by.actor.clone(), reason: by.reason.clone() }),
        digest: outcome.digest().to_string(),
    })
}

/// The break as a status tells it.
#[must_use]
pub fn broken_status(outcome: &Outcome) -> Option<BrokenStatus> {
    let Verdict::Broken(cause) = &outcome.verdict else { return None };
    Some(BrokenStatus {
        reason: reason(cause.reason),
        region: cause.region.clone(),
        failed: cause.failed.iter().map(|failure| format!("{}/{}", failure.region, failure.participant)).collect(),
        actor: cause.actor.clone(),
        message: cause.message.clone(),
        digest: outcome.digest().to_string(),
    })
}

/// The break as those who waited are told it.
#[must_use]
pub fn broken(outcome: &Outcome) -> Option<Problem> {
    let status = broken_status(outcome)?;
    let Verdict::Broken(cause) = &outcome.verdict else { return None };
    let id = &outcome.generation;
    let word = cause.reason.as_str();
    let by = status.actor.as_deref().map(|actor| format!(" by {actor}")).unwrap_or_default();
    let message = match status.message.is_empty() {
        true => String::new(),
        false => format!(": {}", status.message),
    };
    let problem = Problem::new(Code::Broken, format!("{id} is broken{by} ({word}){message}"))
        .hint("nobody passes this generation, now or later; `muster why` tells more")
        .with("barrier", id.barrier.as_str())
        .with("generation", id.label().to_string())
        .with("n", id.n)
        .with("reason", word)
        .with("message", status.message)
        .with("region", status.region.map(|region| region.to_string()))
        .with("failed", status.failed)
        .with("actor", status.actor)
        .with("digest", status.digest);
    Some(problem)
}

/// The answer to whoever asked for a whole release and got another.
#[must_use]
pub fn not_whole(outcome: &Outcome) -> Problem {
    Problem::new(
        Code::NotWhole,
        format!(
            "{} was released, but not whole: somebody failed, was waived or left out, or it was forced",
            outcome.generation
        ),
    )
    .with("digest", outcome.digest().to_string())
}

/// A cause of a break as statuses write it.
#[must_use]
pub fn reason(cause: BreakReason) -> Reason {
    match cause {
        BreakReason::ParticipantFailed => Reason::ParticipantFailed,
        BreakReason::ParticipantLost => Reason::ParticipantLost,
        BreakReason::MaxFailuresExceeded => Reason::MaxFailuresExceeded,
        BreakReason::DeadlineExceeded => Reason::DeadlineExceeded,
        BreakReason::Aborted => Reason::Aborted,
        BreakReason::Deleted => Reason::Deleted,
        BreakReason::NameTaken => Reason::NameTaken,
        BreakReason::PredecessorBroken => Reason::PredecessorBroken,
        // The list is open for later builds only; this one has named them all.
        _ => Reason::Aborted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_written_the_same_everywhere() {
        for cause in [
            BreakReason::ParticipantFailed,
            BreakReason::ParticipantLost,
            BreakReason::MaxFailuresExceeded,
            BreakReason::DeadlineExceeded,
            BreakReason::Aborted,
            BreakReason::Deleted,
            BreakReason::NameTaken,
            BreakReason::PredecessorBroken,
        ] {
            assert_eq!(serde_json::to_value(reason(cause)).unwrap(), cause.as_str());
        }
    }
}
