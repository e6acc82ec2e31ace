//! Calls of clients: arrivals, withdrawals and waits, held while their
//! generation is not known here.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_protocol::generation::GenerationId;
use muster_protocol::global;
use muster_protocol::invariant::{Acknowledged, Acknowledgement, Invariant};
use muster_protocol::name::{BarrierName, Key};
use muster_protocol::region::{Arrive, Command, OpenSession, Region, Reply, Withdraw, Work};
use muster_protocol::replica::{Answer, Ticket};

use super::{Agent, Process, Whose};
use crate::event::{Ask, Asked, Event, Said, ToAgent, ToClient, ToCoordinator, Which};
use crate::network::{Link, Way};
use crate::scene::Scene;
use crate::sightings::Sight;

/// How long a call is held for an opening that is on its way.
const HOLD: Duration = Duration::from_secs(5);
/// How long a wait lasts before it is answered as still gathering.
const WAIT: Duration = Duration::from_secs(8);

/// A call that is kept: until its generation opens, or until that ends.
pub(super) struct Kept {
    asked: Asked,
    barrier: BarrierName,
    /// Known once it waits for the end.
    n: Option<u64>,
}

impl Process {
    pub(super) fn waits_for(&self, barrier: &BarrierName, n: u64) -> bool {
        self.kept.iter().any(|kept| kept.barrier == *barrier && kept.n.is_none_or(|waits| waits == n))
    }
}

/// The generation a client means, if the region knows it.
fn find(region: &Region, barrier: &BarrierName, which: &Which) -> Option<GenerationId> {
    let barrier = region.barrier(barrier)?;
    let found = match which {
        Which::Number(n) => barrier.generation(*n),
        Which::Key(key) => barrier.keyed(key, None),
    };
    found.map(|generation| generation.id().clone())
}

impl Agent {
    pub(super) fn say(&self, scene: &mut Scene, asked: &Asked, said: Said) {
        let what = ToClient::Told { call: asked.call, said: Box::new(said) };
        scene.send(Link::ClientsAgent(self.index), Way::Back, Event::Client { client: asked.client, what });
    }

    pub(super) fn asked(&mut self, scene: &mut Scene, asked: Asked) {
        if self.process.as_ref().is_some_and(|process| process.stopped.is_some()) {
            return self.say(scene, &asked, Said::NotDone);
        }
        let (barrier, which) = match &asked.what {
            Ask::Arrive { barrier, which, .. }
            | Ask::Withdraw { barrier, which, .. }
            | Ask::OpenSession { barrier, which, .. }
            | Ask::Wait { barrier, which } => (barrier.clone(), which.clone()),
            Ask::Heartbeat { session } => {
                let session = *session;
                return self.beat(scene, asked, session);
            }
            Ask::CloseSession { session } => {
                let command = Command::CloseSession(*session);
                return self.submit_of_session(scene, asked, command);
            }
            Ask::Look { .. } => return self.read_anew(scene, Whose::Looking { asked: Box::new(asked) }),
            Ask::Decide { .. } => return self.say_to_regional(scene, asked),
            // That is the coordinator's.
            Ask::Adopt { .. } => return,
        };
        let Some(process) = &mut self.process else { return };
        match find(process.replica.region(), &barrier, &which) {
            Some(id) => self.serve(scene, asked, id),
            None => {
                if let (Ask::Arrive { .. } | Ask::OpenSession { .. }, Which::Key(key)) = (&asked.what, &which) {
                    self.open(scene, &barrier, key);
                }
                scene.after(HOLD, self.event(ToAgent::Patience { call: asked.call }));
                if let Some(process) = &mut self.process {
                    process.kept.push(Kept { asked, barrier, n: None });
                }
            }
        }
    }

    /// Asks whoever decides the barrier to open a key.
    fn open(&mut self, scene: &mut Scene, barrier: &BarrierName, key: &Key) {
        let command = global::Command::Open { key: Some(key.clone()) };
        let regional =
            self.process.as_ref().is_some_and(|one| one.replica.region().regional_barrier(barrier).is_some());
        match regional {
            true => self.open_regional(scene, barrier, command),
            false => {
                let what = Ask::Decide { barrier: barrier.clone(), command: Box::new(command), dry_run: false };
                self.ask_coordinator(scene, what);
            }
        }
    }

    /// The answer is not awaited: what opens is heard.
    fn ask_coordinator(&self, scene: &mut Scene, what: Ask) {
        let (coordinator, call) = (scene.chance.below(2), scene.next_call());
        let asked = Box::new(Asked { call, client: usize::MAX, what });
        let event = Event::Coordinator { coordinator, life: u32::MAX, what: ToCoordinator::Asked(asked) };
        scene.send(Link::ClientsCoordinator(coordinator), Way::There, event);
    }

