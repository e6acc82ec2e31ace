//! Lists and look-ups.

use muster_protocol::generation::State;

use super::super::GenerationFilter;
use super::*;

async fn names(stores: &Stores, prefix: &str, limit: u32) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let page = stores.other.barriers(Some(prefix), cursor, limit).await.unwrap();
        names.extend(page.items.iter().map(|barrier| barrier.name.to_string()));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break names,
        }
    }
}

pub(in crate::store) async fn barriers_are_listed_by_exact_prefix_in_stable_pages(stores: Stores) {
    for name in ["a/b", "a/bc", "a/b_c", "a0/b", "a-b/c", "a_b/c", "b/a"] {
        stores.define(&spec(name, keyed(1))).await;
    }
    for (prefix, expected) in [
        ("", vec!["a/b", "a/b_c", "a/bc", "a-b/c", "a0/b", "a_b/c", "b/a"]),
        ("a", vec!["a/b", "a/b_c", "a/bc", "a-b/c", "a0/b", "a_b/c"]),
        ("a/", vec!["a/b", "a/b_c", "a/bc"]),
        ("a/b", vec!["a/b", "a/b_c", "a/bc"]),
        ("a/b_", vec!["a/b_c"]),
        ("a_", vec!["a_b/c"]),
        ("a%", vec![]),
        ("a/b/c", vec![]),
        ("é", vec![]),
        ("a\0", vec![]),
        ("c", vec![]),
    ] {
        for limit in [1, 2, 100] {
            assert_eq!(names(&stores, prefix, limit).await, expected, "{prefix:?} in pages of {limit}");
        }
    }
    let first = stores.one.barriers(None, None, 2).await.unwrap();
    stores.define(&spec("a/a", keyed(1))).await;
    stores.define(&spec("b/b", keyed(1))).await;
    let rest = stores.one.barriers(None, first.next, 100).await.unwrap();
    let rest: Vec<&str> = rest.items.iter().map(|barrier| barrier.name.as_str()).collect();
    assert_eq!(rest, ["a/bc", "a-b/c", "a0/b", "a_b/c", "b/a", "b/b"], "nothing is repeated, nothing is left out");
    let whole = stores.one.barriers(Some("b/a"), None, 0).await.unwrap().items.remove(0);
    assert_eq!(whole.spec(), Some(&spec("b/a", keyed(1))));
}

async fn list(store: &Arc<dyn Store>, filter: &GenerationFilter, limit: u32) -> Vec<GenerationId> {
    let mut ids = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.generations(filter, cursor, limit).await.unwrap();
        ids.extend(page.items.iter().map(|row| row.generation.id.clone()));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break ids,
        }
    }
}

pub(in crate::store) async fn generations_are_listed_newest_first_in_stable_pages(stores: Stores) {
    let names = ["x/one", "x/two"].map(|name| spec(name, keyed(100)));
    for spec in &names {
        stores.define(spec).await;
    }
    let mut ids = Vec::new();
    for round in 0..6 {
        for spec in &names {
            ids.push(stores.open(&spec.name, &format!("k{round}")).await);
        }
    }
    let everything = GenerationFilter::default();
    let whole = list(&stores.other, &everything, 100).await;
    assert_eq!(whole.len(), ids.len());
    let rows = stores.one.generations(&everything, None, 100).await.unwrap().items;
    assert!(rows.is_sorted_by(|a, b| a.generation.opened_at >= b.generation.opened_at), "the newest first");
    for limit in [1, 5] {
        assert_eq!(list(&stores.other, &everything, limit).await, whole);
    }
    let of_one = GenerationFilter { barrier: Some(names[0].name.clone()), ..everything.clone() };
    let numbers: Vec<u64> = list(&stores.other, &of_one, 4).await.iter().map(|id| id.n).collect();
    assert_eq!(numbers, [6, 5, 4, 3, 2, 1]);

    let first = stores.one.generations(&everything, None, 5).await.unwrap();
    stores.open(&names[0].name, "later").await;
    let rest = stores.one.generations(&everything, first.next, 100).await.unwrap();
    assert!(rest.next.is_none());
    let rest: Vec<GenerationId> = rest.items.into_iter().map(|row| row.generation.id).collect();
    assert_eq!(rest, whole[5..]);
}

