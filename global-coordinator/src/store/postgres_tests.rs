use muster_protocol::global::{Command, Expect};

use super::super::conformance::{Stores, conformance};
use super::super::{Mode, Store};
use super::*;

/// A database of one test, empty; dropped by [`Database::drop`].
pub(crate) struct Database {
    server: PgConnection,
    name: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) async fn new() -> Self {
        let variable = "MUSTER_TEST_POSTGRES";
        let server = std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} must be the URL of a Postgres whose role may create databases; `make test` sets it")
        });
        let name = format!("muster_test_{:032x}", rand::random::<u128>());
        let (before, _) = server.rsplit_once('/').expect("the URL names a database");
        let url = format!("{before}/{name}");
        let mut server = PgConnection::connect(&server).await.expect("connect to the Postgres of the tests");
        // Named by us: no quoting needed.
        server.execute(sqlx::AssertSqlSafe(format!("create database {name}"))).await.unwrap();
        Self { server, name, url }
    }

    pub(crate) fn store(&self, pool_size_max: u32) -> Postgres {
        Postgres::new(&PostgresOptions { url: self.url.clone(), pool_size_max }).unwrap()
    }

    pub(crate) async fn drop(mut self) {
        let drop = sqlx::AssertSqlSafe(format!("drop database {} with (force)", self.name));
        self.server.execute(drop).await.unwrap();
    }
}

