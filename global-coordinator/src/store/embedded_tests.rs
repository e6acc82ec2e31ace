use std::path::PathBuf;

use muster_protocol::fact::Standing;

use super::super::conformance::Stores;
use super::*;

/// A folder of one test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("muster-store-{:032x}", rand::random::<u128>())))
    }

    fn file(&self) -> PathBuf {
        self.0.join("muster.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

mod in_a_file {
    use super::*;

    /// Two connections to one file, as two processes have them.
    async fn run(test: impl AsyncFnOnce(Stores)) {
        let folder = Folder::new();
        let one = Embedded::open(&folder.file()).await.unwrap();
        let other = Embedded::open(&folder.file()).await.unwrap();
        test(Stores::new(one, other).await).await;
    }

    super::super::super::conformance::conformance!(run);
}

mod in_memory {
    use super::*;

    /// Two handles of one connection.
    async fn run(test: impl AsyncFnOnce(Stores)) {
        let store = Embedded::in_memory().await.unwrap();
        test(Stores::new(store.clone(), store).await).await;
    }

    super::super::super::conformance::conformance!(run);
}

fn hello(life: u8) -> muster_protocol::fact::Hello {
    muster_protocol::fact::Hello {
        region: "us-east".parse().unwrap(),
        agent: muster_protocol::fact::AgentId { name: "a".into(), instance: "b".into() },
        history: muster_protocol::identity::History([life; 16]),
        shard: 0,
        head: 5,
        machine_version: 1,
        address: "http://127.0.0.1:1".into(),
        era: None,
    }
}

#[tokio::test]
async fn a_file_keeps_its_life_and_its_rows() {
    use crate::store::Store;

    let folder = Folder::new();
    let store = Embedded::open(&folder.file()).await.unwrap();
    let era = store.check().await.unwrap();
    store.declare(&"us-east".parse().unwrap()).await.unwrap();
    assert_eq!(store.hello(&hello(1)).await.unwrap().standing, Standing::Current);
    drop(store);

    let store = Embedded::open(&folder.file()).await.unwrap();
    assert_eq!(store.check().await.unwrap(), era);
    assert_eq!(store.hello(&hello(2)).await.unwrap().standing, Standing::Unknown);
    let elsewhere = Embedded::in_memory().await.unwrap();
    assert_ne!(elsewhere.check().await.unwrap(), era);
}

#[tokio::test]
async fn a_file_of_the_first_version_is_brought_forward() {
    use crate::store::Store;
    use crate::store::conformance::{BROUGHT_FORWARD, FIRST};

    let folder = Folder::new();
    std::fs::create_dir_all(folder.file().parent().unwrap()).unwrap();
    let options = SqliteConnectOptions::new().filename(folder.file()).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    let first: Vec<_> = MIGRATOR.iter().filter(|migration| migration.version == 1).cloned().collect();
    Migrator::with_migrations(first).run(&mut connection).await.unwrap();
    connection.execute("insert into identity (only_one, era, clock_at) values (1, 'first', 7)").await.unwrap();
    for statement in FIRST {
        connection.execute(statement).await.unwrap();
    }
    sqlx::Connection::close(connection).await.unwrap();

    let store = Embedded::open(&folder.file()).await.unwrap();
    let mut tx = store.begin(Purpose::Read).await.unwrap();
    let rows: Vec<(i64,)> = tx.fetch(Query::new(BROUGHT_FORWARD)).await.unwrap();
    assert_eq!(rows, [(1,)]);
    tx.rollback().await.unwrap();
    let eras: Vec<Option<Era>> = store.regions().await.unwrap().into_iter().map(|row| row.era).collect();
    assert_eq!(eras, [None, Some(Era::new("first"))], "what has greeted has said everything");
}

#[tokio::test]
async fn a_commit_is_on_the_disk_when_it_is_acknowledged() {
    let folder = Folder::new();
    let store = Embedded::open(&folder.file()).await.unwrap();
    let mut tx = store.begin(Purpose::Read).await.unwrap();
    let full: Vec<(i64,)> = tx.fetch(Query::new("pragma synchronous")).await.unwrap();
    assert_eq!(full, [(2,)]);
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn the_clock_never_turns_back() {
    let folder = Folder::new();
    let future = 10 * system_clock().0;
    let store = Embedded::open(&folder.file()).await.unwrap();
    let mut tx = store.begin(Purpose::Write).await.unwrap();
    tx.execute(Query::new("update identity set clock_at = $1").with(future)).await.unwrap();
    tx.commit().await.unwrap();
    for store in [store, Embedded::open(&folder.file()).await.unwrap()] {
        let mut tx = store.begin(Purpose::Read).await.unwrap();
        assert_eq!(tx.clock().await.unwrap().now, Timestamp(future));
    }
}

#[tokio::test]
async fn a_dropped_transaction_is_undone_by_the_next() {
    let store = Embedded::in_memory().await.unwrap();
    let mut tx = store.begin(Purpose::Write).await.unwrap();
    tx.execute(Query::new("insert into regions (name, declared_at) values ('lost', 1)")).await.unwrap();
    drop(tx);
    let mut tx = store.begin(Purpose::Write).await.unwrap();
    let rows: Vec<(String,)> = tx.fetch(Query::new("select name from regions")).await.unwrap();
    assert!(rows.is_empty(), "{rows:?}");
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_newer_file_and_no_file_are_refused() {
    let folder = Folder::new();
    let store = Embedded::open(&folder.file()).await.unwrap();
    let mut tx = store.begin(Purpose::Write).await.unwrap();
    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
        values (999, 'from the future', true, x'00', 0)";
    tx.execute(Query::new(newer)).await.unwrap();
    tx.commit().await.unwrap();
    use crate::store::Store;
    assert!(matches!(store.check().await, Err(StoreError::Schema { found: 999, .. })));
    let refused = Embedded::open(&folder.file()).await.err();
    assert!(matches!(refused, Some(StoreError::Schema { found: 999, needed: 3 })), "{refused:?}");
    let refused = Embedded::open(&folder.file().join("below-a-file")).await.err();
    assert!(matches!(refused, Some(StoreError::Unavailable(_))), "{refused:?}");
}
