//! A definition as people write it, checked into a [`Spec`].
//!
//! JSON or YAML in; out comes a spec that every machine may trust, or one
//! problem that tells everything that is wrong, field by field, each with a
//! sentence that says what to change. Nothing is accepted and ignored.

mod change;
mod check;
mod failures;
mod findings;
mod generations;
mod liveness;
mod participants;
#[cfg(test)]
mod properties;
mod read;
mod regions;
mod rule;
mod succession;
#[cfg(test)]
mod tests;
mod write;

use muster_protocol::name::BarrierName;
use muster_protocol::spec::Spec;
use serde_json::Value;

pub use self::change::{Change, changes};
pub use self::read::{Document, documents};
pub use self::succession::Succession;
pub use self::write::{brief, effective};
use crate::problem::Problem;

/// A definition that was read and found good.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// What the machines act on.
    pub spec: Spec,
    /// The document as it was written.
    pub written: Value,
    /// The document with every default filled in.
    pub effective: Value,
}

/// Reads the definition of the barrier `name`, as JSON when its first letter
/// is a brace and as YAML otherwise.
///
/// # Errors
///
/// `invalid-definition` when something can't be meant, `too-large`. The member
/// `errors` lists every `{field, message}`.
pub fn parse(name: &BarrierName, body: &[u8]) -> Result<Parsed, Problem> {
    let fields = read::read(body)?;
    let spec = check::check(name, &fields)?;
    let effective = effective(&spec);
    Ok(Parsed { spec, written: Value::Object(fields), effective })
}
