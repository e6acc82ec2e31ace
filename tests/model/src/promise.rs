//! What must always hold, what must be seen sometimes, and the worlds in which
//! it is looked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_protocol::generation::State as GenerationState;
use muster_protocol::global::Declared;
use muster_protocol::identity::Era;
use muster_protocol::invariant;
use muster_protocol::participants::{IdSet, Participants};
use muster_protocol::region::ArrivalOutcome;
use muster_protocol::spec::{Generations, Liveness, OnLost, Rule, Scope, Slice, Spec};
use stateright::Property;

use crate::world::{Budget, Log, State, Told, World};

impl World {
    /// All of them.
    #[must_use]
    pub fn all() -> [Self; 6] {
        [Self::ending(), Self::withdrawing(), Self::breaking(), Self::taking(), Self::losing(), Self::large()]
    }

    /// Two regions of one agent, one coordinator, one generation: looked at to
    /// completion, with everything that can end it.
    #[must_use]
    pub fn ending() -> Self {
        let budget = Budget { calls: 1, failures: 1, crashes: 1, aborts: 1, deadlines: 1, ..Budget::default() };
        let sights = &["released", "participant-failed", "aborted", "deadline-exceeded"];
        Self::of("ending", 1, 1, 1, &[("a", 1), ("b", 1)], budget, sights)
    }

    /// The same world with calls that are repeated and taken back.
    #[must_use]
    pub fn withdrawing() -> Self {
        let budget = Budget { calls: 2, withdrawals: 1, crashes: 1, ..Budget::default() };
        let sights = &["released", "a repeat", "sealed", "a withdrawn attempt came again"];
        Self::of("withdrawing", 1, 1, 1, &[("a", 1), ("b", 1)], budget, sights)
    }

    /// The same world with the ends that come from elsewhere: a deletion, the
    /// break of a predecessor, and one failure more than is borne.
    #[must_use]
    pub fn breaking() -> Self {
        let budget = Budget { calls: 1, failures: 2, deletions: 1, predecessors: 1, ..Budget::default() };
        let sights = &["released", "max-failures-exceeded", "deleted", "predecessor-broken"];
        let mut world = Self::of("breaking", 1, 1, 1, &[("a", 1), ("b", 1)], budget, sights);
        world.spec.failures_max = 1;
        world.spec.regions.values_mut().for_each(|slice| slice.failures_max = 1);
        world
    }

    /// The same world with a region that takes the name for a barrier of its
    /// own.
    #[must_use]
    pub fn taking() -> Self {
        let budget = Budget { calls: 1, names: 1, ..Budget::default() };
        let sights = &["released", "name-taken"];
        Self::of("taking", 1, 1, 1, &[("a", 1), ("b", 1)], budget, sights)
    }

    /// The same world with a session that falls silent.
    #[must_use]
    pub fn losing() -> Self {
        let budget = Budget { calls: 1, losses: 1, ticks: 3, ..Budget::default() };
        let sights = &["released", "participant-lost"];
        let mut world = Self::of("losing", 1, 1, 1, &[("a", 1), ("b", 1)], budget, sights);
        let liveness = Liveness { ttl_ms: 1, rejoin_ms: 1, on_lost: OnLost::Fail };
        world.spec.regions.values_mut().for_each(|slice| slice.liveness = Some(liveness));
        world
    }

    /// Two regions of two agents, two coordinators, two generations.
    #[must_use]
    pub fn large() -> Self {
        let budget = Budget {
            calls: 2,
            failures: 1,
            withdrawals: 1,
            crashes: 2,
            aborts: 1,
            deadlines: 1,
            waivers: 1,
            ..Budget::default()
        };
        let sights = &[
            "released",
            "released, not whole",
            "participant-failed",
            "aborted",
            "deadline-exceeded",
            "a repeat",
            "a fact was appended twice",
            "a coordinator died between commit and publication",
        ];
        Self { walks: 256, ..Self::of("large", 2, 2, 2, &[("a", 1), ("b", 2)], budget, sights) }
    }

