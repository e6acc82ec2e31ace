//! Doing one thing, on the protocol's own machines.

use std::collections::{BTreeMap, BTreeSet};

use muster_protocol::entry::{Body, Entry, Witness};
use muster_protocol::fact::Fact;
use muster_protocol::generation::GenerationId;
use muster_protocol::global::{self, Barrier, Context, Expect};
use muster_protocol::identity::{Digest, Epoch, SessionId, Timestamp, Writer};
use muster_protocol::outcome::{Override, Verdict};
use muster_protocol::region::{
    ArrivalOutcome, Arrive, Command, Heard, MACHINE_VERSION, OpenSession, Refusal, Region, Regional, Reply, Withdraw,
    Work,
};
use muster_protocol::spec::{Scope, Spec};

use crate::world::{Act, Agent, Known, Log, State, Told, World, told};

impl World {
    pub(crate) fn begin(&self) -> State {
        let logs = self.people.keys().enumerate().map(|(number, name)| {
            let mut region = Region::new(name.clone(), Self::history(), 0);
            let raise = Command::VersionRaised { epoch: Epoch(1), version: MACHINE_VERSION };
            apply(&mut region, writer(number, 0), 1, vec![Command::TookOver { epoch: Epoch(1) }, raise]);
            let agents = (0..self.agents).map(|_| Agent { lag: 0, seq: 1, unanswered: None }).collect();
            Log { states: vec![Known::new(region)], agents }
        });
        let mut state = State {
            logs: logs.collect(),
            store: Known::new(Barrier::new(self.barrier().clone())),
            up: BTreeSet::new(),
            down: BTreeSet::new(),
            unpublished: vec![Vec::new(); self.coordinators],
            time_is_up: false,
            left: self.budget,
            calls: BTreeMap::new(),
            told: BTreeSet::new(),
            alarm: false,
        };
        let spec = Box::new(self.spec.clone());
        self.transact(&mut state, 0, &global::Command::Define { spec, expect: Expect::NewOrEqual });
        state
    }

