//! What the store and the machine say no to, as problem documents: one table
//! for each.

use muster_http::Failure;
use muster_protocol::generation::GenerationId;
use muster_protocol::global::Refusal;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::{Outcome, Verdict};
use muster_wire::code::Code;
use muster_wire::nearest::nearest;
use muster_wire::problem::Problem;

use crate::store::StoreError;

/// Why the store did not answer. The cause is logged, not told: it may name
/// addresses and users.
pub(super) fn store(error: StoreError) -> Failure {
    let cause = muster_telemetry::chain(&error);
    match error {
        // There is one for each of many: the count by status tells it better.
        StoreError::Busy(_) => tracing::debug!(error = %cause, "the store has no room for a call"),
        _ => tracing::warn!(error = %cause, "the store did not answer a call"),
    }
    let problem = match error {
        StoreError::Unavailable(_) => Problem::new(Code::Unavailable, "the store does not answer; nothing was done")
            .hint("/readyz?verbose says what is missing; call again later"),
        StoreError::Busy(_) => {
            Problem::new(Code::Busy, "more calls need the store than it can answer; nothing was done")
                .hint("send the same call again in a moment")
        }
        StoreError::Contended(_) => {
            Problem::new(Code::Busy, "too many calls change the same barrier at once; nothing was done")
                .hint("send the same call again in a moment")
        }
        StoreError::Unknown(_) => {
            Problem::new(Code::OutcomeUnknown, "the store's answer was lost; it may or may not have been done")
                .hint("send the same call again; doing it twice is the same as once")
        }
        StoreError::Full(_) => Problem::new(Code::StorageFull, "the store has no room; nothing was done")
            .hint("give the database more disk; everything goes on by itself then"),
        StoreError::Schema { found, needed } => Problem::new(
            Code::Unavailable,
            format!("the store's schema is at version {found}, this build needs {needed}; nothing was done"),
        )
        .hint("run `muster migrate`, then call again"),
        StoreError::Defect(_) => Problem::new(Code::Internal, "the store refused a statement; nothing was done")
            .hint("this is a defect of Muster; the log has the cause"),
    };
    problem.into()
}

/// Why the machine did not do a command.
pub(super) fn refusal(barrier: &BarrierName, refusal: Refusal) -> Failure {
    match refusal {
        Refusal::NotDefined => not_defined(barrier),
        Refusal::NoSuchGeneration => Problem::new(Code::NoSuchGeneration, format!("{barrier} has no such generation"))
            .hint(format!("GET /v1/barriers/{barrier}/generations lists them"))
            .into(),
        Refusal::Conflict { revision, .. } => conflict(barrier, revision),
        Refusal::Precondition { revision } => precondition(barrier, revision),
        Refusal::StillGathering { open } => {
            let open: Vec<String> = open.iter().map(|id| id.label().to_string()).collect();
            let list = open.join(", ");
            Problem::new(Code::Conflict, format!("{barrier} is not deleted: generations are gathering: {list}"))
                .hint("`?force=true&reason=…` breaks them, in every region")
                .with("open", open)
                .into()
        }
        Refusal::TooManyOpen { limit } => {
            Problem::new(Code::TooManyOpen, format!("{limit} keys of {barrier} are gathering, as many as may"))
                .hint("wait until one has ended, or define it with a higher `maxOpen`")
                .with("limit", limit)
                .into()
        }
        Refusal::TooManyBarriers { limit } => {
            let namespace = barrier.namespace();
            let detail = format!("the namespace {namespace} has {limit} barriers, as many as may");
            Problem::new(Code::InvalidDefinition, detail)
                .hint("delete some, or use another namespace; many crossings of one kind are one `keyed` barrier")
                .with("limit", limit)
                .into()
        }
        Refusal::KeyNeeded => Problem::new(Code::BadRequest, format!("{barrier} is keyed: name the key to open"))
            .hint("send {\"key\": \"…\"}")
            .into(),
        Refusal::NotKeyed => {
            Problem::new(Code::BadRequest, format!("{barrier} has no keys: its generations are numbered"))
                .hint("leave `key` out, or define it with `generations: keyed`")
                .into()
        }
        Refusal::UnknownRegion { region, declared } => {
            unknown_region(region.as_str(), declared.iter().map(|name| name.as_str()))
        }
        Refusal::AlreadyDecided { outcome } => already_decided(&outcome),
        Refusal::NotBroken => Problem::new(Code::NotBroken, format!("this generation of {barrier} still gathers"))
            .hint("only a broken generation can be retried; `muster abort` breaks it")
            .into(),
        Refusal::GoesOn { next } => goes_on(barrier, next.as_ref()),
        Refusal::Expired => {
            let detail = format!("what arrived at this generation of {barrier} is past its retention");
            Problem::new(Code::Expired, detail)
                .hint("retry it with {\"keep\": \"none\"}: everybody arrives anew")
                .into()
        }
        Refusal::NotInBarrier { regions } => {
            let regions: Vec<&str> = regions.iter().map(RegionName::as_str).collect();
            let list = regions.join(", ");
            let detail = format!("that region has no part in this generation of {barrier}; its regions are {list}");
            Problem::new(Code::UnknownRegion, detail).with("expected", regions).into()
        }
        Refusal::NoNames => {
            let detail = format!("that region of {barrier} expects any so many: none of them has a name to waive");
            Problem::new(Code::BadRequest, detail)
                .hint("waive the whole region (leave `participants` out), or release the generation by force")
                .into()
        }
        Refusal::NotExpected { participant } => {
            let detail = format!("{participant} is not expected there, so it can't be waived; nobody was");
            Problem::new(Code::NotExpected, detail).with("participant", participant.as_str()).into()
        }
        Refusal::RegionBehind { region } => behind(Code::Unavailable, &region),
        Refusal::ForeignReport => Failure::new(Code::Internal, "a call was taken for a region's report"),
    }
}

