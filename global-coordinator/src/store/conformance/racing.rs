//! Two coordinators at once.

use muster_protocol::fact::Standing;
use muster_protocol::invariant::one_outcome;
use muster_protocol::outcome::Outcome;

use super::*;

/// Crossings of each race: enough for the two to meet in every step of it.
const ROUNDS: u64 = 60;

/// Does two batches at the same time, one on each handle.
async fn at_once(
    stores: &Stores,
    one: Vec<(BarrierName, Command)>,
    other: Vec<(BarrierName, Command)>,
) -> (Vec<Step>, Vec<Step>) {
    let tasks = [(&stores.one, one), (&stores.other, other)].map(|(store, batch)| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.transact(batch, Mode::Commit).await })
    });
    let [one, other] = tasks;
    let (one, other) = soon("a race ends", async { (one.await, other.await) }).await;
    (one.unwrap().unwrap(), other.unwrap().unwrap())
}

/// The last two regions report to two coordinators at the same time. If each
/// could read before it has the lock, each would miss the other's region, and
/// nobody would ever decide.
pub(in crate::store) async fn two_deciders_never_miss_and_never_double_a_decision(stores: Stores) {
    let mut id = stores.define(&spec("etl/loop", Generations::Cyclic)).await.remove(0);
    for round in 2..ROUNDS + 2 {
        stores.one.transact(vec![says(complete(&id, "ap-south", round))], Mode::Commit).await.unwrap();
        let (last, also_last) = (says(complete(&id, "eu-west", round)), says(complete(&id, "us-east", round)));
        let (one, other) = at_once(&stores, vec![last], vec![also_last]).await;
        let decisions: Vec<Digest> = one.iter().chain(&other).flat_map(decided).collect();
        assert_eq!(decisions.len(), 1, "round {round}: exactly one of the two decides");
        let [one, other] = [row(&stores.one, &id).await, row(&stores.other, &id).await];
        let (one, other) = (one.generation.decided.unwrap(), other.generation.decided.unwrap());
        assert_eq!((one.outcome.digest(), &one), (decisions[0], &other), "both read the same end");
        id = one.next.unwrap().generation;
        assert_eq!(id.n, round);
    }
}

pub(in crate::store) async fn one_of_arrival_deadline_and_abort_wins(stores: Stores) {
    let short = Spec { deadline_ms: Some(10), ..spec("etl/short", keyed(1_000)) };
    let long = spec("etl/long", keyed(1_000));
    for spec in [&short, &long] {
        stores.define(spec).await;
    }
    for round in 1..=ROUNDS {
        let (spec, rival): (_, fn(u64) -> Command) = match round % 2 {
            0 => (&short, |n| Command::Expire { n }),
            _ => (&long, abort),
        };
        let id = stores.open(&spec.name, &format!("k{round}")).await;
        let first = REGIONS[..2].iter().map(|region| says(complete(&id, region, round + 1)));
        let first = stores.one.transact(first.collect(), Mode::Commit).await.unwrap();
        let last = vec![says(complete(&id, REGIONS[2], round + 1))];
        let (last, rival) = at_once(&stores, last, vec![(spec.name.clone(), rival(id.n))]).await;
        // On a slow machine the deadline may have passed with the first two.
        let decisions: Vec<Digest> = first.iter().chain(&last).chain(&rival).flat_map(decided).collect();
        assert_eq!(decisions.len(), 1, "round {round}: {first:?} {last:?} {rival:?}");
        let outcome = stores.row(&id).await.generation.decided.unwrap().outcome;
        assert_eq!(outcome.digest(), decisions[0], "the winner is what is written");
        assert!(told(&rival[0]).is_none_or(|told| one_outcome(told, &outcome)), "the loser hears the winner");
    }
}

fn told(step: &Step) -> Option<&Outcome> {
    match &step.reply {
        Ok(Reply::Ended { outcome, .. }) | Err(Refusal::AlreadyDecided { outcome }) => Some(outcome),
        _ => None,
    }
}

pub(in crate::store) async fn batches_in_opposite_orders_all_end(stores: Stores) {
    for round in 0..ROUNDS / 2 {
        // New names in each round: rows are made, locked and read in the race.
        let specs = ["c/x", "a/y", "b/z", "a-b/w"].map(|name| spec(&format!("{name}{round}"), Generations::Cyclic));
        let batch = |specs: &[&Spec]| -> Vec<(BarrierName, Command)> {
            let first = |spec: &Spec| GenerationId { barrier: spec.name.clone(), n: 1, key: None, round: 0 };
            let defines = specs.iter().map(|spec| (spec.name.clone(), define(spec, Expect::NewOrEqual)));
            defines.chain(specs.iter().map(|spec| says(report(&first(spec), "us-east", 2)))).collect()
        };
        let forwards: Vec<&Spec> = specs.iter().collect();
        let backwards: Vec<&Spec> = specs.iter().rev().collect();
        let (one, other) = at_once(&stores, batch(&forwards), batch(&backwards)).await;
        assert!(one.iter().chain(&other).all(|step| step.reply.is_ok()), "{one:?} {other:?}");
        let created = one.iter().chain(&other).flat_map(opened).count();
        assert_eq!(created, specs.len(), "each is defined once");
    }
}

pub(in crate::store) async fn one_of_two_definitions_is_the_first(stores: Stores) {
    for round in 0..ROUNDS / 2 {
        let mine = spec(&format!("etl/map{round}"), Generations::Single);
        let yours = Spec { owner: "others".into(), ..mine.clone() };
        let batch = |spec: &Spec| vec![(spec.name.clone(), define(spec, Expect::NewOrEqual))];
        let (one, other) = at_once(&stores, batch(&mine), batch(&yours)).await;
        let (one, other) = (one[0].reply.is_ok(), other[0].reply.is_ok());
        assert!(one != other, "one is in force, the other in conflict with it");
        let barrier = stores.one.barrier(&mine.name).await.unwrap().unwrap();
        assert_eq!(barrier.spec(), Some(if one { &mine } else { &yours }));
        assert_eq!((barrier.revision, barrier.next_n), (1, 2));
    }
}

pub(in crate::store) async fn one_first_history_wins(stores: Stores) {
    for round in 0..ROUNDS / 4 {
        let region = format!("new-{round}");
        stores.one.declare(&named(&region)).await.unwrap();
        let tasks = [(&stores.one, 1), (&stores.other, 2)].map(|(store, life)| {
            let (store, hello) = (Arc::clone(store), hello(&region, life, 1));
            tokio::spawn(async move { store.hello(&hello).await.unwrap().standing })
        });
        let mut standings = Vec::new();
        for task in tasks {
            standings.push(soon("a greeting is answered", task).await.unwrap());
        }
        standings.sort_by_key(|standing| *standing != Standing::Current);
        assert_eq!(standings, [Standing::Current, Standing::Unknown]);
    }
}
