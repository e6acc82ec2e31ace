//! One agent process: the product's machines, and what its driver, reporter,
//! downlink, leadership and API do around them, as events.
//!
//! ```text
//! mod        life, ticks, the replica's outputs
//! log        calls to the region's log, their answers, timeouts and repeats
//! lead       one turn of leading after the other
//! hear       what comes down, and what is told up
//! serve      calls of clients
//! regional   what is said to barriers that the region decides
//! sessions   their heartbeats
//! ```

mod hear;
mod lead;
mod log;
mod regional;
mod serve;
mod sessions;

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::fact::AgentId;
use muster_protocol::identity::{Era, SessionId, Writer};
use muster_protocol::invariant::Invariant;
use muster_protocol::lease::LeaseClock;
use muster_protocol::listening::Listening;
use muster_protocol::region::{Command, Effect, MACHINE_VERSION, Region};
use muster_protocol::replica::{Input, Output, Patience, Replica, Stop, Ticket};
use muster_protocol::reporting::Reporting;

use crate::event::{Asked, Down, Event, ToAgent};
use crate::scene::Scene;
use crate::sightings::Sight;
use crate::workload::Workload;
use lead::Lead;
use log::Wanted;
use serve::Kept;
use sessions::Hearing;

/// How often everything periodic is looked at.
const TICK: Duration = Duration::from_millis(250);
/// How long somebody waits for a command's answer before giving up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// One agent, alive or not.
pub(crate) struct Agent {
    pub(crate) index: usize,
    pub(crate) region: usize,
    pub(crate) life: u32,
    pub(crate) snapshot_every: u64,
    /// Crashes in a thousand steps, while faults are on.
    pub(crate) crashes: u64,
    /// The machine version it announces: old builds run beside new ones.
    version: u16,
    /// Leaders that something happens to in the middle of a turn, in a thousand.
    pub(crate) mishaps: u64,
    pub(crate) paused_until: Option<Duration>,
    pub(crate) process: Option<Process>,
}

/// What is lost when the process dies.
pub(crate) struct Process {
    pub(crate) replica: Replica,
    reporting: Reporting,
    pub(crate) listening: Listening,
    lead: Lead,
    patience: Patience,
    ticks: u64,
    follower: u64,
    lease: Option<(Writer, LeaseClock)>,
    calls: BTreeMap<u64, Wanted>,
    tickets: BTreeMap<Ticket, Whose>,
    next_ticket: u64,
    kept: Vec<Kept>,
    pub(crate) stopped: Option<Stop>,
    /// A snapshot swallowed entries: commands of its own may come twice.
    pub(crate) swallowed: bool,
    /// Its log was set back under it: its state is of a log that is gone.
    pub(crate) outlived: bool,
    follows_bus: bool,
    /// The era it was last welcomed by, with which it stamps reports.
    era: Option<Era>,
    hearing: Hearing,
    /// When the registration that is on its way was sent.
    registering_at: Duration,
}

/// Whose answer a ticket is.
enum Whose {
    Client { asked: Box<Asked>, command: Command },
    Regional { asked: Box<Asked> },
    Looking { asked: Box<Asked> },
    TookOver,
    Led,
    Fact,
    Fresh { seen: u64, era: Option<Era>, ends: bool },
    Session { asked: Box<Asked>, command: Command, began: Duration },
    Look { began: Duration },
    Silent,
    Beat { asked: Box<Asked>, session: SessionId, began: Duration },
    Attach { asked: Box<Asked>, session: SessionId, began: Duration },
}

impl Agent {
    pub(crate) fn new(index: usize, region: usize, workload: &Workload) -> Self {
        let Workload { snapshot_every, crashes, mishaps, old_builds, .. } = *workload;
        let version = if index < old_builds { MACHINE_VERSION - 1 } else { MACHINE_VERSION };
        Self { index, region, life: 0, snapshot_every, crashes, version, mishaps, paused_until: None, process: None }
    }

