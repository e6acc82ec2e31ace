//! What a database must bring for the store to run on it: transactions that
//! take statements, a clock and an era. Everything else is written once.

use std::future::Future;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_protocol::identity::{Era, Timestamp};
use muster_protocol::mutant;
use tracing::Instrument;

use super::StoreError;
use super::error::{defect, unavailable};
use super::query::{Query, Record};

/// How often a transaction that lost against another is tried in all.
const TRIES_MAX: u32 = 6;

/// The first pause after a lost try; each next one is twice as long.
const PAUSE_MS: u64 = 4;

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It may write. Each of its statements sees what was committed before
    /// that statement began (READ COMMITTED).
    Write,
    /// It reads, all of it as of one moment.
    Read,
}

/// How a transaction is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Commit,
    Rollback,
}

/// What the database says of itself, read after the locks are held.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// Its clock.
    pub(super) now: Timestamp,
    /// Its life.
    pub(super) era: Era,
}

/// A database.
pub(super) trait Backend: Clone + Send + Sync + 'static {
    type Transaction: Transaction;

    /// The version of the schema that this build needs.
    fn schema_needed(&self) -> i64;

    /// The same database as calls use it.
    fn for_calls(&self) -> Self {
        self.clone()
    }

    /// Begins a transaction.
    fn begin(&self, purpose: Purpose) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;
}

/// A transaction. Dropped before its end, it is rolled back.
pub(super) trait Transaction: Send + 'static {
    /// What makes a `select` lock the rows it returns, in their order, so that
    /// others who lock them wait and those who only refer to them don't.
    const LOCKING: &'static str;

    /// Waits until nobody decides anything, and keeps everybody from it until
    /// this transaction ends. First in its transaction, before any other lock.
    fn lock_out_deciders(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Runs a statement and takes its rows.
    fn fetch<T: Record>(&mut self, query: Query) -> impl Future<Output = Result<Vec<T>, StoreError>> + Send;

    /// Runs a statement and counts the rows it changed.
    fn execute(&mut self, query: Query) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Reads clock and era.
    fn clock(&mut self) -> impl Future<Output = Result<Clock, StoreError>> + Send;

    /// Makes it durable.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Undoes it.
    fn rollback(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What is done in a transaction, and how it is to end.
pub(super) type Done<'t, T> = BoxFuture<'t, Result<(T, End), StoreError>>;

/// Runs a transaction in a task of its own: a caller that goes away can't
/// leave it half done, nor its connection in a state nobody expects. A
/// transaction that lost against another is done again from its start.
pub(super) async fn run<B, T>(
    backend: &B,
    purpose: Purpose,
    work: impl for<'t> Fn(&'t mut B::Transaction) -> Done<'t, T> + Send + Sync + 'static,
) -> Result<T, StoreError>
where
    B: Backend,
    T: Send + 'static,
{
    let backend = backend.clone();
    let task = async move {
        for attempt in 0.. {
            match once(&backend, purpose, &work).await {
                Err(StoreError::Contended(_)) if attempt + 1 < TRIES_MAX => pause(attempt).await,
                ended => return ended,
            }
        }
        Err(defect("no try was the last one"))
    };
    if mutant!(GoesWithItsCaller) {
        return task.await;
    }
    match tokio::spawn(task.in_current_span()).await {
        Ok(ended) => ended,
        Err(error) if error.is_panic() => Err(defect(format!("a transaction panicked: {error}"))),
        // The process is ending, and nobody saw whether it committed.
        Err(error) => Err(StoreError::Unknown(Box::new(error))),
    }
}

async fn once<B: Backend, T>(
    backend: &B,
    purpose: Purpose,
    work: &impl for<'t> Fn(&'t mut B::Transaction) -> Done<'t, T>,
) -> Result<T, StoreError> {
    let mut transaction = backend.begin(purpose).await?;
    match work(&mut transaction).await {
        Ok((answer, End::Commit)) => {
            transaction.commit().await?;
            Ok(answer)
        }
        // What it reads was true, whatever became of the connection since.
        Ok((answer, End::Rollback)) => {
            transaction.rollback().await.ok();
            Ok(answer)
        }
        Err(error) => {
            transaction.rollback().await.ok();
            Err(error)
        }
    }
}

/// Two that lost against each other must not meet again in step.
async fn pause(attempt: u32) {
    let longest = PAUSE_MS << attempt;
    tokio::time::sleep(Duration::from_millis(rand::random_range(longest / 2..=longest))).await;
}

/// The answer of a database, unless it takes longer than any answer may.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
    meaning: impl FnOnce(sqlx::Error) -> StoreError,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(meaning),
        Err(_) => Err(unavailable(format!("no answer within {} s", limit.as_secs()))),
    }
}
