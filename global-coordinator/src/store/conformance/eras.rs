//! A database that began another life: what it lost is said again.

use muster_protocol::fact::{Fact, Standing};
use muster_protocol::generation::State;
use muster_protocol::identity::Era;
use muster_protocol::outcome::{Outcome, Release, Verdict};

use super::*;

/// As if this life of the database had just begun.
async fn begin_anew(stores: &Stores) {
    stores.behind.alter("update regions set era = 'lost'").await;
    stores.behind.alter("update generations set era = 'lost'").await;
}

fn beat(region: &str, era: Option<&Era>) -> Heartbeat {
    Heartbeat { era: era.cloned(), ..heartbeat(region, 1, 1) }
}

pub(in crate::store) async fn greetings_say_which_life_and_what_it_lacks(stores: Stores) {
    let era = stores.one.check().await.unwrap();
    stores.one.declare(&named("new")).await.unwrap();
    let first = stores.one.hello(&hello("new", 1, 4)).await.unwrap();
    assert_eq!((first.era.as_ref(), first.tell_ends), (Some(&era), true), "another life may have known it");
    assert!(!stores.one.hello(&hello("new", 1, 4)).await.unwrap().tell_ends, "but nobody waits for it");
    begin_anew(&stores).await;
    for _ in 0..2 {
        let again = stores.other.hello(&hello("new", 1, 4)).await.unwrap();
        assert_eq!((again.era.as_ref(), again.tell_ends), (Some(&era), true), "a greeting is not yet a report");
    }
    let unknown = stores.other.hello(&hello("new", 2, 4)).await.unwrap();
    assert!(!unknown.tell_ends, "what does not count need not be told");

    let none = stores.one.heartbeats(&[beat("new", None)]).await.unwrap();
    assert_eq!(none.len(), 1, "it has not heard of this life");
    assert_eq!((none[0].era.as_ref(), none[0].tell_ends, none[0].index), (Some(&era), true, 4));
    assert!(stores.one.heartbeats(&[beat("new", Some(&era))]).await.unwrap().is_empty());
    let region = stores.one.regions().await.unwrap().into_iter().find(|row| row.name == region("new")).unwrap();
    assert_eq!(region.era, Some(era.clone()), "it has told everything");
    assert!(!stores.other.hello(&hello("new", 1, 4)).await.unwrap().tell_ends);
    let other = stores.one.heartbeats(&[beat("new", Some(&Era::new("before")))]).await.unwrap();
    assert_eq!((other.len(), other[0].tell_ends), (1, false), "its region has told, and it must stamp anew");
    assert!(stores.one.heartbeats(&[beat("new", None)]).await.unwrap().is_empty(), "of a build without lives");
}

/// An agent that goes on because it was welcome once would wait for ever.
pub(in crate::store) async fn who_is_not_known_any_more_is_told_and_greets(stores: Stores) {
    let (era, before) = (stores.one.check().await.unwrap(), Era::new("before"));
    stores.one.declare(&named("new")).await.unwrap();
    let standings = async |life: u8, era: &Era| {
        let beats = [Heartbeat { era: Some(era.clone()), ..heartbeat("new", life, 9) }, beat("atlantis", Some(era))];
        let mut told = stores.one.heartbeats(&beats).await.unwrap();
        told.sort_by_key(|welcome| welcome.region.to_string());
        told.iter().map(|welcome| (welcome.standing, welcome.history, welcome.index)).collect::<Vec<_>>()
    };
    let undeclared = (Standing::Undeclared, history(1), 0);
    assert_eq!(standings(1, &before).await, [undeclared, (Standing::Unknown, history(1), 0)]);
    let welcomed_before = Hello { era: Some(before.clone()), ..hello("new", 1, 9) };
    let anew = stores.other.hello(&welcomed_before).await.unwrap();
    assert_eq!((anew.standing, anew.tell_ends), (Standing::Current, true), "it may know what was lost");
    stores.other.hello(&hello("new", 2, 7)).await.unwrap();
    assert_eq!(standings(2, &era).await, [undeclared, (Standing::Unknown, history(2), 7)], "nobody adopted it");
    stores.one.adopt(&region("new"), history(2), &by("new disks")).await.unwrap();
    assert_eq!(standings(1, &era).await, [undeclared, (Standing::Superseded, history(1), 9)]);
    assert_eq!(standings(2, &era).await, [undeclared], "its log counts now");
}

