//! Participants that are watched: who works, who fell silent, who took over.

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_client::{Session, Target};
use muster_protocol::generation::State;
use muster_protocol::identity::SessionId;
use muster_wire::answer::{Participant, ParticipantState, Reason};
use muster_wire::code::Code;
use muster_wire::request::{Arrival, OpenSession};
use serde_json::json;

use super::{Outcome, failed, no_whole_release, on_every_cluster, refused};
use crate::until::until;
use crate::worker::Worker;
use crate::world::World;

on_every_cluster!(
    work_is_watched_until_it_is_done,
    the_later_of_two_sessions_works,
    who_falls_silent_is_lost_and_may_come_back,
    who_does_not_come_back_fails_or_is_excluded,
    an_arrival_may_live_as_long_as_its_session,
);

fn under(session: SessionId, attempt: u32) -> Arrival {
    Arrival { session: Some(session), attempt: Some(attempt), ..Arrival::default() }
}

/// Opens a session that nobody keeps alive.
async fn mute(worker: &Worker, target: &Target) -> anyhow::Result<SessionId> {
    let id = Session::new_id();
    worker.client.open_session(&OpenSession { id: Some(id), ..worker.opening(target, None) }).await?;
    Ok(id)
}

/// Waits until a participant is in this state.
async fn until_is(worker: &Worker, target: &Target, state: ParticipantState) -> anyhow::Result<Participant> {
    until(&format!("{} is {state:?}", worker.name()), || async {
        match worker.client.arrival(target, &worker.id, None).await {
            Ok(one) if one.state == state => Ok(one),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

async fn work_is_watched_until_it_is_done(world: &World<'_>) -> Outcome {
    world.define("map", json!({"attempts": 3, "liveness": {"ttl": "30s"}})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1"]);
    world.require(&target, &workers);
    let mut sessions = try_join_all(workers.iter().map(|worker| worker.session(&target, None))).await?;
    for session in &sessions {
        let work = &session.participants()[0];
        ensure!((work.attempt, work.done) == (1, false), "{work:?}");
    }
    let working = |status: &muster_wire::answer::Status| status.regions.iter().all(|region| region.working == 1);
    let status = world.until_status(&target, "all are working", working).await?;
    ensure!(status.message.contains("working"), "{}", status.message);
    // People read how far it has come.
    let (one, region) = (&workers[0], Some(&workers[0].region));
    one.client.heartbeat(sessions[0].id(), None, Some("half")).await?;
    ensure!(one.look(&target).await?.progress.as_deref() == Some("half"));
    world.coordinator().heartbeat(sessions[0].id(), region, Some("most")).await?;
    let seen = one.look(&target).await?;
    ensure!(seen.progress.as_deref() == Some("most") && seen.last_seen_seconds.is_some(), "{seen:?}");
    // A failed attempt is followed by the next, under a new session.
    one.arrive_as(&target, Arrival { session: Some(sessions[0].id()), ..failed(1) }).await?;
    let again = one.session(&target, None).await?;
    ensure!(again.participants()[0].attempt == 2, "{:?}", again.participants());
    one.arrive_as(&target, under(again.id(), 2)).await?;
    let done = one.session(&target, None).await?;
    ensure!(done.participants()[0].done, "{:?}", done.participants());
    // Opened through the coordinator, and ended: whoever leaves is not lost.
    let opening = OpenSession { region: Some(workers[1].region.clone()), ..workers[1].opening(&target, Some("9s")) };
    let through = world.coordinator().session(opening).await?;
    through.close().await?;
    let missing = until_is(&workers[1], &target, ParticipantState::Missing).await?;
    ensure!(missing.rejoin_seconds.is_none(), "{missing:?}");
    sessions[1] = workers[1].session(&target, None).await?;
    for (worker, session) in workers.iter().zip(&sessions).skip(1) {
        let attempt = session.participants()[0].attempt;
        worker.arrive_as(&target, under(session.id(), attempt)).await?;
    }
    let released = try_join_all(workers.iter().map(|worker| worker.wait(&target))).await?;
    ensure!(released.iter().all(|released| released.whole));
    let late = workers[2].session(&target, None).await;
    refused(&late.map(|session| session.id()), Code::AlreadyDecided)?;
    Ok(())
}

async fn the_later_of_two_sessions_works(world: &World<'_>) -> Outcome {
    world.define("map", json!({"liveness": {"ttl": "3s"}})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1"]);
    world.require(&target, &workers);
    let double = &workers[0];
    let earlier = double.session(&target, None).await?;
    let later = double.session(&target, None).await?;
    ensure!(later.participants()[0].attempt == 2, "{:?}", later.participants());
    refused(&double.arrive_as(&target, under(earlier.id(), 1)).await, Code::Fenced)?;
    refused(&double.arrive(&target).await, Code::StaleAttempt)?;
    // It is told by its next heartbeat, without asking.
    let over = earlier.over().await;
    ensure!(over.code == Code::Fenced, "{over:?}");
    double.arrive_as(&target, under(later.id(), 2)).await?;
    let waits = double.wait(&target);
    let crosses = try_join_all(workers[1..].iter().map(|worker| worker.cross(&target)));
    let (waited, _) = futures::try_join!(waits, crosses)?;
    ensure!(waited.whole, "{waited:?}");
    Ok(())
}

async fn who_falls_silent_is_lost_and_may_come_back(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"], "liveness": {"ttl": "3s", "rejoin": "1h"}})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1", "2"]);
    world.require(&target, &workers);
    let (silent, lively) = (&workers[0], &workers[1]);
    let session = mute(silent, &target).await?;
    let heard = lively.session(&target, None).await?;
    let lost = until_is(silent, &target, ParticipantState::Lost).await?;
    ensure!(lost.rejoin_seconds.is_some_and(|left| left > 3_000.0), "{lost:?}");
    ensure!(lively.look(&target).await?.state == ParticipantState::Working);
    let one_lost = |status: &muster_wire::answer::Status| status.regions.iter().any(|region| region.lost == 1);
    world.until_status(&target, "one is lost", one_lost).await?;
    let why = world.coordinator().explain(&target).await?;
    ensure!(why.lines.iter().any(|line| line.starts_with(&format!("{} is lost", silent.name()))), "{:?}", why.lines);
    refused(&silent.client.heartbeat(session, None, None).await, Code::SessionLost)?;
    refused(&silent.arrive_as(&target, under(session, 1)).await, Code::SessionLost)?;
    // Back in time: nothing is lost for good.
    let back = silent.session(&target, None).await?;
    ensure!(back.participants()[0].attempt == 2, "{:?}", back.participants());
    ensure!(silent.look(&target).await?.state == ParticipantState::Working);
    silent.arrive_as(&target, under(back.id(), 2)).await?;
    lively.arrive_as(&target, under(heard.id(), 1)).await?;
    let crossed = try_join_all(workers[2..].iter().map(|worker| worker.cross(&target))).await?;
    ensure!(crossed.iter().all(|released| released.whole));
    Ok(())
}

async fn who_does_not_come_back_fails_or_is_excluded(world: &World<'_>) -> Outcome {
    let define = async |name: &str, on_lost: &str| {
        let liveness = json!({"ttl": "3s", "rejoin": "0s", "onLost": on_lost});
        world.define(name, json!({"participants": ["1", "2"], "liveness": liveness})).await
    };
    define("fail", "fail").await?;
    define("exclude", "exclude").await?;
    let (fail, exclude) = (world.target("fail", 1), world.target("exclude", 1));
    let workers = world.workers(&["1", "2"]);
    let (silent, others) = workers.split_last().context("nobody")?;
    world.require(&exclude, others);
    world.everybody(&exclude, &workers);
    mute(silent, &fail).await?;
    mute(silent, &exclude).await?;
    let problem = refused(&others[0].wait(&fail).await, Code::Broken)?;
    ensure!(problem.more.get("reason") == Some(&json!("participant-lost")), "{problem:?}");
    let broken = world.until_state(&fail, State::Broken).await?.broken.context("no cause")?;
    ensure!((broken.reason, broken.failed) == (Reason::ParticipantLost, vec![silent.name()]), "{}", broken.message);
    until_is(silent, &exclude, ParticipantState::Excluded).await?;
    let crossed = try_join_all(others.iter().map(|worker| worker.cross(&exclude))).await?;
    ensure!(crossed.iter().all(|released| !released.whole), "{crossed:?}");
    let release = world.until_state(&exclude, State::Released).await?.release.context("not released")?;
    ensure!((release.excluded, release.failed) == (1, 0), "{release:?}");
    no_whole_release(world, &exclude).await
}

async fn an_arrival_may_live_as_long_as_its_session(world: &World<'_>) -> Outcome {
    let more = json!({"participants": ["1", "2"], "keepArrivals": false, "liveness": {"ttl": "3s"}});
    world.define("map", more).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1", "2"]);
    world.require(&target, &workers);
    let (one, others) = workers.split_first().context("nobody")?;
    let session = mute(one, &target).await?;
    one.arrive_as(&target, under(session, 1)).await?;
    one.falls_silent(&target);
    world
        .until_status(&target, "it counts no more", |status| {
            status.arrived == 0 && status.regions.iter().any(|region| region.lost == 1)
        })
        .await?;
    let back = one.session(&target, None).await?;
    let attempt = back.participants()[0].attempt;
    ensure!(attempt == 2 && !back.participants()[0].done, "{:?}", back.participants());
    one.arrive_as(&target, under(back.id(), attempt)).await?;
    let sessions = try_join_all(others.iter().map(|worker| worker.session(&target, None))).await?;
    for (worker, session) in others.iter().zip(&sessions) {
        worker.arrive_as(&target, under(session.id(), 1)).await?;
    }
    let released = try_join_all(workers.iter().map(|worker| worker.wait(&target))).await?;
    ensure!(released.iter().all(|released| released.whole));
    Ok(())
}
