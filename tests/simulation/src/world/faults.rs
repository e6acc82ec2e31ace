//! What breaks, and how those who slept wake.

use std::time::Duration;

use muster_protocol::entry::Snapshot;
use muster_protocol::fact::Fact;
use muster_protocol::identity::History;
use muster_protocol::invariant::Invariant;
use muster_protocol::name::BarrierName;
use muster_protocol::region::Region;
use muster_protocol::replica::{Input, Output, Replica};

use super::World;
use crate::event::{Down, Event, Fault, ToAgent, ToClient};
use crate::log::{Log, Read};
use crate::network::{Link, Way};
use crate::participant::{Participant, Role};
use crate::sightings::Sight;

/// Times that a log which is recovered is read anew because a replica doubts.
const READ_ANEW_MAX: usize = 4;

impl World {
    pub(super) fn fault(&mut self, fault: Fault) {
        if let Fault::Cut { .. } | Fault::CutLeader { .. } | Fault::PauseAgent { .. } = &fault
            && self.scene.calm
        {
            return;
        }
        self.scene.note(|| format!("~~ {fault:?}"));
        let now = self.scene.now;
        match fault {
            Fault::CrashAgent { agent, back_after } => self.agents[agent].crash(&mut self.scene, back_after),
            Fault::CrashCoordinator { coordinator, back_after } => {
                self.coordinators[coordinator].crash(&mut self.scene, back_after);
            }
            Fault::PauseAgent { agent, lasts } => {
                self.agents[agent].paused_until = Some(now + lasts);
                self.scene.after(lasts, Event::Fault(Fault::Wake { sleeper: agent }));
            }
            Fault::PauseCoordinator { coordinator, lasts } => {
                self.coordinators[coordinator].paused_until = Some(now + lasts);
                let sleeper = self.agents.len() + coordinator;
                self.scene.after(lasts, Event::Fault(Fault::Wake { sleeper }));
            }
            Fault::Wake { sleeper } => self.wake(sleeper),
            Fault::Cut { link, there, back, lasts } => {
                for (cut, way) in [(there, Way::There), (back, Way::Back)] {
                    if cut {
                        self.scene.network.cut(link, way, now + lasts);
                    }
                }
            }
            Fault::CutLeader { region, lasts } => {
                let leader = self.agents.iter().find(|agent| agent.region == region && agent.leads());
                if let Some(agent) = leader.map(|agent| agent.index) {
                    self.scene.network.cut(Link::AgentLog(agent), Way::There, now + lasts);
                    self.scene.network.cut(Link::AgentLog(agent), Way::Back, now + lasts);
                }
            }
            Fault::Compact { region } => {
                for one in std::mem::take(&mut self.logs[region].followers) {
                    let what = ToAgent::FollowerLost { follower: one.follower };
                    self.scene.after(Duration::ZERO, Event::Agent { agent: one.agent, life: one.life, what });
                }
            }
            Fault::Replay { count } => {
                for _ in 0..count.min(self.records.len()) {
                    let record = self.scene.chance.pick(&self.records).clone();
                    self.scene.after(Duration::from_millis(1), record);
                }
            }
            Fault::ReplayEnds => {
                let is_end = |record: &&Event| matches!(record, Event::Down(Down::Fact(Fact::Decided(_))));
                let ends: Vec<Event> = self.records.iter().rev().filter(is_end).take(6).cloned().collect();
                let agent = self.scene.chance.below(self.agents.len());
                let lasts = Duration::from_millis(self.scene.chance.within(200..=4_000));
                self.scene.network.cut(Link::AgentLog(agent), Way::There, now + lasts);
                for record in ends {
                    let Event::Down(down) = record else { continue };
                    let (life, what) = (self.agents[agent].life, ToAgent::Heard(Box::new(down)));
                    self.scene.after(Duration::from_millis(1), Event::Agent { agent, life, what });
                }
            }
            Fault::Drain { region, lasts } => {
                self.store.drain(&self.workload.regions[region], true);
                for agent in self.workload.agents_of(&self.workload.regions[region]) {
                    self.scene.network.cut(Link::AgentBus(agent), Way::There, now + lasts);
                    self.scene.network.cut(Link::AgentBus(agent), Way::Back, now + lasts);
                }
                self.scene.after(lasts, Event::Fault(Fault::Resume { region }));
            }
            Fault::Resume { region } => self.store.drain(&self.workload.regions[region], false),
            Fault::SetBack { region, by } => self.set_back(region, by),
            Fault::Recover { region, keeps, history } => self.recover(region, keeps, history),
            Fault::RollBack { count } => {
                self.scene.told.rolled_back = true;
                let openings = self.numbers_that_may_be_given_again();
                let (lost, mut doubtful) = self.store.roll_back(count);
                let back = self.numbers_that_may_be_given_again();
                doubtful.extend(openings.into_iter().filter(|one| !back.contains(one)).map(|(name, _)| name));
                self.scene.truth.iter_mut().for_each(|truth| truth.doubtful = !doubtful.is_empty());
                self.scene.told.doubtful = doubtful;
                self.scene.note(|| format!("the store lost {lost} transactions"));
                self.begin_again(|role, participant| !role.regional && participant.done);
            }
        }
    }

