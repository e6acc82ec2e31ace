//! What there is in a small world, and what may be done in it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use muster_protocol::fact::Fact;
use muster_protocol::global::{Barrier, Declared};
use muster_protocol::identity::{Digest, Era, History};
use muster_protocol::name::{BarrierName, ParticipantId, RegionName};
use muster_protocol::region::{Region, Reply};
use muster_protocol::report::RegionReport;
use muster_protocol::spec::Spec;
use serde::Serialize;
use stateright::{Model, Property};

/// A value that is known by its digest.
#[derive(Clone, Debug)]
pub(crate) struct Known<T> {
    digest: u64,
    value: Arc<T>,
}

impl<T: Serialize> Known<T> {
    pub(crate) fn new(value: T) -> Self {
        let Digest(bytes) = Digest::of(&value);
        let mut first = [0; 8];
        first.copy_from_slice(&bytes[..8]);
        Self { digest: u64::from_le_bytes(first), value: Arc::new(value) }
    }
}

impl<T> std::ops::Deref for Known<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> PartialEq for Known<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<T> Eq for Known<T> {}

impl<T> PartialOrd for Known<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Known<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.digest.cmp(&other.digest)
    }
}

impl<T> Hash for Known<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// How large a world is, and what may happen in it.
#[derive(Clone, Debug)]
pub struct World {
    /// Its name.
    pub name: &'static str,
    pub(crate) spec: Spec,
    pub(crate) agents: usize,
    pub(crate) coordinators: usize,
    /// Generations that are looked at.
    pub(crate) generations: u64,
    /// Runs of chance whose every state is looked at from as well: what lies
    /// late in a large world is not reached from its beginning.
    pub(crate) walks: u64,
    pub(crate) people: BTreeMap<RegionName, Vec<ParticipantId>>,
    /// How often each of these may happen.
    pub(crate) budget: Budget,
    /// Outcomes and other sights that a run must come by: a run that never sees
    /// them proves too little.
    pub(crate) sights: &'static [&'static str],
    /// Those that were seen. Not part of a state: it would be another state for
    /// each way to it.
    pub(crate) seen: Arc<Mutex<BTreeSet<&'static str>>>,
    pub(crate) declared: BTreeMap<RegionName, Declared>,
    pub(crate) era: Era,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Calls of each participant for each generation, repeats included.
    pub(crate) calls: u8,
    pub(crate) failures: u8,
    pub(crate) withdrawals: u8,
    pub(crate) crashes: u8,
    pub(crate) aborts: u8,
    pub(crate) deadlines: u8,
    pub(crate) waivers: u8,
    pub(crate) deletions: u8,
    /// Breaks of the barrier that this one comes after.
    pub(crate) predecessors: u8,
    /// Participants whose session falls silent.
    pub(crate) losses: u8,
    /// Ticks of a region's clock.
    pub(crate) ticks: u8,
    /// Barriers of one region that take the name.
    pub(crate) names: u8,
}

/// One moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) logs: Vec<Log>,
    pub(crate) store: Known<Barrier>,
    /// What regions have sent.
    pub(crate) up: BTreeSet<Known<RegionReport>>,
    /// What coordinators have sent.
    pub(crate) down: BTreeSet<Known<Fact>>,
    /// What each coordinator has committed and not published.
    pub(crate) unpublished: Vec<Vec<Known<Fact>>>,
    pub(crate) time_is_up: bool,
    pub(crate) left: Budget,
    pub(crate) calls: BTreeMap<(usize, u64, ParticipantId), u8>,
    /// What was acknowledged to participants: it must stay true.
    pub(crate) told: BTreeSet<Told>,
    /// A second, different fact was applied for: an alarm.
    pub(crate) alarm: bool,
}

/// One region's log and its agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    /// The states that some agent may still be at; the last is the head's.
    pub(crate) states: Vec<Known<Region>>,
    pub(crate) agents: Vec<Agent>,
}

