//! What a run is about: which barriers there are, how they are defined, who
//! takes part, and what else is done to them. All of it is drawn from the seed.
//!
//! To let the simulator use a new command: give [`Spec`] its field in
//! [`spec`], let a participant ([`crate::participant`]) or the operator
//! ([`crate::operator`]) send it, and add what it should be seen doing to
//! [`crate::sightings`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use muster_protocol::identity::History;
use muster_protocol::name::{BarrierName, Key, ParticipantId, RegionName};
use muster_protocol::participants::{IdSet, Participants};
use muster_protocol::spec::{Generations, Leaf, Liveness, OnLost, Rule, Scope, Slice, Spec};

use crate::chance::Chance;
use crate::event::Fault;
use crate::network::{Link, Weather};

/// A retention that no run outlives.
const LONG_MS: u64 = 3_600_000;

/// What a run is about.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) regions: Vec<RegionName>,
    pub(crate) agents_per_region: usize,
    pub(crate) coordinators: usize,
    pub(crate) barriers: Vec<Plan>,
    pub(crate) snapshot_every: u64,
    pub(crate) weather: Weather,
    pub(crate) crashes: u64,
    /// So many agents begin as builds of the version before.
    pub(crate) old_builds: usize,
    /// Leaders that something happens to in the middle of a turn, in a thousand.
    pub(crate) mishaps: u64,
    /// Arrivals that say they failed, in a thousand.
    pub(crate) failing: u64,
    /// Arrivals that are taken back, in a thousand.
    pub(crate) regretted: u64,
    /// When faults end.
    pub(crate) storm: Duration,
    pub(crate) faults: Vec<(Duration, Fault)>,
}

/// What is planned with one barrier.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) spec: Spec,
    /// Participants of each region that has one, each a client.
    pub(crate) people: BTreeMap<RegionName, Vec<ParticipantId>>,
    /// Participants go on until generations up to this number have ended.
    pub(crate) until_n: u64,
    /// Or until these keys have, if it is keyed.
    pub(crate) keys: Vec<Key>,
    /// Definitions the operator puts in force, one after the other.
    pub(crate) later: Vec<Spec>,
    /// Somebody defines the name at the coordinator too, where it can't be had.
    pub(crate) twin: Option<Spec>,
}

impl Plan {
    /// The region that decides it, if one does.
    pub(crate) fn home(&self) -> Option<&RegionName> {
        self.spec.regions.keys().next().filter(|_| self.spec.scope == Scope::Regional)
    }

    /// Its generations break with those of another, in most of its definitions.
    fn comes_after(&mut self, chance: &mut Chance, first: &Self) {
        let generations = first.spec.generations;
        for spec in self.later.iter_mut().chain([&mut self.spec]) {
            if generations != spec.generations {
                (spec.generations, spec.retention_ms, spec.retention_generations) = (generations, LONG_MS, 1_000);
            }
            spec.after = chance.permille(800).then(|| first.spec.name.clone());
        }
        self.keys.clone_from(&first.keys);
        self.until_n = first.until_n;
    }
}

/// Which data may come back from a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restored {
    /// None: every promise holds.
    #[default]
    Nothing,
    /// A region's log, at an earlier index: the region must stop or alarm, until
    /// it is recovered with what is left, or empty, and adopted.
    Log,
    /// The store, some transactions back: regions keep what they applied, and
    /// what was defined is defined again.
    Store,
}

impl Workload {
    pub(crate) fn draw(chance: &mut Chance, restored: Restored) -> Self {
        let names = ["ap", "eu", "us"];
        let regions: Vec<RegionName> =
            names.iter().take(chance.within(1..=3) as usize).map(|name| name.parse().expect("a name")).collect();
        let mut barriers: Vec<Plan> = (0..chance.within(1..=2)).map(|number| plan(chance, number, &regions)).collect();
        if let [first, second] = &mut barriers[..]
            && chance.permille(350)
        {
            second.comes_after(chance, first);
        }
        if chance.permille(350) {
            let first = regional(chance, &regions, "sim/local");
            if chance.permille(300)
                && let Some(home) = first.home()
            {
                let mut second = regional(chance, std::slice::from_ref(home), "sim/local-next");
                second.comes_after(chance, &first);
                barriers.push(second);
            }
            barriers.push(first);
        }
        let rough = chance.permille(700);
        let mut workload = Self {
            agents_per_region: chance.within(1..=3) as usize,
            coordinators: 2,
            barriers,
            snapshot_every: *chance.pick(&[3, 8, 25, 1_000]),
            weather: if rough {
                Weather { lost: chance.within(0..=60), twice: chance.within(0..=150), slow: chance.within(0..=120) }
            } else {
                Weather { lost: 0, twice: 5, slow: 5 }
            },
            crashes: *chance.pick(&[0, 0, 2, 8, 20]),
            old_builds: chance.within(0..=3).saturating_sub(1) as usize,
            mishaps: *chance.pick(&[0, 0, 60]),
            storm: Duration::from_secs(if chance.permille(250) { 150 } else { chance.within(5..=40) }),
            failing: *chance.pick(&[0, 40, 40, 250]),
            regretted: *chance.pick(&[0, 80, 80, 300]),
            faults: Vec::new(),
            regions,
        };
        let count = chance.within(0..=12);
        workload.faults = (0..count).map(|_| workload.fault(chance)).collect();
        let late = workload.storm.mul_f64(0.7);
        match restored {
            Restored::Nothing => {}
            Restored::Log => {
                let region = chance.below(workload.regions.len());
                workload.faults.push((late, Fault::SetBack { region, by: chance.within(1..=12) }));
                let after = late + Duration::from_millis(chance.within(500..=25_000));
                let (keeps, history) = (chance.permille(500), History([0x80 + region as u8; 16]));
                workload.faults.push((after, Fault::Recover { region, keeps, history }));
                // Meanwhile its name could be had, and then it would not come back.
                let lost = workload.regions[region].clone();
                workload
                    .barriers
                    .iter_mut()
                    .filter(|plan| plan.home() == Some(&lost))
                    .for_each(|plan| plan.twin = None);
            }
            Restored::Store => {
                workload.faults.push((late, Fault::RollBack { count: chance.within(1..=6) as usize }));
                // What the lost era said may still be on its way.
                for _ in 0..4 {
                    let after = late + Duration::from_millis(chance.within(500..=8_000));
                    workload.faults.push((after, Fault::ReplayEnds));
                }
            }
        }
        workload
    }

