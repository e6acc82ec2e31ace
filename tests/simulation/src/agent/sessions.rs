//! Sessions at one agent: heartbeats are taken and silence is looked for as
//! the agent's own task does it around the same machine.

use std::time::Duration;

use muster_protocol::heartbeats::{Footing, Heartbeats, Took};
use muster_protocol::identity::SessionId;
use muster_protocol::region::{Command, Refusal, Reply};
use muster_protocol::replica::{Answer, Input, Ticket};

use super::{ANSWER_TIMEOUT, Agent, Whose};
use crate::event::{Asked, Said, ToAgent};
use crate::network::{Link, Way};
use crate::scene::Scene;

/// What an agent knows of its sessions.
#[derive(Default)]
pub(super) struct Hearing {
    heartbeats: Heartbeats,
    /// A look that waits for a fresh state.
    looking: bool,
}

impl Agent {
    fn footing(&self, now: Duration) -> Option<Footing> {
        let process = self.process.as_ref()?;
        let writer = process.replica.writer();
        let lease = process.lease.as_ref().filter(|(mine, _)| Some(*mine) == writer);
        Some(Footing { writer, proven_for: lease.map_or(Duration::ZERO, |(_, clock)| clock.proven_for(now)), now })
    }

    /// Reads as much of the log as there is now.
    pub(super) fn read_anew(&mut self, scene: &mut Scene, whose: Whose) {
        let Some(process) = &mut self.process else { return };
        let ticket = Ticket(u64::MAX - process.next_ticket);
        process.next_ticket += 1;
        process.tickets.insert(ticket, whose);
        scene.after(ANSWER_TIMEOUT, self.event(ToAgent::GiveUp(ticket)));
        self.step(scene, Input::ReadRequested(ticket));
    }

    /// Looks who fell silent, unless the last look still goes on.
    pub(super) fn look(&mut self, scene: &mut Scene) {
        let Some(process) = &mut self.process else { return };
        let (writer, region) = (process.replica.writer(), process.replica.region());
        let owns = writer.is_some() && region.sessions().any(|(_, session)| session.owner == writer);
        if process.hearing.looking || process.stopped.is_some() || !owns && !process.hearing.heartbeats.has_any() {
            return;
        }
        process.hearing.looking = true;
        self.read_anew(scene, Whose::Look { began: scene.now });
    }

    pub(super) fn looked(&mut self, scene: &mut Scene, began: Duration, answer: &Answer) {
        let Some(footing) = self.footing(scene.now) else { return };
        let Some(process) = &mut self.process else { return };
        process.hearing.looking = false;
        if let Answer::Fresh { .. } = answer {
            process.hearing.heartbeats.read_at(began);
        }
        let silent = process.hearing.heartbeats.look(process.replica.region(), footing);
        // Its word may be on its way for so long that the client finds another.
        if !silent.is_empty() && !scene.calm && scene.chance.permille(250) {
            let until = scene.now + Duration::from_millis(scene.chance.within(500..=4_000));
            scene.network.cut(Link::AgentLog(self.index), Way::There, until);
        }
        for command in silent {
            self.submit(scene, command, Whose::Silent);
        }
    }

    /// A command of a session was answered, which proves how fresh the state is.
    pub(super) fn proven_fresh(&mut self, began: Duration, answer: &Answer) {
        if let (Some(process), Answer::Reply(_) | Answer::Fresh { .. }) = (&mut self.process, answer) {
            process.hearing.heartbeats.read_at(began);
        }
    }

    fn take(&mut self, scene: &Scene, session: SessionId) -> Took {
        let Some((footing, process)) = self.footing(scene.now).zip(self.process.as_mut()) else { return Took::Unsure };
        process.hearing.heartbeats.heartbeat(session, process.replica.region(), footing)
    }

    /// A client says that it lives.
    pub(super) fn beat(&mut self, scene: &mut Scene, asked: Asked, session: SessionId) {
        let began = scene.now;
        match self.take(scene, session) {
            Took::Acknowledged { ttl_ms } => self.say(scene, &asked, Said::Heard { ttl_ms }),
            Took::Attach => self.attach(scene, asked, session),
            Took::Unsure | Took::Unknown => {
                self.read_anew(scene, Whose::Beat { asked: Box::new(asked), session, began });
            }
        }
    }

    fn attach(&mut self, scene: &mut Scene, asked: Asked, session: SessionId) {
        let whose = Whose::Attach { asked: Box::new(asked), session, began: scene.now };
        self.submit(scene, Command::AttachSession(session), whose);
    }

    /// The state is fresh, and a heartbeat that was in doubt is looked at again.
    pub(super) fn beat_again(&mut self, scene: &mut Scene, asked: Asked, session: SessionId, answer: &Answer) {
        let Answer::Fresh { .. } = answer else { return self.say(scene, &asked, Said::Unknown) };
        match self.take(scene, session) {
            Took::Acknowledged { ttl_ms } => self.say(scene, &asked, Said::Heard { ttl_ms }),
            Took::Attach => self.attach(scene, asked, session),
            Took::Unsure => self.say(scene, &asked, Said::NotDone),
            Took::Unknown => self.say(scene, &asked, Said::Over),
        }
    }

    pub(super) fn attached(&mut self, scene: &mut Scene, asked: &Asked, session: SessionId, answer: &Answer) {
        let said = match answer {
            Answer::Reply(Reply::Refused(Refusal::SessionLost)) => Said::Over,
            Answer::Reply(_) => match self.take(scene, session) {
                Took::Acknowledged { ttl_ms } => Said::Heard { ttl_ms },
                // Another agent was as quick.
                Took::Attach | Took::Unsure | Took::Unknown => Said::NotDone,
            },
            _ => Said::Unknown,
        };
        self.say(scene, asked, said);
    }
}
