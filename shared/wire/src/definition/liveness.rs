//! Who is watched, and what the loss of a worker means.

use std::time::Duration;

use muster_protocol::caps;
use muster_protocol::spec::{Liveness, OnLost, Scope};
use serde_json::{Map, Value};

use super::check::{Reader, cut, not_one_of, unknown};
use super::findings::short;
use super::generations::{at_most, duration};
use crate::time::format_duration;

const FIELDS: &[&str] = &["ttl", "rejoin", "onLost"];
const REJOIN_MS_DEFAULT: u64 = 5 * 60 * 1_000;

impl Reader<'_> {
    pub(super) fn liveness(&mut self, scope: Scope) -> Option<Liveness> {
        let map = match self.fields.get("liveness")? {
            Value::Object(map) => map,
            value => {
                self.findings.invalid("liveness", format!("{} is not a map such as {{ttl: 30s}}", short(value)));
                return None;
            }
        };
        for field in map.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
            self.findings.invalid(format!("liveness.{}", cut(field)), unknown(field, FIELDS));
        }
        let ttl_ms = self.ttl(map)?;
        let rejoin_ms = self.rejoin(map);
        let on_lost = self.on_lost(map, scope);
        Some(Liveness { ttl_ms, rejoin_ms, on_lost })
    }

    fn ttl(&mut self, map: &Map<String, Value>) -> Option<u64> {
        let (least, most) = (caps::SESSION_TTL_MS_MIN, caps::SESSION_TTL_MS_MAX);
        let message = match map.get("ttl").map(duration) {
            None => "is missing; write how long a session may be silent, such as 30s".to_owned(),
            Some(Err(message)) => message,
            Some(Ok(given)) if given < Duration::from_millis(least) => {
                let least = format_duration(Duration::from_millis(least));
                format!("{} is under the limit of {least}: a pause would be taken for a loss", format_duration(given))
            }
            Some(Ok(given)) => match at_most(given, most) {
                Ok(ms) => return Some(ms),
                Err(message) => message,
            },
        };
        self.findings.invalid("liveness.ttl", message);
        None
    }

    fn rejoin(&mut self, map: &Map<String, Value>) -> u64 {
        let Some(value) = map.get("rejoin") else { return REJOIN_MS_DEFAULT };
        match duration(value).and_then(|given| at_most(given, caps::DEADLINE_MS_MAX)) {
            Ok(ms) => ms,
            Err(message) => {
                self.findings.invalid("liveness.rejoin", message);
                REJOIN_MS_DEFAULT
            }
        }
    }

    fn on_lost(&mut self, map: &Map<String, Value>, scope: Scope) -> OnLost {
        let Some(value) = map.get("onLost") else { return OnLost::Fail };
        let message = match value.as_str() {
            Some("fail") => return OnLost::Fail,
            Some("exclude") => return OnLost::Exclude,
            Some("wait") if scope == Scope::Regional => return OnLost::Wait,
            Some("wait") => {
                "only a barrier with scope: regional may wait for the lost; write fail or exclude".to_owned()
            }
            _ => not_one_of(value, &["fail", "exclude", "wait"]),
        };
        self.findings.invalid("liveness.onLost", message);
        OnLost::Fail
    }

    pub(super) fn keep_arrivals(&mut self) -> bool {
        let keep = self.flag("keepArrivals");
        if !keep && !self.fields.contains_key("liveness") {
            let message =
                "false needs liveness, else nobody is watched and nobody can leave; write liveness: {ttl: 30s}";
            self.findings.invalid("keepArrivals", message);
        }
        keep
    }
}
