//! Looking at a world, and what was found.

use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, Model, Path};

use crate::World;

/// Where to stop looking, though there is more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// After so many states, of which some are the same.
    pub states: Option<usize>,
    /// After so long.
    pub time: Option<Duration>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The world.
    pub world: &'static str,
    /// Distinct states that were looked at.
    pub states: usize,
    /// All states that were come to, on any way.
    pub visits: usize,
    /// The longest way to any of them.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether every state was looked at.
    pub complete: bool,
    /// Each promise, and the steps that break it.
    pub promises: Vec<(&'static str, Option<Vec<String>>)>,
    /// What had to be seen and was not.
    pub unseen: Vec<&'static str>,
}

/// Looks at a world: breadth first from where it begins, so that the way to what
/// is found is short; or, where that is more than memory holds, depth first from
/// runs of chance.
#[must_use]
pub fn look(world: World, limits: Limits) -> Found {
    let (began, deep) = (Instant::now(), world.walks > 0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut checker = world.checker().threads(threads);
    if let Some(states) = limits.states {
        checker = checker.target_state_count(states);
    }
    if let Some(time) = limits.time {
        checker = checker.timeout(time);
    }
    match deep {
        true => found(&checker.spawn_dfs().join(), limits, began.elapsed()),
        false => found(&checker.spawn_bfs().join(), limits, began.elapsed()),
    }
}

fn found(checked: &impl Checker<World>, limits: Limits, took: Duration) -> Found {
    let promises = checked.model().properties().into_iter().map(|property| {
        let path = checked.discovery(property.name).map(Path::into_actions);
        (property.name, path.map(|acts| acts.iter().map(|act| format!("{act:?}")).collect()))
    });
    let promises: Vec<_> = promises.collect();
    let states = checked.unique_state_count();
    let stopped = limits.states.is_some_and(|limit| checked.state_count() >= limit)
        || limits.time.is_some_and(|limit| took >= limit);
    Found {
        world: checked.model().name,
        states,
        visits: checked.state_count(),
        depth: checked.max_depth(),
        took,
        complete: !stopped && promises.iter().all(|(_, broken)| broken.is_none()),
        promises,
        unseen: checked.model().unseen(),
    }
}

impl Found {
    /// Whether every promise holds, and was seen to matter.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.unseen.is_empty() && self.promises.iter().all(|(_, broken)| broken.is_none())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { world, states, visits, depth, .. } = self;
        let end = if self.complete { "to completion" } else { "in part" };
        write!(
            f,
            "{world}: {states} distinct states of {visits}, {end}, depth {depth}, {:.0} s",
            self.took.as_secs_f64()
        )?;
        for (promise, broken) in &self.promises {
            write!(f, "\n  {} {promise}", if broken.is_some() { "BROKEN" } else { "holds " })?;
            for act in broken.iter().flatten() {
                write!(f, "\n           {act}")?;
            }
        }
        match self.unseen.as_slice() {
            [] => write!(f, "\n  saw everything that it should"),
            unseen => write!(f, "\n  NEVER SAW {}", unseen.join(", ")),
        }
    }
}
