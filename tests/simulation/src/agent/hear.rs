//! What the coordinator says, and what it is told.

use muster_protocol::fact::{Fact, Heartbeat, Welcome};
use muster_protocol::identity::Era;
use muster_protocol::invariant::Invariant;
use muster_protocol::listening::{Hear, LEAVE_TO_OTHERS, Welcomed, still_new};
use muster_protocol::region::{Command, Effect};
use muster_protocol::replica::{Input, Ticket};
use muster_protocol::reporting::Subject;

use super::{ANSWER_TIMEOUT, Agent, Whose};
use crate::event::{Event, ToAgent, Up};
use crate::network::{Link, Way};
use crate::scene::Scene;
use crate::sightings::Sight;

impl Agent {
    /// Whether the bus has it.
    fn tell(&self, scene: &mut Scene, up: Up) -> bool {
        scene.send(Link::AgentBus(self.index), Way::There, Event::Up(up))
    }

    /// Takes its place on the bus once the log's end has been read, and greets
    /// until it is answered.
    pub(super) fn greet(&mut self, scene: &mut Scene) {
        let now = scene.now;
        let Some(process) = &mut self.process else { return };
        if !process.follows_bus {
            if !process.replica.is_following() || process.replica.writer().is_none() {
                return;
            }
            process.follows_bus = true;
            process.listening.followed(now);
        }
        if let Some(hello) = process.listening.greet(process.replica.region(), now) {
            self.tell(scene, Up::Hello(hello));
        }
    }

    pub(super) fn welcomed(&mut self, scene: &mut Scene, welcome: &Welcome) {
        let Some(process) = self.process.as_mut().filter(|process| process.follows_bus) else { return };
        match process.listening.welcomed(welcome, process.replica.region()) {
            Welcomed::NotForUs | Welcomed::OtherHistory => {}
            // Until somebody adopts it, or it has greeted the store that lost it.
            Welcomed::Refused(why) if scene.truth[self.region].set_back || scene.told.rolled_back => {
                scene.note(|| format!("agent {} is refused: {why}", self.index));
                scene.seen.sight(Sight::LogRefused);
            }
            Welcomed::Refused(why) => scene.violated(Invariant::Live, format!("a region was refused: {why}")),
            Welcomed::Compare { seen } => {
                let ticket = Ticket(u64::MAX - process.next_ticket);
                process.next_ticket += 1;
                let (era, ends) = (welcome.era.clone(), welcome.tell_ends);
                process.tickets.insert(ticket, Whose::Fresh { seen, era, ends });
                scene.after(ANSWER_TIMEOUT, self.event(ToAgent::GiveUp(ticket)));
                self.step(scene, Input::ReadRequested(ticket));
            }
        }
    }

    /// The state is as fresh as the welcome asks for.
    pub(super) fn compared(&mut self, scene: &mut Scene, seen: u64, era: Option<Era>, ends: bool) {
        let Some(process) = &mut self.process else { return };
        match process.listening.compared(seen, process.replica.region()) {
            Ok(()) => {
                scene.note(|| format!("agent {} is welcome", self.index));
                process.reporting.everything(process.replica.region(), ends);
                process.era = era;
                scene.seen.sight_if(ends, Sight::EndsTold);
            }
            Err(why) if scene.truth[self.region].set_back => {
                scene.note(|| format!("agent {} is not heard: {why}", self.index));
                scene.seen.sight(Sight::SetBackRefused);
            }
            Err(why) => scene.violated(Invariant::NothingAcknowledgedIsLost, why.to_string()),
        }
    }

    pub(super) fn fact(&mut self, scene: &mut Scene, fact: Fact) {
        let Some(process) = self.process.as_ref().filter(|process| process.follows_bus) else { return };
        let id = fact.generation();
        let waits = process.waits_for(&id.barrier, id.n);
        let hear = process.listening.fact(&fact, process.replica.region(), process.lead.leads(), waits);
        scene.check(
            process.listening.is_greeted() || hear == Hear::Nothing,
            Invariant::NothingAcknowledgedIsLost,
            || format!("agent {} acts on what it hears before its greeting is answered", self.index),
        );
        match hear {
            Hear::Nothing => {}
            Hear::TellAgain => {
                scene.seen.sight(Sight::FactRepeated);
                let subject = (id.barrier.clone(), id.n);
                if let (Fact::Opened(_), Some(process)) = (&fact, &mut self.process) {
                    process.reporting.lacks_end(&subject, process.replica.region());
                }
                self.report(scene, &subject);
            }
            Hear::Alarm => self.alarm(scene, &fact),
            Hear::Append => self.submit(scene, Command::Fact(fact), Whose::Fact),
            Hear::AppendLater => {
                scene.after(LEAVE_TO_OTHERS, self.event(ToAgent::FactLeft(Box::new(fact))));
            }
        }
    }

    /// A second, different outcome: only a store that lost what it had decided
    /// may come to say one.
    fn alarm(&self, scene: &mut Scene, fact: &Fact) {
        match scene.told.was_decided_anew(fact.generation()) {
            true => scene.seen.sight(Sight::ConflictAlarm),
            false => scene.violated(Invariant::OneOutcome, format!("a region heard another outcome: {fact:?}")),
        }
    }

    pub(super) fn fact_left(&mut self, scene: &mut Scene, fact: Fact) {
        let Some(process) = &self.process else { return };
        if still_new(&fact, process.replica.region()) {
            scene.seen.sight(Sight::FactLeftToOthers);
            self.submit(scene, Command::Fact(fact), Whose::Fact);
        }
    }

    pub(super) fn news(&mut self, scene: &mut Scene, effect: &Effect, own: bool) {
        let Some(process) = &mut self.process else { return };
        if let Some(subject) = process.reporting.heed(effect, own, process.replica.region(), scene.now) {
            self.report(scene, &subject);
        }
    }

    pub(super) fn send_due(&mut self, scene: &mut Scene) {
        let Some(process) = &mut self.process else { return };
        for subject in process.reporting.due(scene.now, process.lead.leads()) {
            self.report(scene, &subject);
        }
    }

    fn report(&mut self, scene: &mut Scene, subject: &Subject) {
        let Some(process) = &mut self.process else { return };
        let region = process.replica.region();
        let Some(mut report) = region.report_up(&subject.0, subject.1) else {
            return process.reporting.sent(subject, scene.now);
        };
        let with_end = process.reporting.brings_end(subject);
        let ended = region.generation(&subject.0, subject.1).and_then(|generation| generation.ended());
        report.era = process.era.clone();
        report.outcome = ended.filter(|_| with_end && !report.name_taken).map(|end| Box::new(end.outcome.clone()));
        let left = self.tell(scene, Up::Report(Box::new(report)));
        // An end is told once the bus has it.
        if let Some(process) = self.process.as_mut().filter(|_| left || !with_end) {
            process.reporting.sent(subject, scene.now);
        }
    }

    pub(super) fn show_life(&self, scene: &mut Scene) {
        let Some(process) = self.process.as_ref().filter(|process| process.listening.is_greeted()) else { return };
        let region = process.replica.region();
        let stamp = region.stamp();
        let heartbeat = Heartbeat {
            region: region.name().clone(),
            agent: muster_protocol::fact::AgentId {
                name: format!("agent-{}", self.index),
                instance: format!("{}", self.life),
            },
            history: stamp.history,
            shard: stamp.shard,
            index: stamp.index,
            address: String::new(),
            era: process.era.clone().filter(|_| process.reporting.has_told_ends()),
        };
        self.tell(scene, Up::Heartbeat(heartbeat));
    }
}
