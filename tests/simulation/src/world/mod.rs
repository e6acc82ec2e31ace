//! All processes and services of a run, and one loop that lets them meet what
//! happens, in the order of simulated time.

mod faults;
mod services;

use std::collections::VecDeque;
use std::time::Duration;

use muster_protocol::global::Generation;
use muster_protocol::identity::History;
use muster_protocol::invariant::Invariant;
use muster_protocol::name::BarrierName;
use muster_protocol::spec::Spec;

use crate::agent::Agent;
use crate::chance::Chance;
use crate::coordinator::Coordinator;
use crate::event::{Event, ToAgent, ToClient, ToCoordinator};
use crate::log::Log;
use crate::network::{Link, Network, Way};
use crate::operator::Operator;
use crate::participant::{Participant, Role};
use crate::scene::Scene;
use crate::store::Store;
use crate::truth::Truth;
use crate::workload::{Restored, Workload};

/// How long after the last fault everything must have finished.
pub(crate) const FINISH_WITHIN: Duration = Duration::from_secs(400);
/// How often leases are looked at.
const LEASES: Duration = Duration::from_millis(500);

/// A run.
pub(crate) struct World {
    pub(crate) scene: Scene,
    workload: Workload,
    logs: Vec<Log>,
    store: Store,
    agents: Vec<Agent>,
    /// What agents and coordinators that are paused will meet when they wake.
    asleep: Vec<VecDeque<Event>>,
    coordinators: Vec<Coordinator>,
    participants: Vec<Participant>,
    /// Who each of them is.
    roles: Vec<Role>,
    operator: Operator,
    /// What the bus has carried, to be read once more.
    records: Vec<Event>,
}

impl World {
    pub(crate) fn new(seed: u64, restored: Restored, recorded: bool) -> Self {
        let mut chance = Chance::new(seed);
        let workload = Workload::draw(&mut chance, restored);
        let truth = (1..).zip(&workload.regions).map(|(h, name)| Truth::new(name.clone(), History([h; 16]))).collect();
        let mut scene = Scene::new(seed, Network::new(workload.weather), truth, recorded);
        scene.chance = chance;
        let agents: Vec<Agent> = (0..workload.regions.len() * workload.agents_per_region)
            .map(|index| Agent::new(index, index / workload.agents_per_region, &workload))
            .collect();
        let names: Vec<BarrierName> = workload.barriers.iter().map(|plan| plan.spec.name.clone()).collect();
        let coordinators: Vec<_> = (0..workload.coordinators)
            .map(|index| Coordinator::new(index, workload.crashes.min(4), names.clone()))
            .collect();
        let mut roles = Vec::new();
        for plan in &workload.barriers {
            for (region, people) in &plan.people {
                let watches = |spec: &Spec| spec.regions.get(region).is_some_and(|slice| slice.liveness.is_some());
                let watched = watches(&plan.spec) || plan.later.iter().any(watches);
                let region_index = workload.regions.iter().position(|name| name == region).unwrap_or(0);
                let mine: Vec<usize> =
                    agents.iter().filter(|agent| agent.region == region_index).map(|agent| agent.index).collect();
                roles.extend(people.iter().map(|who| Role {
                    region: region_index,
                    region_name: region.clone(),
                    barrier: plan.spec.name.clone(),
                    who: who.clone(),
                    agents: mine.clone(),
                    regional: plan.home().is_some(),
                    until_n: plan.until_n,
                    keys: plan.keys.clone(),
                    failing: workload.failing,
                    regretted: workload.regretted,
                    watched,
                }));
            }
        }
        let participants: Vec<_> =
            roles.iter().cloned().enumerate().map(|(index, role)| Participant::new(index, role)).collect();
        let operator = Operator::new(participants.len(), &mut scene.chance, &workload);
        Self {
            logs: vec![Log::default(); workload.regions.len()],
            store: Store::new(&workload.regions, restored == Restored::Store),
            asleep: vec![VecDeque::new(); agents.len() + coordinators.len()],
            scene,
            workload,
            agents,
            coordinators,
            participants,
            roles,
            operator,
            records: Vec::new(),
        }
    }

    /// Runs to the end: until everything has finished after the last fault,
    /// time is up, or a promise is broken.
    pub(crate) fn run(&mut self) {
        self.begin();
        let storm = self.workload.storm;
        self.run_until(storm);
        self.calm();
        let end = self.scene.now + FINISH_WITHIN;
        while self.scene.violation.is_none() && self.unfinished().is_some() && self.scene.now < end {
            let step = self.scene.now + Duration::from_secs(1);
            self.run_until(step);
        }
        if let (None, Some(what)) = (&self.scene.violation, self.unfinished()) {
            self.scene.violated(Invariant::Live, what);
        }
    }

    fn begin(&mut self) {
        self.scene.note(|| "begins".to_owned());
        let plans: Vec<String> = self.workload.barriers.iter().map(|plan| format!("{:?}", plan.spec)).collect();
        for plan in plans {
            self.scene.note(|| plan);
        }
        for agent in &mut self.agents {
            agent.start(&mut self.scene);
        }
        for coordinator in &mut self.coordinators {
            coordinator.start(&mut self.scene);
        }
        for client in 0..=self.participants.len() {
            let pause = Duration::from_millis(self.scene.chance.within(0..=3_000));
            self.scene.after(pause, Event::Client { client, what: ToClient::Go });
        }
        for region in 0..self.logs.len() {
            self.scene.after(LEASES, Event::Leases { region });
        }
        for (at, fault) in self.workload.faults.clone() {
            self.scene.at(at, Event::Fault(fault));
        }
    }

