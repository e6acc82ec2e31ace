//! Places in lists. A cursor names the last row of its page, so that rows that
//! come and go meanwhile move nothing.

use std::fmt;
use std::str::FromStr;

use muster_protocol::name::{BarrierName, RegionName};

use super::query::ROWS_MAX;
use super::{Cursor, Page};

/// The place of a generation among others, or of what one region owes on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) opened_at: i64,
    pub(super) barrier: BarrierName,
    pub(super) n: i64,
    pub(super) region: Option<RegionName>,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.opened_at, self.n, self.barrier)?;
        self.region.iter().try_for_each(|region| write!(f, ":{region}"))
    }
}

impl FromStr for Mark {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(());
        let opened_at = next()?.parse().map_err(drop)?;
        let n = next()?.parse().map_err(drop)?;
        let barrier = next()?.parse().map_err(drop)?;
        let region = parts.next().map(|region| region.parse().map_err(drop)).transpose()?;
        match parts.next() {
            None => Ok(Self { opened_at, barrier, n, region }),
            Some(_) => Err(()),
        }
    }
}

/// The place that a cursor names; what we did not write is the beginning.
pub(super) fn place<T: FromStr>(cursor: &Cursor) -> Option<T> {
    cursor.as_deref()?.parse().ok()
}

/// How many rows one page has.
pub(super) fn page_length(limit: u32) -> usize {
    (limit as usize).clamp(1, ROWS_MAX)
}

/// Cuts a page off rows of which one more was read than it holds.
pub(super) fn cut<T>(mut rows: Vec<T>, length: usize, mark: impl Fn(&T) -> String) -> Page<T> {
    let more = rows.len() > length;
    rows.truncate(length);
    let next = rows.last().filter(|_| more).map(mark);
    Page { items: rows, next }
}

/// The bounds of names that begin with a text: from it, and below this. Names
/// are printable ASCII, so nothing that begins with the text is past it.
pub(super) fn end_of_prefix(prefix: &str) -> String {
    format!("{prefix}\u{7f}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_back_and_nothing_else_is() {
        for text in ["1:2:etl/map", "1:2:etl/map:us-east"] {
            assert_eq!(text.parse::<Mark>().unwrap().to_string(), text);
        }
        for text in ["", "1", "1:2", "1:2:etl", "1:2:etl/map:", "x:2:etl/map", "1:2:etl/map:us-east:", "1:2:a/b:c d"] {
            assert!(text.parse::<Mark>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_page_says_whether_there_is_more() {
        let mark = |row: &u32| row.to_string();
        assert_eq!(cut(vec![1, 2, 3], 2, mark), Page { items: vec![1, 2], next: Some("2".into()) });
        assert_eq!(cut(vec![1, 2], 2, mark), Page { items: vec![1, 2], next: None });
        assert_eq!(cut(Vec::new(), 2, mark), Page { items: Vec::new(), next: None });
    }
}
