//! Participants as people name some of them: `17,204-205` or `p-[0-3]`.

use muster_protocol::participants::IdSet;

use crate::code::Code;
use crate::problem::Problem;

/// Reads ids and ranges with commas between them.
///
/// # Errors
/// `bad-request` with how to write them.
pub fn selection(text: &str) -> Result<IdSet, Problem> {
    IdSet::parse(items(text)).map_err(|error| {
        Problem::new(Code::BadRequest, format!("participants: {error}"))
            .hint("write ids and ranges with commas between them, such as 17,204-205 or p-[0-3]")
    })
}

/// Splits at commas outside of brackets; two numbers with a dash are a range.
fn items(text: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let outside = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let item = |item: &str| match item.trim() {
        item if item.split_once('-').is_some_and(|(first, last)| digits(first) && digits(last)) => format!("[{item}]"),
        item => item.to_owned(),
    };
    text.split(outside).map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_ranges_are_read() {
        for (text, len) in [("17", 1), ("17,204-205", 3), ("[17,204-205]", 3), (" p-[0-3] , x", 5), ("a-1", 1)] {
            assert_eq!(selection(text).unwrap().len(), len, "{text}");
        }
        for bad in ["", ",", "9-0", "[1", "1,1"] {
            assert!(selection(bad).is_err(), "{bad:?}");
        }
    }
}
