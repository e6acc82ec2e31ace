//! A document's fields to a [`Spec`], collecting everything that is wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::caps;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::participants::Participants;
use muster_protocol::spec::{Generations, Rule, Scope, Slice, Spec};
use serde_json::{Map, Value};

use super::findings::{Findings, short};
use super::{RETENTION_MS_DEFAULT, later, participants};
use crate::nearest::nearest;
use crate::problem::Problem;
use crate::time::{format_duration, parse_duration};

const FIELDS: &[&str] = &[
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
const REGION_FIELDS: &[&str] = &["participants", "maxFailures"];

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
    let expected = reader.regions();
    later::check(fields, reader.findings);
    findings.finish()?;
    let outputs_bytes_max = Slice::outputs_share(expected.len());
    let slice = |participants| Slice {
        participants,
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max,
        deadline_ms: None,
        retention_ms: RETENTION_MS_DEFAULT,
    };
    Ok(Spec {
        name: name.clone(),
        description,
        owner,
        labels,
        scope: Scope::Global,
        regions: expected.into_iter().map(|(region, participants)| (region, slice(participants))).collect(),
        generations,
        deadline_ms,
        release_when: Rule::All,
        retention_ms: RETENTION_MS_DEFAULT,
        retention_generations: caps::RETENTION_GENERATIONS_MAX,
        failures_max: 0,
        after: None,
    })
}

struct Reader<'a> {
    fields: &'a Map<String, Value>,
    findings: &'a mut Findings,
}

impl Reader<'_> {
    fn unknown_fields(&mut self) {
        for field in self.fields.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
            self.findings.invalid(field, unknown(field, FIELDS));
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

    fn generations(&mut self) -> Generations {
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

    fn deadline(&mut self) -> Option<u64> {
        let limit = Duration::from_millis(caps::DEADLINE_MS_MAX);
        let message = match self.fields.get("deadline") {
            Some(Value::String(text)) if text == "none" => return None,
            Some(Value::String(text)) => match parse_duration(text) {
                Ok(Duration::ZERO) => {
                    "0 would break every generation at once; write \"none\" for no deadline".to_owned()
                }
                Ok(given) if given <= limit => return u64::try_from(given.as_millis()).ok(),
                Ok(given) => format!("{} is over the limit of {}", format_duration(given), format_duration(limit)),
                Err(error) => format!("{error}, or \"none\""),
            },
            Some(Value::Number(number)) => format!("{number} has no unit; write \"{number}s\" if seconds are meant"),
            Some(value) => format!("{} is not a duration such as 2h, and not \"none\"", short(value)),
            None => "is missing; write how long a generation may gather, such as 2h, or \"none\"".to_owned(),
        };
        self.findings.invalid("deadline", message);
        None
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

    fn regions(&mut self) -> BTreeMap<RegionName, Participants> {
        let everywhere = self.fields.get("participants");
        let parsed = everywhere.and_then(|value| match participants::parse(value) {
            Ok(participants) => Some(participants),
            Err(message) => {
                self.findings.invalid("participants", message);
                None
            }
        });
        let everywhere = Everywhere { parsed, written: everywhere.is_some() };
        let listed: Vec<(&Value, &Value)>;
        let names: Vec<Value>;
        match self.fields.get("regions") {
            Some(Value::Array(list)) => listed = list.iter().map(|name| (name, &Value::Null)).collect(),
            Some(Value::Object(map)) => {
                names = map.keys().map(|name| name.as_str().into()).collect();
                listed = names.iter().zip(map.values()).collect();
            }
            Some(value) => {
                let message = format!("{} is not a list of regions, nor a map where they differ", short(value));
                self.findings.invalid("regions", message);
                return BTreeMap::new();
            }
            None => {
                self.findings.invalid("regions", "is missing; list the regions that must arrive");
                return BTreeMap::new();
            }
        }
        match listed.len() {
            0 => self.findings.invalid("regions", "no regions: list at least one"),
            given if given > caps::REGIONS_PER_BARRIER_MAX => {
                let limit = caps::REGIONS_PER_BARRIER_MAX;
                self.findings.invalid("regions", format!("{given} regions are over the limit of {limit}"));
            }
            _ => return self.each_region(&listed, &everywhere),
        }
        BTreeMap::new()
    }

    fn each_region(
        &mut self,
        listed: &[(&Value, &Value)],
        everywhere: &Everywhere,
    ) -> BTreeMap<RegionName, Participants> {
        let mut regions = BTreeMap::new();
        for (name, differs) in listed {
            let Some(text) = name.as_str() else {
                self.findings.invalid("regions", format!("{} is not a region's name; write it in quotes", short(name)));
                continue;
            };
            let region: RegionName = match text.parse() {
                Ok(region) => region,
                Err(error) => {
                    self.findings.invalid("regions", format!("{error}"));
                    continue;
                }
            };
            let expected = self.region(&region, differs, everywhere);
            if regions.insert(region, expected).is_some() {
                self.findings.invalid("regions", format!("{text:?} is listed twice"));
            }
        }
        regions
    }

    /// What one region must bring, told in its own entry or for all.
    fn region(&mut self, region: &RegionName, differs: &Value, everywhere: &Everywhere) -> Participants {
        const PLACEHOLDER: Participants = Participants::Count(1);
        let path = format!("regions.{region}");
        let own = match differs {
            Value::Null => None,
            Value::Object(own) => {
                for field in own.keys().filter(|field| !REGION_FIELDS.contains(&field.as_str())) {
                    let message = match FIELDS.contains(&field.as_str()) {
                        true => "belongs to the whole barrier, not to one region; move it up".to_owned(),
                        false => unknown(field, REGION_FIELDS),
                    };
                    self.findings.invalid(format!("{path}.{}", cut(field)), message);
                }
                if let Some(failures) = own.get("maxFailures") {
                    later::max_failures(format!("{path}.maxFailures"), failures, self.findings);
                }
                own.get("participants")
            }
            value => {
                let message = format!("{} is not a map such as {{participants: 3}}", short(value));
                self.findings.invalid(path, message);
                return PLACEHOLDER;
            }
        };
        let field = format!("{path}.participants");
        match (own.map(participants::parse), &everywhere.parsed) {
            (Some(Ok(own)), _) => return own,
            (Some(Err(message)), _) => self.findings.invalid(field, message),
            (None, Some(everywhere)) => return everywhere.clone(),
            (None, None) if everywhere.written => {}
            (None, None) => {
                self.findings.invalid(field, "is missing; write participants here, or once for every region");
            }
        }
        PLACEHOLDER
    }
}

/// The participants of every region that does not differ.
struct Everywhere {
    parsed: Option<Participants>,
    /// Wrong is not missing: it was told already.
    written: bool,
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if text.len() <= caps::TEXT_BYTES_MAX => Ok(text.clone()),
        Value::String(text) => Err(format!("{} bytes are over the limit of {}", text.len(), caps::TEXT_BYTES_MAX)),
        Value::Null => Err("is empty; leave it out or write some text".to_owned()),
        other => Err(format!("{} is not text; write it in quotes", short(other))),
    }
}

fn unknown(field: &str, known: &[&str]) -> String {
    match nearest(field, known.iter().copied()) {
        Some(near) => format!("there is no such field; {near} is one"),
        None => format!("there is no such field; there are {}", known.join(", ")),
    }
}

/// A sentence that names what can be written instead of `value`.
pub(super) fn not_one_of(value: &Value, known: &[&str]) -> String {
    format!("{} is not known; write {}", short(value), known.join(" or "))
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}
