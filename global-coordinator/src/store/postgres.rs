//! The store in Postgres: the truth of the world, shared by any number of
//! coordinators.
//!
//! It needs a role that may read and write its tables, and
//! `pg_control_system()`, which every role may call unless somebody took that
//! away: with the timeline of the write-ahead log it names the [`Era`]. A
//! standby has no place in its own log and is refused.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use muster_protocol::identity::{Era, Timestamp};
use muster_protocol::mutant;
use serde::{Deserialize, Serialize, Serializer};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::StoreError;
use super::backend::{Backend, Clock, Purpose, Transaction, within};
use super::error::{busy, defect, meaning, migrating, unavailable};
use super::query::{Query, Record};
use super::record::timestamp;

static MIGRATOR: Migrator = sqlx::migrate!("../migrations/postgres");

/// How long a transaction waits for a connection, and before that a call for
/// its turn.
const ACQUIRE_WITHIN: Duration = Duration::from_secs(3);

/// Connections that calls leave alone: what decides, repeats and keeps
/// deadlines finds one, however many call.
const OWN_CONNECTIONS: u32 = 2;

/// How long any answer may take: a little longer than the server allows its
/// statements, so that this fires only when the server is gone.
const ANSWER_WITHIN: Duration = Duration::from_secs(12);

/// The server ends what outlives these, so that no lock outlives its owner's
/// use of it. Warnings would be one for every connection that is cleaned.
const SETTINGS: [(&str, &str); 4] = [
    ("statement_timeout", "10s"),
    ("lock_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "5s"),
    ("client_min_messages", "error"),
];

/// How long a migration waits for a lock before it gives up, changing nothing.
const MIGRATION_SETTINGS: [(&str, &str); 2] = [("lock_timeout", "10s"), ("client_min_messages", "error")];

/// A commit is durable when it is acknowledged: a setting of the server or the
/// role that says otherwise is not for us.
const DURABLE: &str = "select set_config('synchronous_commit', 'on', false)
    where current_setting('synchronous_commit') = 'off'";

const CLOCK: &str = "select cast(floor(extract(epoch from clock_timestamp()) * 1000) as bigint),
    (select cast(system_identifier as text) from pg_control_system()),
    left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// How to reach Postgres.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PostgresOptions {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`. A secret: it is shown
    /// only without user and password.
    pub url: String,
    /// Connections at most. Two of them are kept for the coordinator's own
    /// work, if there are so many.
    pub pool_size_max: u32,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { url: "postgres://muster@127.0.0.1:5432/muster".to_owned(), pool_size_max: 8 }
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = shown(&self.url);
        f.debug_struct("PostgresOptions").field("url", &url).field("pool_size_max", &self.pool_size_max).finish()
    }
}

impl Serialize for PostgresOptions {
    /// For a printed configuration: without user and password.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown {
            url: String,
            pool_size_max: u32,
        }
        Shown { url: shown(&self.url), pool_size_max: self.pool_size_max }.serialize(serializer)
    }
}

/// The URL of Postgres is not one.
#[derive(Debug, thiserror::Error)]
#[error("the URL of Postgres can't be read ({reason}): write postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
pub struct InvalidUrl {
    /// Why, without the URL: it may hold a password.
    pub reason: String,
}

fn read_url(url: &str) -> Result<PgConnectOptions, InvalidUrl> {
    let scheme = url.starts_with("postgres://") || url.starts_with("postgresql://");
    let options = url.parse::<PgConnectOptions>().map_err(|error| InvalidUrl { reason: error.to_string() })?;
    match scheme {
        true => Ok(options.application_name("muster")),
        false => Err(InvalidUrl { reason: "it does not begin with postgres://".to_owned() }),
    }
}

/// Where a URL leads, without user and password.
fn shown(url: &str) -> String {
    read_url(url).map_or_else(
        |_| "(not the URL of a Postgres)".to_owned(),
        |options| {
            format!("postgres://{}:{}/{}", options.get_host(), options.get_port(), options.get_database().unwrap_or(""))
        },
    )
}

/// The store in Postgres. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct Postgres {
    pool: PgPool,
    place: String,
    /// What calls share; the pool is fair, so theirs is a part of it.
    turns: Arc<Semaphore>,
    for_calls: bool,
    /// Transactions that are open now.
    open: Arc<AtomicUsize>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Postgres").field(&self.place).finish()
    }
}

impl Postgres {
    /// A store that connects when it is first used: [`super::Store::check`]
    /// says whether it can.
    ///
    /// # Errors
    /// The URL is not one.
    pub fn new(options: &PostgresOptions) -> Result<Self, InvalidUrl> {
        let connect = read_url(&options.url)?.options(SETTINGS);
        let size = options.pool_size_max.max(1);
        let turns = size.saturating_sub(OWN_CONNECTIONS).max(1);
        let pool = PgPoolOptions::new()
            .max_connections(size)
            .acquire_timeout(ACQUIRE_WITHIN)
            .after_connect(|connection, _| Box::pin(prepare(connection)))
            .after_release(|connection, _| clean(connection));
        Ok(Self {
            pool: pool.connect_lazy_with(connect),
            place: shown(&options.url),
            turns: Arc::new(Semaphore::new(turns as usize)),
            for_calls: false,
            open: Arc::default(),
        })
    }

    /// Closes the connections, once what runs on them has ended.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// A call's turn; `None` for what needs none.
    async fn turn(&self) -> Result<Option<OwnedSemaphorePermit>, StoreError> {
        if !self.for_calls {
            return Ok(None);
        }
        match tokio::time::timeout(ACQUIRE_WITHIN, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(Some(turn)),
            Ok(Err(_)) | Err(_) => Err(self.no_connection()),
        }
    }

