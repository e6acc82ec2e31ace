//! What somebody decides, and who is told of it later.

use muster_protocol::outcome::Verdict;
use muster_protocol::participants::IdSet;
use muster_protocol::report::Apart;

use super::super::{AuditFilter, AuditRow};
use super::owing::owed;
use super::*;

/// A keyed barrier whose participants have names.
fn with_names(name: &str) -> Spec {
    let mut spec = spec(name, keyed(4));
    let ids = Participants::Set(IdSet::parse(["[1-4]", "x"]).unwrap());
    spec.regions.values_mut().for_each(|slice| slice.participants = ids.clone());
    spec
}

fn waive(n: u64, region_name: &str, ids: Option<&[&str]>) -> Command {
    let participants = ids.map(|ids| IdSet::parse(ids).unwrap());
    Command::Waive { n, region: region(region_name), participants, by: by("they are gone") }
}

async fn audited(stores: &Stores, filter: &AuditFilter) -> Vec<AuditRow> {
    stores.other.audit(filter, None, 100).await.unwrap().items
}

pub(in crate::store) async fn waivers_are_kept_and_owed(stores: Stores) {
    let spec = with_names("etl/map");
    stores.define(&spec).await;
    let id = stores.open(&spec.name, "k").await;
    let tried = vec![(spec.name.clone(), waive(1, "us-east", Some(&["[1-2]"])))];
    let tried = stores.one.transact(tried, Mode::DryRun).await.unwrap().remove(0);
    assert!(matches!(tried.reply, Ok(Reply::Waived { changed: true, .. })));
    assert!(stores.row(&id).await.generation.waived.is_empty(), "it was only tried");

    let before = stores.row(&id).await.version;
    for ids in [&["[1-2]"], &["x"]] {
        let step = stores.act(&spec.name, waive(1, "us-east", Some(ids))).await;
        assert!(matches!(step.reply, Ok(Reply::Waived { changed: true, outcome: None })), "{step:?}");
    }
    let row = row(&stores.other, &id).await;
    assert!(row.version > before);
    let waiver = &row.generation.waived[&region("us-east")];
    let ids = waiver.participants.as_ref().unwrap();
    assert_eq!((waiver.revision, ids.to_string().as_str(), &waiver.by), (2, "[1-2],x", &by("they are gone")));

    // First the opening, then the waiver, until the region has applied it.
    assert_eq!(owed(&stores, Some("us-east"), 10).await, ["us-east opened@1"]);
    let with = |waiver, index| {
        let apart = Apart { waiver, ..Apart::default() };
        says(RegionReport { apart, ..report(&id, "us-east", index) })
    };
    for (waiver, rest) in [(0, 1), (1, 1), (2, 0)] {
        stores.one.transact(vec![with(waiver, 5 + u64::from(waiver))], Mode::Commit).await.unwrap();
        assert_eq!(owed(&stores, Some("us-east"), 10).await, vec!["us-east waived@1.2"; rest], "applied {waiver}");
    }
    let whole = stores.act(&spec.name, waive(1, "eu-west", None)).await;
    assert!(matches!(whole.reply, Ok(Reply::Waived { changed: true, .. })));
    stores.one.transact(vec![says(report(&id, "eu-west", 5))], Mode::Commit).await.unwrap();
    assert!(owed(&stores, Some("eu-west"), 10).await.is_empty(), "a region that is waived has nothing to do");
    let last = ["us-east", "ap-south"].map(|region| says(complete(&id, region, 9))).to_vec();
    stores.one.transact(last, Mode::Commit).await.unwrap();
    let decided = stores.row(&id).await.generation.decided.unwrap();
    let Verdict::Released(release) = decided.outcome.verdict else { panic!("it did not release") };
    assert_eq!((release.whole, release.waived.len()), (false, 2));
    let objects: Vec<String> =
        audited(&stores, &AuditFilter::default()).await.into_iter().map(|row| row.object).collect();
    assert_eq!(objects, ["eu-west", "us-east/[1-2],x", "us-east/[1-2]"], "the latest first, what was tried never");
}

pub(in crate::store) async fn a_retry_goes_on_from_the_round_that_broke(stores: Stores) {
    let (keys, single) = (spec("etl/keys", keyed(4)), spec("etl/once", Generations::Single));
    stores.define(&keys).await;
    let first = stores.open(&keys.name, "k").await;
    let once = stores.define(&single).await.remove(0);
    for id in [&first, &once] {
        let retry = |keep| Command::Retry { n: id.n, key: id.key.clone(), keep, by: by("again") };
        assert_eq!(refusal(stores.act(&id.barrier, retry(true)).await), Refusal::NotBroken);
        stores.act(&id.barrier, abort(id.n)).await;
        let step = stores.act(&id.barrier, retry(true)).await;
        let Ok(Reply::Opened { generation: next, created: true, .. }) = step.reply else { panic!("{step:?}") };
        assert_eq!((next.n, next.round), (2, 1));
        let again = act(&stores.other, &id.barrier, retry(true)).await;
        assert!(matches!(&again.reply, Ok(Reply::Opened { generation, created: false, .. }) if *generation == next));
        assert_eq!(row(&stores.other, &next).await.generation.carry, Some(1));
    }
}

pub(in crate::store) async fn the_audit_log_is_listed_by_whom_and_what(stores: Stores) {
    let specs = ["a/x", "a/y"].map(|name| spec(name, keyed(9)));
    for spec in &specs {
        stores.define(spec).await;
        for key in ["k", "l"] {
            let id = stores.open(&spec.name, key).await;
            stores.act(&spec.name, abort(id.n)).await;
            stores.act(&spec.name, abort(id.n)).await;
        }
    }
    let replaced = Spec { owner: "others".into(), ..specs[0].clone() };
    stores.act(&replaced.name, define(&replaced, Expect::Anything)).await;
    stores.act(&replaced.name, define(&replaced, Expect::Anything)).await;
    let all = audited(&stores, &AuditFilter::default()).await;
    let said = |row: &AuditRow| {
        let of = row.barrier.as_ref().map_or("", |name| name.as_str());
        format!("{} {of}@{}", row.action, row.generation.as_deref().unwrap_or(""))
    };
    let said: Vec<String> = all.iter().map(said).collect();
    assert_eq!(said, ["replace a/x@", "abort a/y@l", "abort a/y@k", "abort a/x@l", "abort a/x@k"]);
    assert_eq!((all[1].by.clone(), all[0].by.actor.clone()), (by("enough"), None));
    let since = all[0].at;
    for (filter, at_least) in [
        (AuditFilter { barrier: Some(specs[1].name.clone()), ..Default::default() }, 2),
        (AuditFilter { actor: Some("tests".into()), ..Default::default() }, 4),
        (AuditFilter { actor: Some("nobody".into()), ..Default::default() }, 0),
        (AuditFilter { since: Some(since.plus_ms(1)), ..Default::default() }, 0),
        (AuditFilter { since: Some(all[4].at), ..Default::default() }, 5),
    ] {
        assert_eq!(audited(&stores, &filter).await.len(), at_least, "{filter:?}");
    }
    let (mut paged, mut cursor) = (Vec::new(), None);
    loop {
        let page = stores.one.audit(&AuditFilter::default(), cursor, 2).await.unwrap();
        paged.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(paged, all);
}