    fn run_until(&mut self, end: Duration) {
        while self.scene.violation.is_none() {
            let Some(event) = self.scene.next(end) else { break };
            self.meet(event);
        }
        if self.scene.violation.is_none() {
            self.scene.now = self.scene.now.max(end);
        }
    }

    /// No more faults: ways are open, everybody is up.
    fn calm(&mut self) {
        self.scene.note(|| "faults are over".to_owned());
        self.scene.calm = true;
        self.scene.network.heal();
        for index in 0..self.asleep.len() {
            self.wake(index);
        }
        // The upgrade goes through: old builds end, and come back as new ones.
        for agent in self.agents.iter_mut().filter(|agent| agent.is_old()) {
            agent.crash(&mut self.scene, Duration::from_secs(1));
        }
    }

    fn meet(&mut self, event: Event) {
        match event {
            Event::Agent { agent, life, what } => self.agent_meets(agent, life, what),
            Event::Coordinator { coordinator, life, what } => self.coordinator_meets(coordinator, life, what),
            Event::Client { client, what } => match self.participants.get_mut(client) {
                Some(participant) => participant.meet(&mut self.scene, what),
                None => self.operator.meet(&mut self.scene, what),
            },
            Event::Log { region, history, agent, life, call, request } => {
                if let Some(answer) = self.log((region, history), agent, life, request) {
                    let what = ToAgent::Answered { call, answer };
                    self.scene.send(Link::AgentLog(agent), Way::Back, Event::Agent { agent, life, what });
                }
            }
            Event::Store { coordinator, life, call, request } => self.ask_store(coordinator, life, call, request),
            Event::Up(up) => {
                self.records.push(Event::Up(up.clone()));
                self.up(up);
            }
            Event::Down(down) => {
                self.records.push(Event::Down(down.clone()));
                for agent in 0..self.agents.len() {
                    let life = self.agents[agent].life;
                    let what = ToAgent::Heard(Box::new(down.clone()));
                    self.scene.send(Link::AgentBus(agent), Way::Back, Event::Agent { agent, life, what });
                }
            }
            Event::Leases { region } => {
                self.logs[region].expire(self.scene.now);
                self.scene.after(LEASES, Event::Leases { region });
            }
            Event::Fault(fault) => self.fault(fault),
        }
    }

    fn agent_meets(&mut self, index: usize, life: u32, what: ToAgent) {
        let agent = &mut self.agents[index];
        if life != agent.life && life != u32::MAX {
            return;
        }
        if agent.paused_until.is_some() {
            return self.asleep[index].push_back(Event::Agent { agent: index, life, what });
        }
        self.note_meeting(|| format!("agent {index}"), &what);
        self.agents[index].meet(&mut self.scene, what);
    }

    fn coordinator_meets(&mut self, index: usize, life: u32, what: ToCoordinator) {
        let coordinator = &mut self.coordinators[index];
        if life != coordinator.life && life != u32::MAX {
            if let ToCoordinator::Read(up) = what {
                self.read_again(*up);
            }
            return;
        }
        if coordinator.paused_until.is_some() {
            let event = Event::Coordinator { coordinator: index, life, what };
            return self.asleep[self.agents.len() + index].push_back(event);
        }
        self.note_meeting(|| format!("coordinator {index}"), &what);
        self.coordinators[index].meet(&mut self.scene, what);
    }

    fn note_meeting(&mut self, who: impl Fn() -> String, what: &impl std::fmt::Debug) {
        if self.scene.is_recorded() {
            let text = format!("{what:?}");
            if text != "Tick" && !text.contains("KeptAlive") && !text.starts_with("Unanswered") {
                let text: String = text.chars().take(260).collect();
                self.scene.note(|| format!("{} ← {text}", who()));
            }
        }
    }

    /// What is not finished yet, as a sentence.
    fn unfinished(&self) -> Option<String> {
        if !self.operator.is_done() {
            return Some("the operator waits for an answer".to_owned());
        }
        let doubtful = |barrier: &BarrierName| self.scene.told.doubtful.contains(barrier);
        if let Some(one) = self.participants.iter().find(|one| !one.done && !doubtful(one.barrier())) {
            return Some(format!("a participant waits: {}", one.about()));
        }
        for plan in self.workload.barriers.iter().filter(|plan| !doubtful(&plan.spec.name)) {
            let region = plan.home().and_then(|home| self.workload.regions.iter().position(|name| name == home));
            let decided_here =
                region.and_then(|region| self.scene.truth[region].region.regional_barrier(&plan.spec.name));
            let barriers = self.store.barrier(&plan.spec.name).into_iter().chain(decided_here);
            // Without the region that has the name nobody comes to its twin.
            let counts = |one: &&Generation| !plan.home().is_some_and(|home| one.waives(home));
            for one in barriers.flat_map(|barrier| barrier.generations.values()).filter(counts) {
                let planned = one.id.key.is_some() || one.id.n <= plan.until_n;
                // Regions that applied an end which was lost keep it, and nobody
                // can settle the other.
                let settled = one.settled || one.decided.is_some() && self.scene.told.was_decided_anew(&one.id);
                if planned && !settled && (one.decided.is_some() || one.id.key.is_none()) {
                    return Some(format!("{} is {}", one.id, one.state().as_str()));
                }
            }
        }
        if let Some((name, command)) = self.store.due(self.scene.clock()).iter().find(|(name, _)| !doubtful(name)) {
            return Some(format!("the store owes {name} {command:?}"));
        }
        for agent in &self.agents {
            let Some(process) = &agent.process else { return Some(format!("agent {} is down", agent.index)) };
            if !process.replica.is_following() || process.replica.writer().is_none() {
                return Some(format!("agent {} does not follow its log", agent.index));
            }
        }
        None
    }
}
