//! Links between processes and services: how long a message takes, and which
//! ways are cut. A cut way loses what is sent on it; loss without a cut,
//! duplication and long delays come by chance while faults are on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::chance::Chance;

/// One link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Link {
    /// The clients of an agent.
    ClientsAgent(usize),
    /// The clients of a coordinator; agents that ask it are clients of it.
    ClientsCoordinator(usize),
    /// An agent and its region's log.
    AgentLog(usize),
    /// An agent and the bus.
    AgentBus(usize),
    /// A coordinator and the bus.
    CoordinatorBus(usize),
    /// A coordinator and the store.
    CoordinatorStore(usize),
}

/// Which way on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// From the first named to the second.
    There,
    /// Back.
    Back,
}

/// What becomes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    /// After which times it arrives; empty when it is lost.
    pub(crate) arrivals: Vec<Duration>,
}

/// What chance does to messages while faults are on, in thousandths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) twice: u64,
    pub(crate) slow: u64,
}

impl Weather {
    pub(crate) const CALM: Self = Self { lost: 0, twice: 0, slow: 0 };
}

/// All links.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    cut: BTreeMap<(Link, Way), Duration>,
    pub(crate) weather: Weather,
}

impl Network {
    pub(crate) fn new(weather: Weather) -> Self {
        Self { cut: BTreeMap::new(), weather }
    }

    pub(crate) fn cut(&mut self, link: Link, way: Way, until: Duration) {
        let known = self.cut.entry((link, way)).or_default();
        *known = until.max(*known);
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.weather = Weather::CALM;
    }

    pub(crate) fn is_cut(&self, link: Link, way: Way, now: Duration) -> bool {
        self.cut.get(&(link, way)).is_some_and(|until| now < *until)
    }

    /// What becomes of a message that is sent now.
    pub(crate) fn fate(&self, chance: &mut Chance, link: Link, way: Way, now: Duration) -> Fate {
        if self.is_cut(link, way, now) || chance.permille(self.weather.lost) {
            return Fate { arrivals: Vec::new() };
        }
        let mut arrivals = vec![self.delay(chance, link)];
        // The log's and the store's protocols never deliver twice; the callers
        // of them repeat, which the retries of processes do here.
        let may_repeat = !matches!(link, Link::AgentLog(_) | Link::CoordinatorStore(_));
        if may_repeat && chance.permille(self.weather.twice) {
            arrivals.push(self.delay(chance, link));
        }
        Fate { arrivals }
    }

    fn delay(&self, chance: &mut Chance, link: Link) -> Duration {
        let usual = match link {
            Link::ClientsAgent(_) | Link::ClientsCoordinator(_) => 200..=2_000,
            Link::AgentLog(_) => 300..=3_000,
            Link::CoordinatorStore(_) => 500..=5_000,
            Link::AgentBus(_) | Link::CoordinatorBus(_) => 1_000..=20_000,
        };
        let usual = Duration::from_micros(chance.within(usual));
        if chance.permille(self.weather.slow) {
            let longest = if matches!(link, Link::AgentBus(_) | Link::CoordinatorBus(_)) { 40_000 } else { 8_000 };
            return usual + Duration::from_millis(chance.within(20..=longest));
        }
        usual
    }
}
