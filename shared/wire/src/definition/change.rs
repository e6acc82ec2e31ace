//! What differs between two definitions, field by field.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The field's path, such as `regions.ap-south.participants`.
    pub field: String,
    /// What it is; absent when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// What it would be; absent when it would go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

/// The fields in which two [`effective`](super::effective) documents differ.
#[must_use]
pub fn changes(from: &Value, to: &Value) -> Vec<Change> {
    let mut list = Vec::new();
    compare(String::new(), Some(from), Some(to), &mut list);
    list
}

fn compare(field: String, from: Option<&Value>, to: Option<&Value>, list: &mut Vec<Change>) {
    match (from, to) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let path = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
                compare(path, a.get(name), b.get(name), list);
            }
        }
        (from, to) if from == to => {}
        (from, to) => list.push(Change { field, from: from.cloned(), to: to.cloned() }),
    }
}
