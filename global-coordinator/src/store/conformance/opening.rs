//! Openings.

use super::*;

pub(in crate::store) async fn a_single_barrier_is_open_once(stores: Stores) {
    let spec = spec("etl/once", Generations::Single);
    let opened = stores.define(&spec).await;
    let again = stores.act(&spec.name, Command::Open { key: None }).await;
    let expected = Reply::Opened { generation: opened[0].clone(), created: false, outcome: None };
    assert_eq!(again.reply, Ok(expected));
    let by_key = stores.act(&spec.name, Command::Open { key: Some(key("k")) }).await;
    assert_eq!(refusal(by_key), Refusal::NotKeyed);

    complete_all(&stores.one, &opened[0], 2).await;
    let after = stores.act(&spec.name, Command::Open { key: None }).await;
    assert_eq!(refusal(after), Refusal::NoSuchGeneration);
    let unknown = stores.act(&named("etl/never"), Command::Open { key: None }).await;
    assert_eq!(refusal(unknown), Refusal::NotDefined);
}

pub(in crate::store) async fn a_key_opens_once_and_no_more_than_may(stores: Stores) {
    let spec = spec("etl/keys", keyed(2));
    assert!(stores.define(&spec).await.is_empty());
    let without = stores.act(&spec.name, Command::Open { key: None }).await;
    assert_eq!(refusal(without), Refusal::KeyNeeded);

    let monday = stores.open(&spec.name, "monday").await;
    assert_eq!((monday.n, monday.round, monday.key.clone()), (1, 0, Some(key("monday"))));
    let again = act(&stores.other, &spec.name, Command::Open { key: monday.key.clone() }).await;
    let expected = Reply::Opened { generation: monday.clone(), created: false, outcome: None };
    assert_eq!(again.reply, Ok(expected));

    stores.open(&spec.name, "tuesday").await;
    let third = stores.act(&spec.name, Command::Open { key: Some(key("wednesday")) }).await;
    assert_eq!(refusal(third), Refusal::TooManyOpen { limit: 2 });

    complete_all(&stores.one, &monday, 2).await;
    let ended = stores.act(&spec.name, Command::Open { key: monday.key.clone() }).await;
    let Ok(Reply::Opened { created: false, outcome: Some(outcome), .. }) = ended.reply else {
        panic!("an ended key answers with its end: {ended:?}");
    };
    assert_eq!(Some(*outcome), stores.row(&monday).await.generation.decided.map(|decided| decided.outcome));
    assert_eq!(stores.open(&spec.name, "wednesday").await.n, 3);
}
