//! The store in SQLite, in this process: for `muster dev` and for tests. With
//! a file it is as durable as the disk; without one nothing is stored.
//!
//! It has one connection, and one transaction at a time: readers wait for
//! writers, and a write takes a fraction of a millisecond. The life of the
//! database, its [`Era`], is random and made with the file. Its clock is this
//! process's, never turned back: an instant once used is stored with what it
//! decided.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use muster_protocol::identity::{Era, Timestamp};
use muster_protocol::mutant;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Executor};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::StoreError;
use super::backend::{Backend, Clock, Purpose, Transaction};
use super::error::{committing, defect, meaning, migrating, unavailable};
use super::query::{Query, Record};
use super::record::timestamp;

static MIGRATOR: Migrator = sqlx::migrate!("../migrations/sqlite");

/// How long a transaction waits for another process's.
const BUSY_WITHIN: Duration = Duration::from_secs(5);

const NEW_IDENTITY: &str = "insert into identity (only_one, era, clock_at) values (1, $1, 0)
    on conflict (only_one) do nothing";

/// The store in SQLite. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Embedded {
    connection: Arc<Mutex<Shared>>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Embedded")
    }
}

struct Shared {
    connection: SqliteConnection,
    /// Whether a transaction may be open: one that was dropped before its end
    /// has nobody to undo it but the next.
    open: bool,
    /// The last instant that was given out.
    clock: Timestamp,
}

impl Embedded {
    /// A store in a file, made if it is not there, its schema brought to this
    /// build's. What is acknowledged survives the loss of power.
    ///
    /// # Errors
    /// The file can't be opened or made, or a newer build wrote it.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent() {
            let made = tokio::fs::create_dir_all(folder).await;
            made.map_err(|error| unavailable(format!("{} can't be made: {error}", folder.display())))?;
        }
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let synchronous =
            if mutant!(AcknowledgeBeforeDurable) { SqliteSynchronous::Off } else { SqliteSynchronous::Full };
        Self::with(options.journal_mode(SqliteJournalMode::Wal).synchronous(synchronous)).await
    }

    /// A store in memory, gone with its last clone.
    ///
    /// # Errors
    /// There is no memory.
    pub async fn in_memory() -> Result<Self, StoreError> {
        Self::with(SqliteConnectOptions::new().in_memory(true)).await
    }

    async fn with(options: SqliteConnectOptions) -> Result<Self, StoreError> {
        let options = options.foreign_keys(true).busy_timeout(BUSY_WITHIN);
        let mut connection = options.connect().await.map_err(|error| meaning(error, schema_needed()))?;
        MIGRATOR.run(&mut connection).await.map_err(|error| migrating(error, schema_needed()))?;
        let shared = Shared { connection, open: false, clock: Timestamp(0) };
        let store = Self { connection: Arc::new(Mutex::new(shared)) };
        let mut transaction = store.begin(Purpose::Write).await?;
        let era = format!("{:032x}", rand::random::<u128>());
        transaction.execute(Query::new(NEW_IDENTITY).with(era)).await?;
        transaction.commit().await?;
        Ok(store)
    }
}

impl Backend for Embedded {
    type Transaction = EmbeddedTransaction;

    fn schema_needed(&self) -> i64 {
        schema_needed()
    }

    async fn begin(&self, purpose: Purpose) -> Result<Self::Transaction, StoreError> {
        let mut transaction = EmbeddedTransaction { shared: Arc::clone(&self.connection).lock_owned().await, purpose };
        if transaction.shared.open {
            transaction.shared.connection.execute("rollback").await.ok();
        }
        transaction.shared.open = true;
        let statement = match purpose {
            // At once for writing: a reader that becomes a writer may have
            // read what is no longer true.
            Purpose::Write => "begin immediate",
            Purpose::Read => "begin",
        };
        transaction.run(statement).await.map_err(|error| meaning(error, schema_needed()))?;
        Ok(transaction)
    }
}

/// A transaction in SQLite.
pub(super) struct EmbeddedTransaction {
    shared: OwnedMutexGuard<Shared>,
    purpose: Purpose,
}

impl EmbeddedTransaction {
    async fn run(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        self.shared.connection.execute(statement).await.map(drop)
    }
}

impl Transaction for EmbeddedTransaction {
    /// A writing transaction has the whole database for itself.
    const LOCKING: &'static str = "";

    /// A writing transaction is alone anyway.
    async fn lock_out_deciders(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn fetch<T: Record>(&mut self, query: Query) -> Result<Vec<T>, StoreError> {
        let (text, arguments) = query.into_parts::<SqliteArguments>()?;
        let query = sqlx::query_as_with(text, arguments);
        query.fetch_all(&mut self.shared.connection).await.map_err(|error| meaning(error, schema_needed()))
    }

    async fn execute(&mut self, query: Query) -> Result<u64, StoreError> {
        let (text, arguments) = query.into_parts::<SqliteArguments>()?;
        let query = sqlx::query_with(text, arguments);
        let done = query.execute(&mut self.shared.connection).await;
        done.map(|done| done.rows_affected()).map_err(|error| meaning(error, schema_needed()))
    }

    async fn clock(&mut self) -> Result<Clock, StoreError> {
        let rows: Vec<(String, i64)> = self.fetch(Query::new("select era, clock_at from identity")).await?;
        let (era, stored) = rows.first().ok_or_else(|| defect("the database has no identity"))?;
        let now = system_clock().max(timestamp(*stored)?).max(self.shared.clock);
        self.shared.clock = now;
        if self.purpose == Purpose::Write {
            self.execute(Query::new("update identity set clock_at = $1").with(now.0)).await?;
        }
        Ok(Clock { now, era: Era::new(era) })
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        fail::fail_point!("store.before_commit");
        self.run("commit").await.map_err(|error| committing(error, schema_needed()))?;
        self.shared.open = false;
        fail::fail_point!("store.after_commit");
        Ok(())
    }

    async fn rollback(mut self) -> Result<(), StoreError> {
        self.run("rollback").await.map_err(|error| meaning(error, schema_needed()))?;
        self.shared.open = false;
        Ok(())
    }
}

fn system_clock() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX))
}

fn schema_needed() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0)
}

#[cfg(test)]
#[path = "embedded_tests.rs"]
mod tests;
