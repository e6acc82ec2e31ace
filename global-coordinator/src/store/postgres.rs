//! The store in Postgres: the truth of the world, shared by any number of
//! coordinators.
//!
//! It needs a role that may read and write its tables, and
//! `pg_control_system()`, which every role may call unless somebody took that
//! away: with the timeline of the write-ahead log it names the [`Era`]. A
//! standby has no place in its own log and is refused.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_protocol::identity::{Era, Timestamp};
use serde::{Deserialize, Serialize, Serializer};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor};

use super::StoreError;
use super::backend::{Backend, Clock, Purpose, Transaction, within};
use super::error::{committing, defect, meaning, migrating, unavailable};
use super::query::{Query, Record};
use super::record::timestamp;

static MIGRATOR: Migrator = sqlx::migrate!("../migrations/postgres");

/// How long a request waits for a connection.
const ACQUIRE_WITHIN: Duration = Duration::from_secs(3);

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
    /// Connections at most.
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
        let pool = PgPoolOptions::new()
            .max_connections(options.pool_size_max.max(1))
            .acquire_timeout(ACQUIRE_WITHIN)
            .after_connect(|connection, _| Box::pin(async move { connection.execute(DURABLE).await.map(drop) }))
            .after_release(|connection, _| clean(connection));
        Ok(Self { pool: pool.connect_lazy_with(connect), place: shown(&options.url) })
    }

    /// Closes the connections, once what runs on them has ended.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Ends a transaction that nobody knows of. One is left open when `begin` is
/// cancelled between its statement and its answer, and whoever had the
/// connection next would write into it and lose that. Without a transaction
/// it is idle talk.
fn clean(connection: &mut PgConnection) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
    Box::pin(async move {
        let rollback = tokio::time::timeout(ACQUIRE_WITHIN, connection.execute("rollback"));
        rollback.await.map_err(|_| sqlx::Error::PoolTimedOut)?.map(|_| true)
    })
}

impl Backend for Postgres {
    type Transaction = PostgresTransaction;

    fn schema_needed(&self) -> i64 {
        schema_needed()
    }

    async fn begin(&self, purpose: Purpose) -> Result<Self::Transaction, StoreError> {
        let statement = match purpose {
            Purpose::Write => "begin isolation level read committed, read write",
            Purpose::Read => "begin isolation level repeatable read, read only",
        };
        let meaning = |error| match error {
            // It hides why: the last refusal of a server that is away.
            sqlx::Error::PoolTimedOut => {
                unavailable(format!("no connection to {} within {} s", self.place, ACQUIRE_WITHIN.as_secs()))
            }
            error => self::meaning(error, schema_needed()),
        };
        within(ANSWER_WITHIN, self.pool.begin_with(statement), meaning).await.map(PostgresTransaction)
    }
}

/// A transaction in Postgres.
pub(super) struct PostgresTransaction(sqlx::Transaction<'static, sqlx::Postgres>);

impl Transaction for PostgresTransaction {
    const LOCKING: &'static str = " for no key update";

    /// Whoever locks rows of a table holds a lock on it that this one excludes;
    /// readers go on.
    async fn lock_out_deciders(&mut self) -> Result<(), StoreError> {
        self.execute(Query::new("lock table barriers in exclusive mode")).await.map(drop)
    }

    async fn fetch<T: Record>(&mut self, query: Query) -> Result<Vec<T>, StoreError> {
        let (text, arguments) = query.into_parts::<PgArguments>()?;
        let query = sqlx::query_as_with(text, arguments);
        within(ANSWER_WITHIN, query.fetch_all(&mut *self.0), |error| meaning(error, schema_needed())).await
    }

    async fn execute(&mut self, query: Query) -> Result<u64, StoreError> {
        let (text, arguments) = query.into_parts::<PgArguments>()?;
        let query = sqlx::query_with(text, arguments);
        let done = within(ANSWER_WITHIN, query.execute(&mut *self.0), |error| meaning(error, schema_needed()));
        Ok(done.await?.rows_affected())
    }

    async fn clock(&mut self) -> Result<Clock, StoreError> {
        let rows: Vec<(i64, String, String)> = self.fetch(Query::new(CLOCK)).await?;
        let (now, system, timeline) = rows.first().ok_or_else(|| defect("the clock has no row"))?;
        let now: Timestamp = timestamp(*now)?;
        Ok(Clock { now, era: Era::new(&format!("{system}/{timeline}")) })
    }

    async fn commit(self) -> Result<(), StoreError> {
        fail::fail_point!("store.before_commit");
        let commit = self.0.commit();
        match within(ANSWER_WITHIN, commit, |error| committing(error, schema_needed())).await {
            Err(StoreError::Unavailable(silence)) => Err(StoreError::Unknown(silence)),
            ended => ended.inspect(|()| fail::fail_point!("store.after_commit")),
        }
    }

    async fn rollback(self) -> Result<(), StoreError> {
        within(ANSWER_WITHIN, self.0.rollback(), |error| meaning(error, schema_needed())).await
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
mod tests;
