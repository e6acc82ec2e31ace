//! One participant of one region of one barrier: it finds out what gathers,
//! arrives, perhaps fails or withdraws, waits for the outcome, and goes on.
//! Whatever is not answered it sends again, to any agent of its region.

mod pulse;

use std::time::Duration;

use muster_protocol::invariant::Invariant;
use muster_protocol::name::{BarrierName, Key, ParticipantId, RegionName};
use muster_protocol::outcome::Outcome;
use muster_protocol::region::{ArrivalOutcome, Refusal};

use crate::event::{Ask, Asked, Event, Said, ToAgent, ToClient, ToCoordinator, Which};
use crate::network::{Link, Way};
use crate::scene::Scene;
use crate::sightings::Sight;
use crate::store::Looked;
use pulse::Sessions;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(12);

/// One participant.
pub(crate) struct Participant {
    pub(crate) index: usize,
    pub(crate) region: usize,
    region_name: RegionName,
    barrier: BarrierName,
    who: ParticipantId,
    /// Agents of its region.
    agents: Vec<usize>,
    /// Its region decides the barrier.
    regional: bool,
    until_n: u64,
    keys: Vec<Key>,
    /// Arrivals that say they failed, in a thousand.
    failing: u64,
    /// Arrivals that are taken back, in a thousand.
    regretted: u64,
    which: Option<Which>,
    attempt: u32,
    doing: Doing,
    sessions: Sessions,
    waiting_for: Option<u64>,
    pub(crate) done: bool,
}

/// What it is at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Doing {
    Look,
    Arrive { outcome: ArrivalOutcome },
    Withdraw,
    Wait,
}

/// Who it is, and how far it goes.
#[derive(Clone)]
pub(crate) struct Role {
    pub(crate) region: usize,
    pub(crate) region_name: RegionName,
    pub(crate) barrier: BarrierName,
    pub(crate) who: ParticipantId,
    pub(crate) agents: Vec<usize>,
    pub(crate) regional: bool,
    pub(crate) until_n: u64,
    pub(crate) keys: Vec<Key>,
    pub(crate) failing: u64,
    pub(crate) regretted: u64,
    /// Somebody watches over it, in some definition.
    pub(crate) watched: bool,
}

impl Participant {
    pub(crate) fn new(index: usize, role: Role) -> Self {
        let Role {
            region,
            region_name,
            barrier,
            who,
            agents,
            regional,
            until_n,
            mut keys,
            failing,
            regretted,
            watched,
        } = role;
        keys.reverse();
        let keyed = !keys.is_empty();
        let which = keys.last().cloned().map(Which::Key);
        let doing = if keyed { Doing::Arrive { outcome: ArrivalOutcome::Ok } } else { Doing::Look };
        Self {
            index,
            region,
            region_name,
            barrier,
            who,
            agents,
            regional,
            until_n,
            keys,
            failing,
            regretted,
            which,
            attempt: 1,
            doing,
            sessions: Sessions::new(watched),
            waiting_for: None,
            done: false,
        }
    }

    pub(crate) fn barrier(&self) -> &BarrierName {
        &self.barrier
    }

    /// What it is at, as a sentence.
    pub(crate) fn about(&self) -> String {
        let Self { who, region_name, barrier, which, attempt, doing, .. } = self;
        format!("{who} of {region_name} at {barrier}, {which:?}, attempt {attempt}, {doing:?}")
    }

    pub(crate) fn meet(&mut self, scene: &mut Scene, what: ToClient) {
        if self.done {
            return;
        }
        match what {
            ToClient::Go => self.act(scene),
            ToClient::Silence { call } if self.waiting_for == Some(call) => {
                self.waiting_for = None;
                self.act(scene);
            }
            ToClient::Told { call, said } if self.waiting_for == Some(call) => {
                self.waiting_for = None;
                self.told(scene, *said);
            }
            ToClient::Beat { session } => self.beat(scene, session),
            ToClient::Told { call, said } => self.beat_answered(scene, call, &said),
            // The answer to a call that was sent again meanwhile.
            ToClient::Silence { .. } => {}
        }
    }

