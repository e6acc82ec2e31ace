//! What must be complete for a release.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::caps;
use muster_protocol::name::RegionName;
use muster_protocol::spec::{Leaf, Rule};
use serde_json::{Map, Value, json};

use super::check::Reader;
use super::findings::short;
use super::regions::Entry;
use crate::nearest::nearest;

impl Reader<'_> {
    pub(super) fn release_when(&mut self, regions: &BTreeMap<RegionName, Entry>) -> Rule {
        let message = match self.fields.get("releaseWhen") {
            None => return Rule::All,
            Some(value) if value == "all" => return Rule::All,
            Some(value @ Value::Object(_)) => match (Parser { leaves: leaves(regions), nodes: 0 }).rule(value, 1) {
                Ok(rule) => return rule,
                Err(message) => message,
            },
            Some(value) => format!("{} is not a rule; write all, or {{atLeast: 2, of: […]}}", short(value)),
        };
        self.findings.invalid("releaseWhen", message);
        Rule::All
    }
}

/// Everything that a rule may name.
fn leaves(regions: &BTreeMap<RegionName, Entry>) -> BTreeMap<String, Leaf> {
    let zones = regions.iter().flat_map(|(region, entry)| {
        let zone = |zone| Leaf { region: region.clone(), zone };
        let zones = entry.participants.zones().map(|(name, _)| Some(name.clone()));
        std::iter::once(None).chain(zones).map(zone).collect::<Vec<_>>()
    });
    zones.map(|leaf| (leaf.to_string(), leaf)).collect()
}

struct Parser {
    leaves: BTreeMap<String, Leaf>,
    nodes: usize,
}

impl Parser {
    fn rule(&mut self, value: &Value, depth: usize) -> Result<Rule, String> {
        self.nodes += 1;
        if depth > caps::RULE_DEPTH_MAX {
            return Err(format!("the rule is deeper than the limit of {}", caps::RULE_DEPTH_MAX));
        }
        if self.nodes > caps::RULE_NODES_MAX {
            return Err(format!("the rule has more than the limit of {} parts", caps::RULE_NODES_MAX));
        }
        match value {
            Value::String(text) => self.leaf(text).map(Rule::Leaf),
            Value::Object(map) => self.many(value, map, depth),
            _ => Err(format!("{} is neither a region nor a rule", short(value))),
        }
    }

    fn many(&mut self, value: &Value, map: &Map<String, Value>, depth: usize) -> Result<Rule, String> {
        match (map.len(), map.get("all"), map.get("atLeast"), map.get("of")) {
            (1, Some(all), ..) => Ok(Rule::Every(self.parts(all, depth)?)),
            (2, None, Some(at_least), Some(of)) => {
                let of = self.parts(of, depth)?;
                let count = at_least.as_u64().filter(|count| (1..=of.len() as u64).contains(count));
                match count.and_then(|count| u32::try_from(count).ok()) {
                    Some(count) => Ok(Rule::AtLeast { count, of }),
                    None => {
                        let parts = of.len();
                        Err(format!("atLeast {} of {parts} can never hold; write 1 to {parts}", short(at_least)))
                    }
                }
            }
            _ => Err(format!("{} is not a rule; write {{all: […]}} or {{atLeast: 2, of: […]}}", short(value))),
        }
    }

    fn parts(&mut self, list: &Value, depth: usize) -> Result<Vec<Rule>, String> {
        let list = match list {
            Value::Array(list) if !list.is_empty() => list,
            _ => return Err(format!("{} is not a list of regions and rules", short(list))),
        };
        let mut seen = BTreeSet::new();
        // A name twice in a list would count twice.
        if let Some(twice) = list.iter().filter_map(Value::as_str).find(|text| !seen.insert(*text)) {
            return Err(format!("{twice:?} is twice in one list; name it once"));
        }
        list.iter().map(|part| self.rule(part, depth + 1)).collect()
    }

    fn leaf(&self, text: &str) -> Result<Leaf, String> {
        if let Some(leaf) = self.leaves.get(text) {
            return Ok(leaf.clone());
        }
        let text: String = text.chars().take(160).collect();
        Err(match nearest(&text, self.leaves.keys().map(String::as_str)) {
            Some(near) => format!("{text:?} is neither a region nor a zone of this barrier; {near} is one"),
            None => format!("{text:?} is neither a region nor a zone of this barrier; {}", self.known()),
        })
    }

    /// What there is, as far as a sentence can hold it.
    fn known(&self) -> String {
        let some: Vec<&str> = self.leaves.keys().take(16).map(String::as_str).collect();
        match self.leaves.len() - some.len() {
            0 => format!("there are {}", some.join(", ")),
            more => format!("there are {} and {more} more", some.join(", ")),
        }
    }
}

/// The rule as a definition writes it.
pub(super) fn write(rule: &Rule) -> Value {
    let list = |parts: &[Rule]| parts.iter().map(write).collect::<Vec<Value>>();
    match rule {
        Rule::All => "all".into(),
        Rule::Every(parts) => json!({"all": list(parts)}),
        Rule::AtLeast { count, of } => json!({"atLeast": count, "of": list(of)}),
        Rule::Leaf(leaf) => leaf.to_string().into(),
    }
}