pub(in crate::store) async fn generations_are_filtered(stores: Stores) {
    let mut labelled = spec_of("a/labelled", keyed(9), &["us-east", "eu-west"]);
    labelled.labels.insert("app".into(), "etl".into());
    let plain = spec("a0/plain", keyed(9));
    for spec in [&labelled, &plain] {
        stores.define(spec).await;
    }
    let gathering = stores.open(&labelled.name, "g").await;
    let [releasing, released, broken] = {
        let open = |key| stores.open(&plain.name, key);
        [open("releasing").await, open("released").await, open("broken").await]
    };
    complete_all(&stores.one, &releasing, 2).await;
    let digest = complete_all(&stores.one, &released, 3).await;
    let settle = REGIONS.map(|region| says(applied(&released, region, 9, digest))).to_vec();
    stores.one.transact(settle, Mode::Commit).await.unwrap();
    stores.act(&plain.name, abort(broken.n)).await;

    let of = |states: &[State]| GenerationFilter { states: states.to_vec(), ..Default::default() };
    let ended = [&broken, &released, &releasing];
    let label =
        |key: &str, value: &str| GenerationFilter { label: Some((key.into(), value.into())), ..Default::default() };
    let with_region = |name| GenerationFilter { region: Some(region(name)), ..Default::default() };
    let prefix = |text: &str| GenerationFilter { prefix: Some(text.into()), ..Default::default() };
    for (filter, expected) in [
        (of(&[State::Gathering]), vec![&gathering]),
        (of(&[State::Releasing]), vec![&releasing]),
        (of(&[State::Released]), vec![&released]),
        (of(&[State::Broken]), vec![&broken]),
        (of(&[State::Releasing, State::Broken]), vec![&broken, &releasing]),
        (label("app", "etl"), vec![&gathering]),
        (label("app", "web"), vec![]),
        (with_region("eu-west"), vec![&broken, &released, &releasing, &gathering]),
        (with_region("ap-south"), ended.to_vec()),
        (prefix("a/"), vec![&gathering]),
        (prefix("a0"), ended.to_vec()),
        (GenerationFilter { states: vec![State::Broken], ..prefix("a/") }, vec![]),
        (GenerationFilter { barrier: Some(plain.name.clone()), ..of(&[State::Released]) }, vec![&released]),
    ] {
        let mut found = list(&stores.other, &filter, 2).await;
        // Opened in one millisecond, two barriers' are in the order of names.
        found.sort_by_key(|id| std::cmp::Reverse((id.barrier.clone(), id.n)));
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

pub(in crate::store) async fn generations_are_found_by_number_key_and_round(stores: Stores) {
    let keys = spec("etl/keys", keyed(9));
    stores.define(&keys).await;
    for key in ["monday", "7", "tuesday"] {
        stores.open(&keys.name, key).await;
    }
    let cycle = spec("etl/loop", Generations::Cyclic);
    let first = stores.define(&cycle).await.remove(0);
    complete_all(&stores.one, &first, 2).await;
    for (name, reference, n) in [
        (&keys.name, "monday", Some(1)),
        (&keys.name, "monday~0", Some(1)),
        (&keys.name, "monday~1", None),
        (&keys.name, "7", Some(2)),
        (&keys.name, "1", None),
        (&keys.name, "latest", Some(3)),
        (&keys.name, "sunday", None),
        (&cycle.name, "1", Some(1)),
        (&cycle.name, "2", Some(2)),
        (&cycle.name, "3", None),
        (&cycle.name, "latest", Some(2)),
        (&cycle.name, "monday", None),
        (&named("etl/never"), "latest", None),
    ] {
        let found = stores.other.generation(name, &named(reference)).await.unwrap();
        assert_eq!(found.map(|row| row.generation.id.n), n, "{name}@{reference}");
    }
}
