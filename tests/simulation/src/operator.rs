//! The one who defines barriers, changes and deletes them, opens keys ahead,
//! tries things, and ends generations. One step after the other, each sent
//! again until it is answered.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use muster_protocol::global::{Command, Expect};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Override;
use muster_protocol::participants::IdSet;
use muster_protocol::spec::{Generations, Spec};

use crate::chance::Chance;
use crate::event::{Ask, Asked, Event, Fault, Said, ToAgent, ToClient, ToCoordinator};
use crate::network::{Link, Way};
use crate::scene::Scene;
use crate::workload::{Plan, Workload};

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

/// How often what is in force in the end is put in force again.
const CONFIRM: Duration = Duration::from_secs(10);

/// The pause before what was not done is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// One step.
struct Act {
    /// Not before this.
    at: Duration,
    to: To,
    what: Ask,
}

/// Who decides it: the coordinators, or one of these agents' region.
#[derive(Clone)]
enum To {
    Coordinators,
    Agents(Range<usize>),
}

/// The operator.
pub(crate) struct Operator {
    index: usize,
    acts: VecDeque<Act>,
    /// What is to be in force in the end.
    last: Vec<(To, Ask)>,
    waiting_for: Option<u64>,
}

impl Operator {
    pub(crate) fn new(index: usize, chance: &mut Chance, workload: &Workload) -> Self {
        let to = |plan: &Plan| match plan.home() {
            None => To::Coordinators,
            Some(home) => To::Agents(workload.agents_of(home)),
        };
        let mut acts: Vec<Act> = workload.barriers.iter().flat_map(|plan| acts(chance, plan, &to(plan))).collect();
        acts.extend(workload.faults.iter().filter_map(|(at, fault)| adopt(chance, workload, *at, fault)));
        acts.sort_by_key(|act| act.at);
        let last = workload.barriers.iter().map(|plan| {
            let spec = plan.later.last().unwrap_or(&plan.spec);
            (to(plan), decide(&plan.spec.name, define(spec, Expect::Anything), false))
        });
        Self { index, acts: acts.into(), last: last.collect(), waiting_for: None }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.acts.is_empty()
    }

    pub(crate) fn meet(&mut self, scene: &mut Scene, what: ToClient) {
        match what {
            ToClient::Go => {}
            ToClient::Silence { call } if self.waiting_for == Some(call) => {}
            ToClient::Told { call, said } if self.waiting_for == Some(call) => {
                scene.note(|| format!("the operator is told {}", in_brief(&said)));
                if !matches!(*said, Said::Step(_) | Said::Regional(_) | Said::Adopted) {
                    self.waiting_for = None;
                    return scene.after(AGAIN, Event::Client { client: self.index, what: ToClient::Go });
                }
                self.acts.pop_front();
            }
            ToClient::Silence { .. } | ToClient::Told { .. } | ToClient::Beat { .. } => return,
        }
        self.waiting_for = None;
        self.act(scene);
    }

    fn act(&mut self, scene: &mut Scene) {
        let Some(act) = self.acts.front() else { return self.confirm(scene) };
        let pause = act.at.saturating_sub(scene.now);
        if !pause.is_zero() {
            return scene.after(pause, Event::Client { client: self.index, what: ToClient::Go });
        }
        let (to, what) = (act.to.clone(), act.what.clone());
        self.ask(scene, &to, what);
    }

    /// A call that was sent again may arrive long after its answer, so what is
    /// meant to be in force in the end is put in force again now and then.
    fn confirm(&mut self, scene: &mut Scene) {
        scene.after(CONFIRM, Event::Client { client: self.index, what: ToClient::Go });
        for (to, what) in self.last.clone() {
            self.ask(scene, &to, what);
        }
        self.waiting_for = None;
    }

    fn ask(&mut self, scene: &mut Scene, to: &To, what: Ask) {
        let call = scene.next_call();
        self.waiting_for = Some(call);
        scene.after(CALL_TIMEOUT, Event::Client { client: self.index, what: ToClient::Silence { call } });
        let asked = Box::new(Asked { call, client: self.index, what });
        match to {
            To::Coordinators => {
                let coordinator = scene.chance.below(2);
                let event = Event::Coordinator { coordinator, life: u32::MAX, what: ToCoordinator::Asked(asked) };
                scene.send(Link::ClientsCoordinator(coordinator), Way::There, event);
            }
            To::Agents(agents) => {
                let agent = agents.start + scene.chance.below(agents.len());
                let event = Event::Agent { agent, life: u32::MAX, what: ToAgent::Asked(asked) };
                scene.send(Link::ClientsAgent(agent), Way::There, event);
            }
        }
    }
}