/// One agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Agent {
    /// How many states it lags behind the head.
    pub(crate) lag: usize,
    pub(crate) seq: u64,
    /// A call it has appended and not answered: it does once it has replayed it.
    pub(crate) unanswered: Option<(u64, Told)>,
}

/// What a participant was told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Told {
    Arrived { region: usize, n: u64, who: ParticipantId, attempt: u32 },
    Withdrawn { region: usize, n: u64, who: ParticipantId, attempt: u32 },
    Nothing,
}

/// One thing that may happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A participant calls an agent, which appends.
    Arrive {
        /// Which region.
        region: usize,
        /// Which agent.
        agent: usize,
        /// Which generation.
        n: u64,
        /// Who.
        who: ParticipantId,
        /// Whether its work failed.
        failed: bool,
    },
    /// A participant takes its arrival back.
    Withdraw {
        /// Which region.
        region: usize,
        /// Which agent.
        agent: usize,
        /// Which generation.
        n: u64,
        /// Who.
        who: ParticipantId,
    },
    /// An agent replays one entry.
    Replay(usize, usize),
    /// An agent tells what it knows of a generation.
    Report(usize, usize, u64),
    /// An agent dies, and is there again.
    CrashAgent(usize, usize),
    /// A coordinator reads a report, decides and commits.
    Decide(usize, u64),
    /// A coordinator publishes what it has committed.
    Publish(usize),
    /// A coordinator dies between commit and publication.
    CrashCoordinator(usize),
    /// A coordinator says again what a region has not answered.
    Repeat(usize),
    /// An agent hears a fact.
    Hear(usize, usize, u64),
    /// The deadline passes.
    Deadline(usize),
    /// Somebody aborts a generation.
    Abort(usize, u64),
    /// Somebody waives the first region.
    Waive(usize, u64),
    /// Somebody deletes the barrier, by force.
    Delete(usize),
    /// The generation breaks that this one comes after.
    PredecessorBreaks(usize, u64),
    /// A participant's session falls silent for too long.
    Lose {
        /// Which region.
        region: usize,
        /// Which agent.
        agent: usize,
        /// Which generation.
        n: u64,
        /// Who.
        who: ParticipantId,
    },
    /// A region's clock goes on.
    Tick(usize, usize),
    /// A region defines a barrier of its own under the name.
    TakeName(usize, usize),
}

/// Steps of one run of chance.
const WALK_STEPS: usize = 150;

impl World {
    /// The states of one run of chance, the same for a seed.
    fn walk(&self, mut state: State, seed: u64) -> Vec<State> {
        let mut chance = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut states = Vec::new();
        for _ in 0..WALK_STEPS {
            let mut acts = Vec::new();
            self.actions(&state, &mut acts);
            // Xorshift (Marsaglia, 2003): all that is asked of it is to differ.
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            let at = usize::try_from(chance % acts.len().max(1) as u64).unwrap_or(0);
            if let Some(next) = acts.get(at).and_then(|act| self.next_state(&state, act.clone())) {
                states.push(next.clone());
                state = next;
            }
        }
        states
    }

    pub(crate) fn see(&self, sight: &'static str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(sight);
    }