    fn act(&mut self, scene: &mut Scene) {
        if self.waiting_for.is_some() {
            return;
        }
        let barrier = self.barrier.clone();
        let (who, attempt) = (self.who.clone(), self.attempt);
        let what = match (self.doing.clone(), self.which.clone()) {
            (Doing::Look, _) | (_, None) => Ask::Look { barrier, key: self.keys.last().cloned() },
            (Doing::Arrive { .. }, Some(which)) if self.needs_session() => {
                let (id, ttl_ms) = self.open(scene);
                Ask::OpenSession { barrier, which, who, id, ttl_ms }
            }
            (Doing::Arrive { outcome }, Some(which)) => {
                let (session, attempt) = self.arrives_with(scene);
                Ask::Arrive { barrier, which, who, attempt, outcome, session }
            }
            (Doing::Withdraw, Some(which)) => Ask::Withdraw { barrier, which, who, attempt },
            (Doing::Wait, Some(which)) => Ask::Wait { barrier, which },
        };
        let call = scene.next_call();
        self.waiting_for = Some(call);
        scene.after(CALL_TIMEOUT, Event::Client { client: self.index, what: ToClient::Silence { call } });
        let looks = matches!(what, Ask::Look { .. }) && !self.regional;
        let asked = Box::new(Asked { call, client: self.index, what });
        if looks {
            let coordinator = scene.chance.below(2);
            let event = Event::Coordinator { coordinator, life: u32::MAX, what: ToCoordinator::Asked(asked) };
            scene.send(Link::ClientsCoordinator(coordinator), Way::There, event);
        } else {
            let agent = *scene.chance.pick(&self.agents);
            let event = Event::Agent { agent, life: u32::MAX, what: ToAgent::Asked(asked) };
            scene.send(Link::ClientsAgent(agent), Way::There, event);
        }
    }

    fn told(&mut self, scene: &mut Scene, said: Said) {
        match said {
            Said::Looked(looked) => self.looked(scene, looked),
            Said::Ended(outcome) => self.ended(scene, &outcome),
            Said::Arrived { n } => {
                self.which = self.which.take().map(|which| if self.keys.is_empty() { Which::Number(n) } else { which });
                // Some change their minds, some die and start anew; most wait.
                let regretted = !scene.calm && scene.chance.permille(self.regretted);
                self.doing = match scene.chance.within(0..=99) {
                    _ if regretted => Doing::Withdraw,
                    0..=4 if !scene.calm => {
                        self.attempt += 1;
                        self.is_doubled();
                        Doing::Arrive { outcome: ArrivalOutcome::Ok }
                    }
                    _ => Doing::Wait,
                };
                let pause = if scene.chance.permille(500) { 0 } else { scene.chance.within(1..=3_000) };
                self.go(scene, pause);
            }
            Said::Withdrawn => {
                // Some do not know that their attempt is gone.
                self.attempt += u32::from(!scene.chance.permille(150));
                self.doing = Doing::Arrive { outcome: ArrivalOutcome::Ok };
                let pause = scene.chance.within(0..=4_000);
                self.go(scene, pause);
            }
            Said::Refused(refusal) => self.refused(scene, &refusal),
            Said::StillGathering => self.still_gathering(scene),
            // The generation may have been that of a definition now gone, or
            // this region may have no part in it.
            Said::Behind => {
                self.doing = Doing::Look;
                self.go(scene, 500);
            }
            Said::Opened { n, ttl_ms, attempt, done } => {
                self.which = self.which.take().map(|which| if self.keys.is_empty() { Which::Number(n) } else { which });
                self.opened(scene, ttl_ms, attempt, done);
            }
            Said::NotDone
            | Said::Unknown
            | Said::Step(_)
            | Said::Regional(_)
            | Said::Adopted
            | Said::Heard { .. }
            | Said::Over => self.go(scene, 200),
        }
    }

    fn go(&self, scene: &mut Scene, pause_ms: u64) {
        scene.after(Duration::from_millis(pause_ms), Event::Client { client: self.index, what: ToClient::Go });
    }

