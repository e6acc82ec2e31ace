//! The conformance suite, in memory and on a file, and what only files do.

use std::path::PathBuf;

use super::*;
use crate::log::conformance::{Harness, Member, follow_to, new_registration};

#[async_trait]
impl Harness for Embedded {
    async fn open(&self) -> Arc<dyn RegionLog> {
        Arc::new(self.clone())
    }

    async fn expel(&self, writer: Writer) {
        assert!(Embedded::expel(self, writer).await);
    }

    async fn lose_head(&self) {
        let mut store = self.core.store.lock().await;
        sqlx::query("delete from head").execute(&mut store.db).await.unwrap();
    }

    async fn entries_kept(&self) -> u64 {
        let mut store = self.core.store.lock().await;
        let count: i64 = sqlx::query_scalar("select count(*) from entry").fetch_one(&mut store.db).await.unwrap();
        count.unsigned_abs()
    }
}

fn region() -> RegionName {
    "us-east".parse().unwrap()
}

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("muster-log-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    async fn open(&self) -> Result<Embedded, LogError> {
        Embedded::open(&region(), &self.0.join("region-us-east.db")).await
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A log on a file, and the folder it is in.
struct OnFile(Embedded, #[expect(dead_code, reason = "kept until the log is closed")] Folder);

impl OnFile {
    async fn new() -> Self {
        let folder = Folder::new();
        Self(folder.open().await.unwrap(), folder)
    }
}

#[async_trait]
impl Harness for OnFile {
    async fn open(&self) -> Arc<dyn RegionLog> {
        self.0.open().await
    }

    async fn expel(&self, writer: Writer) {
        Harness::expel(&self.0, writer).await;
    }

    async fn lose_head(&self) {
        self.0.lose_head().await;
    }

    async fn entries_kept(&self) -> u64 {
        self.0.entries_kept().await
    }
}

mod in_memory {
    use super::*;

    crate::region_log_conformance!(Embedded::in_memory(&region()).await.unwrap());
}

mod on_file {
    use super::*;

    crate::region_log_conformance!(OnFile::new().await);
}

#[tokio::test]
async fn a_file_keeps_the_log_and_forgets_who_was_registered() {
    let folder = Folder::new();
    let log = folder.open().await.unwrap();
    let identity = log.identity().await.unwrap();
    let mut member = Member::join(&log).await;
    member.append_many(6).await;
    let (writer, epoch) = (member.writer(), log.campaign(member.writer()).await.unwrap().unwrap());
    log.install_snapshot(epoch, 4, b"at 4", &[(writer, 4)]).await.unwrap();
    let before = log.catch_up(0).await.unwrap();
    drop((member, log));

    let log = folder.open().await.unwrap();
    assert_eq!(log.identity().await.unwrap(), identity);
    assert_eq!(log.catch_up(0).await.unwrap(), before);
    assert_eq!(log.registrations().await.unwrap(), []);
    assert!(matches!(log.append(writer, 7, b"late").await, Appended::WriterGone));
    assert_eq!(log.install_snapshot(epoch, 6, b"at 6", &[]).await.unwrap(), Installed::No);
    let mut member = Member::join(&log).await;
    assert!(member.writer() > writer, "no writer comes twice");
    assert!(log.campaign(member.writer()).await.unwrap().unwrap() > epoch, "no epoch comes twice");
    let mut follow = log.follow(before.position).await.unwrap();
    let entry = member.append(b"seven").await;
    assert_eq!(follow_to(&mut follow, 7).await, [entry]);
}

#[tokio::test]
async fn an_append_is_on_the_disk_when_it_is_acknowledged() {
    let log = OnFile::new().await;
    let mut store = log.0.core.store.lock().await;
    let full: i64 = sqlx::query_scalar("pragma synchronous").fetch_one(&mut store.db).await.unwrap();
    assert_eq!(full, 2);
}

#[tokio::test]
async fn a_lost_entry_is_found_instead_of_left_out() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let mut member = Member::join(&log).await;
    member.append_many(9).await;
    let mut store = log.core.store.lock().await;
    sqlx::query("delete from entry where log_index = 4").execute(&mut store.db).await.unwrap();
    drop(store);
    let error = log.catch_up(0).await.unwrap_err();
    assert!(error.to_string().contains("8 entries lie between index 0 and its head 9"), "{error}");
    assert_eq!(log.catch_up(4).await.unwrap().entries.len(), 5, "who has it misses nothing");
}

#[tokio::test]
async fn a_file_that_is_open_is_refused() {
    let folder = Folder::new();
    let log = folder.open().await.unwrap();
    let error = folder.open().await.err().unwrap().to_string();
    assert!(error.contains("region-us-east.db is open in another process"), "{error}");
    drop(log);
    folder.open().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_log_is_refused_and_kept() {
    let folder = Folder::new();
    let path = folder.0.join("region-us-east.db");
    std::fs::write(&path, "these are somebody's notes, and no database at all").unwrap();
    let error = folder.open().await.err().unwrap().to_string();
    assert!(error.contains("region-us-east.db: "), "{error}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("these are somebody's notes"));
}

#[tokio::test]
async fn a_dropped_registration_is_over() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let registered = log.register(new_registration("agent")).await.unwrap();
    assert_eq!(log.registrations().await.unwrap().len(), 1);
    drop(registered);
    assert_eq!(log.registrations().await.unwrap(), []);
}

#[tokio::test]
async fn a_follower_behind_a_snapshot_ends() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let mut member = Member::join(&log).await;
    let position = log.catch_up(0).await.unwrap().position;
    member.append_many(3).await;
    let epoch = log.campaign(member.writer()).await.unwrap().unwrap();
    log.install_snapshot(epoch, 2, b"at 2", &[]).await.unwrap();
    let mut follow = log.follow(position).await.unwrap();
    let error = follow.next().await.unwrap_err();
    assert!(matches!(error, LogError::Unavailable { what: "follow the log", .. }), "{error:?}");
}

#[tokio::test]
async fn an_append_whose_caller_went_away_is_whole_or_not_there() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let member = Member::join(&log).await;
    for seq in 1..=400 {
        let mut append = log.append(member.writer(), seq, b"x");
        // Polled a few times and dropped in the middle, mostly.
        for _ in 0..seq % 40 {
            if futures::FutureExt::now_or_never(&mut append).is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(append);
        let head = log.head().await.unwrap();
        assert_eq!(*log.core.newest.borrow(), head, "whoever follows is told of what landed");
    }
    let again = log.append(member.writer(), 401, b"last").await;
    let caught_up = log.catch_up(0).await.unwrap();
    assert!(matches!(again, Appended::Landed { index } if index == caught_up.head), "{again:?}");
}
