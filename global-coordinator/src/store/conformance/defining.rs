//! Definitions.

use muster_protocol::outcome::{BreakReason, Verdict};

use super::*;

pub(in crate::store) async fn a_definition_is_new_equal_in_conflict_or_replaced(stores: Stores) {
    let first = spec("etl/map", Generations::Single);
    let step = stores.act(&first.name, define(&first, Expect::NewOrEqual)).await;
    assert_eq!(step.reply, Ok(Reply::Defined { revision: 1, created: true, changed: true }));
    assert_eq!(step.facts.len(), REGIONS.len(), "each region is told of the opening");

    let again = act(&stores.other, &first.name, define(&first, Expect::NewOrEqual)).await;
    assert_eq!(again.reply, Ok(Reply::Defined { revision: 1, created: false, changed: false }));
    assert!(again.changes.is_empty());

    let second = Spec { owner: "others".into(), ..first.clone() };
    let conflict = stores.act(&first.name, define(&second, Expect::NewOrEqual)).await;
    assert_eq!(refusal(conflict), Refusal::Conflict { current: Box::new(first.clone()), revision: 1 });
    let precondition = stores.act(&first.name, define(&second, Expect::Revision(7))).await;
    assert_eq!(refusal(precondition), Refusal::Precondition { revision: 1 });

    let replaced = stores.act(&first.name, define(&second, Expect::Revision(1))).await;
    assert_eq!(replaced.reply, Ok(Reply::Defined { revision: 2, created: false, changed: true }));
    let replaced = stores.act(&first.name, define(&first, Expect::Anything)).await;
    assert_eq!(replaced.reply, Ok(Reply::Defined { revision: 3, created: false, changed: true }));
    stores.act(&first.name, define(&second, Expect::Anything)).await;

    for store in stores.both() {
        let barrier = store.barrier(&first.name).await.unwrap().unwrap();
        assert_eq!(barrier.spec(), Some(&second));
        assert_eq!((barrier.revision, barrier.next_n, barrier.gathering), (4, 2, 1));
        let row = store.generation(&first.name, &named("1")).await.unwrap().unwrap();
        assert_eq!(row.spec, first, "what is open keeps the spec that it was opened with");
    }
}

pub(in crate::store) async fn numbers_go_on_across_deletion(stores: Stores) {
    let spec = spec("etl/loop", Generations::Cyclic);
    let opened = stores.define(&spec).await;
    assert_eq!(opened[0].n, 1);
    let delete = |force| Command::Delete { force, by: by("no longer needed") };

    let refused = stores.act(&spec.name, delete(false)).await;
    assert_eq!(refusal(refused), Refusal::StillGathering { open: opened.clone() });
    let deleted = stores.act(&spec.name, delete(true)).await;
    assert_eq!(deleted.reply, Ok(Reply::Deleted { changed: true, broken: opened.clone() }));
    let again = stores.act(&spec.name, delete(true)).await;
    assert_eq!(again.reply, Ok(Reply::Deleted { changed: false, broken: Vec::new() }));

    let barrier = stores.other.barrier(&spec.name).await.unwrap().expect("a deleted name is known");
    assert!(barrier.deleted && barrier.spec().is_none() && barrier.gathering == 0);
    assert!(stores.other.barriers(None, None, 10).await.unwrap().items.is_empty());
    let ended = stores.row(&opened[0]).await.generation.decided.unwrap().outcome.verdict;
    assert!(matches!(ended, Verdict::Broken(cause) if cause.reason == BreakReason::Deleted));

    let redefined = stores.act(&spec.name, define(&spec, Expect::NewOrEqual)).await;
    assert_eq!(redefined.reply, Ok(Reply::Defined { revision: 2, created: true, changed: true }));
    assert_eq!(super::opened(&redefined)[0].n, 2, "numbers never restart");
    assert_eq!(stores.one.barriers(None, None, 10).await.unwrap().items.len(), 1);
}

pub(in crate::store) async fn refused_and_tried_definitions_leave_nothing(stores: Stores) {
    let good = spec("etl/good", Generations::Single);
    let bad = spec_of("etl/bad", Generations::Single, &["us-east", "atlantis"]);
    let rows = async || {
        let tables = "select (select count(*) from barriers) + (select count(*) from specs)
            + (select count(*) from generations) + (select count(*) from reports)";
        stores.behind.number(tables).await
    };

    let refused = stores.act(&bad.name, define(&bad, Expect::NewOrEqual)).await;
    assert!(matches!(refusal(refused), Refusal::UnknownRegion { region, .. } if region.as_str() == "atlantis"));
    let wrong = stores.act(&good.name, define(&good, Expect::Revision(3))).await;
    assert_eq!(refusal(wrong), Refusal::Precondition { revision: 0 });
    let batch = vec![(good.name.clone(), define(&good, Expect::NewOrEqual))];
    let tried = stores.one.transact(batch.clone(), Mode::DryRun).await.unwrap();
    assert_eq!(tried[0].reply, Ok(Reply::Defined { revision: 1, created: true, changed: true }));
    assert_eq!(rows().await, 0);
    assert_eq!(stores.one.barrier(&good.name).await.unwrap(), None);

    let both = vec![batch[0].clone(), (bad.name.clone(), define(&bad, Expect::NewOrEqual))];
    let steps = stores.one.transact(both, Mode::Commit).await.unwrap();
    assert!(steps[0].reply.is_ok() && steps[1].reply.is_err());
    assert_eq!(stores.behind.number("select count(*) from barriers").await, 1);

    let id = opened(&steps[0]).remove(0);
    let before = rows().await;
    let reports = REGIONS.map(|region| says(complete(&id, region, 9))).to_vec();
    let tried = stores.one.transact(reports, Mode::DryRun).await.unwrap();
    assert_eq!(tried.iter().flat_map(decided).count(), 1, "it says what would be decided");
    assert_eq!(rows().await, before);
    let row = stores.row(&id).await;
    assert!(row.generation.decided.is_none() && row.generation.reports.is_empty() && row.version == 1);
    assert_eq!(stores.behind.number("select max(highest_index) from histories").await, 1);
}
