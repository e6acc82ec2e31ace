//! How generations follow each other, how long each may gather, how long it is
//! kept, and what it comes after.

use std::time::Duration;

use muster_protocol::caps;
use muster_protocol::name::BarrierName;
use muster_protocol::spec::Generations;
use serde_json::Value;

use super::check::{Reader, not_one_of};
use super::findings::short;
use crate::time::{format_duration, parse_duration};

/// What is kept of finished generations.
pub(super) struct Retention {
    pub(super) ms: u64,
    pub(super) generations: u32,
}

impl Reader<'_> {
    pub(super) fn generations(&mut self) -> Generations {
        let max_open = self.fields.get("maxOpen");
        let generations = self.fields.get("generations");
        let keyed = generations.is_some_and(|value| value == "keyed");
        if !keyed && max_open.is_some() {
            self.findings.invalid("maxOpen", "only keyed generations gather side by side; leave maxOpen out");
        }
        match generations.map(|value| (value.as_str(), value)) {
            None | Some((Some("single"), _)) => Generations::Single,
            Some((Some("cyclic"), _)) => Generations::Cyclic,
            Some((Some("keyed"), _)) => Generations::Keyed { max_open: self.max_open(max_open) },
            Some((_, value)) => {
                self.findings.invalid("generations", not_one_of(value, &["single", "cyclic", "keyed"]));
                Generations::Single
            }
        }
    }

    fn max_open(&mut self, value: Option<&Value>) -> u32 {
        let Some(value) = value else { return caps::MAX_OPEN_DEFAULT };
        let limit = caps::MAX_OPEN_MAX;
        match value.as_u64().and_then(|given| u32::try_from(given).ok()) {
            Some(given) if (1..=limit).contains(&given) => return given,
            _ => self.findings.invalid("maxOpen", format!("{} is not a number from 1 to {limit}", short(value))),
        }
        caps::MAX_OPEN_DEFAULT
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        let message = match self.fields.get("deadline") {
            Some(Value::String(text)) if text == "none" => return None,
            Some(Value::String(text)) => match parse_duration(text) {
                Ok(Duration::ZERO) => {
                    "0 would break every generation at once; write \"none\" for no deadline".to_owned()
                }
                Ok(given) => match at_most(given, caps::DEADLINE_MS_MAX) {
                    Ok(ms) => return Some(ms),
                    Err(message) => message,
                },
                Err(error) => format!("{error}, or \"none\""),
            },
            Some(Value::Number(number)) => format!("{number} has no unit; write \"{number}s\" if seconds are meant"),
            Some(value) => format!("{} is not a duration such as 2h, and not \"none\"", short(value)),
            None => "is missing; write how long a generation may gather, such as 2h, or \"none\"".to_owned(),
        };
        self.findings.invalid("deadline", message);
        None
    }

    /// A duration keeps as many generations as there may be, a number keeps
    /// them as long as may be.
    pub(super) fn retention(&mut self) -> Retention {
        let by_time = |ms| Retention { ms, generations: caps::RETENTION_GENERATIONS_MAX };
        let limit = caps::RETENTION_GENERATIONS_MAX;
        let message = match self.fields.get("retention") {
            None => return by_time(caps::RETENTION_MS_DEFAULT),
            Some(Value::Number(number)) => match number.as_u64().and_then(|given| u32::try_from(given).ok()) {
                Some(generations) if (1..=limit).contains(&generations) => {
                    return Retention { ms: caps::RETENTION_MS_MAX, generations };
                }
                _ => format!("{number} is not from 1 to {limit} finished generations; a time has a unit, such as 30d"),
            },
            Some(value) => match duration(value) {
                Ok(Duration::ZERO) => {
                    "0 would forget an outcome before those who wait have heard it; write a longer time".to_owned()
                }
                Ok(given) => match at_most(given, caps::RETENTION_MS_MAX) {
                    Ok(ms) => return by_time(ms),
                    Err(message) => message,
                },
                Err(message) => format!("{message}, or a number of finished generations"),
            },
        };
        self.findings.invalid("retention", message);
        by_time(caps::RETENTION_MS_DEFAULT)
    }

    pub(super) fn after(&mut self, name: &BarrierName) -> Option<BarrierName> {
        let value = self.fields.get("after")?;
        let message = match value.as_str().map(str::parse::<BarrierName>) {
            Some(Ok(after)) if after == *name => "a barrier can't come after itself; name another".to_owned(),
            Some(Ok(after)) => return Some(after),
            Some(Err(error)) => error.to_string(),
            None => format!("{} is not a barrier's name, namespace/name", short(value)),
        };
        self.findings.invalid("after", message);
        None
    }
}

/// A duration as it is written in a definition.
pub(super) fn duration(value: &Value) -> Result<Duration, String> {
    match value {
        Value::String(text) => parse_duration(text).map_err(|error| error.to_string()),
        Value::Number(number) => Err(format!("{number} has no unit; write \"{number}s\" if seconds are meant")),
        _ => Err(format!("{} is not a duration such as 30s or 5m", short(value))),
    }
}

/// In milliseconds, unless it is over the limit.
pub(super) fn at_most(given: Duration, limit_ms: u64) -> Result<u64, String> {
    match u64::try_from(given.as_millis()) {
        Ok(ms) if ms <= limit_ms => Ok(ms),
        _ => {
            let limit = format_duration(Duration::from_millis(limit_ms));
            Err(format!("{} is over the limit of {limit}", format_duration(given)))
        }
    }
}
