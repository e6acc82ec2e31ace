//! What goes on while everything is hurt: generation after generation, each
//! brought to one of all the ends there are, by participants that know what
//! they must be told.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::future::{join_all, try_join_all};
use muster_client::{Apply, Error, Session, Target};
use muster_protocol::region::ArrivalOutcome;
use muster_wire::answer::{Reason, Released};
use muster_wire::code::Code;
use muster_wire::request::{Arrival, OpenSession};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::json;

use super::tally::Tally;
use crate::worker::Worker;
use crate::world::World;

/// Participants of each region.
const PARTICIPANTS: usize = 80;
/// Those that arrive in one request.
const TOGETHER: usize = 20;
/// Those of each region on whom its end rests.
const LAST: usize = 2;
/// Nobody is away for so long.
const PATIENCE: Duration = Duration::from_secs(600);

/// How a generation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// All have arrived.
    Released,
    /// Somebody releases it though not all have arrived.
    Forced,
    /// One fails.
    ParticipantFailed,
    /// One more fails than is borne.
    MaxFailures,
    /// Time is up.
    Deadline,
    /// Somebody aborts it.
    Aborted,
    /// Its barrier is deleted.
    Deleted,
    /// The generation that it comes after breaks.
    PredecessorBroken,
    /// A session falls silent.
    Lost,
    /// A region has the name for a barrier of its own.
    NameTaken,
}

impl Ending {
    /// All of them.
    pub(super) const ALL: [Self; 10] = [
        Self::Released,
        Self::Forced,
        Self::ParticipantFailed,
        Self::MaxFailures,
        Self::Deadline,
        Self::Aborted,
        Self::Deleted,
        Self::PredecessorBroken,
        Self::Lost,
        Self::NameTaken,
    ];

    /// The barrier that such generations are of: each has one, or one for each
    /// generation.
    fn barrier(self, key: &str) -> String {
        match self {
            Self::Deleted | Self::NameTaken => format!("{self:?}-{key}").to_lowercase(),
            _ => format!("{self:?}").to_lowercase(),
        }
    }

    fn reason(self) -> Option<Reason> {
        Some(match self {
            Self::Released | Self::Forced => return None,
            Self::ParticipantFailed => Reason::ParticipantFailed,
            Self::MaxFailures => Reason::MaxFailuresExceeded,
            Self::Deadline => Reason::DeadlineExceeded,
            Self::Aborted => Reason::Aborted,
            Self::Deleted => Reason::Deleted,
            Self::PredecessorBroken => Reason::PredecessorBroken,
            Self::Lost => Reason::ParticipantLost,
            Self::NameTaken => Reason::NameTaken,
        })
    }
}

/// Defines what the generations are of.
pub(super) async fn define(world: &World<'_>) -> anyhow::Result<()> {
    let plain = json!({
        "generations": "keyed", "maxOpen": 1000, "participants": format!("[1-{PARTICIPANTS}]"), "deadline": "1h",
        "attempts": 3, "retention": "10m",
    });
    let with = |more: serde_json::Value| {
        let mut all = plain.clone();
        if let (Some(all), Some(more)) = (all.as_object_mut(), more.as_object()) {
            all.extend(more.clone());
        }
        all
    };
    world.define("before", plain.clone()).await?;
    for ending in Ending::ALL {
        let more = match ending {
            Ending::Released | Ending::Forced | Ending::Aborted => json!({}),
            Ending::ParticipantFailed => json!({"attempts": 1}),
            Ending::MaxFailures => json!({"attempts": 1, "maxFailures": 2}),
            Ending::Deadline => json!({"deadline": "2s"}),
            Ending::PredecessorBroken => json!({"after": world.barrier("before")}),
            Ending::Lost => json!({"liveness": {"ttl": "3s", "rejoin": "0s"}}),
            Ending::Deleted | Ending::NameTaken => continue,
        };
        world.define(&ending.barrier(""), with(more)).await?;
    }
    Ok(())
}

/// One generation, from its first arrival to what everybody was told.
pub(super) struct Round<'a> {
    world: &'a World<'a>,
    tally: &'a Tally,
    ending: Ending,
    key: String,
    target: Target,
    /// By region.
    crews: Vec<Vec<Worker>>,
    chance: StdRng,
}

