//! One coordinator process: reads what comes up in batches, decides each in one
//! transaction, tells the regions, repeats what is unanswered, watches the
//! deadlines, and answers clients. It remembers nothing that matters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_protocol::fact::{Fact, Heartbeat, Hello, Standing};
use muster_protocol::global::{Change, Command, Refusal, Reply, Step};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::repeats::Repeats;
use muster_protocol::report::RegionReport;

use crate::event::{Ask, Asked, Down, Event, Said, StoreAnswer, StoreRequest, ToClient, ToCoordinator, Up};
use crate::network::{Link, Way};
use crate::scene::Scene;
use crate::sightings::Sight;

/// How often what is unanswered, and what is due, is looked for.
const TICK: Duration = Duration::from_millis(500);
/// How long the store may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause before a batch that the store did not take is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// So many ticks lie between two looks at what is past its retention.
const COLLECT_EACH: u64 = 5;

/// One coordinator, alive or not.
pub(crate) struct Coordinator {
    pub(crate) index: usize,
    pub(crate) life: u32,
    /// Crashes in a thousand steps, while faults are on.
    pub(crate) crashes: u64,
    barriers: Vec<BarrierName>,
    pub(crate) paused_until: Option<Duration>,
    process: Option<Process>,
}

/// What is lost when the process dies.
#[derive(Default)]
struct Process {
    inbox: Vec<Up>,
    batch: Option<Batch>,
    greeted: BTreeSet<RegionName>,
    repeats: Repeats,
    calls: BTreeMap<u64, Wanted>,
    looking: bool,
    expiring: bool,
    ticks: u64,
}

/// What is at hand: greetings, then reports, then signs of life.
#[derive(Clone, Debug, Default)]
struct Batch {
    greetings: Vec<Hello>,
    reports: Vec<RegionReport>,
    heartbeats: Vec<Heartbeat>,
}

/// A call of the store, and what it is for.
enum Wanted {
    Hello,
    Reports,
    Heartbeats,
    Unanswered { greeted: BTreeSet<RegionName> },
    Due,
    Expire,
    Collect,
    Client(Asked),
}

