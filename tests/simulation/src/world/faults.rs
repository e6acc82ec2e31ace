//! What breaks, and how those who slept wake.

use std::time::Duration;

use muster_protocol::fact::Fact;

use super::World;
use crate::event::{Down, Event, Fault, ToAgent};
use crate::network::{Link, Way};

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
            Fault::RollBack { count } => {
                self.scene.told.rolled_back = true;
                let lost = self.store.roll_back(count);
                self.scene.note(|| format!("the store lost {lost} transactions"));
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
}
