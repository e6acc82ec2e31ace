//! Bytes to a document: JSON or YAML, no field twice.

use std::fmt;

use muster_protocol::caps;
use muster_protocol::name::BarrierName;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::code::Code;
use crate::problem::Problem;

/// How deep a document may nest; a definition needs less than half.
const DEPTH_MAX: usize = 32;

/// One definition of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The barrier it defines.
    pub name: BarrierName,
    /// The definition as it was written.
    pub body: Value,
}

/// Reads a file of definitions: one JSON document, or YAML documents divided
/// by `---`. Only their kind and name are checked here.
pub fn documents(text: &str) -> Result<Vec<Document>, Problem> {
    let values = match looks_like_json(text) {
        true => vec![json(text)?],
        false => yaml(text)?,
    };
    let documents: Vec<Document> = values
        .into_iter()
        .filter(|value| !value.is_null())
        .enumerate()
        .map(|(index, value)| document(index + 1, value))
        .collect::<Result<_, _>>()?;
    match documents.is_empty() {
        true => Err(Problem::new(Code::InvalidDefinition, "there is no definition in it")),
        false => Ok(documents),
    }
}

fn document(position: usize, body: Value) -> Result<Document, Problem> {
    let refuse = |detail: String| Problem::new(Code::InvalidDefinition, format!("document {position}: {detail}"));
    let fields = body.as_object().ok_or_else(|| refuse("a definition is a map of fields such as name".into()))?;
    if let Some(kind) = fields.get("kind").filter(|kind| *kind != "Barrier") {
        return Err(refuse(format!("kind {kind} is not known; write kind: Barrier")));
    }
    let name = fields.get("name").ok_or_else(|| refuse("name is missing; write name: namespace/name".into()))?;
    let name = name.as_str().ok_or_else(|| refuse("name must be text, namespace/name".into()))?;
    let name = name.parse().map_err(|error| refuse(format!("{error}")))?;
    Ok(Document { name, body })
}

/// Reads the body of one definition.
pub(super) fn read(body: &[u8]) -> Result<Map<String, Value>, Problem> {
    if body.len() > caps::DEFINITION_BYTES_MAX {
        let (given, limit) = (body.len(), caps::DEFINITION_BYTES_MAX);
        return Err(Problem::new(
            Code::TooLarge,
            format!("the definition has {given} bytes, over the limit of {limit}"),
        ));
    }
    let text = std::str::from_utf8(body)
        .map_err(|_| Problem::new(Code::InvalidDefinition, "the definition is not text in UTF-8"))?;
    let value = match looks_like_json(text) {
        true => json(text)?,
        false => {
            let mut documents = yaml(text)?;
            if documents.len() > 1 {
                let detail = format!("there are {} definitions in it; send one by one", documents.len());
                return Err(Problem::new(Code::InvalidDefinition, detail));
            }
            documents.pop().unwrap_or_default()
        }
    };
    match value {
        Value::Object(fields) => Ok(fields),
        Value::Null => Err(Problem::new(Code::InvalidDefinition, "the definition is empty")),
        _ => Err(Problem::new(Code::InvalidDefinition, "a definition is a map of fields such as name and regions")),
    }
}

/// YAML in flow style begins with a brace too; then JSON's complaint is told,
/// unless YAML understands it.
fn json(text: &str) -> Result<Value, Problem> {
    let error = match serde_json::from_str::<Strict>(text) {
        Ok(strict) => return Ok(strict.0),
        Err(error) => error,
    };
    match serde_saphyr::from_str_with_options::<Strict>(text, yaml_options()) {
        Ok(strict) => Ok(strict.0),
        Err(_) => Err(unreadable("JSON", &error)),
    }
}

/// Every document of a YAML text.
fn yaml(text: &str) -> Result<Vec<Value>, Problem> {
    let read = serde_saphyr::from_multiple_with_options::<Strict>(text, yaml_options());
    Ok(read.map_err(|error| unreadable("YAML", &error))?.into_iter().map(|strict| strict.0).collect())
}

fn looks_like_json(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim_start().starts_with('{')
}

fn unreadable(what: &str, error: &dyn fmt::Display) -> Problem {
    Problem::new(Code::InvalidDefinition, format!("the definition can't be read as {what}: {error}"))
}

fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        // A sentence for a problem document, not a drawing for a terminal.
        with_snippet: false,
        // YAML 1.1 would read the label `no` as false and the id 007 as 7.
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        // `Strict` refuses them, in our words.
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX, max_events: 400_000 },
    }
}

/// A JSON value in which no map holds a field twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true, false, a list or a map")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Strict, D::Error> {
        Strict::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Strict(Value::Array(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format_args!("{name:?} is written twice")));
            }
            let Strict(value) = map.next_value()?;
            fields.insert(name, value);
        }
        Ok(Strict(Value::Object(fields)))
    }
}