    /// The agents of a region, by their numbers.
    pub(crate) fn agents_of(&self, region: &RegionName) -> Range<usize> {
        let at = self.regions.iter().position(|name| name == region).unwrap_or(0);
        at * self.agents_per_region..(at + 1) * self.agents_per_region
    }

    fn fault(&self, chance: &mut Chance) -> (Duration, Fault) {
        let at = self.storm.mul_f64(chance.within(50..=950) as f64 / 1_000.0);
        let agents = self.regions.len() * self.agents_per_region;
        let agent = chance.below(agents);
        let coordinator = chance.below(self.coordinators);
        let while_ = Duration::from_millis(chance.within(100..=25_000));
        let fault = match chance.within(0..=13) {
            13 => Fault::Drain { region: chance.below(self.regions.len()), lasts: while_ },
            0 | 1 => Fault::CrashAgent { agent, back_after: while_ },
            2 => Fault::CrashCoordinator { coordinator, back_after: while_ },
            3 | 4 => Fault::PauseAgent { agent, lasts: while_ },
            5 => Fault::PauseCoordinator { coordinator, lasts: while_ },
            6 => Fault::Compact { region: chance.below(self.regions.len()) },
            8 => Fault::Replay { count: chance.within(1..=20) as usize },
            7 => {
                let lasts = Duration::from_millis(chance.within(8_000..=25_000));
                Fault::CutLeader { region: chance.below(self.regions.len()), lasts }
            }
            _ => {
                let links = [
                    Link::ClientsAgent(agent),
                    Link::ClientsCoordinator(coordinator),
                    Link::AgentLog(agent),
                    Link::AgentLog(agent),
                    Link::AgentBus(agent),
                    Link::CoordinatorBus(coordinator),
                    Link::CoordinatorStore(coordinator),
                ];
                let ways = chance.within(1..=3);
                Fault::Cut { link: *chance.pick(&links), there: ways & 1 == 1, back: ways & 2 == 2, lasts: while_ }
            }
        };
        (at, fault)
    }
}

fn plan(chance: &mut Chance, number: u64, regions: &[RegionName]) -> Plan {
    let name = format!("sim/b{number}").parse().expect("a name");
    plan_of(chance, &name, regions, Scope::Global)
}

/// A barrier that one region decides.
fn regional(chance: &mut Chance, regions: &[RegionName], name: &str) -> Plan {
    let name = name.parse().expect("a name");
    let home = chance.pick(regions).clone();
    let mut plan = plan_of(chance, &name, std::slice::from_ref(&home), Scope::Regional);
    if chance.permille(300) {
        let twin = spec(chance, &name, regions, Scope::Global, Generations::Single);
        plan.twin = Some(twin).filter(|twin| twin.regions.contains_key(&home));
    }
    plan
}

