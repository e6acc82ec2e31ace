//! Values that a definition may hold one day. A legal one is refused with
//! `not-yet` and what works today, so that nobody believes it acts; one that
//! never will be legal is refused for good.

use std::time::Duration;

use muster_protocol::name::BarrierName;
use serde_json::{Map, Value};

use super::check::not_one_of;
use super::findings::{Findings, short};
use crate::time::{format_duration, parse_duration};

const RETENTION_MAX: Duration = Duration::from_secs(90 * 24 * 3_600);
const RETENTION_GENERATIONS_MAX: u64 = 1_000;
const RULE_DEPTH_MAX: usize = 8;
const RULE_NODES_MAX: usize = 256;

type Check = fn(String, &Value, &mut Findings);

/// Checks the fields that have one value today.
pub(super) fn check(fields: &Map<String, Value>, findings: &mut Findings) {
    let checks: [(&str, Check); 9] = [
        ("scope", scope),
        ("attempts", attempts),
        ("maxFailures", max_failures),
        ("failFast", fail_fast),
        ("releaseWhen", release_when),
        ("liveness", liveness),
        ("keepArrivals", keep_arrivals),
        ("retention", retention),
        ("after", after),
    ];
    for (field, check) in checks {
        if let Some(value) = fields.get(field) {
            check(field.to_owned(), value, findings);
        }
    }
}

fn scope(field: String, value: &Value, findings: &mut Findings) {
    match value.as_str() {
        Some("global") => {}
        Some("regional") => findings.later(field, value, "barriers are global today: leave scope out"),
        _ => findings.invalid(field, not_one_of(value, &["global", "regional"])),
    }
}

fn attempts(field: String, value: &Value, findings: &mut Findings) {
    match value.as_u64() {
        Some(1) => {}
        Some(2..=1_000_000) => {
            findings.later(field, value, "the first failed attempt is the participant's today: leave attempts out");
        }
        _ => findings.invalid(field, format!("{} is not a number of attempts, 1 or more", short(value))),
    }
}

/// Of the barrier or of one region.
pub(super) fn max_failures(field: String, value: &Value, findings: &mut Findings) {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<f64>().ok());
    match (value.as_u64(), percent) {
        (Some(0), _) => {}
        (Some(1..=1_000_000), _) => {
            findings.later(field, value, "nobody may fail today: leave maxFailures out");
        }
        (None, Some(percent)) if (0.0..=100.0).contains(&percent) => {
            findings.later(field, value, "nobody may fail today: leave maxFailures out");
        }
        _ => findings.invalid(field, format!("{} is neither a number nor a percentage such as \"1%\"", short(value))),
    }
}

fn fail_fast(field: String, value: &Value, findings: &mut Findings) {
    flag(field, value, "one failure too many breaks at once today: leave failFast out", findings);
}

fn keep_arrivals(field: String, value: &Value, findings: &mut Findings) {
    flag(field, value, "an arrival stays whatever becomes of its worker today: leave keepArrivals out", findings);
}

fn flag(field: String, value: &Value, today: &str, findings: &mut Findings) {
    match value {
        Value::Bool(true) => {}
        Value::Bool(false) => findings.later(field, value, today),
        _ => findings.invalid(field, format!("{} is neither true nor false", short(value))),
    }
}

fn release_when(field: String, value: &Value, findings: &mut Findings) {
    if value == "all" {
        return;
    }
    let mut nodes = 0;
    match rule(value, 1, &mut nodes) {
        Ok(()) if value.is_object() => {
            findings.later(field, value, "every region must arrive today: write releaseWhen: all or leave it out");
        }
        Ok(()) => {
            let message = format!("{} is not a rule; write all, or {{atLeast: 2, of: […]}}", short(value));
            findings.invalid(field, message);
        }
        Err(message) => findings.invalid(field, message),
    }
}

fn rule(value: &Value, depth: usize, nodes: &mut usize) -> Result<(), String> {
    *nodes += 1;
    if depth > RULE_DEPTH_MAX {
        return Err(format!("the rule is deeper than the limit of {RULE_DEPTH_MAX}"));
    }
    if *nodes > RULE_NODES_MAX {
        return Err(format!("the rule has more than the limit of {RULE_NODES_MAX} parts"));
    }
    let map = match value {
        Value::String(_) => return Ok(()),
        Value::Object(map) => map,
        _ => return Err(format!("{} is neither a region nor a rule", short(value))),
    };
    let parts = |list: &Value| match list {
        Value::Array(list) if !list.is_empty() => Ok(list.clone()),
        _ => Err(format!("{} is not a list of regions and rules", short(list))),
    };
    let parts = match (map.len(), map.get("all"), map.get("atLeast"), map.get("of")) {
        (1, Some(all), ..) => parts(all)?,
        (2, None, Some(at_least), Some(of)) => {
            let parts = parts(of)?;
            let enough = at_least.as_u64().is_some_and(|count| (1..=parts.len() as u64).contains(&count));
            if !enough {
                return Err(format!("atLeast {} of {} can never hold", short(at_least), parts.len()));
            }
            parts
        }
        _ => return Err(format!("{} is not a rule; write {{all: […]}} or {{atLeast: 2, of: […]}}", short(value))),
    };
    parts.iter().try_for_each(|part| rule(part, depth + 1, nodes))
}

fn liveness(field: String, value: &Value, findings: &mut Findings) {
    let Some(map) = value.as_object() else {
        findings.invalid(field, format!("{} is not a map such as {{ttl: 30s}}", short(value)));
        return;
    };
    for (name, value) in map {
        let path = format!("{field}.{}", name.chars().take(64).collect::<String>());
        match name.as_str() {
            "ttl" | "rejoin" => {
                if let Err(message) = duration(value) {
                    findings.invalid(path, message);
                }
            }
            "onLost" if ["fail", "exclude", "wait"].iter().any(|known| value == known) => {}
            "onLost" => findings.invalid(path, not_one_of(value, &["fail", "exclude", "wait"])),
            _ => findings.invalid(path, "there is no such field; there are ttl, rejoin, onLost"),
        }
    }
    findings.later(field, value, "nobody is watched today, the deadline bounds a crossing: leave liveness out");
}

fn retention(field: String, value: &Value, findings: &mut Findings) {
    const TODAY: &str = "finished generations are kept for good today: leave retention out";
    match value.as_u64() {
        Some(1..=RETENTION_GENERATIONS_MAX) => return findings.later(field, value, TODAY),
        Some(_) => {
            let message = format!("{value} is not from 1 to {RETENTION_GENERATIONS_MAX} finished generations");
            return findings.invalid(field, message);
        }
        None => {}
    }
    match duration(value) {
        Ok(given) if given <= RETENTION_MAX => findings.later(field, value, TODAY),
        Ok(given) => {
            let (given, limit) = (format_duration(given), format_duration(RETENTION_MAX));
            findings.invalid(field, format!("{given} is over the limit of {limit}"));
        }
        Err(message) => findings.invalid(field, message),
    }
}

fn after(field: String, value: &Value, findings: &mut Findings) {
    match value.as_str().map(str::parse::<BarrierName>) {
        Some(Ok(_)) => findings.later(field, value, "abort each barrier of a job today: leave after out"),
        Some(Err(error)) => findings.invalid(field, format!("{error}")),
        None => findings.invalid(field, format!("{} is not a barrier's name, namespace/name", short(value))),
    }
}

fn duration(value: &Value) -> Result<Duration, String> {
    let text = value.as_str().ok_or_else(|| format!("{} is not a duration such as 30s or 5m", short(value)))?;
    parse_duration(text).map_err(|error| error.to_string())
}
