//! What a database's errors mean, for both databases, in this one place.
//!
//! A transaction whose statement failed was not committed, so every meaning
//! but one is "nothing was written". The exception is a commit whose answer
//! was lost ([`committing`]).

use std::error::Error as StdError;

use muster_protocol::invariant::Invariant;
use muster_telemetry::metrics;
use sqlx::Error;
use sqlx::migrate::MigrateError;

use super::StoreError;

type Cause = Box<dyn StdError + Send + Sync>;

/// A value or a state in the store that this build does not understand.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unexpected(String);

/// A defect with its sentence.
pub(super) fn defect(what: impl Into<String>) -> StoreError {
    StoreError::Defect(Box::new(Unexpected(what.into())))
}

/// The store does not answer, with its sentence.
pub(super) fn unavailable(what: impl Into<String>) -> StoreError {
    StoreError::Unavailable(Box::new(Unexpected(what.into())))
}

/// The store has too much to do, with its sentence.
pub(super) fn busy(what: impl Into<String>) -> StoreError {
    StoreError::Busy(Box::new(Unexpected(what.into())))
}

/// A guard of a write-once row refused: the lock did not do its work. Nothing
/// is written, and it is worth an alert.
pub(super) fn violation(invariant: Invariant, what: String) -> StoreError {
    metrics::invariant_violations(invariant.to_string()).increment(1);
    tracing::error!(%invariant, "{what}");
    defect(what)
}

/// The meaning of an error of any statement but a commit.
pub(super) fn meaning(error: Error, schema_needed: i64) -> StoreError {
    match &error {
        Error::Database(database) => {
            let code = database.code().unwrap_or_default().into_owned();
            let postgres = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some();
            let kind = if postgres { postgres_kind(&code) } else { sqlite_kind(&code, database.message()) };
            kind.of(Box::new(error), schema_needed)
        }
        Error::Io(_)
        | Error::Tls(_)
        | Error::Protocol(_)
        | Error::PoolTimedOut
        | Error::PoolClosed
        | Error::WorkerCrashed
        | Error::BeginFailed => StoreError::Unavailable(Box::new(error)),
        _ => StoreError::Defect(Box::new(error)),
    }
}

/// The meaning of an error of a commit: unless the database itself says that
/// it refused, nobody knows.
pub(super) fn committing(error: Error, schema_needed: i64) -> StoreError {
    match meaning(error, schema_needed) {
        StoreError::Unavailable(cause) => StoreError::Unknown(cause),
        other => other,
    }
}

/// The meaning of an error of a migration.
pub(super) fn migrating(error: MigrateError, schema_needed: i64) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => meaning(error, schema_needed),
        // Applied there, unknown here: the database is ahead of this build.
        MigrateError::VersionMissing(found) => StoreError::Schema { found, needed: schema_needed },
        other => StoreError::Defect(Box::new(other)),
    }
}

enum Kind {
    Unavailable,
    Contended,
    Full,
    Schema,
    Defect,
}

impl Kind {
    fn of(self, cause: Cause, needed: i64) -> StoreError {
        match self {
            Self::Unavailable => StoreError::Unavailable(cause),
            Self::Contended => StoreError::Contended(cause),
            Self::Full => StoreError::Full(cause),
            Self::Schema => StoreError::Schema { found: 0, needed },
            Self::Defect => StoreError::Defect(cause),
        }
    }
}

/// SQLSTATE, as "PostgreSQL Error Codes" in its manual lists them.
fn postgres_kind(code: &str) -> Kind {
    match code {
        "40001" | "40P01" | "55P03" => Kind::Contended,
        "53100" => Kind::Full,
        "42P01" | "3F000" => Kind::Schema,
        // A standby is read-only, begins nothing that writes (which it calls a
        // feature that is not there), and while it recovers it has no place in
        // its own log to name. 25P03 ends a session that idles in a transaction.
        "0A000" | "25006" | "55000" | "25P03" => Kind::Unavailable,
        _ if ["08", "28", "3D", "53", "57", "58"].iter().any(|class| code.starts_with(class)) => Kind::Unavailable,
        _ => Kind::Defect,
    }
}

/// The primary result code, as <https://www.sqlite.org/rescode.html> lists them.
fn sqlite_kind(code: &str, message: &str) -> Kind {
    match code.parse::<i32>().map(|code| code & 0xff) {
        // busy, locked
        Ok(5 | 6) => Kind::Contended,
        // full
        Ok(13) => Kind::Full,
        // read-only, input or output, can't open
        Ok(8 | 10 | 14) => Kind::Unavailable,
        Ok(1) if message.starts_with("no such table") => Kind::Schema,
        _ => Kind::Defect,
    }
}
