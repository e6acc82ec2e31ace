//! A definition as people write it, checked into a [`Spec`].
//!
//! JSON or YAML in; out comes a spec that every machine may trust, or one
//! problem that tells everything that is wrong, field by field, each with a
//! sentence that says what to change. Nothing is accepted and ignored: a value
//! this version does not act on is refused with `not-yet`.

mod change;
mod check;
mod findings;
mod later;
mod participants;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::name::BarrierName;
use muster_protocol::spec::{Generations, Spec};
use serde_json::{Map, Value, json};

pub use self::change::{Change, changes};
pub use self::read::{Document, documents};
use crate::problem::Problem;
use crate::time::format_duration;

/// Milliseconds that details of a finished generation are kept (30 days).
pub const RETENTION_MS_DEFAULT: u64 = 30 * 24 * 3_600 * 1_000;

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
/// `invalid-definition` when something can't be meant, `not-yet` when all of
/// it could be but this version does not do it, `too-large`. The member
/// `errors` lists every `{field, message}`.
pub fn parse(name: &BarrierName, body: &[u8]) -> Result<Parsed, Problem> {
    let fields = read::read(body)?;
    let spec = check::check(name, &fields)?;
    let effective = effective(&spec);
    Ok(Parsed { spec, written: Value::Object(fields), effective })
}

/// The document that defines `spec` with every default written out. Reading
/// it gives the same spec again.
#[must_use]
pub fn effective(spec: &Spec) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("kind", "Barrier".into());
    put("name", spec.name.as_str().into());
    put("description", spec.description.as_str().into());
    put("owner", spec.owner.as_str().into());
    put("labels", json!(spec.labels));
    put("scope", "global".into());
    let regions: BTreeMap<&str, Value> = spec
        .regions
        .iter()
        .map(|(region, slice)| (region.as_str(), json!({"participants": participants::write(&slice.participants)})))
        .collect();
    put("regions", json!(regions));
    put("deadline", spec.deadline_ms.map_or_else(|| "none".to_owned(), duration).into());
    put("attempts", 1.into());
    put("maxFailures", 0.into());
    put("failFast", true.into());
    put("releaseWhen", "all".into());
    put("keepArrivals", true.into());
    match spec.generations {
        Generations::Single => put("generations", "single".into()),
        Generations::Cyclic => put("generations", "cyclic".into()),
        Generations::Keyed { max_open } => {
            put("maxOpen", max_open.into());
            put("generations", "keyed".into())
        }
    };
    Value::Object(fields)
}

/// Exact, where [`format_duration`] rounds for people.
fn duration(ms: u64) -> String {
    let text = format_duration(Duration::from_millis(ms));
    match crate::time::parse_duration(&text) {
        Ok(read) if read == Duration::from_millis(ms) => text,
        _ => format!("{ms}ms"),
    }
}
