//! What each region must bring: its participants, in zones where it has any.

use std::collections::BTreeMap;

use muster_protocol::caps;
use muster_protocol::name::{RegionName, ZoneName};
use muster_protocol::participants::{IdSet, InvalidParticipants, Participants};
use serde_json::{Map, Value};

use super::check::{FIELDS, Reader, cut, unknown};
use super::failures::Limit;
use super::findings::short;
use super::participants;

const REGION_FIELDS: &[&str] = &["participants", "zones", "maxFailures"];

/// One region's own entry.
pub(super) struct Entry {
    pub(super) participants: Participants,
    pub(super) max_failures: Option<Limit>,
}

impl Entry {
    /// Stands for what was refused.
    const NOBODY: Self = Self { participants: Participants::Count(1), max_failures: None };
}

/// The participants of every region that does not differ.
struct Everywhere {
    parsed: Option<Participants>,
    /// Wrong is not missing: it was told already.
    written: bool,
}

impl Reader<'_> {
    pub(super) fn regions(&mut self) -> BTreeMap<RegionName, Entry> {
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

    fn each_region(&mut self, listed: &[(&Value, &Value)], everywhere: &Everywhere) -> BTreeMap<RegionName, Entry> {
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
            let entry = self.region(&region, differs, everywhere);
            if regions.insert(region, entry).is_some() {
                self.findings.invalid("regions", format!("{text:?} is listed twice"));
            }
        }
        regions
    }

    /// What one region must bring, told in its own entry or for all.
    fn region(&mut self, region: &RegionName, differs: &Value, everywhere: &Everywhere) -> Entry {
        let path = format!("regions.{region}");
        let nothing = Map::new();
        let own = match differs {
            Value::Null => &nothing,
            Value::Object(own) => own,
            value => {
                let message = format!("{} is not a map such as {{participants: 3}}", short(value));
                self.findings.invalid(path, message);
                return Entry::NOBODY;
            }
        };
        for field in own.keys().filter(|field| !REGION_FIELDS.contains(&field.as_str())) {
            let message = match FIELDS.contains(&field.as_str()) {
                true => "belongs to the whole barrier, not to one region; move it up".to_owned(),
                false => unknown(field, REGION_FIELDS),
            };
            self.findings.invalid(format!("{path}.{}", cut(field)), message);
        }
        let max_failures = match own.get("maxFailures").map(Limit::parse) {
            Some(Ok(limit)) => Some(limit),
            Some(Err(message)) => {
                self.findings.invalid(format!("{path}.maxFailures"), message);
                None
            }
            None => None,
        };
        Entry { participants: self.expected(&path, own, everywhere), max_failures }
    }

    fn expected(&mut self, path: &str, own: &Map<String, Value>, everywhere: &Everywhere) -> Participants {
        let field = format!("{path}.participants");
        let own_participants = own.get("participants");
        if let Some(zones) = own.get("zones") {
            if own_participants.is_some() {
                self.findings.invalid(&field, "the zones list who is expected; leave participants or zones out");
            }
            return self.zones(&format!("{path}.zones"), zones);
        }
        match (own_participants.map(participants::parse), &everywhere.parsed) {
            (Some(Ok(own)), _) => return own,
            (Some(Err(message)), _) => self.findings.invalid(field, message),
            (None, Some(everywhere)) => return everywhere.clone(),
            (None, None) if everywhere.written => {}
            (None, None) => {
                self.findings.invalid(field, "is missing; write participants here, or once for every region");
            }
        }
        Entry::NOBODY.participants
    }

    fn zones(&mut self, path: &str, value: &Value) -> Participants {
        let map = match value {
            Value::Object(map) if !map.is_empty() => map,
            value => {
                let message =
                    format!("{} is not a map of zones such as {{a: \"[0-9]\", b: \"[10-19]\"}}", short(value));
                self.findings.invalid(path, message);
                return Entry::NOBODY.participants;
            }
        };
        let mut zones = BTreeMap::new();
        for (name, value) in map {
            match zone(name, value) {
                Ok((zone, set)) => drop(zones.insert(zone, set)),
                Err(message) => self.findings.invalid(format!("{path}.{}", cut(name)), message),
            }
        }
        // All zones together are as limited as one region without any.
        match IdSet::parse(zones.values().flat_map(IdSet::items)) {
            Ok(_) => return Participants::Zones(zones),
            // Every zone was refused, and that was told.
            Err(InvalidParticipants::Empty) => {}
            Err(InvalidParticipants::Duplicate(id)) => {
                self.findings.invalid(path, format!("participant {id:?} is in two zones; a participant has one"));
            }
            Err(error) => self.findings.invalid(path, error.to_string()),
        }
        Entry::NOBODY.participants
    }
}

/// Who is in one zone.
fn zone(name: &str, value: &Value) -> Result<(ZoneName, IdSet), String> {
    let zone: ZoneName = name.parse().map_err(|error| format!("{error}"))?;
    match participants::parse(value)? {
        Participants::Set(set) => Ok((zone, set)),
        _ => {
            let number = short(value);
            Err(format!("{number} does not say who is in the zone; write ids or a range, such as \"[0-9]\""))
        }
    }
}