impl<'a> Round<'a> {
    /// Nothing has happened yet.
    pub(super) fn new(world: &'a World<'a>, tally: &'a Tally, ending: Ending, key: String, seed: u64) -> Self {
        let id = if matches!(ending, Ending::Deleted | Ending::NameTaken) { "1" } else { &key };
        let target = world.target(&ending.barrier(&key), id);
        let crew = |region| {
            let client = world.agents(world.region(region));
            // One client for all: its connections are what is cut.
            let one = |id: usize| world.worker(region, &id.to_string()).with(client.clone()).patient(PATIENCE);
            (1..=PARTICIPANTS).map(one).collect()
        };
        let crews = (0..world.regions().len()).map(crew).collect();
        Self { world, tally, ending, key, target, crews, chance: StdRng::seed_from_u64(seed) }
    }

    /// Which generation.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Plays it. An error is something that must not happen.
    pub(super) async fn play(mut self) -> anyhow::Result<()> {
        let target = self.target.clone();
        let all: Vec<Worker> = self.crews.iter().flatten().cloned().collect();
        self.step("define", self.prepare()).await?;
        if self.ending != Ending::Forced {
            self.world.require(&target, &all);
        }
        self.world.everybody(&target, &all);
        let batches = self.batches();
        let (first, rest) = batches.split_first().context("nobody arrives")?;
        // Of what a key means nobody knows before somebody has come.
        self.step("open", self.together(first)).await?;
        let waits = self.waits();
        let work = async {
            self.step("arrive", try_join_all(rest.iter().map(|batch| self.together(batch)))).await?;
            self.step("change minds", self.change_minds()).await?;
            self.step("end", self.end()).await?;
            self.tally.at(&target.to_string(), "be told");
            anyhow::Ok(())
        };
        let (told, worked) = futures::join!(waits, work);
        worked?;
        told.iter().try_for_each(|told| self.judge(told))?;
        self.step("look", self.look()).await
    }

    async fn step<T>(&self, step: &'static str, does: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        self.tally.at(&self.target.to_string(), step);
        does.await.context(step)
    }

    /// One of each region waits, and somebody who asks the coordinators.
    async fn waits(&self) -> Vec<Result<Released, Error>> {
        let own = usize::from(self.ending == Ending::NameTaken);
        let waiters = self.crews.iter().skip(own).filter_map(|crew| crew.first());
        let coordinator = self.world.coordinator();
        let stranger = self.crews[0][0].with(coordinator).patient(PATIENCE);
        let waiters: Vec<Worker> = waiters.cloned().chain([stranger]).collect();
        join_all(waiters.iter().map(|worker| worker.wait(&self.target))).await
    }