    fn serve(&mut self, scene: &mut Scene, asked: Asked, id: GenerationId) {
        let command = match &asked.what {
            Ask::Wait { .. } => return self.wait(scene, asked, &id),
            Ask::OpenSession { who, id: session, ttl_ms, .. } => {
                let work = Work { barrier: id.barrier.clone(), n: id.n, participant: who.clone() };
                let at = scene.clock();
                let open = OpenSession { id: *session, ttl_ms: *ttl_ms, works: vec![work], at };
                return self.submit_of_session(scene, asked, Command::OpenSession(open));
            }
            Ask::Arrive { who, attempt, outcome, session, .. } => Command::Arrive(Arrive {
                barrier: id.barrier.clone(),
                n: id.n,
                participant: who.clone(),
                attempt: *attempt,
                outcome: *outcome,
                note: None,
                output: None,
                session: *session,
                // No two have the same, so that each can be found again.
                at: muster_protocol::identity::Timestamp(scene.next_call()),
            }),
            Ask::Withdraw { who, attempt, .. } => Command::Withdraw(Withdraw {
                barrier: id.barrier.clone(),
                n: id.n,
                participant: who.clone(),
                attempt: *attempt,
            }),
            Ask::Look { .. }
            | Ask::Decide { .. }
            | Ask::Adopt { .. }
            | Ask::Heartbeat { .. }
            | Ask::CloseSession { .. } => return,
        };
        if let Command::Arrive(arrive) = &command {
            scene.truth[self.region].submitted(arrive);
        }
        self.submit(scene, command.clone(), Whose::Client { asked: Box::new(asked), command });
    }

    fn submit_of_session(&mut self, scene: &mut Scene, asked: Asked, command: Command) {
        let whose = Whose::Session { asked: Box::new(asked), command: command.clone(), began: scene.now };
        self.submit(scene, command, whose);
    }

    fn wait(&mut self, scene: &mut Scene, asked: Asked, id: &GenerationId) {
        let Some(process) = &mut self.process else { return };
        let ended = process.replica.region().generation(&id.barrier, id.n).and_then(|one| one.ended());
        match ended.map(|ended| ended.outcome.clone()) {
            Some(outcome) => self.say(scene, &asked, Said::Ended(Box::new(outcome))),
            None => {
                let call = asked.call;
                process.kept.push(Kept { asked, barrier: id.barrier.clone(), n: Some(id.n) });
                scene.after(WAIT, self.event(ToAgent::Patience { call }));
            }
        }
    }

    /// Something opened: calls that were too early go on.
    pub(super) fn opened(&mut self, scene: &mut Scene, barrier: &BarrierName) {
        let Some(process) = &mut self.process else { return };
        let held = process.kept.extract_if(.., |kept| kept.n.is_none() && kept.barrier == *barrier);
        for asked in held.map(|kept| kept.asked).collect::<Vec<_>>() {
            self.asked(scene, asked);
        }
    }

    /// A generation ended here: everybody who waits for it is told.
    pub(super) fn ended(&mut self, scene: &mut Scene, barrier: &BarrierName, n: u64) {
        let Some(process) = &mut self.process else { return };
        let outcome = process.replica.region().generation(barrier, n).and_then(|one| one.ended());
        let Some(outcome) = outcome.map(|ended| ended.outcome.clone()) else { return };
        let waits = process.kept.extract_if(.., |kept| kept.n == Some(n) && kept.barrier == *barrier);
        for asked in waits.map(|kept| kept.asked).collect::<Vec<_>>() {
            self.say(scene, &asked, Said::Ended(Box::new(outcome.clone())));
        }
    }

    /// A snapshot put the region further on: everybody who waits looks again.
    pub(super) fn restored(&mut self, scene: &mut Scene) {
        let Some(process) = &mut self.process else { return };
        process.reporting.everything(process.replica.region(), false);
        let waits = process.kept.iter().map(|kept| (kept.barrier.clone(), kept.n)).collect::<BTreeSet<_>>();
        for (barrier, n) in waits {
            match n {
                Some(n) => self.ended(scene, &barrier, n),
                None => self.opened(scene, &barrier),
            }
        }
    }

    pub(super) fn out_of_patience(&mut self, scene: &mut Scene, call: u64) {
        let Some(process) = &mut self.process else { return };
        let Some(at) = process.kept.iter().position(|kept| kept.asked.call == call) else { return };
        let kept = process.kept.remove(at);
        let said = if kept.n.is_some() { Said::StillGathering } else { Said::Behind };
        self.say(scene, &kept.asked, said);
    }