    fn of(
        name: &'static str,
        agents: usize,
        coordinators: usize,
        generations: u64,
        regions: &[(&str, u32)],
        budget: Budget,
        sights: &'static [&'static str],
    ) -> Self {
        let era = Era::new("1/1");
        let parse = |text: &str| text.parse().unwrap_or_else(|error| unreachable!("{text}: {error}"));
        let declared = Declared { history: Some(Self::history()), era: Some(era.clone()), drained: None };
        let people: BTreeMap<_, Vec<_>> = regions
            .iter()
            .map(|(region, count)| {
                (
                    parse(region),
                    (1..=*count)
                        .map(|id| id.to_string().parse().unwrap_or_else(|error| unreachable!("{id}: {error}")))
                        .collect(),
                )
            })
            .collect();
        let slices = regions.iter().map(|(region, count)| (parse(region), slice(*count))).collect();
        let spec = Spec {
            name: "m/b".parse().unwrap_or_else(|error| unreachable!("{error}")),
            description: String::new(),
            owner: String::new(),
            labels: BTreeMap::new(),
            scope: Scope::Global,
            regions: slices,
            generations: if generations == 1 { Generations::Single } else { Generations::Cyclic },
            deadline_ms: Some(1_000),
            release_when: Rule::All,
            retention_ms: u64::MAX,
            retention_generations: 1_000,
            failures_max: 0,
            after: None,
        };
        let declared = people.keys().map(|region| (region.clone(), declared.clone())).collect();
        Self {
            name,
            spec,
            agents,
            coordinators,
            generations,
            people,
            budget,
            sights,
            seen: Arc::default(),
            declared,
            era,
            walks: 0,
        }
    }

    pub(crate) fn promises(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("I1: released only when every region had promised", released_only_when_promised),
            Property::always("I2, I5: one outcome, the same everywhere", one_outcome),
            Property::always("I3, I8: what was acknowledged stays true", what_was_told_is_true),
            Property::always("I4, I11: missing is exactly required minus arrived", |_, state: &State| {
                state.logs.iter().all(|log| invariant::missing_is_exact(log.head()))
            }),
        ]
    }
}

fn slice(count: u32) -> Slice {
    let ids = IdSet::parse([format!("[1-{count}]")]).unwrap_or_else(|error| unreachable!("{error}"));
    Slice {
        participants: Participants::Set(ids),
        attempts: 1,
        failures_max: 0,
        fail_fast: true,
        keep_arrivals: true,
        liveness: None,
        outputs_bytes_max: 0,
        deadline_ms: None,
        retention_ms: u64::MAX,
    }
}

fn released_only_when_promised(_: &World, state: &State) -> bool {
    let decided = state.store.generations.iter().all(|(n, generation)| {
        let spec = state.store.loaded(*n).map(|(_, spec)| spec);
        spec.is_none_or(|spec| invariant::released_only_when_complete(generation, spec))
    });
    decided && state.logs.iter().all(|log| invariant::region_promised_before_release(log.head()))
}

fn one_outcome(world: &World, state: &State) -> bool {
    let agrees = |n: u64| {
        let decided = state.store.generations.get(&n).and_then(|generation| generation.decided.as_ref());
        let decided = decided.map(|decided| decided.outcome.digest());
        let ended = |log: &Log| {
            // One of the region's own under the name has an outcome of its own.
            let region = Some(log.head()).filter(|region| region.regional_barrier(world.barrier()).is_none())?;
            region.generation(world.barrier(), n)?.ended().map(|ended| ended.digest)
        };
        state.logs.iter().filter_map(ended).all(|digest| Some(digest) == decided)
    };
    !state.alarm && (1..=world.generations).all(agrees)
}

fn what_was_told_is_true(world: &World, state: &State) -> bool {
    state.told.iter().all(|told| match told {
        Told::Arrived { region, n, who, attempt } => {
            let Some(generation) = state.logs[*region].head().generation(world.barrier(), *n) else { return false };
            let withdrawn = generation.withdrawn(who).is_some_and(|through| through >= *attempt);
            let there = generation.arrival(who).is_some_and(|arrival| arrival.attempt >= *attempt);
            // Who came after the end was told the end, and counts nowhere.
            there || withdrawn || generation.state() == GenerationState::Released
        }
        Told::Withdrawn { region, n, who, attempt } => {
            let Some(generation) = state.logs[*region].head().generation(world.barrier(), *n) else { return false };
            let counted = |arrival: &muster_protocol::region::Arrival| {
                arrival.attempt <= *attempt && arrival.outcome == ArrivalOutcome::Ok
            };
            generation.withdrawn(who) >= Some(*attempt) && !generation.arrival(who).is_some_and(counted)
        }
        Told::Nothing => true,
    })
}