    pub(crate) fn step(&self, state: &mut State, act: Act) {
        match act {
            Act::Arrive { region, agent, n, who, failed } => {
                *state.calls.entry((region, n, who.clone())).or_default() += 1;
                state.left.failures -= u8::from(failed);
                // A call that failed, or was taken back, comes again as a new attempt.
                let attempt = 1;
                let outcome = if failed { ArrivalOutcome::Failed } else { ArrivalOutcome::Ok };
                let command = Command::Arrive(Arrive {
                    barrier: self.barrier().clone(),
                    n,
                    participant: who.clone(),
                    attempt,
                    outcome,
                    note: None,
                    output: None,
                    session: None,
                    at: Timestamp(0),
                });
                self.call(state, region, agent, command, Told::Arrived { region, n, who, attempt });
            }
            Act::Withdraw { region, agent, n, who } => {
                state.left.withdrawals -= 1;
                let command = Command::Withdraw(Withdraw {
                    barrier: self.barrier().clone(),
                    n,
                    participant: who.clone(),
                    attempt: 1,
                });
                self.call(state, region, agent, command, Told::Withdrawn { region, n, who, attempt: 1 });
            }
            Act::Replay(region, agent) => replay(state, region, agent),
            Act::Report(region, agent, n) => {
                let replica = state.logs[region].replica(agent);
                state.up.extend(replica.report_up(self.barrier(), n).map(Known::new));
            }
            Act::CrashAgent(region, agent) => {
                state.left.crashes -= 1;
                let agent = &mut state.logs[region].agents[agent];
                // It reads the log anew, and nobody hears what it had not answered.
                (agent.lag, agent.unanswered) = (0, None);
                state.logs[region].trim();
            }
            Act::Decide(coordinator, digest) => {
                let report =
                    state.up.iter().find(|report| report.is(digest)).map(|report| Box::new((**report).clone()));
                if let Some(report) = report {
                    self.transact(state, coordinator, &global::Command::Report(report));
                }
            }
            Act::Publish(coordinator) => {
                let facts = std::mem::take(&mut state.unpublished[coordinator]);
                state.down.extend(facts);
            }
            Act::CrashCoordinator(coordinator) => {
                state.left.crashes -= 1;
                state.unpublished[coordinator].clear();
                self.see("a coordinator died between commit and publication");
            }
            Act::Repeat(region) => {
                let name = self.region(region);
                let owed = state.store.generations.keys().filter_map(|n| {
                    let (generation, spec) = state.store.loaded(*n)?;
                    generation.unanswered(spec, name)
                });
                // What is on its way already says the same.
                let underway = |fact: &Fact| {
                    let same = |known: &Known<Fact>| same_subject(known, fact);
                    state.down.iter().any(same) || state.unpublished.iter().flatten().any(same)
                };
                let owed: Vec<Known<Fact>> = owed.filter(|fact| !underway(fact)).map(Known::new).collect();
                state.down.extend(owed);
            }
            Act::Hear(region, agent, digest) => self.hear(state, region, agent, digest),
            Act::Deadline(coordinator) => {
                state.left.deadlines -= u8::from(!state.time_is_up);
                state.time_is_up = true;
                for n in state.store.generations.keys().copied().collect::<Vec<_>>() {
                    self.transact(state, coordinator, &global::Command::Expire { n });
                }
            }
            Act::Abort(coordinator, n) => {
                state.left.aborts -= 1;
                self.transact(state, coordinator, &global::Command::Abort { n, by: by() });
            }
            Act::Delete(coordinator) => {
                state.left.deletions -= 1;
                self.transact(state, coordinator, &global::Command::Delete { force: true, by: by() });
            }
            Act::PredecessorBreaks(coordinator, n) => {
                state.left.predecessors -= 1;
                let name = "m/before".parse().unwrap_or_else(|error| unreachable!("{error}"));
                let predecessor = GenerationId { barrier: name, n, key: None, round: 0 };
                self.transact(state, coordinator, &global::Command::PredecessorBroke { n, predecessor });
            }
            Act::Lose { region, agent, n, who } => {
                state.left.losses -= 1;
                let (session, barrier) = (SessionId([1; 16]), self.barrier().clone());
                let works = vec![Work { barrier, n, participant: who }];
                let open = OpenSession { id: session, ttl_ms: 1, works, at: Timestamp(0) };
                let commands = vec![Command::OpenSession(open), Command::ExpireSession { session, attach: 1 }];
                append(state, region, agent, commands);
            }
            Act::Tick(region, agent) => {
                state.left.ticks -= 1;
                let from_ms = state.logs[region].replica(agent).clock_ms();
                let tick = Command::Ticked { epoch: Epoch(1), from_ms, to_ms: from_ms + 1, at: Timestamp(0) };
                append(state, region, agent, vec![tick]);
            }
            Act::TakeName(region, agent) => {
                state.left.names -= 1;
                let own = self.spec.regions.iter().nth(region).map(|(name, slice)| (name.clone(), slice.clone()));
                let spec = Spec { scope: Scope::Regional, regions: own.into_iter().collect(), ..self.spec.clone() };
                let command = global::Command::Define { spec: Box::new(spec), expect: Expect::NewOrEqual };
                let barrier = self.barrier().clone();
                let regional = Command::Regional(Box::new(Regional { barrier, command, at: Timestamp(0) }));
                append(state, region, agent, vec![regional]);
            }
            Act::Waive(coordinator, n) => {
                state.left.waivers -= 1;
                let region = self.region(0).clone();
                let waive = global::Command::Waive { n, region, participants: None, by: by() };
                self.transact(state, coordinator, &waive);
            }
        }
    }

    /// Drops messages that are stale for good: a report that is not newer than
    /// what the store has of its region, a fact that every agent has replayed.
    /// Worlds that differ by them only are one; the simulator delivers them.
    pub(crate) fn forget(&self, state: &mut State) {
        let State { up, down, store, logs, .. } = state;
        up.retain(|report| {
            let known = store.generations.get(&report.generation.n);
            let known = known.and_then(|generation| generation.reports.get(&report.region));
            known.is_none_or(|known| known.stamp.index < report.stamp.index)
        });
        down.retain(|fact| {
            let new = |log: &Log| log.replicas().any(|replica| replica.heard(fact) != Heard::Known);
            logs.iter().any(|log| fact.concerns(log.head().name()) && new(log))
        });
    }

    /// An agent appends a participant's command, and answers once it has
    /// replayed it.
    fn call(&self, state: &mut State, region: usize, agent: usize, command: Command, said: Told) {
        let reply = append(state, region, agent, vec![command]);
        self.see_reply(&reply);
        let index = state.logs[region].head().index();
        state.logs[region].agents[agent].unanswered = Some((index, told(&reply, said)));
    }

    fn hear(&self, state: &mut State, region: usize, agent: usize, digest: u64) {
        let Some(fact) = state.down.iter().find(|fact| fact.is(digest)).map(|fact| (**fact).clone()) else { return };
        match state.logs[region].replica(agent).heard(&fact) {
            Heard::New => {
                let reply = append(state, region, agent, vec![Command::Fact(fact)]);
                let index = state.logs[region].head().index();
                state.logs[region].agents[agent].unanswered = Some((index, Told::Nothing));
                if reply == (Reply::Done { changed: false }) {
                    self.see("a fact was appended twice");
                }
                state.alarm |= reply == Reply::Refused(Refusal::Conflict);
            }
            Heard::Known => {}
            Heard::Different => state.alarm = true,
        }
    }