    pub(super) fn answered(&mut self, scene: &mut Scene, ticket: Ticket, answer: Answer) {
        let Some(whose) = self.process.as_mut().and_then(|process| process.tickets.remove(&ticket)) else { return };
        let reply = match &answer {
            Answer::Reply(reply) => Some(reply),
            _ => None,
        };
        match whose {
            Whose::TookOver => self.took_over(scene, reply),
            Whose::Led => self.led(scene, reply),
            Whose::Fact => {}
            Whose::Fresh { seen, era, ends } => {
                if let Answer::Fresh { .. } = answer {
                    self.compared(scene, seen, era, ends);
                }
            }
            Whose::Silent => {}
            Whose::Regional { asked } => self.regional_said(scene, &asked, answer),
            Whose::Looking { asked } => self.look_at_regional(scene, &asked, &answer),
            Whose::Look { began } => self.looked(scene, began, &answer),
            Whose::Beat { asked, session, began } => {
                self.proven_fresh(began, &answer);
                self.beat_again(scene, *asked, session, &answer);
            }
            Whose::Attach { asked, session, began } => {
                self.proven_fresh(began, &answer);
                self.attached(scene, &asked, session, &answer);
            }
            Whose::Session { asked, command, began } => {
                self.proven_fresh(began, &answer);
                self.tell_client(scene, &asked, &command, answer);
            }
            Whose::Client { asked, command } => self.tell_client(scene, &asked, &command, answer),
        }
    }

    fn tell_client(&mut self, scene: &mut Scene, asked: &Asked, command: &Command, answer: Answer) {
        let said = match answer {
            Answer::Reply(reply) => {
                // What was acknowledged by one whose log is gone is gone with it.
                let forked = scene.truth[self.region].forked;
                let outlived = forked || self.process.as_ref().is_some_and(|process| process.outlived);
                if !outlived && !scene.truth[self.region].gave(command, &reply) {
                    let which = if matches!(reply, Reply::Refused(_)) {
                        Invariant::RefusalsAreFinal
                    } else {
                        Invariant::NothingAcknowledgedIsLost
                    };
                    let what = format!("agent {} answers {reply:?}, which the log does not say", self.index);
                    scene.violated(which, what);
                }
                self.acknowledge(scene, command, reply)
            }
            Answer::NotDone(_) => {
                scene.seen.sight(Sight::NotDoneAnswer);
                if scene.truth[self.region].holds(command) {
                    scene.violated(Invariant::RefusalsAreFinal, format!("{command:?} was \"not done\", but was"));
                }
                scene.truth[self.region].not_done(command);
                Said::NotDone
            }
            Answer::Unknown | Answer::Fresh { .. } => {
                scene.seen.sight(Sight::UnknownAnswer);
                Said::Unknown
            }
        };
        self.say(scene, asked, said);
    }

    fn acknowledge(&self, scene: &mut Scene, command: &Command, reply: Reply) -> Said {
        let (barrier, n, participant, attempt, what) = match command {
            Command::Arrive(a) => (&a.barrier, a.n, &a.participant, a.attempt, Acknowledgement::Arrived),
            Command::Withdraw(w) => (&w.barrier, w.n, &w.participant, w.attempt, Acknowledgement::Withdrawn),
            _ => return of_session(command, reply),
        };
        // What a session brought goes with it, where arrivals are not kept.
        let kept = scene.truth[self.region].keeps(barrier, n);
        let counts = match &reply {
            Reply::Arrived(arrived) => (!arrived.late && kept).then_some(arrived.attempt),
            Reply::Withdrawn => Some(attempt),
            _ => None,
        };
        let outlived = self.process.as_ref().is_some_and(|process| process.outlived);
        if let Some(attempt) = counts.filter(|_| !outlived && !scene.truth[self.region].forked) {
            let (barrier, participant) = (barrier.clone(), participant.clone());
            scene.truth[self.region].acknowledged(Acknowledged { barrier, n, participant, attempt, what });
        }
        scene.seen.replied(&reply);
        match reply {
            Reply::Arrived(_) => Said::Arrived { n },
            Reply::Refused(refusal) => Said::Refused(refusal),
            // Nothing else is asked of it here.
            Reply::Withdrawn | Reply::Done { .. } | Reply::SessionOpened(_) | Reply::Regional(_) => Said::Withdrawn,
        }
    }
}

/// What a client is told of a session that it opened or closed.
fn of_session(command: &Command, reply: Reply) -> Said {
    match (command, reply) {
        (Command::OpenSession(open), Reply::SessionOpened(opened)) => {
            let (Some(work), Some(given)) = (open.works.first(), opened.attempts.first()) else { return Said::Unknown };
            Said::Opened { n: work.n, ttl_ms: opened.ttl_ms, attempt: given.attempt, done: given.done }
        }
        (_, Reply::Refused(refusal)) => Said::Refused(refusal),
        _ => Said::Over,
    }
}