    /// What a run has to see and has not seen yet.
    #[must_use]
    pub fn unseen(&self) -> Vec<&'static str> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.sights.iter().filter(|sight| !seen.contains(*sight)).copied().collect()
    }

    pub(crate) fn region(&self, number: usize) -> &RegionName {
        self.people.keys().nth(number).unwrap_or_else(|| unreachable!("a region of this world"))
    }

    pub(crate) fn barrier(&self) -> &BarrierName {
        &self.spec.name
    }

    pub(crate) fn history() -> History {
        History([1; 16])
    }

    /// The generations that participants may think of now.
    fn open(&self, state: &State) -> impl Iterator<Item = u64> {
        1..=self.generations.min(state.store.next_n.saturating_sub(1))
    }

    fn acts_of_people(&self, state: &State, acts: &mut Vec<Act>) {
        for (region, people) in self.people.values().enumerate() {
            for agent in 0..self.agents {
                for n in self.open(state) {
                    // An agent that has not heard of it holds the call.
                    let heard = state.logs[region].replica(agent).generation(self.barrier(), n).is_some();
                    for who in people.iter().filter(|_| heard) {
                        let called = state.calls.get(&(region, n, who.clone())).copied().unwrap_or(0);
                        let free = state.logs[region].agents[agent].unanswered.is_none();
                        if free && called < self.budget.calls {
                            let arrive = |failed| Act::Arrive { region, agent, n, who: who.clone(), failed };
                            acts.push(arrive(false));
                            acts.extend((state.left.failures > 0).then(|| arrive(true)));
                        }
                        if free && state.left.withdrawals > 0 {
                            acts.push(Act::Withdraw { region, agent, n, who: who.clone() });
                        }
                        if free && state.left.losses > 0 {
                            acts.push(Act::Lose { region, agent, n, who: who.clone() });
                        }
                    }
                }
            }
        }
    }

    fn acts_of_agents(&self, state: &State, acts: &mut Vec<Act>) {
        for (region, log) in state.logs.iter().enumerate() {
            for (number, agent) in log.agents.iter().enumerate() {
                acts.extend((agent.lag > 0).then_some(Act::Replay(region, number)));
                // One that lags behind its own word tells nothing meanwhile.
                acts.extend(
                    self.open(state).filter(|_| agent.unanswered.is_none()).map(|n| Act::Report(region, number, n)),
                );
                acts.extend((state.left.crashes > 0).then_some(Act::CrashAgent(region, number)));
                let free = agent.unanswered.is_none();
                let waits = free && log.replica(number).due_ms().is_some();
                acts.extend((waits && state.left.ticks > 0).then_some(Act::Tick(region, number)));
                acts.extend((free && state.left.names > 0).then_some(Act::TakeName(region, number)));
                let concerned = state.down.iter().filter(|fact| free && fact.concerns(self.region(region)));
                acts.extend(concerned.map(|fact| Act::Hear(region, number, fact.digest)));
            }
        }
    }

    fn acts_of_coordinators(&self, state: &State, acts: &mut Vec<Act>) {
        for coordinator in 0..self.coordinators {
            if !state.unpublished[coordinator].is_empty() {
                acts.push(Act::Publish(coordinator));
                acts.extend((state.left.crashes > 0).then_some(Act::CrashCoordinator(coordinator)));
                // One transaction at a time: it publishes or dies first.
                continue;
            }
            acts.extend(state.up.iter().map(|report| Act::Decide(coordinator, report.digest)));
            acts.extend((state.left.deadlines > 0 || state.time_is_up).then_some(Act::Deadline(coordinator)));
            acts.extend((state.left.deletions > 0).then_some(Act::Delete(coordinator)));
            for n in self.open(state) {
                acts.extend((state.left.predecessors > 0).then_some(Act::PredecessorBreaks(coordinator, n)));
                acts.extend((state.left.aborts > 0).then_some(Act::Abort(coordinator, n)));
                acts.extend((state.left.waivers > 0).then_some(Act::Waive(coordinator, n)));
            }
        }
        acts.extend((0..self.people.len()).map(Act::Repeat));
    }
}

impl<T> Known<T> {
    pub(crate) fn is(&self, digest: u64) -> bool {
        self.digest == digest
    }
}

/// The answer to a call, as the participant understands it.
pub(crate) fn told(reply: &Reply, said: Told) -> Told {
    match reply {
        Reply::Arrived(_) | Reply::Withdrawn => said,
        _ => Told::Nothing,
    }
}

impl Model for World {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let begin = self.begin();
        let mut states = vec![begin.clone()];
        for seed in 1..=self.walks {
            states.extend(self.walk(begin.clone(), seed));
        }
        states
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        self.acts_of_people(state, acts);
        self.acts_of_agents(state, acts);
        self.acts_of_coordinators(state, acts);
    }

    fn next_state(&self, state: &State, act: Act) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, act);
        self.forget(&mut next);
        // What changes nothing is no step.
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.promises()
    }
}