    /// It goes on where it was, with what it believed: all that came meanwhile
    /// waits for it.
    pub(super) fn wake(&mut self, sleeper: usize) {
        let agents = self.agents.len();
        let paused = match sleeper.checked_sub(agents) {
            None => self.agents[sleeper].paused_until.take(),
            Some(coordinator) => self.coordinators[coordinator].paused_until.take(),
        };
        if paused.is_some() {
            self.scene.note(|| format!("sleeper {sleeper} wakes"));
        }
        for event in std::mem::take(&mut self.asleep[sleeper]) {
            self.meet(event);
        }
    }

    /// The next number of each barrier whose generations are told apart by more
    /// than that: by their keys, or by what they were defined as.
    fn numbers_that_may_be_given_again(&self) -> Vec<(BarrierName, u64)> {
        let plans = self.workload.barriers.iter().filter(|plan| !plan.keys.is_empty() || !plan.later.is_empty());
        plans.filter_map(|plan| self.store.barrier(&plan.spec.name)).map(|row| (row.name.clone(), row.next_n)).collect()
    }

    fn set_back(&mut self, region: usize, by: u64) {
        let log = &mut self.logs[region];
        let floor = log.manifest().map_or(0, |manifest| manifest.index);
        let index = log.head.saturating_sub(by).max(floor);
        if floor > 0 || index == log.head {
            return;
        }
        log.restore(index);
        let entries = log.entries_after(0);
        self.scene.truth[region].set_back(&entries);
        for agent in self.agents.iter_mut().filter(|agent| agent.region == region) {
            if let Some(process) = &mut agent.process {
                process.outlived = true;
                let what = ToAgent::FollowerLost { follower: process.follower() };
                self.scene.after(Duration::ZERO, Event::Agent { agent: agent.index, life: agent.life, what });
            }
        }
    }

    /// What the operators' book says of a log that was set back or is gone: stop
    /// all agents of the region, begin another life of its log above every index
    /// that anybody has seen, or with an empty one, and start them again.
    fn recover(&mut self, region: usize, keeps: bool, history: History) {
        for agent in self.agents.iter_mut().filter(|agent| agent.region == region) {
            let back_after = Duration::from_millis(self.scene.chance.within(50..=5_000));
            agent.crash(&mut self.scene, back_after);
        }
        let name = self.workload.regions[region].clone();
        let state = match self.read_all(region) {
            Err(what) => return self.scene.violated(Invariant::NothingAcknowledgedIsLost, what),
            Ok(_) if !keeps => Replica::new(Region::new(name, history, 0)).snapshot().0,
            Ok(state) => state,
        };
        let seen = if keeps { self.store.highest(state.region.name(), state.region.history()) } else { 0 };
        let base = state.region.index().max(seen);
        self.scene.seen.sight(if keeps { Sight::RecoveredWhatIsLeft } else { Sight::RecoveredEmpty });
        let anew = state.region.anew(history, base);
        self.logs[region] = Log::anew(base, &Snapshot { hash: state.hash, region: anew.clone() }.encode());
        self.scene.truth[region].begins_anew(anew, keeps);
        self.begin_again(|role, _| role.region == region && role.regional);
    }

    /// Whoever went on by what was decided, and is lost where that was decided,
    /// begins anew.
    fn begin_again(&mut self, who: impl Fn(&Role, &Participant) -> bool) {
        for (client, (role, participant)) in self.roles.iter().zip(&mut self.participants).enumerate() {
            if who(role, participant) {
                *participant = Participant::new(client, role.clone());
                self.scene.after(Duration::ZERO, Event::Client { client, what: ToClient::Go });
            }
        }
    }

    /// The newest state that a region's log leads to.
    fn read_all(&self, region: usize) -> Result<Snapshot, String> {
        let truth = &self.scene.truth[region].region;
        let Read { snapshot, entries, head } = self.logs[region].catch_up(0)?;
        let mut replica = Replica::new(Region::new(truth.name().clone(), truth.history(), 0));
        for _ in 0..READ_ANEW_MAX {
            let input = Input::CaughtUp { snapshot: snapshot.clone(), entries: entries.clone(), head };
            if !replica.step(input).iter().any(|output| matches!(output, Output::CatchUp { .. })) {
                break;
            }
        }
        match replica.region() == truth {
            true => Ok(replica.snapshot().0),
            false => Err(format!("the log of region {region} was read as something else than it is")),
        }
    }
}