    /// What it means that there was no connection in time. The pool hides
    /// whether it had none to lend or got none; others that are at work tell.
    fn no_connection(&self) -> StoreError {
        let (place, seconds) = (&self.place, ACQUIRE_WITHIN.as_secs());
        match self.open.load(Ordering::Relaxed) {
            0 => unavailable(format!("no connection to {place} within {seconds} s")),
            open => busy(format!("no connection to {place} was free within {seconds} s; {open} transactions run")),
        }
    }
}

/// Makes a new connection keep what it acknowledges.
async fn prepare(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    match mutant!(AcknowledgeBeforeDurable) {
        true => Ok(()),
        false => connection.execute(DURABLE).await.map(drop),
    }
}

/// Ends a transaction that nobody knows of. One is left open when `begin` is
/// cancelled between its statement and its answer, and whoever had the
/// connection next would write into it and lose that. Without a transaction
/// it is idle talk.
fn clean(connection: &mut PgConnection) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
    Box::pin(async move {
        let rollback = if mutant!(LeavesOpen) { "" } else { "rollback" };
        let rollback = tokio::time::timeout(ACQUIRE_WITHIN, connection.execute(rollback));
        rollback.await.map_err(|_| sqlx::Error::PoolTimedOut)?.map(|_| true)
    })
}

impl Backend for Postgres {
    type Transaction = PostgresTransaction;

    fn schema_needed(&self) -> i64 {
        schema_needed()
    }

    fn for_calls(&self) -> Self {
        Self { for_calls: true, ..self.clone() }
    }

    async fn begin(&self, purpose: Purpose) -> Result<Self::Transaction, StoreError> {
        let turn = self.turn().await?;
        let statement = match purpose {
            Purpose::Write => "begin isolation level read committed, read write",
            Purpose::Read => "begin isolation level repeatable read, read only",
        };
        let meaning = |error| match error {
            sqlx::Error::PoolTimedOut => self.no_connection(),
            error => self::meaning(error, schema_needed()),
        };
        let transaction = within(ANSWER_WITHIN, self.pool.begin_with(statement), meaning).await?;
        Ok(PostgresTransaction { transaction, _open: Open::new(&self.open), _turn: turn })
    }
}

/// Counts a transaction for as long as it is open.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A transaction in Postgres.
pub(super) struct PostgresTransaction {
    transaction: sqlx::Transaction<'static, sqlx::Postgres>,
    _open: Open,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Transaction for PostgresTransaction {
    const LOCKING: &'static str = " for no key update";

    /// Whoever locks rows of a table holds a lock on it that this one excludes;
    /// readers go on.
    async fn lock_out_deciders(&mut self) -> Result<(), StoreError> {
        let mode = if mutant!(DrainsUnlocked) { "access share" } else { "exclusive" };
        self.execute(Query::new("lock table barriers in ").push(mode).push(" mode")).await.map(drop)
    }

    async fn fetch<T: Record>(&mut self, query: Query) -> Result<Vec<T>, StoreError> {
        let (text, arguments) = query.into_parts::<PgArguments>()?;
        let query = sqlx::query_as_with(text, arguments);
        within(ANSWER_WITHIN, query.fetch_all(&mut *self.transaction), |error| meaning(error, schema_needed())).await
    }

    async fn execute(&mut self, query: Query) -> Result<u64, StoreError> {
        let (text, arguments) = query.into_parts::<PgArguments>()?;
        let query = sqlx::query_with(text, arguments);
        let done =
            within(ANSWER_WITHIN, query.execute(&mut *self.transaction), |error| meaning(error, schema_needed()));
        Ok(done.await?.rows_affected())
    }

    async fn clock(&mut self) -> Result<Clock, StoreError> {
        let rows: Vec<(i64, String, String)> = self.fetch(Query::new(CLOCK)).await?;
        let (now, system, timeline) = rows.first().ok_or_else(|| defect("the clock has no row"))?;
        let now: Timestamp = timestamp(*now)?;
        let timeline = if mutant!(EraWithoutTimeline) { "" } else { timeline };
        Ok(Clock { now, era: Era::new(&format!("{system}/{timeline}")) })
    }

    async fn commit(self) -> Result<(), StoreError> {
        fail::fail_point!("store.before_commit");
        let commit = self.transaction.commit();
        match within(ANSWER_WITHIN, commit, |error| meaning(error, schema_needed())).await {
            Err(StoreError::Unavailable(silence)) if !mutant!(LossIsRefusal) => Err(StoreError::Unknown(silence)),
            ended => ended.inspect(|()| fail::fail_point!("store.after_commit")),
        }
    }

    async fn rollback(self) -> Result<(), StoreError> {
        within(ANSWER_WITHIN, self.transaction.rollback(), |error| meaning(error, schema_needed())).await
    }
}

fn schema_needed() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Brings the schema of a database to this build's, in one step of its own:
/// services don't, they refuse to run on another. Gives the version.
///
/// # Errors
/// The URL is not one, Postgres does not answer, somebody holds a lock of a
/// table for longer than 10 s, or the schema is a newer build's.
pub async fn migrate(url: &str) -> Result<i64, StoreError> {
    let options = read_url(url).map_err(|error| StoreError::Defect(Box::new(error)))?.options(MIGRATION_SETTINGS);
    let connect = PgConnection::connect_with(&options);
    let mut connection = within(ANSWER_WITHIN, connect, |error| meaning(error, schema_needed())).await?;
    MIGRATOR.run(&mut connection).await.map_err(|error| migrating(error, schema_needed()))?;
    connection.close().await.ok();
    Ok(schema_needed())
}

#[cfg(test)]
#[path = "postgres_tests.rs"]
pub(crate) mod tests;