/// Two pools on one database of their own; dropped whatever the test says.
async fn run(test: impl AsyncFnOnce(Stores)) {
    use futures::FutureExt;

    let database = Database::new().await;
    migrate(&database.url).await.unwrap();
    // One connection for each: what waits for another waits for ever.
    let (one, other) = (database.store(1), database.store(2));
    let stores = Stores::new(one.clone(), other.clone()).await;
    let ended = std::panic::AssertUnwindSafe(test(stores)).catch_unwind().await;
    one.close().await;
    other.close().await;
    database.drop().await;
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

conformance!(run);

impl Postgres {
    /// A transaction of a call that does nothing for as long as it is held.
    pub(crate) async fn held_by_a_call(&self) -> impl Sized + use<> {
        Backend::for_calls(self).begin(Purpose::Read).await.unwrap()
    }
}

async fn count(store: &Postgres, statement: &'static str) -> i64 {
    let mut tx = store.begin(Purpose::Read).await.unwrap();
    let rows: Vec<(i64,)> = tx.fetch(Query::new(statement)).await.unwrap();
    rows[0].0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_schema_is_refused_with_both_versions() {
    let database = Database::new().await;
    let store = database.store(2);
    assert!(matches!(store.check().await, Err(StoreError::Schema { found: 0, needed: 3 })));
    let command = Command::Open { key: None };
    let batch = vec![("etl/map".parse().unwrap(), command)];
    assert!(matches!(store.transact(batch, Mode::Commit).await, Err(StoreError::Schema { .. })));

    assert_eq!(migrate(&database.url).await.unwrap(), 3);
    assert_eq!(migrate(&database.url).await.unwrap(), 3, "once more changes nothing");
    let era = store.check().await.unwrap();
    assert_eq!(store.check().await.unwrap(), era);
    let (system, timeline) = era.0.split_once('/').unwrap();
    assert!(system.parse::<u64>().is_ok() && timeline == "00000001", "{era:?}");

    let mut tx = store.begin(Purpose::Write).await.unwrap();
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
        values (999, 'from the future', true, '', 0)";
    tx.execute(Query::new(newer)).await.unwrap();
    tx.commit().await.unwrap();
    assert!(matches!(store.check().await, Err(StoreError::Schema { found: 999, needed: 3 })));
    assert!(matches!(migrate(&database.url).await, Err(StoreError::Schema { found: 999, needed: 3 })));
    store.close().await;
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_the_first_version_is_brought_forward() {
    use super::super::conformance::{BROUGHT_FORWARD, FIRST};

    let database = Database::new().await;
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let first: Vec<_> = MIGRATOR.iter().filter(|migration| migration.version == 1).cloned().collect();
    Migrator::with_migrations(first).run(&mut connection).await.unwrap();
    for statement in FIRST {
        connection.execute(statement).await.unwrap();
    }
    connection.close().await.unwrap();
    assert_eq!(migrate(&database.url).await.unwrap(), 3);
    let store = database.store(1);
    assert_eq!(count(&store, BROUGHT_FORWARD).await, 1);
    let era = store.check().await.unwrap();
    let eras: Vec<Option<Era>> = store.regions().await.unwrap().into_iter().map(|row| row.era).collect();
    assert_eq!(eras, [None, Some(era)], "what has greeted has said everything");
    store.close().await;
    database.drop().await;
}

/// Found in sqlx: a `begin` that is cancelled leaves its transaction open, and
/// whoever has the connection next writes into it and loses that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_begin_poisons_no_connection() {
    use futures::FutureExt;

    let database = Database::new().await;
    migrate(&database.url).await.unwrap();
    let store = database.store(1);
    for round in 0..120 {
        let mut begin = Box::pin(store.begin(Purpose::Write));
        for _ in 0..=round % 6 {
            if (&mut begin).now_or_never().is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(50)).await;
        }
        drop(begin);
        // Possible only inside of a transaction, and nobody knows of one.
        let leaked = (&store.pool).execute("savepoint leaked").await;
        assert!(leaked.is_err(), "round {round}: the next one writes into a transaction that is not its own");
    }
    store.close().await;
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_ended_are_replaced() {
    let mut database = Database::new().await;
    migrate(&database.url).await.unwrap();
    let store = database.store(2);
    store.declare(&"us-east".parse().unwrap()).await.unwrap();
    let mut tx = store.begin(Purpose::Write).await.unwrap();
    let end = sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1");
    end.bind(&database.name).execute(&mut database.server).await.unwrap();
    let lost = tx.execute(Query::new("update regions set heard_at = 1")).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    drop(tx);
    assert_eq!(store.regions().await.unwrap().len(), 1);

    let mut tx = store.begin(Purpose::Write).await.unwrap();
    tx.execute(Query::new("update regions set heard_at = 1")).await.unwrap();
    let end = sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where datname = $1");
    end.bind(&database.name).execute(&mut database.server).await.unwrap();
    let lost = tx.commit().await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "a commit without an answer: {lost:?}");
    store.close().await;
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_meaning_of_each_sqlstate() {
    let database = Database::new().await;
    let store = database.store(1);
    for (code, meaning) in [
        ("40001", "Contended"),
        ("40P01", "Contended"),
        ("55P03", "Contended"),
        ("53100", "Full"),
        ("42P01", "Schema"),
        ("08006", "Unavailable"),
        ("57P01", "Unavailable"),
        ("57014", "Unavailable"),
        ("53300", "Unavailable"),
        ("0A000", "Unavailable"),
        ("25006", "Unavailable"),
        ("28P01", "Unavailable"),
        ("23505", "Defect"),
        ("22P05", "Defect"),
    ] {
        let mut tx = store.begin(Purpose::Write).await.unwrap();
        let raise = format!("do $$ begin raise exception 'as a test' using errcode = '{code}'; end $$");
        let raised = sqlx::query(sqlx::AssertSqlSafe(raise)).execute(&mut *tx.transaction).await.unwrap_err();
        let error = format!("{:?}", super::meaning(raised, 1));
        assert!(error.starts_with(meaning), "{code}: {error}");
    }
    store.close().await;
    database.drop().await;
}

/// A lock that is held for too long ends the wait, not the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_durable_and_locks_time_out_whatever_the_server_says() {
    let mut database = Database::new().await;
    let off = format!("alter database {} set synchronous_commit = off", database.name);
    database.server.execute(sqlx::AssertSqlSafe(off)).await.unwrap();
    migrate(&database.url).await.unwrap();
    let store = database.store(1);
    let on = "select count(*) from pg_settings where (name, setting) in (values ('synchronous_commit', 'on'),
        ('lock_timeout', '2000'), ('statement_timeout', '10000'), ('idle_in_transaction_session_timeout', '5000'))";
    assert_eq!(count(&store, on).await, 4);
    store.close().await;
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_is_named() {
    // Bound and not listening: nobody else can answer there.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    let url = format!("postgres://somebody:canary-secret@127.0.0.1:{port}/nowhere");
    let store = Postgres::new(&PostgresOptions { url: url.clone(), pool_size_max: 1 }).unwrap();
    let Err(StoreError::Unavailable(cause)) = store.check().await else { panic!("it answered") };
    let sentence = cause.to_string();
    assert!(sentence.contains(&format!("postgres://127.0.0.1:{port}/nowhere")), "{sentence}");
    assert!(!sentence.contains("canary-secret"), "{sentence}");
    assert!(matches!(migrate(&url).await, Err(StoreError::Unavailable(_))));
}

/// Told apart from a server that is away: somebody is at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_all_in_use_are_busy() {
    let database = Database::new().await;
    let store = database.store(1);
    let held = store.begin(Purpose::Read).await.unwrap();
    let refused = store.check().await;
    let Err(StoreError::Busy(cause)) = refused else { panic!("{refused:?}") };
    assert!(cause.to_string().ends_with("1 transactions run"), "{cause}");
    drop(held);
    assert!(matches!(store.check().await, Err(StoreError::Schema { .. })), "it is let in once there is room");
    store.close().await;
    database.drop().await;
}

