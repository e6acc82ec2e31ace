//! All processes and services of a run, and one loop that lets them meet what
//! happens, in the order of simulated time.

use std::collections::VecDeque;
use std::time::Duration;

use muster_protocol::global::{Command, Step, Waiver};
use muster_protocol::identity::{Epoch, History};
use muster_protocol::invariant::Invariant;
use muster_protocol::name::BarrierName;
use muster_protocol::outcome::Verdict;
use muster_protocol::replica::{Appended, Logged};
use muster_protocol::spec::Leaf;

use crate::agent::Agent;
use crate::chance::Chance;
use crate::coordinator::Coordinator;
use crate::event::{
    Event, Fault, LogAnswer, LogRequest, StoreAnswer, StoreRequest, ToAgent, ToClient, ToCoordinator, Up,
};
use crate::log::{Follower, Log, Read};
use crate::network::{Link, Network, Way};
use crate::operator::Operator;
use crate::participant::{Participant, Role};
use crate::scene::Scene;
use crate::sightings::Sight;
use crate::store::{Broken, Store};
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
    operator: Operator,
    /// What the bus has carried, to be read once more.
    records: Vec<Event>,
    restored: Restored,
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
        let mut participants = Vec::new();
        for plan in &workload.barriers {
            for (region, people) in &plan.people {
                let region_index = workload.regions.iter().position(|name| name == region).unwrap_or(0);
                let mine: Vec<usize> =
                    agents.iter().filter(|agent| agent.region == region_index).map(|agent| agent.index).collect();
                participants.extend(people.iter().map(|who| Role {
                    region: region_index,
                    region_name: region.clone(),
                    barrier: plan.spec.name.clone(),
                    who: who.clone(),
                    agents: mine.clone(),
                    until_n: plan.until_n,
                    keys: plan.keys.clone(),
                    failing: workload.failing,
                    regretted: workload.regretted,
                }));
            }
        }
        let participants: Vec<_> =
            participants.into_iter().enumerate().map(|(index, role)| Participant::new(index, role)).collect();
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
            operator,
            records: Vec::new(),
            restored,
        }
    }

    /// Runs to the end: until everything has finished after the last fault,
    /// time is up, or a promise is broken.
    pub(crate) fn run(&mut self) {
        self.begin();
        let storm = self.workload.storm;
        self.run_until(storm);
        self.calm();
        let end = self.scene.now + if self.must_finish() { FINISH_WITHIN } else { Duration::from_secs(60) };
        while self.scene.violation.is_none() && self.unfinished().is_some() {
            let step = self.scene.now + Duration::from_secs(1);
            self.run_until(step);
            if self.scene.now >= end {
                break;
            }
        }
        if self.scene.violation.is_some() || !self.must_finish() {
            return;
        }
        if let Some(what) = self.unfinished() {
            self.scene.violated(Invariant::Live, what);
        }
    }

    /// A region whose log was set back stops, and what needs it waits.
    fn must_finish(&self) -> bool {
        self.restored == Restored::Nothing
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
            Event::Log { region, agent, life, call, request } => {
                if let Some(answer) = self.log(region, agent, life, request) {
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

    /// One request at a region's log: all of it, or nothing.
    fn log(&mut self, region: usize, agent: usize, life: u32, request: LogRequest) -> Option<LogAnswer> {
        let now = self.scene.now;
        let log = &mut self.logs[region];
        log.expire(now);
        Some(match request {
            LogRequest::Register { machine_version } => LogAnswer::Registered(log.register(now, machine_version)),
            LogRequest::KeepAlive { writer, sent_at } => {
                LogAnswer::KeptAlive { writer, sent_at, lives: log.keep_alive(writer, now) }
            }
            LogRequest::Append { writer, seq, bytes, seen } => {
                let result = log.append(writer, seq, &bytes, seen);
                if let Appended::Landed { index } = result {
                    self.check_repeat(region, agent, &Logged { index, writer, seq, bytes: bytes.clone() });
                    self.landed(region, Logged { index, writer, seq, bytes });
                }
                LogAnswer::Appended(result)
            }
            LogRequest::Head => LogAnswer::Head(log.read_head()),
            LogRequest::CatchUp { after, follower } => {
                let Read { snapshot, entries, head } = match log.catch_up(after) {
                    Ok(caught_up) => caught_up,
                    Err(what) => {
                        self.scene.violated(Invariant::NothingAcknowledgedIsLost, what);
                        return None;
                    }
                };
                log.followers.retain(|one| one.agent != agent);
                let next = head + 1;
                log.followers.push(Follower { agent, life, follower, next, not_before: Duration::ZERO });
                LogAnswer::CaughtUp { snapshot, entries, head }
            }
            LogRequest::Campaign { writer } => LogAnswer::Elected(log.campaign(writer)),
            LogRequest::Registrations => LogAnswer::Registrations(log.registrations()),
            LogRequest::List { index } => LogAnswer::Listed(log.list(index)),
            LogRequest::PutChunk { epoch, index, number, bytes } => {
                LogAnswer::Put(log.put_chunk(epoch, index, number, &bytes))
            }
            LogRequest::PutManifest { epoch, index, listed, bytes } => {
                let before = log.manifest().map(|manifest| manifest.index);
                let put = log.put_manifest(epoch, index, listed, bytes);
                if put {
                    self.check_manifest(region, before, index, epoch);
                }
                LogAnswer::Put(put)
            }
            LogRequest::Truncate { index, covered } => {
                log.truncate(index, covered);
                LogAnswer::Truncated
            }
        })
    }

    fn check_manifest(&mut self, region: usize, before: Option<u64>, index: u64, epoch: Epoch) {
        let acting = self.scene.truth[region].region.epoch();
        self.scene.check(before.is_none_or(|before| index > before), Invariant::NothingAcknowledgedIsLost, || {
            format!("a snapshot at index {index} took the place of one at {before:?}")
        });
        self.scene.check(epoch >= acting, Invariant::OldEpochsPowerless, || {
            format!("a leader of epoch {epoch} put a snapshot in place after one of epoch {acting} had acted")
        });
    }

    /// A writer puts a command on its log under one number, unless a snapshot
    /// took the reply to it away.
    fn check_repeat(&mut self, region: usize, agent: usize, entry: &Logged) {
        let repeats = self.scene.truth[region].repeats(entry);
        let may = self.agents[agent].process.as_ref().is_none_or(|process| process.swallowed || process.outlived);
        self.scene.check(!repeats || may, Invariant::AtMostOnce, || {
            format!("agent {agent} put a command on its log under two numbers")
        });
    }

    /// An entry is durable: the truth moves on, and followers hear of it.
    fn landed(&mut self, region: usize, entry: Logged) {
        let findings = self.scene.truth[region].landed(&entry, &mut self.scene.seen);
        for (invariant, what) in findings {
            self.scene.violated(invariant, format!("region {region} at index {}: {what}", entry.index));
        }
        let now = self.scene.now;
        let mut followers = std::mem::take(&mut self.logs[region].followers);
        for one in followers.iter_mut().filter(|one| one.next <= entry.index) {
            let fate = self.scene.network.fate(&mut self.scene.chance, Link::AgentLog(one.agent), Way::Back, now);
            // Any one event may be lost; the stream goes on.
            let Some(delay) = fate.arrivals.first() else {
                self.scene.seen.sight(Sight::IndexGap);
                continue;
            };
            one.not_before = one.not_before.max(now + *delay) + Duration::from_nanos(1);
            let what = ToAgent::Followed { follower: one.follower, entry: Box::new(entry.clone()) };
            self.scene.at(one.not_before, Event::Agent { agent: one.agent, life: one.life, what });
        }
        self.logs[region].followers = followers;
    }

    fn ask_store(&mut self, coordinator: usize, life: u32, call: u64, request: StoreRequest) {
        let request = match request {
            // A transaction waits for its locks: what it saw when it began may
            // have changed when it has them.
            StoreRequest::Begin { batch } => {
                let seen = Box::new(self.store.see(&batch));
                let request = StoreRequest::Commit { batch, seen };
                let wait = Duration::from_micros(self.scene.chance.within(100..=20_000));
                return self.scene.after(wait, Event::Store { coordinator, life, call, request });
            }
            request => request,
        };
        let answer = match self.store(request) {
            Ok(answer) => answer,
            Err((invariant, what)) => return self.scene.violated(invariant, what),
        };
        let what = ToCoordinator::Answered { call, answer };
        let event = Event::Coordinator { coordinator, life, what };
        self.scene.send(Link::CoordinatorStore(coordinator), Way::Back, event);
    }

    fn store(&mut self, request: StoreRequest) -> Result<StoreAnswer, Broken> {
        let now = self.scene.clock();
        Ok(match request {
            StoreRequest::Begin { batch } => StoreAnswer::Steps(self.store.dry_run(&batch, now)?),
            StoreRequest::DryRun { batch } => StoreAnswer::Steps(self.store.dry_run(&batch, now)?),
            StoreRequest::Commit { batch, seen } => {
                let steps = self.store.transact(&batch, &seen, now)?;
                self.decided(&batch, &steps);
                StoreAnswer::Steps(steps)
            }
            StoreRequest::Hello(hello) => StoreAnswer::Welcome(Box::new(self.store.hello(&hello))),
            StoreRequest::Heartbeats(heartbeats) => {
                heartbeats.iter().for_each(|beat| self.store.heartbeat(&beat.region, beat.history, beat.index));
                StoreAnswer::Done
            }
            StoreRequest::Unanswered { only } => StoreAnswer::Unanswered(self.store.unanswered(only.as_ref())),
            StoreRequest::Due => StoreAnswer::Due(self.store.due(now)),
            StoreRequest::Look { barrier, key } => StoreAnswer::Looked(self.store.look(&barrier, key.as_ref())),
        })
    }

    /// Decisions are durable: each is held against what is true of its regions.
    fn decided(&mut self, batch: &[(BarrierName, Command)], steps: &[Step]) {
        use muster_protocol::global::Change;
        for ((name, _), change) in
            batch.iter().zip(steps).flat_map(|(named, step)| step.changes.iter().map(move |change| (named, change)))
        {
            let Change::Decided { n, decided } = change else { continue };
            self.scene.note(|| format!("decided {} {:?}", decided.outcome.generation, decided.outcome.verdict));
            if let Err(what) = self.scene.told.decided(&decided.outcome, &mut self.scene.seen) {
                self.scene.violated(Invariant::OneOutcome, what);
            }
            let Some((generation, spec)) = self.store.barrier(name).and_then(|barrier| barrier.loaded(*n)) else {
                continue;
            };
            match &decided.outcome.verdict {
                Verdict::Released(release) => {
                    self.scene.seen.sight_if(release.forced.is_some(), Sight::Forced);
                    self.scene.seen.sight_if(!release.left_out.is_empty(), Sight::LeftOut);
                    let promised = |leaf: &Leaf| {
                        let at = self.workload.regions.iter().position(|name| *name == leaf.region).unwrap_or(0);
                        let waived = generation.waived.get(&leaf.region).is_some_and(Waiver::is_whole);
                        waived || self.scene.truth[at].promised(name, *n) || self.scene.truth[at].set_back
                    };
                    let holds = spec.release_when.holds(spec.regions.keys(), &promised) || release.forced.is_some();
                    self.scene.check(holds, Invariant::ReleasedOnlyWhenComplete, || {
                        format!("{name} {n} was released, and the regions that its rule needs had not promised")
                    });
                }
                Verdict::Broken(broken) => {
                    let passed = generation.deadline_at.is_some_and(|at| at <= self.scene.clock());
                    let due = broken.reason != muster_protocol::outcome::BreakReason::DeadlineExceeded || passed;
                    self.scene.check(due, Invariant::RefusalsAreFinal, || {
                        format!("{name} {n} was out of time before its deadline")
                    });
                    self.check_abort(name, *n, batch);
                }
            }
        }
    }

    /// What somebody did to one generation ends that one.
    fn check_abort(&mut self, name: &BarrierName, n: u64, batch: &[(BarrierName, Command)]) {
        let asked = batch.iter().any(|(named, command)| match command {
            Command::Abort { n: meant, .. }
            | Command::Expire { n: meant }
            | Command::Release { n: meant, .. }
            | Command::Waive { n: meant, .. }
            | Command::PredecessorBroke { n: meant, .. } => named == name && *meant == n,
            Command::Report(report) => named == name && report.generation.n == n,
            Command::Delete { .. } => named == name,
            Command::Define { .. } | Command::Open { .. } | Command::Retry { .. } | Command::Collect { .. } => false,
        });
        self.scene.check(asked, Invariant::GenerationsApart, || format!("{name} {n} was ended by an act on another"));
    }

    /// A record on the bus goes to whoever reads its part, mostly.
    fn up(&mut self, up: Up) {
        let part = match &up {
            Up::Report(report) => report.generation.barrier.as_str().bytes().map(usize::from).sum(),
            Up::Hello(hello) => hello.region.as_str().bytes().map(usize::from).sum(),
            Up::Heartbeat(beat) => beat.region.as_str().bytes().map(usize::from).sum::<usize>(),
        };
        let living: Vec<usize> = self.coordinators.iter().filter(|one| one.is_up()).map(|one| one.index).collect();
        if living.is_empty() {
            return;
        }
        // A member that was put out of the group may go on reading for a while.
        let zombie = !self.scene.calm && self.scene.chance.permille(100);
        let coordinator = if zombie { *self.scene.chance.pick(&living) } else { living[part % living.len()] };
        let life = self.coordinators[coordinator].life;
        let what = ToCoordinator::Read(Box::new(up));
        let event = Event::Coordinator { coordinator, life, what };
        self.scene.send(Link::CoordinatorBus(coordinator), Way::Back, event);
    }

    fn fault(&mut self, fault: Fault) {
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
    fn wake(&mut self, sleeper: usize) {
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

    /// What is not finished yet, as a sentence.
    fn unfinished(&self) -> Option<String> {
        if !self.operator.is_done() {
            return Some("the operator waits for an answer".to_owned());
        }
        if let Some(one) = self.participants.iter().find(|one| !one.done) {
            return Some(format!("a participant waits: {}", one.about()));
        }
        for (barrier, plan) in self.store.barriers().zip(&self.workload.barriers) {
            for one in barrier.generations.values() {
                let planned = one.id.key.is_some() || one.id.n <= plan.until_n;
                if planned && !one.settled && (one.decided.is_some() || one.id.key.is_none()) {
                    return Some(format!("{} is {}", one.id, one.state().as_str()));
                }
            }
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
