//! The guards below the lock: what a defect above them must not overwrite.

use muster_protocol::global::{Generation, Waiver};
use muster_protocol::outcome::{Outcome, Verdict};

use super::*;

async fn barrier(stores: &Stores, id: &GenerationId) -> Barrier {
    stores.one.barrier(&id.barrier).await.unwrap().unwrap()
}

pub(in crate::store) async fn an_outcome_is_written_once(stores: Stores) {
    let id = stores.define(&spec("etl/map", Generations::Single)).await.remove(0);
    let first = complete_all(&stores.one, &id, 2).await;
    let mut second = stores.row(&id).await.generation.decided.unwrap();
    let Verdict::Released(release) = &mut second.outcome.verdict else { panic!("it was not released") };
    release.whole = false;
    let change = Change::Decided { n: id.n, decided: Box::new(second) };
    let refused = stores.behind.force(barrier(&stores, &id).await, change).await;
    assert!(matches!(refused, Err(StoreError::Defect(_))), "{refused:?}");
    let outcome: Outcome = stores.row(&id).await.generation.decided.unwrap().outcome;
    assert_eq!(outcome.digest(), first);
}

pub(in crate::store) async fn an_older_report_replaces_nothing(stores: Stores) {
    let id = stores.define(&spec("etl/map", Generations::Single)).await.remove(0);
    stores.one.transact(vec![says(report(&id, "us-east", 5))], Mode::Commit).await.unwrap();
    let force = async |report: RegionReport| {
        let change = Change::Reported { n: id.n, report: Box::new(report) };
        stores.behind.force(barrier(&stores, &id).await, change).await
    };
    let refused = force(report(&id, "us-east", 4)).await;
    assert!(matches!(refused, Err(StoreError::Defect(_))), "{refused:?}");
    // The machine says which of two words at one index counts.
    force(complete(&id, "us-east", 5)).await.unwrap();
    assert!(stores.row(&id).await.generation.reports[&region("us-east")].complete);
    assert_eq!(stores.row(&id).await.generation.reports[&region("us-east")].stamp.index, 5);

    let another = Stamp { history: history(2), shard: 0, index: 1 };
    force(RegionReport { stamp: another, ..report(&id, "us-east", 0) }).await.expect("another life begins anew");
    assert_eq!(stores.row(&id).await.generation.reports[&region("us-east")].stamp, another);
}

pub(in crate::store) async fn a_number_is_opened_once(stores: Stores) {
    let id = stores.define(&spec("etl/map", Generations::Single)).await.remove(0);
    let first = stores.row(&id).await;
    let again = Generation { opened_at: Timestamp(1), ..first.generation.clone() };
    let refused = stores.behind.force(barrier(&stores, &id).await, Change::Opened(Box::new(again))).await;
    assert!(matches!(refused, Err(StoreError::Defect(_))), "{refused:?}");
    assert_eq!(stores.row(&id).await.generation, first.generation);
}

pub(in crate::store) async fn an_older_waiver_replaces_nothing(stores: Stores) {
    let id = stores.define(&spec("etl/map", Generations::Single)).await.remove(0);
    let force = async |revision, reason: &str| {
        let waiver = Waiver { revision, participants: None, by: by(reason) };
        let change = Change::Waived { n: id.n, region: region("us-east"), waiver };
        stores.behind.force(barrier(&stores, &id).await, change).await
    };
    force(2, "the second").await.unwrap();
    for revision in [1, 2] {
        let refused = force(revision, "late").await;
        assert!(matches!(refused, Err(StoreError::Defect(_))), "{refused:?}");
    }
    assert_eq!(stores.row(&id).await.generation.waived[&region("us-east")].by, by("the second"));
    force(3, "the third").await.unwrap();
}

pub(in crate::store) async fn numbers_never_fall(stores: Stores) {
    let id = stores.define(&spec("etl/loop", Generations::Cyclic)).await.remove(0);
    complete_all(&stores.one, &id, 2).await;
    let now = barrier(&stores, &id).await;
    assert_eq!(now.next_n, 3);
    for wrong in [Barrier { next_n: 2, ..now.clone() }, Barrier { revision: 0, ..now.clone() }] {
        let refused = stores.behind.force(wrong, Change::Deleted).await;
        assert!(matches!(refused, Err(StoreError::Defect(_))), "{refused:?}");
    }
    assert_eq!(barrier(&stores, &id).await, now);
}