fn already_decided(outcome: &Outcome) -> Failure {
    let (id, word) = match outcome.verdict {
        Verdict::Released(_) => (&outcome.generation, "released"),
        Verdict::Broken(_) => (&outcome.generation, "broken"),
    };
    let problem = Problem::new(Code::AlreadyDecided, format!("{id} was {word} before; that stays"));
    let problem = match outcome.verdict {
        Verdict::Released(_) => problem,
        Verdict::Broken(_) => problem.hint(format!("`muster retry {id}` opens its next round")),
    };
    let state = if word == "broken" { "broken" } else { "releasing" };
    problem
        .with("generation", id.label().to_string())
        .with("state", state)
        .with("digest", outcome.digest().to_string())
        .into()
}

fn goes_on(barrier: &BarrierName, next: Option<&GenerationId>) -> Failure {
    let now = next.map_or_else(String::new, |next| format!("; {} gathers now", next.label()));
    let problem = Problem::new(Code::AlreadyDecided, format!("{barrier} is cyclic and goes on by itself{now}"))
        .hint("a cyclic barrier needs no retry: arrive at the generation that gathers");
    next.iter().fold(problem, |problem, next| problem.with("generation", next.label().to_string())).into()
}

/// A region has to say first what it knows.
pub(super) fn behind(code: Code, region: &RegionName) -> Failure {
    let detail = format!(
        "the coordinator's database was set back or failed over, and {region} has not said since what it knows; \
         nothing was done"
    );
    Problem::new(code, detail)
        .hint(format!("it goes on by itself once an agent of {region} is heard; `muster regions` shows it"))
        .with("region", region.as_str())
        .into()
}

/// The name has no definition.
pub(super) fn not_defined(barrier: &BarrierName) -> Failure {
    Problem::new(Code::NotDefined, format!("{barrier} is not defined"))
        .hint(format!(
            "define it with PUT /v1/barriers/{barrier}, or `muster apply`; a barrier of scope regional is found with \
             `?region=…`, or at an agent of its region"
        ))
        .into()
}

/// The caller's belief of the definition is outdated.
pub(super) fn precondition(barrier: &BarrierName, revision: u64) -> Failure {
    let detail = match revision {
        0 => format!("{barrier} is not defined, so it is not at the revision that If-Match names"),
        revision => format!("{barrier} is at revision {revision}, not at the one that If-Match names"),
    };
    Problem::new(Code::Precondition, detail)
        .hint("read it again, look at what changed, and send your change with the new ETag")
        .with("revision", revision)
        .into()
}

/// Another definition is in force.
pub(super) fn conflict(barrier: &BarrierName, revision: u64) -> Failure {
    Problem::new(Code::Conflict, format!("{barrier} is defined otherwise, at revision {revision}"))
        .hint(format!("`?replace=true` or `If-Match: \"{revision}\"` changes it from the next generation on"))
        .with("revision", revision)
        .into()
}

/// A region that nobody declared.
pub(super) fn unknown_region<'a>(region: &str, declared: impl Iterator<Item = &'a str>) -> Failure {
    let declared: Vec<&str> = declared.collect();
    let known = if declared.is_empty() { "none is".to_owned() } else { declared.join(", ") };
    let hint = match nearest(region, declared.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("declare it with PUT /v1/regions/{region}, or `muster region declare {region}`"),
    };
    Problem::new(Code::UnknownRegion, format!("the region {region:?} is not declared; declared: {known}"))
        .hint(hint)
        .with("declared", declared)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_overruled_in_vain_says_why() {
        let name: BarrierName = "etl/map".parse().unwrap();
        let next = GenerationId { barrier: name.clone(), n: 8, key: None, round: 0 };
        let region: RegionName = "us-east".parse().unwrap();
        for (refused, code, says) in [
            (Refusal::NotBroken, "not-broken", "still gathers"),
            (Refusal::GoesOn { next: Some(next) }, "already-decided", "8 gathers now"),
            (Refusal::Expired, "expired", "past its retention"),
            (Refusal::NotInBarrier { regions: vec![region.clone()] }, "unknown-region", "its regions are us-east"),
            (Refusal::NoNames, "bad-request", "none of them has a name"),
            (Refusal::NotExpected { participant: "7".parse().unwrap() }, "not-expected", "7 is not expected"),
            (Refusal::RegionBehind { region }, "unavailable", "us-east has not said since what it knows"),
        ] {
            let problem = refusal(&name, refused).into_problem();
            assert_eq!(problem.code.as_str(), code, "{problem}");
            assert!(problem.detail.contains(says), "{problem}");
        }
    }
}