    fn transact(&self, state: &mut State, coordinator: usize, command: &global::Command) {
        let mut barrier = (*state.store).clone();
        let now = Timestamp(if state.time_is_up { 1_000_000 } else { 0 });
        let (era, regions) = (&self.era, &self.declared);
        let context = Context { now, at: now, era, regions, barriers_in_namespace: 1 };
        let step = global::apply(&mut barrier, &context, command);
        // Generations beyond those that are looked at are not there.
        if barrier.next_n > self.generations + 1 {
            barrier.generations.retain(|n, _| *n <= self.generations);
            barrier.next_n = self.generations + 1;
        }
        for change in &step.changes {
            if let global::Change::Decided { decided, .. } = change {
                self.see(match &decided.outcome.verdict {
                    Verdict::Released(release) if release.whole => "released",
                    Verdict::Released(_) => "released, not whole",
                    Verdict::Broken(broken) => broken.reason.as_str(),
                });
            }
        }
        state.store = Known::new(barrier);
        state.unpublished[coordinator].extend(step.facts.into_iter().map(Known::new));
    }
}

impl Log {
    pub(crate) fn head(&self) -> &Region {
        &self.states[self.states.len() - 1]
    }

    /// The state that an agent has replayed.
    pub(crate) fn replica(&self, agent: usize) -> &Region {
        &self.states[self.states.len() - 1 - self.agents[agent].lag]
    }

    /// The state of each agent.
    fn replicas(&self) -> impl Iterator<Item = &Region> {
        (0..self.agents.len()).map(|agent| self.replica(agent))
    }

    /// Forgets the states that no agent is at any more.
    fn trim(&mut self) {
        let longest = self.agents.iter().map(|agent| agent.lag).max().unwrap_or(0);
        self.states.drain(..self.states.len() - 1 - longest);
    }
}

impl World {
    fn see_reply(&self, reply: &Reply) {
        match reply {
            Reply::Arrived(arrived) if arrived.late => self.see("a late arrival"),
            Reply::Arrived(arrived) if !arrived.first => self.see("a repeat"),
            Reply::Refused(Refusal::Sealed) => self.see("sealed"),
            Reply::Refused(Refusal::Withdrawn { .. }) => self.see("a withdrawn attempt came again"),
            _ => {}
        }
    }
}

/// Whether two facts say the same of the same generation to the same region.
fn same_subject(one: &Fact, other: &Fact) -> bool {
    let same_region = match (one, other) {
        (Fact::Opened(one), Fact::Opened(other)) => one.region == other.region,
        (Fact::Waived(one), Fact::Waived(other)) => one.region == other.region,
        (Fact::Decided(_), Fact::Decided(_)) | (Fact::Closed(_), Fact::Closed(_)) => true,
        _ => false,
    };
    same_region && one.generation() == other.generation()
}

fn append(state: &mut State, region: usize, agent: usize, commands: Vec<Command>) -> Reply {
    let log = &mut state.logs[region];
    log.agents[agent].seq += 1;
    let mut next = log.head().clone();
    let reply = apply(&mut next, writer(region, agent), log.agents[agent].seq, commands);
    log.states.push(Known::new(next));
    log.agents.iter_mut().for_each(|agent| agent.lag += 1);
    reply
}

fn apply(region: &mut Region, writer: Writer, seq: u64, commands: Vec<Command>) -> Reply {
    let witness = Witness { index: 0, hash: Digest([0; 32]) };
    let entry = Entry { index: region.index() + 1, writer, seq, body: Body { witness, commands } };
    let replies = region.apply(&entry, &mut Vec::new());
    replies.into_iter().next_back().unwrap_or_else(|| unreachable!("a new entry has replies"))
}

fn replay(state: &mut State, region: usize, agent: usize) {
    let log = &mut state.logs[region];
    log.agents[agent].lag -= 1;
    let applied = log.head().index() - log.agents[agent].lag as u64;
    if let Some((index, said)) = log.agents[agent].unanswered.take_if(|(index, _)| *index <= applied) {
        debug_assert_eq!(index, applied);
        if said != Told::Nothing {
            state.told.insert(said);
        }
    }
    state.logs[region].trim();
}

fn writer(region: usize, agent: usize) -> Writer {
    Writer((region * 10 + agent + 1) as u64)
}

fn by() -> Override {
    Override { actor: None, reason: String::new() }
}
