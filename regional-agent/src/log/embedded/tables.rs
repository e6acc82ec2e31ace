//! The statements on a log's tables. Whoever calls them holds the only
//! connection, so what one of them reads is still true for the next.

use std::path::Path;
use std::time::Duration;

use muster_protocol::identity::{History, Writer};
use muster_protocol::mutant;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous};
use sqlx::{Connection, Error, SqliteConnection};

use crate::log::{Appended, Installed, LogError, RawEntry, Rebirth};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations/region-log");

/// How long to wait for a process that is about to give the file up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

// SQLite's result codes.
const BUSY: &str = "5";
const FULL: &str = "13";

/// Opens a file, alone, or with no path a log in memory.
pub(super) async fn open(path: Option<&Path>) -> Result<SqliteConnection, LogError> {
    let options = match path {
        // Exclusive from the first statement until the process is gone, in
        // whatever way: a second one is refused instead of sharing the log.
        Some(path) => SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .locking_mode(SqliteLockingMode::Exclusive)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(if mutant!(AcknowledgeBeforeDurable) {
                SqliteSynchronous::Off
            } else {
                SqliteSynchronous::Full
            })
            .busy_timeout(BUSY_TIMEOUT),
        None => SqliteConnectOptions::new().in_memory(true),
    };
    let unusable = |error: &Error| {
        let path = path.map_or_else(|| "memory".into(), Path::to_string_lossy);
        if code_of(error).is_some_and(|code| code == BUSY) {
            let what = format!("{path} is open in another process; stop that one, or use another data folder");
            return LogError::Damaged { what };
        }
        LogError::Damaged { what: format!("{path}: {error}") }
    };
    let mut db = SqliteConnection::connect_with(&options).await.map_err(|error| unusable(&error))?;
    MIGRATIONS.run(&mut db).await.map_err(|error| match error {
        MigrateError::Execute(error) => unusable(&error),
        error => LogError::Damaged { what: error.to_string() },
    })?;
    Ok(db)
}

fn code_of(error: &Error) -> Option<String> {
    // Extended codes hold the primary one in their low byte.
    let code: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some((code & 0xff).to_string())
}

/// Makes an error of SQLite one of the log.
pub(super) fn failed(what: &'static str) -> impl Fn(Error) -> LogError {
    move |error| LogError::Unavailable { what, source: error.into() }
}

/// Who the log is; makes it the first time.
pub(super) async fn origin(db: &mut SqliteConnection) -> Result<History, Error> {
    let mut tx = db.begin_with("begin immediate").await?;
    let own: [u8; 16] = rand::random();
    let made = sqlx::query("insert into origin (only_row, history, numbers) values (1, $1, 0) on conflict do nothing")
        .bind(own.as_slice())
        .execute(&mut *tx)
        .await?;
    let fresh = made.rows_affected() == 1;
    if fresh {
        sqlx::query("insert into head (only_row, log_index) values (1, 0)").execute(&mut *tx).await?;
        fail::fail_point!("log.create.before");
    }
    let history: Vec<u8> = sqlx::query_scalar("select history from origin").fetch_one(&mut *tx).await?;
    tx.commit().await?;
    if fresh {
        fail::fail_point!("log.create.after");
    }
    history.try_into().map(History).map_err(|_| Error::Decode("a history has 16 bytes".into()))
}

/// A number no writer and no epoch has had.
pub(super) async fn next_number(db: &mut SqliteConnection) -> Result<u64, Error> {
    let number: i64 =
        sqlx::query_scalar("update origin set numbers = numbers + 1 returning numbers").fetch_one(db).await?;
    Ok(number.unsigned_abs())
}

/// The index of the newest entry.
pub(super) async fn head(db: &mut SqliteConnection) -> Result<Option<u64>, Error> {
    let head: Option<i64> = sqlx::query_scalar("select log_index from head").fetch_optional(db).await?;
    Ok(head.map(i64::unsigned_abs))
}