impl Coordinator {
    pub(crate) fn new(index: usize, crashes: u64, barriers: Vec<BarrierName>) -> Self {
        Self { index, life: 0, crashes, barriers, paused_until: None, process: None }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn start(&mut self, scene: &mut Scene) {
        scene.note(|| format!("coordinator {} starts, life {}", self.index, self.life));
        self.process = Some(Process::default());
        let pause = TICK.mul_f64(scene.chance.within(1..=1_000) as f64 / 1_000.0);
        scene.after(pause, self.event(ToCoordinator::Tick));
    }

    pub(crate) fn crash(&mut self, scene: &mut Scene, back_after: Duration) {
        let Some(process) = self.process.take() else { return };
        scene.note(|| format!("coordinator {} dies", self.index));
        scene.seen.sight(Sight::CoordinatorCrashed);
        self.life += 1;
        self.paused_until = None;
        scene.after(back_after, self.event(ToCoordinator::Start));
        // What was read and not committed is read again by whoever comes next.
        let batch = process.batch.unwrap_or_default();
        let reports = batch.reports.into_iter().map(|report| Up::Report(Box::new(report)));
        for up in process.inbox.into_iter().chain(reports) {
            scene.after(Duration::from_secs(1), Event::Up(up));
        }
    }

    fn event(&self, what: ToCoordinator) -> Event {
        Event::Coordinator { coordinator: self.index, life: self.life, what }
    }

    pub(crate) fn meet(&mut self, scene: &mut Scene, what: ToCoordinator) {
        if let ToCoordinator::Start = what {
            return self.start(scene);
        }
        if self.process.is_none() {
            return;
        }
        if !scene.calm && scene.chance.permille(self.crashes) {
            let back_after = Duration::from_millis(scene.chance.within(50..=10_000));
            return self.crash(scene, back_after);
        }
        match what {
            ToCoordinator::Start => {}
            ToCoordinator::Tick => self.tick(scene),
            ToCoordinator::Read(up) => {
                if let Some(process) = &mut self.process {
                    process.inbox.push(*up);
                }
                self.work(scene);
            }
            ToCoordinator::Again => self.work(scene),
            ToCoordinator::Answered { call, answer } => self.answered(scene, call, answer),
            ToCoordinator::Unanswered { call } => self.unanswered(scene, call),
            ToCoordinator::Asked(asked) => self.asked(scene, *asked),
        }
    }

    fn call(&mut self, scene: &mut Scene, wanted: Wanted, request: StoreRequest) {
        let Some(process) = &mut self.process else { return };
        let call = scene.next_call();
        process.calls.insert(call, wanted);
        scene.after(CALL_TIMEOUT, self.event(ToCoordinator::Unanswered { call }));
        let event = Event::Store { coordinator: self.index, life: self.life, call, request };
        scene.send(Link::CoordinatorStore(self.index), Way::There, event);
    }

    fn tick(&mut self, scene: &mut Scene) {
        scene.after(TICK, self.event(ToCoordinator::Tick));
        let Some(process) = &mut self.process else { return };
        process.ticks += 1;
        let collect = process.ticks.is_multiple_of(COLLECT_EACH);
        let (look, expire) = (!process.looking, !process.expiring);
        (process.looking, process.expiring) = (true, true);
        if look {
            let greeted = std::mem::take(&mut process.greeted);
            self.call(scene, Wanted::Unanswered { greeted }, StoreRequest::Unanswered { only: None });
        }
        if expire {
            self.call(scene, Wanted::Due, StoreRequest::Due);
        }
        if collect {
            let batch = self.barriers.iter().map(|name| (name.clone(), Command::Collect { tell: true })).collect();
            self.call(scene, Wanted::Collect, StoreRequest::Begin { batch });
        }
    }

    /// Takes what has come as a batch, or goes on with the one at hand.
    fn work(&mut self, scene: &mut Scene) {
        let Some(process) = &mut self.process else { return };
        let at_hand =
            process.calls.values().any(|wanted| matches!(wanted, Wanted::Hello | Wanted::Reports | Wanted::Heartbeats));
        if at_hand {
            return;
        }
        let inbox = &mut process.inbox;
        let batch = process.batch.get_or_insert_with(|| Batch::sort(std::mem::take(inbox)));
        let (wanted, request) = if let Some(hello) = batch.greetings.first() {
            (Wanted::Hello, StoreRequest::Hello(Box::new(hello.clone())))
        } else if !batch.reports.is_empty() {
            let reports = batch.reports.iter();
            let commands = reports.map(|r| (r.generation.barrier.clone(), Command::Report(Box::new(r.clone()))));
            (Wanted::Reports, StoreRequest::Begin { batch: commands.collect() })
        } else if !batch.heartbeats.is_empty() {
            (Wanted::Heartbeats, StoreRequest::Heartbeats(batch.heartbeats.clone()))
        } else {
            process.batch = None;
            if !process.inbox.is_empty() {
                self.work(scene);
            }
            return;
        };
        self.call(scene, wanted, request);
    }

    fn answered(&mut self, scene: &mut Scene, call: u64, answer: StoreAnswer) {
        let Some(process) = &mut self.process else { return };
        let Some(wanted) = process.calls.remove(&call) else { return };
        match (wanted, answer) {
            (Wanted::Hello, StoreAnswer::Welcome(welcome)) => {
                process.batch.as_mut().map(|batch| batch.greetings.remove(0));
                if welcome.standing == Standing::Current {
                    process.greeted.insert(welcome.region.clone());
                }
                self.tell(scene, Down::Welcome(*welcome));
                self.work(scene);
            }
            (Wanted::Reports, StoreAnswer::Steps(steps)) => {
                if let Some(batch) = &mut process.batch {
                    batch.reports.clear();
                }
                let stale = |step: &Step| matches!(step.reply, Ok(Reply::Reported { newer: false }));
                scene.seen.sight_if(steps.iter().any(stale), Sight::StaleReportIgnored);
                self.publish(scene, steps.into_iter().flat_map(|step| step.facts).collect());
                self.work(scene);
            }
            (Wanted::Heartbeats, StoreAnswer::Heard(welcomes)) => {
                if let Some(batch) = &mut process.batch {
                    batch.heartbeats.clear();
                }
                for welcome in welcomes {
                    self.tell(scene, Down::Welcome(welcome));
                }
                self.work(scene);
            }
            (Wanted::Unanswered { greeted }, StoreAnswer::Unanswered(page)) => {
                process.looking = false;
                let facts = process.repeats.page(page, &greeted, scene.now);
                process.repeats.end_look();
                self.publish(scene, facts);
            }
            (Wanted::Due, StoreAnswer::Due(due)) => {
                process.expiring = !due.is_empty();
                if !due.is_empty() {
                    self.call(scene, Wanted::Expire, StoreRequest::Begin { batch: due });
                }
            }
            (Wanted::Expire, StoreAnswer::Steps(steps)) => {
                process.expiring = false;
                self.publish(scene, steps.into_iter().flat_map(|step| step.facts).collect());
            }
            (Wanted::Collect, StoreAnswer::Steps(steps)) => {
                steps.iter().for_each(|step| sight(scene, step));
                self.publish(scene, steps.into_iter().flat_map(|step| step.facts).collect());
            }
            (Wanted::Client(asked), answer) => self.answer_client(scene, &asked, answer),
            _ => {}
        }
    }

    /// The store did not answer: done or not. A batch is tried until it is.
    fn unanswered(&mut self, scene: &mut Scene, call: u64) {
        let Some(process) = &mut self.process else { return };
        match process.calls.remove(&call) {
            None | Some(Wanted::Collect) => {}
            Some(Wanted::Hello | Wanted::Reports | Wanted::Heartbeats) => {
                scene.seen.sight(Sight::CommitAnswerLost);
                scene.after(AGAIN, self.event(ToCoordinator::Again));
            }
            Some(Wanted::Unanswered { greeted }) => {
                process.looking = false;
                process.greeted.extend(greeted);
            }
            Some(Wanted::Due | Wanted::Expire) => process.expiring = false,
            Some(Wanted::Client(asked)) => self.say(scene, &asked, Said::Unknown),
        }
    }

    fn tell(&self, scene: &mut Scene, down: Down) {
        scene.send(Link::CoordinatorBus(self.index), Way::There, Event::Down(down));
    }

    fn publish(&self, scene: &mut Scene, facts: Vec<Fact>) {
        for fact in facts {
            self.tell(scene, Down::Fact(fact));
        }
    }

    fn say(&self, scene: &mut Scene, asked: &Asked, said: Said) {
        let what = ToClient::Told { call: asked.call, said: Box::new(said) };
        // Agents that ask await no answer: what opens is heard.
        if asked.client != usize::MAX {
            scene.send(Link::ClientsCoordinator(self.index), Way::Back, Event::Client { client: asked.client, what });
        }
    }

    fn asked(&mut self, scene: &mut Scene, asked: Asked) {
        let request = match &asked.what {
            Ask::Look { barrier, key } => StoreRequest::Look { barrier: barrier.clone(), key: key.clone() },
            Ask::Decide { barrier, command, dry_run } => {
                let batch: Vec<(BarrierName, Command)> = vec![(barrier.clone(), (**command).clone())];
                if *dry_run { StoreRequest::DryRun { batch } } else { StoreRequest::Begin { batch } }
            }
            Ask::Adopt { region, history } => StoreRequest::Adopt { region: region.clone(), history: *history },
            _ => return,
        };
        self.call(scene, Wanted::Client(asked), request);
    }

    fn answer_client(&mut self, scene: &mut Scene, asked: &Asked, answer: StoreAnswer) {
        let said = match answer {
            StoreAnswer::Looked(looked) => Said::Looked(looked),
            StoreAnswer::Adopted(Some(_)) => Said::Adopted,
            StoreAnswer::Adopted(None) => Said::NotDone,
            StoreAnswer::Steps(mut steps) => {
                let Some(step) = steps.pop() else { return };
                let dry = matches!(asked.what, Ask::Decide { dry_run: true, .. });
                scene.seen.sight_if(dry, Sight::DryRun);
                sight(scene, &step);
                if !dry {
                    self.publish(scene, step.facts.clone());
                }
                Said::Step(Box::new(step))
            }
            _ => return,
        };
        self.say(scene, asked, said);
    }
}

fn sight(scene: &mut Scene, step: &Step) {
    for change in &step.changes {
        match change {
            Change::Forgotten { .. } => scene.seen.sight(Sight::Forgotten),
            Change::Waived { waiver, .. } if waiver.is_whole() => scene.seen.sight(Sight::WaivedRegion),
            Change::Waived { .. } => scene.seen.sight(Sight::WaivedParticipants),
            Change::Opened(generation) => {
                scene.seen.sight_if(generation.id.round > 0, Sight::Retried);
                scene.seen.sight_if(generation.carry.is_some(), Sight::CarriedOver);
                scene.seen.sight_if(!generation.waived.is_empty(), Sight::OpenedDrained);
            }
            _ => {}
        }
    }
    match &step.reply {
        Ok(Reply::Opened { generation, created, .. }) => {
            scene.seen.sight_if(!created && generation.key.is_some(), Sight::KeyOpenedTwice);
        }
        Ok(Reply::Defined { revision, created, changed: true }) => {
            scene.seen.sight_if(!created, Sight::Redefined);
            scene.seen.sight_if(*created && *revision > 1, Sight::NumbersWentOn);
        }
        Ok(Reply::Collected { count }) => scene.seen.sight_if(*count > 0, Sight::Collected),
        Err(Refusal::TooManyOpen { .. }) => scene.seen.sight(Sight::TooManyOpen),
        _ => {}
    }
}

impl Batch {
    /// Of several reports on one generation only the latest counts.
    fn add(&mut self, new: RegionReport) {
        let same = |known: &&mut RegionReport| {
            known.region == new.region && known.generation == new.generation && known.stamp.history == new.stamp.history
        };
        match self.reports.iter_mut().find(same) {
            None => self.reports.push(new),
            Some(known) if known.stamp.index <= new.stamp.index => *known = new,
            Some(_) => {}
        }
    }

    fn sort(inbox: Vec<Up>) -> Self {
        let mut batch = Self::default();
        for up in inbox {
            match up {
                Up::Hello(hello) => batch.greetings.push(hello),
                Up::Heartbeat(heartbeat) => batch.heartbeats.push(heartbeat),
                Up::Report(report) => batch.add(*report),
            }
        }
        batch
    }
}