pub(in crate::store) async fn nothing_is_decided_before_all_have_spoken_again(stores: Stores) {
    let era = stores.one.check().await.unwrap();
    let spec = Spec { deadline_ms: Some(1), ..spec("etl/keys", keyed(9)) };
    stores.define(&spec).await;
    let id = stores.open(&spec.name, "k").await;
    begin_anew(&stores).await;
    let open = |key: &str| Command::Open { key: Some(named(key)) };
    assert!(matches!(refusal(stores.act(&spec.name, open("l")).await), Refusal::RegionBehind { .. }));
    assert!(matches!(refusal(stores.act(&spec.name, abort(1)).await), Refusal::RegionBehind { .. }));
    for region in REGIONS {
        stores.one.transact(vec![says(report(&id, region, 5))], Mode::Commit).await.unwrap();
        stores.one.heartbeats(&[beat(region, Some(&era))]).await.unwrap();
    }
    assert_eq!(stores.row(&id).await.generation.state(), State::Gathering, "they spoke in another life");
    assert_eq!(stores.act(&spec.name, Command::Expire { n: 1 }).await.reply, Ok(Reply::NotDue));
    let later = stores.open(&spec.name, "l").await;
    soon("both to be due", async { while stores.other.due(1).await.unwrap().generations.len() < 2 {} }).await;
    let due = stores.one.due(1).await.unwrap().generations;
    assert_eq!(due, [(spec.name.clone(), later.n), (spec.name.clone(), id.n)], "what waits stands in nobody's way");
    for region in REGIONS {
        assert_eq!(stores.row(&id).await.generation.state(), State::Gathering);
        // The same index, said for this life.
        let said = RegionReport { era: Some(era.clone()), ..report(&id, region, 5) };
        stores.one.transact(vec![says(said)], Mode::Commit).await.unwrap();
    }
    assert_eq!(stores.row(&id).await.generation.state(), State::Broken, "its time is up");
}

pub(in crate::store) async fn what_was_lost_is_taken_up(stores: Stores) {
    let spec = spec("etl/keys", keyed(9));
    stores.define(&spec).await;
    let lost = GenerationId { barrier: spec.name.clone(), n: 7, key: Some(key("lost")), round: 0 };
    let step = stores.one.transact(vec![says(report(&lost, "us-east", 5))], Mode::Commit).await.unwrap().remove(0);
    assert_eq!(step.reply, Ok(Reply::Reported { newer: true }));
    let barrier = stores.other.barrier(&spec.name).await.unwrap().unwrap();
    assert_eq!((barrier.next_n, barrier.lost_from), (8, Some(1)), "the number is taken, others may come");
    let earlier = GenerationId { n: 6, key: Some(key("earlier")), ..lost.clone() };
    let step = stores.one.transact(vec![says(report(&earlier, "us-east", 4))], Mode::Commit).await.unwrap().remove(0);
    assert_eq!(step.reply, Ok(Reply::Reported { newer: true }));
    assert_eq!(stores.other.barrier(&spec.name).await.unwrap().unwrap().next_n, 8, "it never falls");
    assert_eq!(stores.row(&lost).await.generation.era, Era::lost());
    assert_eq!(stores.open(&spec.name, "next").await.n, 8);
    // Collected and opened anew, and that was lost: the key's round is taken.
    let twice = GenerationId { n: 12, ..lost.clone() };
    let step = stores.one.transact(vec![says(report(&twice, "us-east", 5))], Mode::Commit).await.unwrap().remove(0);
    assert_eq!(refusal(step), Refusal::NoSuchGeneration);
    let jumped = GenerationId { n: 5, ..lost.clone() };
    let step = stores.one.transact(vec![says(report(&jumped, "us-east", 5))], Mode::Commit).await.unwrap().remove(0);
    assert_eq!(refusal(step), Refusal::NoSuchGeneration, "of a number that was jumped over, too");

    let verdict = Verdict::Released(Release { whole: true, ..Release::default() });
    let outcome = Outcome { generation: lost.clone(), verdict, decided_at: Timestamp(7) };
    // One that says that it ended and not how is asked.
    let bare = applied(&lost, "us-east", 6, outcome.digest());
    stores.one.transact(vec![says(bare)], Mode::Commit).await.unwrap();
    let owed = stores.other.unanswered(Some(&"us-east".parse().unwrap()), None, 10).await.unwrap().items;
    let asked = owed.iter().any(|(_, fact)| matches!(fact, Fact::Opened(opened) if opened.generation == lost));
    assert!(asked, "{owed:?}");
    let end = Some(Box::new(outcome.clone()));
    let report = RegionReport { outcome: end, ..applied(&lost, "us-east", 6, outcome.digest()) };
    stores.one.transact(vec![says(report)], Mode::Commit).await.unwrap();
    let taken = row(&stores.other, &lost).await.generation.decided.unwrap();
    assert_eq!(taken.outcome, outcome, "an end that a region has applied is not made anew");
}
