//! Reports, ends and what follows them.

use muster_protocol::fact::Fact;
use muster_protocol::generation::State;
use muster_protocol::outcome::{BreakReason, Failure, Verdict};

use super::*;

pub(in crate::store) async fn the_last_region_decides_once_with_outputs(stores: Stores) {
    let id = stores.define(&spec("etl/map", Generations::Single)).await.remove(0);
    let mut first = complete(&id, "us-east", 5);
    first.outputs.insert(named("1"), "s3://parts/1".into());
    for (report, decisions) in [(first, 0), (complete(&id, "eu-west", 7), 0), (complete(&id, "ap-south", 3), 1)] {
        let step = stores.one.transact(vec![says(report)], Mode::Commit).await.unwrap().remove(0);
        assert_eq!(step.reply, Ok(Reply::Reported { newer: true }));
        assert_eq!(decided(&step).len(), decisions);
    }
    let late = stores.other.transact(vec![says(complete(&id, "eu-west", 8))], Mode::Commit).await.unwrap().remove(0);
    assert_eq!((late.reply.clone(), decided(&late).len()), (Ok(Reply::Reported { newer: true }), 0));

    let [one, other] = [row(&stores.one, &id).await, row(&stores.other, &id).await];
    assert_eq!(one.generation, other.generation);
    assert_eq!(one.generation.state(), State::Releasing);
    let outcome = one.generation.decided.unwrap().outcome;
    let Verdict::Released(release) = &outcome.verdict else { panic!("{outcome:?}") };
    assert!(release.whole);
    assert_eq!(release.outputs[&region("us-east")][&named("1")], "s3://parts/1");
    assert_eq!(one.report_ages.len(), REGIONS.len());
}

pub(in crate::store) async fn a_failure_breaks_everywhere(stores: Stores) {
    let id = stores.define(&spec("etl/map", Generations::Single)).await.remove(0);
    let failure = Failure { region: region("eu-west"), participant: named("2"), attempt: 1, note: Some("disk".into()) };
    let failed = RegionReport { failed: 1, over_failures: true, failures: vec![failure], ..report(&id, "eu-west", 4) };
    let step = stores.one.transact(vec![says(failed)], Mode::Commit).await.unwrap().remove(0);
    assert!(matches!(step.facts.as_slice(), [Fact::Decided(_)]), "{:?}", step.facts);
    let generation = stores.row(&id).await.generation;
    assert_eq!(generation.state(), State::Broken);
    let Verdict::Broken(cause) = generation.decided.unwrap().outcome.verdict else { panic!("it did not break") };
    assert_eq!((cause.reason, cause.region), (BreakReason::ParticipantFailed, Some(region("eu-west"))));
    let again = stores.act(&id.barrier, abort(id.n)).await;
    assert!(matches!(again.reply, Ok(Reply::Ended { changed: false, .. })), "{again:?}");
}

pub(in crate::store) async fn it_is_settled_once_every_region_applied_the_end(stores: Stores) {
    let id = stores.define(&spec("etl/map", Generations::Single)).await.remove(0);
    let digest = complete_all(&stores.one, &id, 2).await;
    let wrong = Digest([7; 32]);
    let mut version = stores.row(&id).await.version;
    for (region, digest, settled) in
        [("us-east", digest, false), ("eu-west", digest, false), ("ap-south", wrong, false), ("ap-south", digest, true)]
    {
        let index = version + 10;
        stores.one.transact(vec![says(applied(&id, region, index, digest))], Mode::Commit).await.unwrap();
        let row = row(&stores.other, &id).await;
        assert_eq!((row.generation.settled, row.generation.state() == State::Released), (settled, settled));
        assert!(row.version > version, "every change shows in the version");
        version = row.version;
    }
    assert!(stores.one.unanswered(None, None, 10).await.unwrap().items.is_empty());
}

pub(in crate::store) async fn an_end_of_a_cyclic_barrier_opens_the_next(stores: Stores) {
    let mut id = stores.define(&spec("etl/loop", Generations::Cyclic)).await.remove(0);
    for n in 2..5 {
        complete_all(&stores.one, &id, n).await;
        let next = stores.row(&id).await.generation.decided.unwrap().next.expect("its end opens the next");
        assert_eq!((next.generation.n, next.same_spec), (n, true));
        id = next.generation;
        assert_eq!(row(&stores.other, &id).await.generation.state(), State::Gathering);
    }
    let broken = stores.act(&id.barrier, abort(id.n)).await;
    assert_eq!(opened(&broken)[0].n, id.n + 1, "it opens the next when it breaks, too");
    let refused = stores.act(&id.barrier, abort(1)).await;
    assert!(matches!(refusal(refused), Refusal::AlreadyDecided { .. }));
}