fn plan_of(chance: &mut Chance, name: &BarrierName, regions: &[RegionName], scope: Scope) -> Plan {
    let generations = match chance.within(0..=3) {
        0 => Generations::Single,
        1 | 2 => Generations::Cyclic,
        _ => Generations::Keyed { max_open: chance.within(1..=3) as u32 },
    };
    let first = spec(chance, name, regions, scope, generations);
    let changes = if generations == Generations::Cyclic { chance.within(0..=2) } else { chance.within(0..=1) };
    let mut later: Vec<Spec> = Vec::new();
    for _ in 0..changes {
        // A change of one field is the rule, a change of everything the exception.
        later.push(match chance.permille(500) {
            true => Spec { owner: format!("owner-{}", chance.within(0..=3)), ..first.clone() },
            false => spec(chance, name, regions, scope, generations),
        });
    }
    let most = |region: &RegionName| {
        let specs = later.iter().chain([&first]);
        specs.filter_map(|spec| spec.regions.get(region)).map(|slice| slice.participants.expected()).max()
    };
    let spare = u64::from(chance.permille(300));
    let people = regions
        .iter()
        .filter_map(|region| Some((region.clone(), u64::from(most(region)?) + spare)))
        .map(|(region, count)| (region, (1..=count).map(|who| format!("p{who}").parse().expect("an id")).collect()))
        .collect();
    let keys = match generations {
        Generations::Keyed { .. } => {
            (1..=chance.within(1..=4)).map(|k| format!("k{k}").parse().expect("a key")).collect()
        }
        _ => Vec::new(),
    };
    let until_n = if generations == Generations::Single { 1 } else { chance.within(1..=5) };
    Plan { spec: first, people, until_n, keys, later, twin: None }
}

fn spec(
    chance: &mut Chance,
    name: &BarrierName,
    regions: &[RegionName],
    scope: Scope,
    generations: Generations,
) -> Spec {
    let mut taken: BTreeMap<RegionName, Slice> = BTreeMap::new();
    for region in regions {
        if chance.permille(850) || taken.is_empty() {
            let slice = slice(chance, scope);
            taken.insert(region.clone(), slice);
        }
    }
    let short = generations == Generations::Cyclic && chance.permille(400);
    Spec {
        name: name.clone(),
        description: String::new(),
        owner: String::new(),
        labels: BTreeMap::new(),
        scope,
        release_when: rule(chance, &taken),
        regions: taken,
        generations,
        deadline_ms: chance.permille(300).then(|| chance.within(2_000..=40_000)),
        // A key that is forgotten could be opened again, and nobody would come.
        retention_ms: if short { chance.within(50..=10_000) } else { LONG_MS },
        retention_generations: if short { chance.within(1..=3) as u32 } else { 1_000 },
        failures_max: if chance.permille(300) { chance.within(0..=2) as u32 } else { u32::MAX },
        after: None,
    }
}

/// Mostly everybody; else so many of the regions or zones, or some of them.
fn rule(chance: &mut Chance, regions: &BTreeMap<RegionName, Slice>) -> Rule {
    let by_zone = chance.permille(700);
    let leaves: Vec<Rule> = regions.iter().flat_map(|(region, slice)| leaves(region, slice, by_zone)).collect();
    match chance.within(0..=9) {
        0..=2 => Rule::AtLeast { count: chance.within(1..=leaves.len() as u64) as u32, of: leaves },
        3 => Rule::Every(leaves.into_iter().take(1).collect()),
        _ => Rule::All,
    }
}

/// A region, or each of its zones.
fn leaves(region: &RegionName, slice: &Slice, by_zone: bool) -> Vec<Rule> {
    let leaf = |zone| Rule::Leaf(Leaf { region: region.clone(), zone });
    let zones: Vec<Rule> =
        slice.participants.zones().filter(|_| by_zone).map(|(zone, _)| leaf(Some(zone.clone()))).collect();
    if zones.is_empty() { vec![leaf(None)] } else { zones }
}

fn liveness(chance: &mut Chance, scope: Scope) -> Liveness {
    let on_lost = match scope {
        Scope::Global => *chance.pick(&[OnLost::Fail, OnLost::Exclude]),
        Scope::Regional => *chance.pick(&[OnLost::Fail, OnLost::Exclude, OnLost::Wait]),
    };
    Liveness { ttl_ms: chance.within(3_000..=10_000), rejoin_ms: chance.within(0..=20_000), on_lost }
}

fn slice(chance: &mut Chance, scope: Scope) -> Slice {
    let count = chance.within(1..=3);
    let ids = |from, to| IdSet::parse([format!("p[{from}-{to}]")]).expect("a range");
    let participants = match chance.within(0..=9) {
        0..=3 => Participants::Count(count as u32),
        4..=6 => Participants::Set(ids(1, count)),
        // The first zone is small, so that it promises before the other.
        _ => {
            let zones = [("a", ids(1, 1)), ("b", ids(2, count.max(2)))];
            Participants::Zones(zones.map(|(zone, ids)| (zone.parse().expect("a name"), ids)).into())
        }
    };
    Slice {
        participants,
        attempts: chance.within(1..=3) as u32,
        failures_max: u32::from(chance.permille(500)),
        fail_fast: chance.permille(700),
        keep_arrivals: chance.permille(600),
        liveness: chance.permille(400).then(|| liveness(chance, scope)),
        outputs_bytes_max: 1_000,
        deadline_ms: None,
        retention_ms: if scope == Scope::Regional && chance.permille(300) { 5_000 } else { LONG_MS },
    }
}