/// Appends one entry of a writer that is registered.
pub(super) async fn append(db: &mut SqliteConnection, writer: Writer, seq: u64, bytes: &[u8]) -> Appended {
    const WHAT: &str = "append to the log";
    let result = async {
        let mut tx = db.begin_with("begin immediate").await?;
        let advance = "update head set log_index = log_index + 1 returning log_index";
        let anew =
            "insert into head values (1, 1) on conflict do update set log_index = log_index + 1 returning log_index";
        let advance = if mutant!(HeadBornAgain) { anew } else { advance };
        let Some(index): Option<i64> = sqlx::query_scalar(advance).fetch_optional(&mut *tx).await? else {
            return Ok(Err(Appended::HeadGone));
        };
        let insert = "insert into entry (log_index, writer, seq, body) values ($1, $2, $3, $4) \
                      on conflict (writer, seq) do nothing";
        let inserted = sqlx::query(insert)
            .bind(index)
            .bind(number(writer.0))
            .bind(number(seq))
            .bind(bytes)
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 0 && !mutant!(LandsTwice) {
            return Ok(Err(Appended::AlreadyThere));
        }
        Ok(Ok((tx, index.unsigned_abs())))
    };
    match result.await {
        Ok(Ok((tx, index))) => match tx.commit().await {
            Ok(()) => Appended::Landed { index },
            Err(error) if is_full(&error) => Appended::Full,
            // A commit that fails may have reached the disk.
            Err(error) => Appended::Unknown(failed(WHAT)(error)),
        },
        Ok(Err(appended)) => appended,
        Err(error) if is_full(&error) => Appended::Full,
        // Before its commit a transaction that fails changes nothing.
        Err(error) => Appended::Refused(failed(WHAT)(error)),
    }
}

fn is_full(error: &Error) -> bool {
    code_of(error).is_some_and(|code| code == FULL)
}

/// Entries after an index, in order.
pub(super) async fn entries_after(db: &mut SqliteConnection, index: u64, limit: u32) -> Result<Vec<RawEntry>, Error> {
    let select = "select log_index, writer, seq, body from entry where log_index > $1 order by log_index limit $2";
    let rows: Vec<(i64, i64, i64, Vec<u8>)> =
        sqlx::query_as(select).bind(number(index)).bind(limit).fetch_all(db).await?;
    let entry = |(index, writer, seq, bytes): (i64, i64, i64, Vec<u8>)| RawEntry {
        index: index.unsigned_abs(),
        writer: Writer(writer.unsigned_abs()),
        seq: seq.unsigned_abs(),
        bytes,
    };
    Ok(rows.into_iter().map(entry).collect())
}

/// The index of the snapshot in place, 0 without one.
pub(super) async fn snapshot_index(db: &mut SqliteConnection) -> Result<u64, Error> {
    let index: Option<i64> = sqlx::query_scalar("select log_index from snapshot").fetch_optional(db).await?;
    Ok(index.unwrap_or_default().unsigned_abs())
}

/// The bytes of the snapshot in place.
pub(super) async fn snapshot(db: &mut SqliteConnection) -> Result<Option<Vec<u8>>, Error> {
    sqlx::query_scalar("select body from snapshot").fetch_optional(db).await
}

/// Replaces everything up to an index by a snapshot, if that is newer.
pub(super) async fn install(db: &mut SqliteConnection, index: u64, bytes: &[u8]) -> Result<Installed, Error> {
    let mut tx = db.begin_with("begin immediate").await?;
    let put = "insert into snapshot (only_row, log_index, body) values (1, $1, $2) on conflict (only_row) do update \
               set log_index = excluded.log_index, body = excluded.body \
               where excluded.log_index > snapshot.log_index";
    let put = if mutant!(ManifestFalls) { "insert or replace into snapshot values (1, $1, $2)" } else { put };
    let done = sqlx::query(put).bind(number(index)).bind(bytes).execute(&mut *tx).await?;
    if done.rows_affected() == 0 {
        return Ok(Installed::No);
    }
    fail::fail_point!("log.snapshot.chunks");
    sqlx::query("delete from entry where log_index <= $1").bind(number(index)).execute(&mut *tx).await?;
    fail::fail_point!("log.truncate");
    tx.commit().await?;
    fail::fail_point!("log.snapshot.manifest");
    Ok(Installed::Yes)
}

/// Puts another life of the log in the place of the old one. Numbers of writers
/// and epochs go on: none is given twice.
pub(super) async fn begin_anew(db: &mut SqliteConnection, rebirth: &Rebirth) -> Result<(), Error> {
    let mut tx = db.begin_with("begin immediate").await?;
    sqlx::query("update origin set history = $1").bind(rebirth.history.0.as_slice()).execute(&mut *tx).await?;
    for clear in ["delete from head", "delete from entry", "delete from snapshot"] {
        sqlx::query(clear).execute(&mut *tx).await?;
    }
    let base = if mutant!(BaseForgotten) { 0 } else { number(rebirth.base) };
    sqlx::query("insert into head (only_row, log_index) values (1, $1)").bind(base).execute(&mut *tx).await?;
    sqlx::query("insert into snapshot (only_row, log_index, body) values (1, $1, $2)")
        .bind(base)
        .bind(rebirth.snapshot.as_slice())
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// Numbers of a log count up from 1, so none comes near the end of an `i64`.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
