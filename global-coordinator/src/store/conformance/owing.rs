//! What is not answered, and what can't be read.

use muster_bus::{Place, Poison};
use muster_protocol::fact::Fact;

use super::*;

/// What is owed, as "region kind@n", read in pages of a size.
pub(super) async fn owed(stores: &Stores, of: Option<&str>, limit: u32) -> Vec<String> {
    let of = of.map(region);
    let mut owed = Vec::new();
    let mut cursor = None;
    loop {
        let page = stores.other.unanswered(of.as_ref(), cursor, limit).await.unwrap();
        assert!(page.items.len() <= limit as usize);
        owed.extend(page.items.iter().map(|(region, fact)| match fact {
            Fact::Opened(opened) => {
                assert_eq!(&opened.region, region);
                assert!(opened.slice.is_some(), "a repeat carries the slice");
                format!("{region} opened@{}", opened.generation.n)
            }
            Fact::Decided(decided) => format!("{region} decided@{}", decided.outcome.generation.n),
            Fact::Waived(waived) => format!("{region} waived@{}.{}", waived.generation.n, waived.revision),
            Fact::Closed(_) => panic!("nothing is closed"),
        }));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break owed,
        }
    }
}

pub(in crate::store) async fn unanswered_is_exactly_what_is_owed(stores: Stores) {
    let spec = spec("etl/loop", Generations::Cyclic);
    let id = stores.define(&spec).await.remove(0);
    let regions = |what: &str| REGIONS.map(|region| format!("{region} {what}")).to_vec();
    assert_eq!(owed(&stores, None, 10).await, regions("opened@1"));
    assert_eq!(owed(&stores, Some("eu-west"), 10).await, ["eu-west opened@1"]);
    assert!(owed(&stores, Some("atlantis"), 10).await.is_empty());

    stores.one.transact(vec![says(report(&id, "eu-west", 2))], Mode::Commit).await.unwrap();
    assert_eq!(owed(&stores, None, 10).await, ["ap-south opened@1", "us-east opened@1"]);

    let digest = complete_all(&stores.one, &id, 3).await;
    let mut expected = regions("decided@1");
    expected.extend(regions("opened@2"));
    for limit in [1, 2, 4, 10] {
        let mut found = owed(&stores, None, limit).await;
        // Both may have been opened in one millisecond; then the number orders.
        found.sort_by_key(|owed| owed.ends_with('2'));
        assert_eq!(found, expected, "in pages of {limit}");
    }

    let wrong = applied(&id, "us-east", 4, Digest([1; 32]));
    let right = applied(&id, "ap-south", 4, digest);
    stores.one.transact(vec![says(wrong), says(right)], Mode::Commit).await.unwrap();
    let rest = owed(&stores, None, 10).await;
    assert_eq!(rest[..2], ["eu-west decided@1", "us-east decided@1"]);
    let settle = ["eu-west", "us-east"].map(|region| says(applied(&id, region, 5, digest))).to_vec();
    stores.one.transact(settle, Mode::Commit).await.unwrap();
    assert_eq!(owed(&stores, None, 10).await, regions("opened@2"));
    let nonsense = stores.one.unanswered(None, Some("nonsense".into()), 10).await.unwrap();
    assert_eq!(nonsense.items.len(), 3, "a cursor of nobody is the beginning");
}

pub(in crate::store) async fn unreadable_records_are_kept_once(stores: Stores) {
    let record = |offset: i64, error: &str| {
        let place = Place { topic: "muster.region.us-east".into(), partition: 3, offset };
        (place, Poison { bytes: vec![0, 255, 7], error: error.into() })
    };
    stores.one.set_aside(&[record(7, "not JSON: \0"), record(8, "too long"), record(9, "odd")]).await.unwrap();
    stores.other.set_aside(&[record(8, "again"), record(10, "new")]).await.unwrap();
    stores.one.set_aside(&[]).await.unwrap();
    let behind = &stores.behind;
    assert_eq!(behind.number("select count(*) from poison where length(bytes) = 3").await, 4);
    assert_eq!(behind.number("select count(*) from poison where error = 'too long' and position = 8").await, 1);
}
