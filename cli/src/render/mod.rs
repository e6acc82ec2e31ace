//! Documents as people read them. Pure: documents and a clock's time in, text
//! out, with nothing in it that a terminal would obey.

mod status;
mod table;
mod time;
mod visible;
mod why;

use muster_wire::definition::Change;
use serde_json::Value;

#[cfg(test)]
pub(crate) use self::status::tests;
pub(crate) use self::status::{line, ranges, tree};
pub(crate) use self::table::table;
pub(crate) use self::time::{ago, now, until};
pub(crate) use self::visible::{visible, visible_line};
pub(crate) use self::why::why;

/// One line for each field that differs.
pub(crate) fn changes(changes: &[Change]) -> Vec<String> {
    let side = |value: &Option<Value>| value.as_ref().map(ToString::to_string).unwrap_or_default();
    changes
        .iter()
        .map(|change| match (&change.from, &change.to) {
            (Some(_), Some(_)) => format!("~ {}: {} → {}", change.field, side(&change.from), side(&change.to)),
            (Some(_), None) => format!("- {}: {}", change.field, side(&change.from)),
            (None, _) => format!("+ {}: {}", change.field, side(&change.to)),
        })
        .collect()
}

/// `1 region`, `2 regions`.
pub(crate) fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{number} {one}s"),
    }
}