    fn looked(&mut self, scene: &mut Scene, looked: Looked) {
        let takes_part = |regions: &[RegionName]| regions.contains(&self.region_name);
        match (looked.found, self.keys.last()) {
            // Not everybody comes back for a round that was tried again.
            (Some(_), Some(_)) if looked.round > 0 && scene.calm => self.next_key(scene),
            // A key without this region ends without this participant.
            (Some((_, regions)), Some(_)) if !takes_part(&regions) => self.next_key(scene),
            (_, Some(key)) => {
                let which = Which::Key(key.clone());
                self.begin(scene, which);
            }
            (Some((n, _)), None) if n > self.until_n => self.done = true,
            (Some((n, regions)), None) if takes_part(&regions) => self.begin(scene, Which::Number(n)),
            // Numbers up to the last have been given out, and none gathers.
            (None, None) if looked.next_n > self.until_n => self.done = true,
            _ => self.go(scene, 1_000),
        }
    }

    fn next_key(&mut self, scene: &mut Scene) {
        self.keys.pop();
        match self.keys.last() {
            Some(key) => {
                let which = Which::Key(key.clone());
                self.begin(scene, which);
            }
            None => self.done = true,
        }
    }

    fn begin(&mut self, scene: &mut Scene, which: Which) {
        if self.which.as_ref() != Some(&which) {
            self.leave_session(scene);
            self.attempt = 1;
        }
        self.which = Some(which);
        let outcome = match scene.chance.permille(if scene.calm { 0 } else { self.failing }) {
            true => ArrivalOutcome::Failed,
            false => ArrivalOutcome::Ok,
        };
        self.doing = Doing::Arrive { outcome };
        let pause = scene.chance.within(0..=2_000);
        self.go(scene, pause);
    }

    /// Somebody else may have made room, a failed attempt may be tried again.
    fn still_gathering(&mut self, scene: &mut Scene) {
        match scene.chance.within(0..=9) {
            0..=2 => self.attempt += 1,
            // A former incarnation speaks up.
            3 if self.attempt > 1 => self.attempt -= 1,
            _ => {}
        }
        self.doing = match scene.calm && !self.keys.is_empty() {
            true => Doing::Look,
            false => Doing::Arrive { outcome: ArrivalOutcome::Ok },
        };
        self.go(scene, 100);
    }

    fn refused(&mut self, scene: &mut Scene, refusal: &Refusal) {
        self.doing = Doing::Wait;
        match refusal {
            Refusal::StaleAttempt { known } => {
                self.attempt = *known;
                self.doing = Doing::Arrive { outcome: ArrivalOutcome::Ok };
            }
            Refusal::Withdrawn { through } => {
                self.attempt = through + 1;
                self.doing = Doing::Arrive { outcome: ArrivalOutcome::Ok };
            }
            Refusal::VersionTooLow => {
                scene.seen.sight(Sight::VersionTooLow);
                self.sessions.refused = true;
                self.doing = Doing::Arrive { outcome: ArrivalOutcome::Ok };
            }
            Refusal::Fenced | Refusal::SessionLost => {
                self.arrives_no_more(scene);
                self.doing = Doing::Arrive { outcome: ArrivalOutcome::Ok };
            }
            _ => {}
        }
        self.go(scene, 100);
    }

    fn ended(&mut self, scene: &mut Scene, outcome: &Outcome) {
        let outlived = self.regional && scene.truth[self.region].set_back;
        if let (Err(what), false) =
            (scene.told.heard(self.region, self.regional.then_some(self.region), outcome), outlived)
        {
            scene.violated(Invariant::OneOutcome, what);
        }
        self.leave_session(scene);
        self.attempt = 1;
        let broken = !outcome.verdict.is_released();
        if !self.keys.is_empty() && broken && !scene.calm && scene.chance.permille(500) {
            // Perhaps it is tried once more.
            self.doing = Doing::Look;
            return self.go(scene, 1_500);
        }
        if !self.keys.is_empty() {
            return self.next_key(scene);
        }
        self.doing = Doing::Look;
        self.go(scene, 0);
    }
}