    pub(crate) fn start(&mut self, scene: &mut Scene) {
        if self.life > 0 {
            // Whoever comes back is upgraded.
            self.version = MACHINE_VERSION;
        }
        let truth = &scene.truth[self.region].region;
        let blank = Region::new(truth.name().clone(), truth.history(), 0);
        let id = AgentId { name: format!("agent-{}", self.index), instance: format!("{}", self.life) };
        let replica = Replica::new(blank).as_build_of(self.version);
        let first = replica.start();
        scene.note(|| format!("agent {} starts, life {}", self.index, self.life));
        self.process = Some(Process {
            replica,
            reporting: Reporting::default(),
            listening: Listening::new(id, format!("http://agent-{}", self.index)),
            lead: Lead::new(self.snapshot_every),
            patience: Patience::default(),
            ticks: 0,
            follower: 0,
            lease: None,
            calls: BTreeMap::new(),
            tickets: BTreeMap::new(),
            next_ticket: 1,
            kept: Vec::new(),
            stopped: None,
            swallowed: false,
            outlived: false,
            follows_bus: false,
            era: None,
            hearing: Hearing::default(),
            registering_at: Duration::ZERO,
        });
        self.carry_out(scene, first);
        let pause = TICK.mul_f64(scene.chance.within(1..=1_000) as f64 / 1_000.0);
        scene.after(pause, self.event(ToAgent::Tick));
    }

    pub(crate) fn crash(&mut self, scene: &mut Scene, back_after: Duration) {
        if self.process.take().is_none() {
            return;
        }
        scene.note(|| format!("agent {} dies", self.index));
        self.life += 1;
        self.paused_until = None;
        scene.after(back_after, self.event(ToAgent::Start));
    }

    fn event(&self, what: ToAgent) -> Event {
        Event::Agent { agent: self.index, life: self.life, what }
    }

    pub(crate) fn meet(&mut self, scene: &mut Scene, what: ToAgent) {
        if let ToAgent::Start = what {
            return self.start(scene);
        }
        if self.process.is_none() {
            return;
        }
        match what {
            ToAgent::Start => {}
            ToAgent::Tick => self.tick(scene),
            ToAgent::Answered { call, answer } => self.log_answered(scene, call, answer),
            ToAgent::Unanswered { call } => self.log_silent(scene, call),
            ToAgent::Send { call, request } => self.send_to_log(scene, call, request),
            ToAgent::Followed { follower, entry } => {
                if self.process.as_ref().is_some_and(|process| process.follower == follower) {
                    self.step(scene, Input::Followed(vec![*entry]));
                }
            }
            ToAgent::FollowerLost { follower } => {
                if self.process.as_ref().is_some_and(|process| process.follower == follower) {
                    self.step(scene, Input::FollowEnded);
                }
            }
            ToAgent::Heard(down) => match *down {
                Down::Welcome(welcome) => self.welcomed(scene, &welcome),
                Down::Fact(fact) => self.fact(scene, fact),
            },
            ToAgent::FactLeft(fact) => self.fact_left(scene, *fact),
            ToAgent::GiveUp(ticket) => {
                if self.process.as_ref().is_some_and(|process| process.tickets.contains_key(&ticket)) {
                    self.step(scene, Input::GivenUp(ticket));
                }
            }
            ToAgent::Asked(asked) => self.asked(scene, *asked),
            ToAgent::Patience { call } => self.out_of_patience(scene, call),
        }
    }

    fn tick(&mut self, scene: &mut Scene) {
        scene.after(TICK, self.event(ToAgent::Tick));
        let Some(process) = &mut self.process else { return };
        process.ticks += 1;
        let ticks = process.ticks;
        self.send_due(scene);
        self.greet(scene);
        if ticks % 2 == 0 {
            self.look(scene);
        }
        if ticks % 4 == 0 {
            if self.process.as_mut().is_some_and(|process| process.patience.is_over(&process.replica)) {
                self.step(scene, Input::Overdue);
            }
            self.turn(scene);
        }
        if ticks % 8 == 0 {
            self.show_life(scene);
        }
        if ticks % 12 == 0 {
            self.keep_alive(scene);
        }
    }

