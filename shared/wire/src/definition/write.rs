//! A [`Spec`] as a document that defines it.

use std::time::Duration;

use muster_protocol::caps;
use muster_protocol::participants::Participants;
use muster_protocol::spec::{Generations, Liveness, OnLost, Scope, Slice, Spec};
use serde_json::{Map, Value, json};

use super::{participants, rule};
use crate::time::{format_duration, parse_duration};

/// The document that defines `spec` with every default written out. Reading
/// it gives the same spec again.
#[must_use]
pub fn effective(spec: &Spec) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    put("kind", "Barrier".into());
    put("name", spec.name.as_str().into());
    put("description", spec.description.as_str().into());
    put("owner", spec.owner.as_str().into());
    put("labels", json!(spec.labels));
    put("scope", scope(spec.scope).into());
    let regions = spec.regions.iter().map(|(name, slice)| (name.to_string(), region(spec, slice)));
    put("regions", regions.collect::<Map<_, _>>().into());
    match spec.generations {
        Generations::Single => put("generations", "single".into()),
        Generations::Cyclic => put("generations", "cyclic".into()),
        Generations::Keyed { max_open } => {
            put("generations", "keyed".into());
            put("maxOpen", max_open.into());
        }
    }
    put("deadline", spec.deadline_ms.map_or_else(|| "none".to_owned(), duration).into());
    put("maxFailures", spec.failures_max.into());
    put("releaseWhen", rule::write(&spec.release_when));
    // These are the same in every region.
    if let Some(slice) = spec.regions.values().next() {
        put("attempts", slice.attempts.into());
        put("failFast", slice.fail_fast.into());
        put("keepArrivals", slice.keep_arrivals.into());
        if let Some(liveness) = slice.liveness {
            put("liveness", self::liveness(liveness));
        }
    }
    put("retention", retention(spec));
    if let Some(after) = &spec.after {
        put("after", after.as_str().into());
    }
    Value::Object(fields)
}

/// The document as one would write it: [`effective`] without what is so anyway.
#[must_use]
pub fn brief(spec: &Spec) -> Value {
    let mut document = effective(spec);
    let by_default = json!({
        "kind": "Barrier", "description": "", "owner": "", "labels": {}, "scope": "global", "maxFailures": 0,
        "releaseWhen": "all", "attempts": 1, "failFast": true, "keepArrivals": true,
        "retention": duration(caps::RETENTION_MS_DEFAULT),
    });
    if let Some(fields) = document.as_object_mut() {
        fields.retain(|name, value| by_default.get(name) != Some(&*value));
    }
    document
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Global => "global",
        Scope::Regional => "regional",
    }
}

/// One region's entry; a limit of its own only where it differs.
fn region(spec: &Spec, slice: &Slice) -> Value {
    let field = if matches!(slice.participants, Participants::Zones(_)) { "zones" } else { "participants" };
    let mut entry = json!({ field: participants::write(&slice.participants) });
    if slice.failures_max != spec.failures_max {
        entry["maxFailures"] = slice.failures_max.into();
    }
    entry
}

fn liveness(liveness: Liveness) -> Value {
    let on_lost = match liveness.on_lost {
        OnLost::Fail => "fail",
        OnLost::Exclude => "exclude",
        OnLost::Wait => "wait",
    };
    json!({"ttl": duration(liveness.ttl_ms), "rejoin": duration(liveness.rejoin_ms), "onLost": on_lost})
}

fn retention(spec: &Spec) -> Value {
    match spec.retention_generations {
        caps::RETENTION_GENERATIONS_MAX => duration(spec.retention_ms).into(),
        generations => generations.into(),
    }
}

/// Exact, where [`format_duration`] rounds for people.
fn duration(ms: u64) -> String {
    let exact = Duration::from_millis(ms);
    let text = format_duration(exact);
    match parse_duration(&text) {
        Ok(read) if read == exact => text,
        _ => format!("{ms}ms"),
    }
}
