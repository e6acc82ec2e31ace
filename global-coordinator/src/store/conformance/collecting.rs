//! What is past its retention.

use muster_protocol::fact::{Closed, Fact};

use super::*;

async fn collect(stores: &Stores, barrier: &BarrierName) -> (usize, Vec<Closed>) {
    let step = stores.act(barrier, Command::Collect { tell: false }).await;
    let Ok(Reply::Collected { count }) = step.reply else { panic!("{:?}", step.reply) };
    let closed = step.facts.into_iter().filter_map(|fact| match fact {
        Fact::Closed(closed) => Some(closed),
        _ => None,
    });
    (count, closed.collect())
}

async fn collectable(stores: &Stores) -> Vec<String> {
    let names = stores.other.collectable(10).await.unwrap();
    names.iter().map(ToString::to_string).collect()
}

pub(in crate::store) async fn by_count_details_go_first_and_verdicts_later(stores: Stores) {
    let mut spec = Spec { retention_ms: 3_600_000, retention_generations: 1, ..spec("etl/loop", Generations::Cyclic) };
    let mut id = stores.define(&spec).await.remove(0);
    let untouched = Spec { name: named("etl/other"), ..spec.clone() };
    stores.define(&untouched).await;
    for n in 1..=14 {
        let digest = complete_all(&stores.one, &id, n + 1).await;
        let settle = REGIONS.map(|region| says(applied(&id, region, n + 20, digest))).to_vec();
        stores.one.transact(settle, Mode::Commit).await.unwrap();
        id = stores.row(&id).await.generation.decided.unwrap().next.unwrap().generation;
        if n == 2 {
            spec.owner = "others".into();
            stores.act(&spec.name, define(&spec, Expect::Anything)).await;
        }
    }
    // 15 gathers; of one before it the details are kept, of ten the verdicts.
    assert_eq!(collectable(&stores).await, ["etl/loop"]);
    let behind = &stores.behind;
    assert_eq!(behind.number("select count(*) from specs where name = 'loop'").await, 2);
    let (count, closed) = collect(&stores, &spec.name).await;
    assert_eq!((count, closed.len()), (13, 1));
    assert_eq!((closed[0].generation.n, closed[0].kept.as_slice()), (4, &[][..]));
    assert!(collectable(&stores).await.is_empty(), "the rows and the machine agree");
    assert_eq!(collect(&stores, &spec.name).await, (0, Vec::new()));
    let kept = "select count(*) from generations where name = 'loop'";
    assert_eq!(behind.number(kept).await, 11);
    assert_eq!(behind.number("select count(*) from generations where name = 'loop' and closed").await, 9);
    assert_eq!(behind.number("select count(distinct n) from reports where name = 'loop'").await, 1);
    assert_eq!(behind.number("select count(*) from specs where name = 'loop'").await, 1, "no generation has the first");
    let gone: GenerationId = GenerationId { n: 4, ..id.clone() };
    assert!(stores.one.generation(&spec.name, &named(&gone.label().to_string())).await.unwrap().is_none());
    let bare = stores.row(&GenerationId { n: 5, ..id.clone() }).await.generation;
    assert!(bare.closed && bare.settled && bare.reports.is_empty() && bare.decided.is_some());

    // A region that still speaks of one that is forgotten is told.
    let late = stores.one.transact(vec![says(report(&gone, "us-east", 99))], Mode::Commit).await.unwrap().remove(0);
    assert_eq!(refusal(late), Refusal::NoSuchGeneration);
    let told = stores.act(&spec.name, Command::Collect { tell: true }).await;
    assert!(matches!(&told.facts[..], [Fact::Closed(closed)] if closed.generation.n == 4), "{told:?}");
    assert_eq!(behind.number(kept).await, 11);
}

/// A region that restarts may still speak of what is closed, and the same batch
/// may close it.
pub(in crate::store) async fn what_comes_with_the_collection_stays(stores: Stores) {
    let spec = Spec { retention_ms: 3_600_000, retention_generations: 1, ..spec("etl/keys", keyed(9)) };
    stores.define(&spec).await;
    let ids = [stores.open(&spec.name, "a").await, stores.open(&spec.name, "b").await];
    for id in &ids {
        stores.one.transact(vec![says(report(id, "us-east", 50))], Mode::Commit).await.unwrap();
        stores.act(&spec.name, abort(id.n)).await;
    }
    stores.open(&spec.name, "c").await;
    let late = |region| says(report(&ids[0], region, 40));
    let batch = vec![late("eu-west"), (spec.name.clone(), Command::Collect { tell: false }), late("us-east")];
    let steps = stores.one.transact(batch, Mode::Commit).await.unwrap();
    assert_eq!(steps[1].reply, Ok(Reply::Collected { count: 1 }));
    let row = stores.row(&ids[0]).await.generation;
    let spoke: Vec<(&str, u64)> = row.reports.iter().map(|(region, one)| (region.as_str(), one.stamp.index)).collect();
    assert_eq!((row.closed, spoke), (true, vec![("us-east", 40)]));
}

pub(in crate::store) async fn by_time_nothing_stays_for_ever(stores: Stores) {
    let spec = Spec { retention_ms: 1, ..spec("etl/keys", keyed(9)) };
    stores.define(&spec).await;
    let open = stores.open(&spec.name, "open").await;
    let ended = stores.open(&spec.name, "ended").await;
    stores.one.transact(vec![says(report(&ended, "us-east", 5))], Mode::Commit).await.unwrap();
    let waive = Command::Waive { n: ended.n, region: region("us-east"), participants: None, by: by("gone") };
    stores.act(&spec.name, waive).await;
    stores.act(&spec.name, abort(ended.n)).await;
    soon("the verdict to be past its retention", async {
        while stores.one.generation(&spec.name, &named("ended")).await.unwrap().is_some() {
            if !collectable(&stores).await.is_empty() {
                collect(&stores, &spec.name).await;
            }
        }
    })
    .await;
    assert_eq!(stores.behind.number("select count(*) from waivers").await, 0);
    assert_eq!(stores.row(&open).await.generation.decided, None, "what gathers is never past anything");
    assert!(collectable(&stores).await.is_empty());
    let told = stores.act(&spec.name, Command::Collect { tell: true }).await;
    let [Fact::Closed(closed)] = &told.facts[..] else { panic!("{told:?}") };
    assert_eq!((closed.generation.n, closed.kept.as_slice()), (2, &[1][..]));
}

pub(in crate::store) async fn much_is_collected_in_parts(stores: Stores) {
    let spec = Spec { retention_generations: 1, retention_ms: 3_600_000, ..spec("etl/keys", keyed(1_000)) };
    stores.define(&spec).await;
    let open = |at| (spec.name.clone(), Command::Open { key: Some(key(&format!("k{at}"))) });
    stores.one.transact((0..620).map(open).collect(), Mode::Commit).await.unwrap();
    let abort = |n| (spec.name.clone(), abort(n));
    stores.one.transact((1..=620).map(abort).collect(), Mode::Commit).await.unwrap();
    let counts = [collect(&stores, &spec.name).await.0, collect(&stores, &spec.name).await.0];
    assert_eq!(counts, [500, 118], "the oldest first, and no more than 500 at once");
    assert_eq!(stores.behind.number("select count(*) from generations").await, 11);
}