    /// Steps the replica and carries out what it says; a crash may come before,
    /// between or after the outputs.
    fn step(&mut self, scene: &mut Scene, input: Input) {
        let Some(process) = &mut self.process else { return };
        let before = process.replica.region().index();
        let outputs = process.replica.step(input);
        let after = process.replica.witness();
        if before != after.index && !process.outlived && !scene.truth[self.region].forked {
            if !scene.truth[self.region].agrees(after) {
                let what = format!("agent {} differs from another replica at index {}", self.index, after.index);
                scene.violated(Invariant::ReplicasAgree, what);
            }
            self.compare(scene);
        }
        if !scene.calm && !outputs.is_empty() && scene.chance.permille(self.crashes) {
            let done = scene.chance.below(outputs.len() + 1);
            scene.seen.sight(Sight::CrashBetweenOutputs);
            self.carry_out(scene, outputs.into_iter().take(done).collect());
            let back_after = Duration::from_millis(scene.chance.within(50..=20_000));
            let (agent, life) = (self.index, self.life);
            scene.note(|| format!("agent {agent} is about to die, life {life}, {done} outputs done"));
            return self.crash(scene, back_after);
        }
        self.carry_out(scene, outputs);
    }

    /// A replica at the log's end is the truth, byte for byte.
    fn compare(&self, scene: &mut Scene) {
        let Some(process) = &self.process else { return };
        let truth = &scene.truth[self.region];
        if process.replica.region().index() == truth.region.index() && *process.replica.region() != truth.region {
            let what = format!("agent {} differs from its log at index {}", self.index, truth.region.index());
            scene.violated(Invariant::ReplicasAgree, what);
        }
    }

    fn carry_out(&mut self, scene: &mut Scene, outputs: Vec<Output>) {
        let mut effects = Vec::new();
        for output in outputs {
            match output {
                Output::Answer { ticket, answer } => self.answered(scene, ticket, answer),
                Output::Effect { effect, own } => effects.push((effect, own)),
                Output::Append { writer, seq, bytes, attempt } => {
                    scene.seen.sight_if(attempt > 0, Sight::RetriedAppend);
                    self.append(scene, writer, seq, bytes, attempt);
                }
                Output::ReadHead => self.call_log(scene, Wanted::Head),
                Output::CatchUp { after } => self.catch_up(scene, after),
                Output::Register => self.call_log(scene, Wanted::Register { attempt: 0 }),
                Output::Restored => self.restored(scene),
                Output::Diverged { .. } if scene.truth[self.region].set_back => {}
                Output::Diverged { writer, index } => {
                    scene.violated(Invariant::ReplicasAgree, format!("writer {writer} diverged at index {index}"));
                }
                Output::Stop(stop) => self.stopped(scene, stop),
            }
        }
        for (effect, own) in effects {
            self.effect(scene, &effect, own);
        }
    }

    fn effect(&mut self, scene: &mut Scene, effect: &Effect, own: bool) {
        match effect {
            Effect::Opened { barrier, .. } => self.opened(scene, barrier),
            Effect::Ended { barrier, n } => self.ended(scene, barrier, *n),
            Effect::TookOver { .. } => scene.seen.sight(Sight::LeaderChanged),
            _ => {}
        }
        self.news(scene, effect, own);
    }

    fn stopped(&mut self, scene: &mut Scene, stop: Stop) {
        scene.note(|| format!("agent {} stops: {stop}", self.index));
        match &stop {
            Stop::SetBack { .. } | Stop::HeadGone if scene.truth[self.region].set_back => {
                scene.seen.sight(Sight::SetBackStopped)
            }
            // It came to a region of newer builds, and waits for its upgrade.
            Stop::TooNew { .. } if self.is_old() => {}
            stop => scene.violated(Invariant::NothingAcknowledgedIsLost, format!("an agent stopped: {stop}")),
        }
        if let Some(process) = &mut self.process {
            process.stopped = Some(stop);
        }
    }

    fn submit(&mut self, scene: &mut Scene, command: Command, whose: Whose) {
        let Some(process) = &mut self.process else { return };
        let ticket = Ticket(process.next_ticket);
        process.next_ticket += 1;
        process.tickets.insert(ticket, whose);
        scene.after(ANSWER_TIMEOUT, self.event(ToAgent::GiveUp(ticket)));
        self.step(scene, Input::Submitted { ticket, command: Box::new(command) });
    }
}

impl Agent {
    /// Whether it runs as a build of the version before.
    pub(crate) fn is_old(&self) -> bool {
        self.version < MACHINE_VERSION
    }

    /// Whether it leads, as far as it knows.
    pub(crate) fn leads(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.lead.leads())
    }
}

impl Process {
    /// The number of its present follower.
    pub(crate) fn follower(&self) -> u64 {
        self.follower
    }
}
