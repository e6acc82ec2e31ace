//! What the machine that decides barriers says no to, as problem documents:
//! one table, whoever runs the machine.

use muster_protocol::generation::GenerationId;
use muster_protocol::global::Refusal;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::{Outcome, Verdict};

use crate::code::Code;
use crate::nearest::nearest;
use crate::problem::Problem;

/// Why a command for a barrier was not done.
#[must_use]
pub fn problem(barrier: &BarrierName, refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::NotDefined => not_defined(barrier),
        Refusal::Conflict { revision, .. } => conflict(barrier, *revision),
        Refusal::Precondition { revision } => precondition(barrier, *revision),
        Refusal::StillGathering { open } => still_gathering(barrier, open),
        Refusal::TooManyOpen { limit } => {
            Problem::new(Code::TooManyOpen, format!("{limit} keys of {barrier} are gathering, as many as may"))
                .hint("wait until one has ended, or define it with a higher `maxOpen`")
                .with("limit", *limit)
        }
        Refusal::TooManyBarriers { limit } => {
            let namespace = barrier.namespace();
            let detail = format!("the namespace {namespace} has {limit} barriers, as many as may");
            Problem::new(Code::InvalidDefinition, detail)
                .hint("delete some, or use another namespace; many crossings of one kind are one `keyed` barrier")
                .with("limit", *limit)
        }
        Refusal::KeyNeeded => Problem::new(Code::BadRequest, format!("{barrier} is keyed: name the key to open"))
            .hint("send {\"key\": \"…\"}"),
        Refusal::NotKeyed => {
            Problem::new(Code::BadRequest, format!("{barrier} has no keys: its generations are numbered"))
                .hint("leave `key` out; a barrier that is defined with `generations: keyed` has keys")
        }
        Refusal::KindStays { keyed } => {
            let kind = if *keyed { "have keys" } else { "are numbered" };
            let detail = format!("the generations of {barrier} {kind}, and that stays, though it be deleted");
            Problem::new(Code::Conflict, detail)
                .hint("use another name; 7 would mean the key to some callers, the seventh generation to others")
        }
        Refusal::UnknownRegion { region, declared } => {
            unknown_region(region.as_str(), declared.iter().map(RegionName::as_str))
        }
        refusal => of_generation(barrier, refusal),
    }
}

fn of_generation(barrier: &BarrierName, refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::AlreadyDecided { outcome } => already_decided(outcome),
        Refusal::NotBroken => Problem::new(Code::NotBroken, format!("this generation of {barrier} still gathers"))
            .hint("only a broken generation can be retried; `muster abort` breaks it"),
        Refusal::GoesOn { next } => goes_on(barrier, next.as_ref()),
        Refusal::Expired => {
            Problem::new(Code::Expired, format!("what arrived at this generation of {barrier} is past its retention"))
                .hint("retry it with {\"keep\": \"none\"}: everybody arrives anew")
        }
        Refusal::NotInBarrier { regions } => {
            let regions: Vec<&str> = regions.iter().map(RegionName::as_str).collect();
            let list = regions.join(", ");
            let detail = format!("that region has no part in this generation of {barrier}; its regions are {list}");
            Problem::new(Code::UnknownRegion, detail).with("expected", regions)
        }
        Refusal::NoNames => {
            let detail = format!("that region of {barrier} expects any so many: none of them has a name to waive");
            Problem::new(Code::BadRequest, detail)
                .hint("waive the whole region (leave `participants` out), or release the generation by force")
        }
        Refusal::NotExpected { participant } => {
            let detail = format!("{participant} is not expected there, so it can't be waived; nobody was");
            Problem::new(Code::NotExpected, detail).with("participant", participant.as_str())
        }
        Refusal::RegionBehind { region } => {
            let detail = format!("{region} has not said yet what it knows; nothing was done");
            Problem::new(Code::Unavailable, detail).with("region", region.as_str())
        }
        Refusal::ForeignReport => Problem::new(Code::Internal, "a call was taken for a region's report"),
        _ => Problem::new(Code::NoSuchGeneration, format!("{barrier} has no such generation"))
            .hint(format!("GET /v1/barriers/{barrier}/generations lists them")),
    }
}

/// The name has no definition.
#[must_use]
pub fn not_defined(barrier: &BarrierName) -> Problem {
    Problem::new(Code::NotDefined, format!("{barrier} is not defined"))
        .hint(format!("define it with PUT /v1/barriers/{barrier}, or `muster apply`"))
}

/// The caller's belief of the definition is outdated.
#[must_use]
pub fn precondition(barrier: &BarrierName, revision: u64) -> Problem {
    let detail = match revision {
        0 => format!("{barrier} is not defined, so it is not at the revision that If-Match names"),
        revision => format!("{barrier} is at revision {revision}, not at the one that If-Match names"),
    };
    Problem::new(Code::Precondition, detail)
        .hint("read it again, look at what changed, and send your change with the new ETag")
        .with("revision", revision)
}

/// Another definition is in force.
#[must_use]
pub fn conflict(barrier: &BarrierName, revision: u64) -> Problem {
    Problem::new(Code::Conflict, format!("{barrier} is defined otherwise, at revision {revision}"))
        .hint(format!("`?replace=true` or `If-Match: \"{revision}\"` changes it from the next generation on"))
        .with("revision", revision)
}

/// A region that nobody declared.
pub fn unknown_region<'a>(region: &str, declared: impl Iterator<Item = &'a str>) -> Problem {
    let declared: Vec<&str> = declared.collect();
    let known = if declared.is_empty() { "none is".to_owned() } else { declared.join(", ") };
    let hint = match nearest(region, declared.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("declare it with PUT /v1/regions/{region}, or `muster region declare {region}`"),
    };
    Problem::new(Code::UnknownRegion, format!("the region {region:?} is not declared; declared: {known}"))
        .hint(hint)
        .with("declared", declared)
}

fn still_gathering(barrier: &BarrierName, open: &[GenerationId]) -> Problem {
    let open: Vec<String> = open.iter().map(|id| id.label().to_string()).collect();
    let list = open.join(", ");
    Problem::new(Code::Conflict, format!("{barrier} is not deleted: generations are gathering: {list}"))
        .hint("`?force=true&reason=…` breaks them, in every region")
        .with("open", open)
}

fn already_decided(outcome: &Outcome) -> Problem {
    let id = &outcome.generation;
    let (word, state) = match outcome.verdict {
        Verdict::Released(_) => ("released", "releasing"),
        Verdict::Broken(_) => ("broken", "broken"),
    };
    let problem = Problem::new(Code::AlreadyDecided, format!("{id} was {word} before; that stays"))
        .with("generation", id.label().to_string())
        .with("state", state)
        .with("digest", outcome.digest().to_string());
    match outcome.verdict {
        Verdict::Released(_) => problem,
        Verdict::Broken(_) => problem.hint(format!("`muster retry {id}` opens its next round")),
    }
}

fn goes_on(barrier: &BarrierName, next: Option<&GenerationId>) -> Problem {
    let now = next.map_or_else(String::new, |next| format!("; {} gathers now", next.label()));
    let problem = Problem::new(Code::AlreadyDecided, format!("{barrier} is cyclic and goes on by itself{now}"))
        .hint("a cyclic barrier needs no retry: arrive at the generation that gathers");
    next.iter().fold(problem, |problem, next| problem.with("generation", next.label().to_string()))
}
