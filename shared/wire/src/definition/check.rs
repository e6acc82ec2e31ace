//! A document's fields to a [`Spec`], collecting everything that is wrong.

use std::collections::BTreeMap;

use muster_protocol::caps;
use muster_protocol::name::BarrierName;
use muster_protocol::spec::{Scope, Slice, Spec};
use serde_json::{Map, Value};

use super::findings::{Findings, short};
use crate::nearest::nearest;
use crate::problem::Problem;

pub(super) const FIELDS: &[&str] = &[
    "kind",
    "name",
    "description",
    "owner",
    "labels",
    "scope",
    "regions",
    "participants",
    "generations",
    "maxOpen",
    "deadline",
    "attempts",
    "maxFailures",
    "failFast",
    "releaseWhen",
    "liveness",
    "keepArrivals",
    "retention",
    "after",
];

/// Checks every field. Values that are wrong are replaced by ones that never
/// leave this function, so that all that is wrong is found.
pub(super) fn check(name: &BarrierName, fields: &Map<String, Value>) -> Result<Spec, Problem> {
    let mut findings = Findings::default();
    let mut reader = Reader { fields, findings: &mut findings };
    reader.unknown_fields();
    reader.identity(name);
    let generations = reader.generations();
    let deadline_ms = reader.deadline();
    let description = reader.text("description");
    let owner = reader.text("owner");
    let labels = reader.labels();
    let regions = reader.regions();
    let scope = reader.scope(regions.len());
    let failures = reader.failures(&regions);
    let attempts = reader.attempts();
    let fail_fast = reader.flag("failFast");
    let release_when = reader.release_when(&regions);
    let liveness = reader.liveness(scope);
    let keep_arrivals = reader.keep_arrivals();
    let retention = reader.retention();
    let after = reader.after(name);
    findings.finish()?;
    let outputs_bytes_max = Slice::outputs_share(regions.len());
    let slice = |participants, failures_max| Slice {
        participants,
        attempts,
        failures_max,
        fail_fast,
        keep_arrivals,
        liveness,
        outputs_bytes_max,
        deadline_ms: deadline_ms.filter(|_| scope == Scope::Regional),
        retention_ms: retention.ms,
    };
    let regions = regions.into_iter().map(|(region, entry)| {
        let failures_max = failures.of(&region);
        (region, slice(entry.participants, failures_max))
    });
    Ok(Spec {
        name: name.clone(),
        description,
        owner,
        labels,
        scope,
        regions: regions.collect(),
        generations,
        deadline_ms,
        release_when,
        retention_ms: retention.ms,
        retention_generations: retention.generations,
        failures_max: failures.total,
        after,
    })
}

/// Reads one field after the other; each theme has a file of its own.
pub(super) struct Reader<'a> {
    pub(super) fields: &'a Map<String, Value>,
    pub(super) findings: &'a mut Findings,
}

impl Reader<'_> {
    fn unknown_fields(&mut self) {
        for field in self.fields.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
            self.findings.invalid(cut(field), unknown(field, FIELDS));
        }
    }

    fn identity(&mut self, name: &BarrierName) {
        if let Some(kind) = self.fields.get("kind").filter(|kind| *kind != "Barrier") {
            self.findings.invalid("kind", format!("{} is not known; write kind: Barrier", short(kind)));
        }
        if let Some(written) = self.fields.get("name").filter(|written| *written != name.as_str()) {
            let message = format!("{} is not the barrier {name} that is being defined", short(written));
            self.findings.invalid("name", message);
        }
    }

    fn text(&mut self, field: &str) -> String {
        match self.fields.get(field) {
            None => return String::new(),
            Some(value) => match text(value) {
                Ok(text) => return text,
                Err(message) => self.findings.invalid(field, message),
            },
        }
        String::new()
    }

    fn labels(&mut self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        let map = match self.fields.get("labels") {
            None => return labels,
            Some(Value::Object(map)) => map,
            Some(value) => {
                self.findings.invalid("labels", format!("{} is not a map of text to text", short(value)));
                return labels;
            }
        };
        if map.len() > caps::LABELS_MAX {
            let message = format!("{} labels are over the limit of {}", map.len(), caps::LABELS_MAX);
            self.findings.invalid("labels", message);
        }
        for (name, value) in map.iter().take(caps::LABELS_MAX) {
            match text(&Value::String(name.clone())).and_then(|name| Ok((name, text(value)?))) {
                Ok((name, _)) if name.is_empty() => self.findings.invalid("labels", "a label has no name"),
                Ok((name, value)) => drop(labels.insert(name, value)),
                Err(message) => self.findings.invalid(format!("labels.{}", cut(name)), message),
            }
        }
        labels
    }

    fn scope(&mut self, regions: usize) -> Scope {
        let Some(value) = self.fields.get("scope") else { return Scope::Global };
        let message = match value.as_str() {
            Some("global") => return Scope::Global,
            Some("regional") if regions <= 1 => return Scope::Regional,
            Some("regional") => format!(
                "a regional barrier belongs to one region, and {regions} are listed; define one for each, or write \
                 scope: global"
            ),
            _ => not_one_of(value, &["global", "regional"]),
        };
        self.findings.invalid("scope", message);
        Scope::Global
    }

    /// A field that is true unless it is written otherwise.
    pub(super) fn flag(&mut self, field: &str) -> bool {
        match self.fields.get(field) {
            None => true,
            Some(Value::Bool(flag)) => *flag,
            Some(value) => {
                self.findings.invalid(field, format!("{} is neither true nor false", short(value)));
                true
            }
        }
    }
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if text.len() <= caps::TEXT_BYTES_MAX => Ok(text.clone()),
        Value::String(text) => Err(format!("{} bytes are over the limit of {}", text.len(), caps::TEXT_BYTES_MAX)),
        Value::Null => Err("is empty; leave it out or write some text".to_owned()),
        other => Err(format!("{} is not text; write it in quotes", short(other))),
    }
}

/// A sentence about a field that is not one of `known`.
pub(super) fn unknown(field: &str, known: &[&str]) -> String {
    match nearest(field, known.iter().copied()) {
        Some(near) => format!("there is no such field; {near} is one"),
        None => format!("there is no such field; there are {}", known.join(", ")),
    }
}

/// A sentence that names what can be written instead of `value`.
pub(super) fn not_one_of(value: &Value, known: &[&str]) -> String {
    format!("{} is not known; write {}", short(value), known.join(" or "))
}

/// A name as part of a field's path.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}
