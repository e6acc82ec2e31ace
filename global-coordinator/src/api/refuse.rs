//! What the store and the machine say no to, as problem documents.

use muster_http::Failure;
use muster_protocol::global::Refusal;
use muster_protocol::name::{BarrierName, RegionName};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::refusal;

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
pub(super) fn refusal(barrier: &BarrierName, refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::NotDefined => not_defined(barrier),
        Refusal::RegionBehind { region } => behind(Code::Unavailable, region),
        refusal => refusal::problem(barrier, refusal).into(),
    }
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

/// The name has no definition here.
pub(super) fn not_defined(barrier: &BarrierName) -> Failure {
    refusal::not_defined(barrier)
        .hint(format!(
            "define it with PUT /v1/barriers/{barrier}, or `muster apply`; a barrier of scope regional is found with \
             `?region=…`, or at an agent of its region"
        ))
        .into()
}

/// A region that nobody declared.
pub(super) fn unknown_region<'a>(region: &str, declared: impl Iterator<Item = &'a str>) -> Failure {
    refusal::unknown_region(region, declared).into()
}
