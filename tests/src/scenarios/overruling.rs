//! What somebody decides that participants had not: each override can be tried
//! first, says why, changes nothing when it is said again, and is written down.

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use muster_protocol::generation::State;
use muster_wire::answer::{ParticipantState, RegionState};
use muster_wire::code::Code;
use muster_wire::request::Waive;
use serde_json::json;

use super::{Outcome, audited, no_whole_release, on_every_cluster, refused};
use crate::until::until;
use crate::world::World;

on_every_cluster!(
    waived_participants_are_not_waited_for,
    a_waived_region_learns_and_its_participants_pass,
    a_forced_release_lets_everybody_pass,
    an_abort_is_written_down_once,
);

async fn waived_participants_are_not_waited_for(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let (target, coordinator) = (world.target("map", 1), world.coordinator());
    let workers = world.workers(&["1", "2"]);
    let (waived, others) = workers.split_last().context("nobody")?;
    world.require(&target, others);
    world.everybody(&target, &workers);
    let waive = |participants: &str, reason: &str| Waive {
        region: waived.region.clone(),
        participants: Some(participants.to_owned()),
        reason: reason.to_owned(),
    };
    // Its region knows the generation before anything is asked of it.
    workers[4].arrive(&target).await?;
    world.until_status(&target, "one arrived", |status| status.arrived == 1).await?;
    refused(&coordinator.waive(&target, &waive("2", " "), false).await, Code::BadRequest)?;
    refused(&coordinator.waive(&target, &waive("7", "x"), false).await, Code::NotExpected)?;
    let tried = coordinator.waive(&target, &waive("2", "its disk is gone"), true).await?;
    ensure!(tried.changed && tried.dry_run, "{tried:?}");
    ensure!(waived.look(&target).await?.state == ParticipantState::Missing, "it was only tried");
    ensure!(audited(world, "map").await?.is_empty());
    // Through an agent of another region, and again.
    for (number, changed) in [(0, true), (1, false), (2, false)] {
        let client = world.agents(world.region(number));
        let done = client.waive(&target, &waive("[2]", "its disk is gone"), false).await?;
        ensure!((done.changed, done.dry_run, done.status.state) == (changed, false, State::Gathering), "{done:?}");
    }
    let client = world.agents(&waived.region);
    until("its region knows", || async {
        match client.arrival(&target, &waived.id, None).await {
            Ok(one) if one.state == ParticipantState::Waived => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let why = coordinator.explain(&target).await?;
    let line = format!("2 of {} waived: its disk is gone.", waived.region);
    ensure!(why.lines.contains(&line), "{:?}", why.lines);
    let crossed = try_join_all(others.iter().map(|worker| worker.cross(&target))).await?;
    ensure!(crossed.iter().all(|released| !released.whole));
    let release = world.until_state(&target, State::Released).await?.release.context("not released")?;
    ensure!(release.waived == [(waived.region.clone(), "2".to_owned())].into() && !release.whole, "{release:?}");
    no_whole_release(world, &target).await?;
    refused(&coordinator.waive(&target, &waive("1", "x"), false).await, Code::AlreadyDecided)?;
    let object = format!("{}/2", waived.region);
    ensure!(audited(world, "map").await? == [["waive", "1", "its disk is gone", &object]]);
    // Whoever comes after all passes too.
    waived.arrive(&target).await?;
    waived.wait(&target).await?;
    Ok(())
}

async fn a_waived_region_learns_and_its_participants_pass(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed"})).await?;
    let target = world.target("map", "k");
    let workers = world.workers(&["1"]);
    let (waived, others) = workers.split_last().context("nobody")?;
    world.require(&target, others);
    world.everybody(&target, &workers);
    others[0].arrive(&target).await?;
    let waive = Waive { region: waived.region.clone(), participants: None, reason: "it is dark there".to_owned() };
    let client = world.agents(&others[0].region);
    let unknown = Waive { region: "mars".parse()?, ..waive.clone() };
    refused(&client.waive(&target, &unknown, false).await, Code::UnknownRegion)?;
    let of_region = |status: &muster_wire::answer::Status| {
        let found = status.regions.iter().find(|region| region.name == waived.region);
        found.map(|region| region.state)
    };
    let tried = client.waive(&target, &waive, true).await?;
    ensure!(tried.changed && of_region(&tried.status) == Some(RegionState::Waived), "{tried:?}");
    ensure!(of_region(&world.status(&target).await?) != Some(RegionState::Waived), "it was only tried");
    let wait = waived.wait(&target);
    let rest = async {
        for changed in [true, false] {
            ensure!(client.waive(&target, &waive, false).await?.changed == changed);
        }
        Ok(others[1].cross(&target).await?)
    };
    let (passed, crossed) = futures::join!(wait, rest);
    let (passed, crossed) = (passed?, crossed?);
    ensure!(passed.digest == crossed.digest && !passed.whole, "{passed:?} {crossed:?}");
    let release = world.until_state(&target, State::Released).await?.release.context("not released")?;
    ensure!(release.waived == [(waived.region.clone(), String::new())].into(), "{release:?}");
    ensure!(waived.arrive(&target).await?.late);
    ensure!(audited(world, "map").await? == [["waive", "k", "it is dark there", waived.region.as_str()]]);
    Ok(())
}

async fn a_forced_release_lets_everybody_pass(world: &World<'_>) -> Outcome {
    world.define("map", json!({"participants": ["1", "2"]})).await?;
    let (target, coordinator) = (world.target("map", 1), world.coordinator());
    let workers = world.workers(&["1", "2"]);
    world.everybody(&target, &workers);
    let output = Some("part-1".to_owned());
    workers[0].arrive_as(&target, muster_wire::request::Arrival { output, ..Default::default() }).await?;
    world.until_status(&target, "one arrived", |status| status.arrived == 1).await?;
    refused(&coordinator.release(&target, "", false).await, Code::BadRequest)?;
    let tried = coordinator.release(&target, "the night is over", true).await?;
    ensure!(tried.changed && tried.dry_run && tried.status.state != State::Gathering, "{tried:?}");
    ensure!(world.status(&target).await?.state == State::Gathering, "it was only tried");
    ensure!(audited(world, "map").await?.is_empty());
    let waits = try_join_all(workers.iter().map(|worker| worker.wait(&target)));
    let force = async {
        for (number, changed) in [(0, true), (1, false)] {
            let client = world.agents(world.region(number));
            ensure!(client.release(&target, "the night is over", false).await?.changed == changed);
        }
        anyhow::Ok(())
    };
    let (passed, forced) = futures::join!(waits, force);
    forced?;
    ensure!(passed?.iter().all(|released| !released.whole));
    let status = world.until_state(&target, State::Released).await?;
    let release = status.release.context("not released")?;
    ensure!(release.forced.is_some_and(|by| by.reason == "the night is over"), "{:?}", status.message);
    ensure!(release.left_out.len() == 3, "{:?}", release.left_out);
    no_whole_release(world, &target).await?;
    refused(&coordinator.abort(&target, "x", false).await, Code::AlreadyDecided)?;
    ensure!(audited(world, "map").await? == [["release", "1", "the night is over", ""]]);
    Ok(())
}

async fn an_abort_is_written_down_once(world: &World<'_>) -> Outcome {
    world.define("map", json!({"generations": "keyed"})).await?;
    let (target, coordinator) = (world.target("map", "k"), world.coordinator());
    world.worker(0, "1").arrive(&target).await?;
    refused(&coordinator.abort(&target, " ", false).await, Code::BadRequest)?;
    ensure!(coordinator.abort(&target, "wrong input", true).await?.changed);
    ensure!(world.status(&target).await?.state == State::Gathering, "it was only tried");
    for changed in [true, false, false] {
        ensure!(coordinator.abort(&target, "wrong input", false).await?.changed == changed);
    }
    refused(&coordinator.release(&target, "x", false).await, Code::AlreadyDecided)?;
    ensure!(audited(world, "map").await? == [["abort", "k", "wrong input", ""]]);
    Ok(())
}
