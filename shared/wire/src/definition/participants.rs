//! Who is expected in a region, as people write it and as it is printed.

use muster_protocol::caps;
use muster_protocol::participants::{IdSet, Participants};
use serde_json::{Map, Value};

use super::findings::short;

/// Reads a number, a range, or a list of ids and ranges.
pub(super) fn parse(value: &Value) -> Result<Participants, String> {
    match value {
        Value::Number(number) => count(number.as_u64(), value),
        Value::String(text) if is_number(&text.replace('_', "")) => Err(format!(
            "{text:?} is text, not a number; remove the quotes (write {}) to expect any so many distinct ids, or \
             [\"{text}\"] if the one id {text} is meant",
            text.replace('_', "")
        )),
        Value::String(text) => set(items(text)),
        Value::Array(list) => set(list.iter().map(item).collect::<Result<_, _>>()?),
        _ => {
            Err(format!("{} is not a number, a range such as \"[0-1023]\", or a list of ids and ranges", short(value)))
        }
    }
}

fn count(number: Option<u64>, value: &Value) -> Result<Participants, String> {
    let limit = caps::PARTICIPANTS_PER_REGION_MAX;
    match number {
        Some(0) => Err("no participants: a region that expects nobody can never arrive; leave the region out".into()),
        Some(given) => match u32::try_from(given) {
            Ok(given) if given <= limit => Ok(Participants::Count(given)),
            _ => Err(format!("{given} participants are over the limit of {limit} a region")),
        },
        None => Err(format!("{value} is not a whole number of participants")),
    }
}

fn item(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) if number.is_u64() => Ok(number.to_string()),
        _ => Err(format!("{} in the list is not an id or a range; write it in quotes", short(value))),
    }
}

/// Divides `[17,204-206],x` at the commas outside of brackets.
fn items(text: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut inside = false;
    for letter in text.chars() {
        match letter {
            ',' if !inside => items.push(String::new()),
            _ => {
                inside = (inside || letter == '[') && letter != ']';
                if let Some(item) = items.last_mut() {
                    item.push(letter);
                }
            }
        }
    }
    items.iter().map(|item| item.trim().to_owned()).collect()
}

fn set(items: Vec<String>) -> Result<Participants, String> {
    if let Some((item, (first, last))) = items.iter().find_map(|item| bare_range(item).map(|pair| (item, pair))) {
        // YAML reads `[0-1023]` without quotes as a list of the one id 0-1023.
        return Err(format!(
            "{item:?} without brackets would be one single id; write \"[{item}]\", in quotes, for the range, or \
             \"{first}-[{last}]\" if the id is meant"
        ));
    }
    // Once more through its own form, so that equal sets written differently
    // are equal specs.
    IdSet::parse(&items)
        .and_then(|set| IdSet::parse(set.items()))
        .map(Participants::Set)
        .map_err(|error| error.to_string())
}

/// `17-204`: a valid id, but hardly ever meant as one.
fn bare_range(item: &str) -> Option<(&str, &str)> {
    item.split_once('-').filter(|(first, last)| is_number(first) && is_number(last) && last.len() <= 18)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The participants as a definition writes them: what [`parse`] reads.
pub(super) fn write(participants: &Participants) -> Value {
    let set = match participants {
        Participants::Count(count) => return (*count).into(),
        Participants::Set(set) => set,
        Participants::Zones(zones) => {
            return zones.iter().map(|(zone, set)| (zone.as_str().to_owned(), ids(set))).collect::<Map<_, _>>().into();
        }
    };
    ids(set)
}

fn ids(set: &IdSet) -> Value {
    let items: Vec<String> = set
        .items()
        .into_iter()
        .map(|item| match bare_range(&item) {
            Some((first, last)) => format!("{first}-[{last}]"),
            None => item,
        })
        .collect();
    match items.as_slice() {
        [one] if !is_number(one) => one.as_str().into(),
        _ => items.into(),
    }
}