fn by(reason: &str) -> Override {
    Override { actor: None, reason: reason.to_owned() }
}

fn define(spec: &Spec, expect: Expect) -> Command {
    Command::Define { spec: Box::new(spec.clone()), expect }
}

fn decide(barrier: &BarrierName, command: Command, dry_run: bool) -> Ask {
    Ask::Decide { barrier: barrier.clone(), command: Box::new(command), dry_run }
}

fn in_brief(said: &Said) -> String {
    match said {
        Said::Step(step) => format!("{:?}", step.reply),
        Said::Regional(reply) => format!("{reply:?}"),
        said => format!("{said:?}"),
    }
}

/// Whoever recovers a region's log adopts it.
fn adopt(chance: &mut Chance, workload: &Workload, at: Duration, fault: &Fault) -> Option<Act> {
    let Fault::Recover { region, history, .. } = fault else { return None };
    let what = Ask::Adopt { region: workload.regions[*region].clone(), history: *history };
    Some(Act { at: at + Duration::from_millis(chance.within(0..=8_000)), to: To::Coordinators, what })
}

/// What is done to one barrier, in the order of time.
fn acts(chance: &mut Chance, plan: &Plan, to: &To) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut at = Duration::ZERO;
    let mut add = |chance: &mut Chance, pauses: bool, command, dry_run| {
        at += Duration::from_millis(if pauses { chance.within(200..=12_000) } else { 0 });
        acts.push(Act { at, to: to.clone(), what: decide(&plan.spec.name, command, dry_run) });
    };
    add(chance, false, define(&plan.spec, Expect::NewOrEqual), false);
    for later in &plan.later {
        if chance.permille(400) {
            add(chance, true, Command::Delete { force: true, by: by("the plan changed") }, false);
        }
        let tried = chance.permille(300) && plan.home().is_none();
        add(chance, true, define(later, Expect::Anything), tried);
        add(chance, false, define(later, Expect::Anything), false);
    }
    for _ in 0..chance.within(0..=2) {
        let n = chance.within(1..=plan.until_n);
        add(chance, true, Command::Abort { n, by: by("no longer needed") }, false);
    }
    overrule(chance, plan, &mut add);
    if chance.permille(400) {
        add(chance, true, Command::Open { key: plan.keys.first().cloned() }, false);
    }
    if !plan.keys.is_empty() && plan.home().is_none() {
        let key = Some(chance.pick(&plan.keys).clone());
        add(chance, true, Command::Open { key }, true);
    }
    if let Some(twin) = &plan.twin {
        let what = decide(&plan.spec.name, define(twin, Expect::NewOrEqual), false);
        acts.push(Act { at, to: To::Coordinators, what });
    }
    acts
}

/// Somebody decides what participants had not.
fn overrule(chance: &mut Chance, plan: &Plan, add: &mut impl FnMut(&mut Chance, bool, Command, bool)) {
    let most = plan.until_n.max(plan.keys.len() as u64);
    let n = chance.within(1..=most);
    let regions: Vec<&RegionName> = plan.spec.regions.keys().collect();
    let region = (*chance.pick(&regions)).clone();
    // What a region decides alone is rarer, so it is overruled more often.
    match chance.within(0..=if plan.home().is_some() { 4 } else { 5 }) {
        0 => add(chance, true, Command::Release { n, by: by("it has to go on") }, false),
        1 => add(chance, true, Command::Waive { n, region, participants: None, by: by("it is away") }, false),
        2 => {
            let participants = IdSet::parse(["p1"]).ok();
            add(chance, true, Command::Waive { n, region, participants, by: by("it is broken") }, false);
        }
        // A round that nobody comes back for must leave room for other keys.
        3 | 4 if matches!(plan.spec.generations, Generations::Single | Generations::Keyed { max_open: 2.. }) => {
            let keep = chance.permille(500);
            let key = (!plan.keys.is_empty()).then(|| chance.pick(&plan.keys).clone());
            add(chance, true, Command::Abort { n, by: by("once more") }, false);
            add(chance, false, Command::Retry { n, key: key.clone(), keep, by: by("once more") }, false);
            add(chance, true, Command::Retry { n, key, keep, by: by("once more") }, false);
        }
        _ => {}
    }
}
