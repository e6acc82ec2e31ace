//! One statement for either database: its text, written once, and its values.

use std::borrow::Cow;

use sqlx::{Arguments, AssertSqlSafe, Database, Encode, FromRow, Type};

use super::StoreError;

/// A value of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Vec<u8>),
    Truth(bool),
}

impl From<u64> for Value {
    /// No counter comes near the limit; one that is made up names nothing.
    fn from(value: u64) -> Self {
        Self::Integer(Some(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    /// Postgres has no NUL in text. No name and no document holds one, and a
    /// sentence loses nothing by the sign that stands for it.
    fn from(value: &str) -> Self {
        Self::Text(Some(value.replace('\0', "\u{fffd}")))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        if value.contains('\0') { value.as_str().into() } else { Self::Text(Some(value)) }
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        value.map_or(Self::Text(None), Self::from)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Truth(value)
    }
}

/// The values of one row.
pub(super) type Row = Vec<Value>;

/// A row of values of different kinds.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($crate::store::query::Value::from($value)),*] };
}
pub(super) use row;

/// Rows in one statement; both databases take more than this many values.
pub(super) const ROWS_MAX: usize = 1_024;

/// A statement under construction. Text comes from this crate alone, and
/// whatever is not ours is a value: there is nothing to inject into.
#[derive(Clone, Debug)]
pub(super) struct Query {
    text: Cow<'static, str>,
    values: Vec<Value>,
}

/// A statement that ends with a guard, without it if a known bug says so.
pub(super) fn guarded(statement: &'static str, guard: &'static str, bug: bool) -> &'static str {
    match statement.split_once(guard) {
        Some((unguarded, _)) if bug => unguarded,
        _ => statement,
    }
}

impl Query {
    /// A statement, with `$1`, `$2` … for the values to come.
    pub(super) fn new(text: &'static str) -> Self {
        Self { text: Cow::Borrowed(text), values: Vec::new() }
    }

    /// The value of the next `$` number that the text already has.
    pub(super) fn with(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Values of the next `$` numbers that the text already has.
    pub(super) fn with_all(mut self, values: Row) -> Self {
        self.values.extend(values);
        self
    }

    /// More text.
    pub(super) fn push(mut self, text: &'static str) -> Self {
        self.text.to_mut().push_str(text);
        self
    }

    /// A value where the text ends.
    pub(super) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        let number = self.values.len();
        self.text.to_mut().push_str(&format!("${number}"));
        self
    }

    /// `values (…), (…)` where the text ends: rows to insert.
    pub(super) fn rows(self, rows: Vec<Row>) -> Self {
        let mut query = self.push("values ");
        for (at, row) in rows.into_iter().enumerate() {
            query = query.push(if at == 0 { "(" } else { ", (" });
            for (column, value) in row.into_iter().enumerate() {
                query = if column == 0 { query } else { query.push(", ") }.bind(value);
            }
            query = query.push(")");
        }
        query
    }

    /// ` in (values …)` where the text ends. The list is filled up with its
    /// last row to a power of two, so that a database prepares a dozen texts
    /// and not one for each length.
    pub(super) fn among(self, mut rows: Vec<Row>) -> Self {
        if let Some(last) = rows.last().cloned() {
            rows.resize(rows.len().next_power_of_two(), last);
        }
        self.push(" in (").rows(rows).push(")")
    }

    /// The text and the values as a driver takes them.
    pub(super) fn into_parts<A>(self) -> Result<(AssertSqlSafe<Cow<'static, str>>, A), StoreError>
    where
        A: Arguments,
        Option<i64>: ForDatabase<A::Database>,
        Option<String>: ForDatabase<A::Database>,
        Vec<u8>: ForDatabase<A::Database>,
        bool: ForDatabase<A::Database>,
    {
        let mut arguments = A::default();
        for value in self.values {
            let added = match value {
                Value::Integer(value) => arguments.add(value),
                Value::Text(value) => arguments.add(value),
                Value::Bytes(value) => arguments.add(value),
                Value::Truth(value) => arguments.add(value),
            };
            added.map_err(StoreError::Defect)?;
        }
        Ok((AssertSqlSafe(self.text), arguments))
    }
}

/// A Rust value that a database takes.
pub(super) trait ForDatabase<DB: Database>: for<'q> Encode<'q, DB> + Type<DB> {}

impl<DB: Database, T: for<'q> Encode<'q, DB> + Type<DB>> ForDatabase<DB> for T {}

/// A row that either database can be read into.
pub(super) trait Record:
    for<'r> FromRow<'r, sqlx::postgres::PgRow> + for<'r> FromRow<'r, sqlx::sqlite::SqliteRow> + Send + Unpin
{
}

impl<T> Record for T where
    T: for<'r> FromRow<'r, sqlx::postgres::PgRow> + for<'r> FromRow<'r, sqlx::sqlite::SqliteRow> + Send + Unpin
{
}

/// Cuts rows to insert into lengths that are powers of two, for the same
/// reason; here a row must not come twice.
pub(super) fn batches(mut rows: Vec<Row>) -> Vec<Vec<Row>> {
    let mut batches = Vec::new();
    while !rows.is_empty() {
        let length = (rows.len() + 1).next_power_of_two() / 2;
        let rest = rows.split_off(length.min(ROWS_MAX));
        batches.push(std::mem::replace(&mut rows, rest));
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_few_lengths_and_lose_nothing() {
        let three = vec![row!["a", 1_u64], row!["b", 2_u64], row!["c", 3_u64]];
        let query = Query::new("select 1 where (x, y)").among(three.clone()).push(" and z = ").bind(true);
        assert_eq!(query.text, "select 1 where (x, y) in (values ($1, $2), ($3, $4), ($5, $6), ($7, $8)) and z = $9");
        assert_eq!(query.values.len(), 9);
        assert_eq!(query.values[6..8], three[2]);

        for length in [0, 1, 2, 3, 7, 1_023, 1_024, 5_000] {
            let rows: Vec<Row> = (0..length).map(|at: u64| row![at]).collect();
            let batches = batches(rows.clone());
            assert!(batches.iter().all(|batch| batch.len().is_power_of_two() && batch.len() <= ROWS_MAX));
            assert_eq!(batches.concat(), rows);
        }
    }

    #[test]
    fn text_for_postgres_has_no_nul() {
        assert_eq!(Value::from("a\0b"), Value::from(String::from("a\u{fffd}b")));
    }
}
