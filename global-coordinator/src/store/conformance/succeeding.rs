//! Barriers that come after others.

use muster_protocol::generation::State;

use super::*;

async fn orphaned(stores: &Stores) -> Vec<(String, String)> {
    let due = stores.other.due(10).await.unwrap();
    let said = |(name, n, before): &(BarrierName, u64, GenerationId)| (format!("{name}@{n}"), before.to_string());
    due.orphaned.iter().map(said).collect()
}

fn pair(one: &str, other: &str) -> (String, String) {
    (one.into(), other.into())
}

async fn retry(stores: &Stores, id: &GenerationId) -> GenerationId {
    let retry = Command::Retry { n: id.n, key: id.key.clone(), keep: true, by: by("again") };
    match stores.act(&id.barrier, retry).await.reply {
        Ok(Reply::Opened { generation, created: true, .. }) => generation,
        other => panic!("{other:?}"),
    }
}

pub(in crate::store) async fn a_key_goes_down_with_the_latest_round_of_its_predecessor(stores: Stores) {
    let map = spec("etl/map", keyed(9));
    let reduce = Spec { after: Some(map.name.clone()), ..spec("etl/reduce", keyed(9)) };
    stores.define(&map).await;
    stores.define(&reduce).await;
    // Numbers differ: the key is what they share.
    stores.open(&map.name, "other").await;
    let first = stores.open(&map.name, "k").await;
    let after = stores.open(&reduce.name, "k").await;
    stores.open(&reduce.name, "alone").await;
    assert!(orphaned(&stores).await.is_empty());
    stores.act(&map.name, abort(first.n)).await;
    assert_eq!(orphaned(&stores).await, [pair("etl/reduce@1", "etl/map@k")]);

    // Retried in time, the job goes on.
    let second = retry(&stores, &first).await;
    assert!(orphaned(&stores).await.is_empty());
    stores.act(&map.name, abort(second.n)).await;
    let due = stores.one.due(10).await.unwrap().orphaned;
    assert_eq!(due, [(reduce.name.clone(), after.n, second.clone())]);
    // The definition it was opened with counts.
    let free = Spec { after: None, ..reduce.clone() };
    stores.act(&free.name, define(&free, Expect::Anything)).await;
    assert_eq!(orphaned(&stores).await, [pair("etl/reduce@1", "etl/map@k~1")]);
    stores.act(&reduce.name, Command::PredecessorBroke { n: after.n, predecessor: second }).await;
    assert_eq!(stores.row(&after).await.generation.state(), State::Broken);
    assert!(orphaned(&stores).await.is_empty());
}

pub(in crate::store) async fn a_number_goes_down_with_the_same_number(stores: Stores) {
    let map = spec("etl/map", Generations::Cyclic);
    let reduce = Spec { after: Some(map.name.clone()), ..spec("etl/reduce", Generations::Cyclic) };
    let first = stores.define(&map).await.remove(0);
    stores.define(&reduce).await;
    complete_all(&stores.one, &first, 2).await;
    assert!(orphaned(&stores).await.is_empty(), "a release is no reason");
    stores.act(&map.name, abort(2)).await;
    assert!(orphaned(&stores).await.is_empty(), "the second has not begun there");
    stores.act(&reduce.name, abort(1)).await;
    assert_eq!(orphaned(&stores).await, [pair("etl/reduce@2", "etl/map@2")]);
}