pub(in crate::store) async fn stale_foreign_and_repeated_reports_change_nothing(stores: Stores) {
    let spec = spec_of("etl/map", Generations::Single, &["us-east", "eu-west"]);
    let id = stores.define(&spec).await.remove(0);
    stores.one.transact(vec![says(report(&id, "us-east", 5))], Mode::Commit).await.unwrap();
    let before = stores.row(&id).await;

    let other_life = Stamp { history: history(2), shard: 0, index: 99 };
    let elsewhere = GenerationId { barrier: named("etl/never"), ..id.clone() };
    let not_newer = Ok(Reply::Reported { newer: false });
    for (report, expected) in [
        (report(&id, "us-east", 5), not_newer.clone()),
        (complete(&id, "us-east", 4), not_newer),
        (RegionReport { stamp: other_life, ..complete(&id, "us-east", 0) }, Err(Refusal::ForeignReport)),
        (complete(&id, "ap-south", 9), Err(Refusal::ForeignReport)),
        (complete(&id, "atlantis", 9), Err(Refusal::ForeignReport)),
        (complete(&elsewhere, "us-east", 9), Err(Refusal::NoSuchGeneration)),
    ] {
        let step = stores.one.transact(vec![says(report)], Mode::Commit).await.unwrap().remove(0);
        assert_eq!(step.reply, expected);
        assert!(step.changes.is_empty());
    }
    let after = row(&stores.other, &id).await;
    assert_eq!((after.generation, after.version), (before.generation, before.version));
}

pub(in crate::store) async fn time_up_breaks_on_the_clock_of_the_database(stores: Stores) {
    assert_eq!(stores.one.due(10).await.unwrap(), super::super::Due::default());
    let later = Spec { deadline_ms: Some(3_600_000), ..spec("etl/later", Generations::Single) };
    let later = stores.define(&later).await.remove(0);
    let early = stores.act(&later.barrier, Command::Expire { n: later.n }).await;
    assert_eq!(early.reply, Ok(Reply::NotDue));
    let due = stores.one.due(10).await.unwrap();
    assert!(due.generations.is_empty());
    assert!(due.next_in.unwrap() <= Duration::from_secs(3_600) && due.next_in.unwrap() > Duration::from_secs(3_000));

    let short = Spec { deadline_ms: Some(1), ..spec("etl/short", keyed(8)) };
    stores.define(&short).await;
    let soon_over = [stores.open(&short.name, "a").await, stores.open(&short.name, "b").await];
    let due = soon("both are due", async {
        loop {
            let due = stores.other.due(10).await.unwrap();
            if due.generations.len() == 2 {
                break due;
            }
            tokio::time::sleep(due.next_in.unwrap().min(Duration::from_millis(5))).await;
        }
    })
    .await;
    assert_eq!(due.generations, soon_over.clone().map(|id| (id.barrier, id.n)));
    assert!(due.next_in.is_some(), "the one of an hour is next");
    let first = stores.one.due(1).await.unwrap();
    assert_eq!((first.generations.len(), first.next_in), (1, Some(Duration::ZERO)), "more are due than were asked for");

    let step = stores.act(&short.name, Command::Expire { n: 1 }).await;
    assert!(matches!(step.reply, Ok(Reply::Ended { changed: true, .. })), "{step:?}");
    assert_eq!(stores.one.due(10).await.unwrap().generations, [(short.name.clone(), 2)]);
    let generation = stores.row(&soon_over[0]).await.generation;
    assert!(generation.deadline_at.unwrap() <= generation.decided.unwrap().outcome.decided_at, "never early");
}