    async fn prepare(&self) -> anyhow::Result<()> {
        let name = self.ending.barrier(&self.key);
        let more = json!({"participants": format!("[1-{PARTICIPANTS}]"), "deadline": "1h", "retention": "10m"});
        match self.ending {
            Ending::Deleted => drop(self.define(&name, more).await?),
            Ending::NameTaken => {
                let region = self.world.region(0);
                let own = json!({"scope": "regional", "regions": [region]});
                let definition = self.world.definition(&name, own).to_string();
                let agents = self.world.agents(region).patience(PATIENCE);
                agents.apply(&self.world.barrier(&name), definition, Apply::default()).await?;
                self.define(&name, more).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn define(&self, name: &str, more: serde_json::Value) -> Result<(), Error> {
        let definition = self.world.definition(name, more).to_string();
        let coordinator = self.world.coordinator().patience(PATIENCE);
        coordinator.apply(&self.world.barrier(name), definition, Apply::default()).await.map(drop)
    }

    /// All but the last of each region, in any order, some of them twice.
    fn batches(&mut self) -> Vec<Vec<Worker>> {
        // Where the name is another's nobody arrives at the region that has it.
        let own = usize::from(self.ending == Ending::NameTaken);
        let mut batches = Vec::new();
        for crew in self.crews.iter().skip(own) {
            let mut crew = crew[..crew.len() - LAST].to_vec();
            crew.shuffle(&mut self.chance);
            batches.extend(crew.chunks(TOGETHER).map(<[Worker]>::to_vec));
        }
        batches.shuffle(&mut self.chance);
        let again = batches[0].clone();
        batches.push(again);
        batches
    }

    async fn together(&self, batch: &[Worker]) -> anyhow::Result<()> {
        let mut left = batch.to_vec();
        let since = Instant::now();
        while !left.is_empty() {
            left = match Worker::arrive_together(&left, &self.target, &Arrival::default()).await {
                Ok(left) => left,
                Err(error) if self.is_its_end(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            ensure!(since.elapsed() < PATIENCE, "{} of a batch are not answered", left.len());
        }
        Ok(())
    }

    /// Somebody withdraws, and comes with the next attempt.
    async fn change_minds(&self) -> anyhow::Result<()> {
        if !matches!(self.ending, Ending::Released | Ending::Aborted) {
            return Ok(());
        }
        let one = &self.crews[0][1];
        match one.withdraw(&self.target, 1).await {
            Ok(()) => {}
            Err(error) if self.is_its_end(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let second = Arrival { attempt: Some(2), ..Arrival::default() };
        match one.arrive_as(&self.target, second).await {
            Err(error) if !self.is_its_end(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Whether a refusal is what this generation's end makes of every call.
    fn is_its_end(&self, error: &Error) -> bool {
        self.ending.reason().is_some() && [Code::Broken, Code::NotDefined].iter().any(|code| error.is(*code))
    }

    /// What ends it.
    async fn end(&self) -> anyhow::Result<()> {
        let target = &self.target;
        let coordinator = self.world.coordinator().patience(PATIENCE);
        let lasts: Vec<&Worker> = self.crews.iter().flat_map(|crew| &crew[crew.len() - LAST..]).collect();
        match self.ending {
            Ending::Released => {
                let arrival = Arrival::default;
                let crossed = try_join_all(lasts.iter().map(|last| last.arrive_and_wait(target, arrival()))).await?;
                ensure!(crossed.iter().all(|released| released.whole), "not whole");
            }
            Ending::Forced => drop(coordinator.release(target, "the night is over", false).await?),
            Ending::ParticipantFailed => self.fail(&lasts[..1]).await?,
            Ending::MaxFailures => self.fail(&lasts[..3]).await?,
            Ending::Aborted => drop(coordinator.abort(target, "not needed", false).await?),
            Ending::Deleted => {
                coordinator.delete(&target.barrier, Some("the job is gone")).await?;
            }
            Ending::PredecessorBroken => {
                let before = self.world.target("before", &self.key);
                self.crews[0][0].arrive(&before).await?;
                coordinator.abort(&before, "not needed", false).await?;
            }
            Ending::Lost => {
                let last = lasts[0];
                let open = OpenSession { id: Some(Session::new_id()), ..last.opening(target, None) };
                last.falls_silent(target);
                last.client.open_session(&open).await?;
            }
            Ending::Deadline | Ending::NameTaken => {}
        }
        Ok(())
    }

    async fn fail(&self, workers: &[&Worker]) -> anyhow::Result<()> {
        let failed = Arrival { outcome: Some(ArrivalOutcome::Failed), ..Arrival::default() };
        for worker in workers {
            match worker.arrive_as(&self.target, failed.clone()).await {
                Err(error) if !self.is_its_end(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a wait was told what it must be told.
    fn judge(&self, told: &Result<Released, Error>) -> anyhow::Result<()> {
        match (self.ending.reason(), told) {
            (None, Ok(released)) => ensure!(released.whole == (self.ending == Ending::Released), "{released:?}"),
            (Some(reason), Err(Error::Refused(problem))) if problem.code == Code::Broken => {
                let said = problem.more.get("reason").cloned();
                ensure!(said == Some(json!(reason)), "broken by {said:?}, not {reason:?}: {problem}");
            }
            // Whoever asks late asks for what is not there any more.
            (Some(Reason::Deleted), Err(error)) if error.is(Code::NotDefined) => {}
            _ => bail!("{} was told {told:?}", self.target),
        }
        Ok(())
    }

    /// Reads what became of everybody who was told that its arrival stands.
    async fn look(&self) -> anyhow::Result<()> {
        let own = usize::from(self.ending == Ending::NameTaken);
        for crew in self.crews.iter().skip(own) {
            match Worker::look_together(crew, &self.target).await {
                Ok(_) => {}
                Err(error) if error.is(Code::NotDefined) || error.is(Code::Expired) => {
                    self.world.may_be_forgotten(&self.target);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if self.ending == Ending::PredecessorBroken {
            Worker::look_together(&self.crews[0][..1], &self.world.target("before", &self.key)).await?;
        }
        if self.ending == Ending::NameTaken {
            let agents = self.world.agents(self.world.region(0)).patience(PATIENCE);
            agents.delete(&self.target.barrier, Some("the job is gone")).await?;
        }
        Ok(())
    }
}