#[test]
fn options_are_strict_and_keep_the_password() {
    let options: PostgresOptions = serde_json::from_str(r#"{"url": "postgres://u:canary@db:5433/m"}"#).unwrap();
    assert_eq!((options.url.as_str(), options.pool_size_max), ("postgres://u:canary@db:5433/m", 8));
    let shown = [format!("{options:?}"), serde_json::to_string(&options).unwrap()];
    for shown in shown {
        assert!(shown.contains("postgres://db:5433/m") && !shown.contains("canary"), "{shown}");
    }
    assert!(serde_json::from_str::<PostgresOptions>(r#"{"pool": 3}"#).is_err());
    for url in ["db:5432", "mysql://u:canary@db/m", "postgres://u:canary@db:port/m", ""] {
        let options = PostgresOptions { url: url.to_owned(), ..PostgresOptions::default() };
        let error = Postgres::new(&options).expect_err("it is no URL of a Postgres");
        assert!(error.to_string().contains("postgres://USER:PASSWORD@") && !error.to_string().contains("canary"));
        assert!(!format!("{options:?}").contains("canary"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_waits_too_long_for_a_lock_is_contended() {
    let database = Database::new().await;
    migrate(&database.url).await.unwrap();
    let store = database.store(2);
    let spec = super::super::conformance::small_spec("etl/map");
    let define = Command::Define { spec: Box::new(spec.clone()), expect: Expect::NewOrEqual };
    store.declare(spec.regions.keys().next().unwrap()).await.unwrap();
    store.transact(vec![(spec.name.clone(), define.clone())], Mode::Commit).await.unwrap();
    let mut holder = store.begin(Purpose::Write).await.unwrap();
    let lock = Query::new("select namespace, name from barriers").push(PostgresTransaction::LOCKING);
    holder.fetch::<(String, String)>(lock).await.unwrap();
    let mut waiting = store.begin(Purpose::Write).await.unwrap();
    let batch = [(spec.name.clone(), define)];
    let ended = super::super::transact::transact(&mut waiting, &batch, Mode::Commit).await;
    assert!(matches!(ended, Err(StoreError::Contended(_))), "{ended:?}");
    drop((holder, waiting));
    store.close().await;
    database.drop().await;
}