pub(in crate::store) async fn a_batch_is_applied_in_its_order_to_every_barrier(stores: Stores) {
    let loops = spec("b/loop", Generations::Cyclic);
    let keys = spec("a/keys", keyed(4));
    let first = GenerationId { barrier: loops.name.clone(), n: 1, key: None, round: 0 };
    let mut batch = vec![
        (loops.name.clone(), define(&loops, Expect::NewOrEqual)),
        (keys.name.clone(), define(&keys, Expect::NewOrEqual)),
        (keys.name.clone(), Command::Open { key: Some(key("k")) }),
        (keys.name.clone(), Command::Open { key: Some(key("k")) }),
    ];
    batch.extend(REGIONS.map(|region| says(report(&first, region, 3))));
    batch.extend(REGIONS.map(|region| says(complete(&first, region, 4))));
    batch.push((loops.name.clone(), abort(2)));
    let steps = stores.one.transact(batch, Mode::Commit).await.unwrap();
    assert_eq!(steps.len(), 11);
    assert!(matches!(steps[2].reply, Ok(Reply::Opened { created: true, .. })));
    assert!(matches!(steps[3].reply, Ok(Reply::Opened { created: false, .. })));
    assert_eq!(steps.iter().flat_map(decided).count(), 2);
    let states: Vec<State> = {
        let page = stores.other.generations(&super::super::GenerationFilter::default(), None, 10).await.unwrap();
        page.items.iter().map(|row| row.generation.state()).collect()
    };
    assert_eq!(states.iter().filter(|state| **state == State::Gathering).count(), 2);
    assert_eq!(states.iter().filter(|state| **state == State::Releasing).count(), 1);
    assert_eq!(states.iter().filter(|state| **state == State::Broken).count(), 1);
    let reports = stores.row(&first).await.generation.reports;
    assert!(reports.values().all(|report| report.stamp.index == 4), "the last report of a batch stays");
}

pub(in crate::store) async fn a_large_batch_is_applied_whole(stores: Stores) {
    let barriers: Vec<Spec> = (0..3).map(|at| spec(&format!("big/{at}"), keyed(1_000))).collect();
    let define = |spec: &Spec| (spec.name.clone(), define(spec, Expect::NewOrEqual));
    stores.one.transact(barriers.iter().map(define).collect(), Mode::Commit).await.unwrap();
    let keys: Vec<Key> = (0..450).map(|at| key(&format!("k{at}"))).collect();
    let open = |spec: &Spec| {
        let name = spec.name.clone();
        keys.iter().map(move |key| (name.clone(), Command::Open { key: Some(key.clone()) })).collect::<Vec<_>>()
    };
    let steps = stores.one.transact(barriers.iter().flat_map(open).collect(), Mode::Commit).await.unwrap();
    let ids: Vec<GenerationId> = steps.iter().flat_map(opened).collect();
    assert_eq!(ids.len(), 1_350, "more than one statement takes");

    let reports = ids.iter().flat_map(|id| REGIONS.map(|region| says(complete(id, region, 2))));
    let steps = stores.other.transact(reports.collect(), Mode::Commit).await.unwrap();
    assert_eq!(steps.iter().flat_map(decided).count(), ids.len());
    assert_eq!(stores.behind.number("select count(*) from generations where verdict = 'released'").await, 1_350);
    assert_eq!(stores.behind.number("select count(*) from reports where complete").await, 4_050);
    let delete = Command::Delete { force: true, by: by("done") };
    assert!(stores.act(&barriers[0].name, delete).await.reply.is_ok());
}

pub(in crate::store) async fn hostile_text_comes_back_as_it_was(stores: Stores) {
    let hostile = "a\0b'; drop table reports; -- \u{1f980} \\u0000 %_ \"";
    let mut spec = spec("etl/map", Generations::Single);
    spec.description = hostile.into();
    spec.labels.insert(hostile.into(), hostile.into());
    let id = stores.define(&spec).await.remove(0);
    let mut last = complete(&id, "us-east", 5);
    last.outputs.insert(named("1"), hostile.into());
    stores.one.transact(vec![says(last.clone())], Mode::Commit).await.unwrap();
    let row = stores.row(&id).await;
    assert_eq!(row.spec, spec);
    assert_eq!(row.generation.reports[&region("us-east")], last);
    let filter = super::super::GenerationFilter { label: Some((hostile.into(), hostile.into())), ..Default::default() };
    assert_eq!(stores.one.generations(&filter, None, 10).await.unwrap().items.len(), 1);

    let mut beat = heartbeat("us-east", 1, 6);
    beat.agent.name = hostile.into();
    stores.one.heartbeats(&[beat]).await.unwrap();
    stores.one.regions().await.unwrap();
}
