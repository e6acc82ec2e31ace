//! A participant's session: opened before it arrives, kept alive by heartbeats
//! to any agent of the region, lost by its own clock, taken over by a second
//! one, or closed.

use std::time::Duration;

use muster_protocol::identity::SessionId;
use muster_protocol::invariant::Invariant;

use super::{Doing, Participant};
use crate::event::{Ask, Asked, Event, Said, ToAgent, ToClient};
use crate::network::{Link, Way};
use crate::scene::Scene;

/// Heartbeats in a session's time.
const BEATS: u32 = 4;

/// A session that its client believes in.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) id: SessionId,
    attempt: u32,
    ttl: Duration,
    /// When it is lost by its client's own clock.
    until: Duration,
    /// The agent that it speaks to, by its place among those of the region.
    agent: usize,
    /// The heartbeat that waits for its answer, and when it was sent.
    beat: Option<(u64, Duration)>,
    silent_until: Duration,
    /// It asks on after its time, in case it is still there.
    clings: bool,
}

/// A participant's sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    watched: bool,
    /// The region cannot keep sessions yet.
    pub(super) refused: bool,
    /// On its way, and when it was first sent.
    opening: Option<(SessionId, Duration)>,
    held: Option<Held>,
    /// An earlier one, with its attempt: whoever works with it may not know.
    former: Option<(SessionId, u32)>,
    /// The call that waits speaks for that one.
    as_former: bool,
}

impl Sessions {
    pub(super) fn new(watched: bool) -> Self {
        Self { watched, ..Self::default() }
    }
}

impl Participant {
    /// Whether it opens a session before it does anything else.
    pub(super) fn needs_session(&self) -> bool {
        let Sessions { watched, refused, held, .. } = &self.sessions;
        *watched && !*refused && held.is_none()
    }

    pub(super) fn open(&mut self, scene: &mut Scene) -> (SessionId, u64) {
        let (id, _) = *self.sessions.opening.get_or_insert_with(|| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&scene.next_call().to_be_bytes());
            (SessionId(id), scene.now)
        });
        (id, scene.chance.within(3_000..=10_000))
    }

    /// The session it is to arrive with, now and then one that was taken over.
    pub(super) fn arrives_with(&mut self, scene: &mut Scene) -> (Option<SessionId>, u32) {
        self.sessions.as_former = false;
        if scene.chance.permille(300)
            && let Some((former, attempt)) = self.sessions.former.take()
        {
            self.sessions.as_former = true;
            return (Some(former), attempt);
        }
        (self.sessions.held.as_ref().map(|held| held.id), self.attempt)
    }

    pub(super) fn opened(&mut self, scene: &mut Scene, ttl_ms: u64, attempt: u32, done: bool) {
        let Some((id, sent_at)) = self.sessions.opening.take() else { return self.go(scene, 100) };
        let (ttl, agent) = (Duration::from_millis(ttl_ms), scene.chance.below(self.agents.len()));
        let clings = scene.chance.permille(500);
        let until = sent_at + ttl;
        // Some leave for longer than they may; then they come back.
        let away = !scene.calm && !done && scene.chance.permille(250);
        let pause = match scene.chance.permille(500) {
            _ if away => scene.chance.within(5_000..=45_000),
            true => 0,
            false => scene.chance.within(1..=6_000),
        };
        let silent_until = if away { scene.now + Duration::from_millis(pause) } else { Duration::ZERO };
        self.attempt = attempt;
        self.sessions.held = Some(Held { id, attempt, ttl, until, agent, beat: None, silent_until, clings });
        self.alive(scene, id, until);
        self.beat_later(scene, id, ttl / BEATS);
        if done {
            self.doing = Doing::Wait;
        } else if !scene.calm && scene.chance.permille(80) {
            self.is_doubled();
        }
        self.go(scene, pause);
    }

    /// Somebody else begins to work for the same participant.
    pub(super) fn is_doubled(&mut self) {
        if let Some(held) = self.sessions.held.take() {
            self.sessions.former = Some((held.id, held.attempt));
        }
    }

    fn alive(&self, scene: &mut Scene, id: SessionId, until: Duration) {
        let truth = &mut scene.truth[self.region];
        if truth.set_back {
            return;
        }
        if let Err(what) = truth.sessions.alive(id, until) {
            scene.violated(Invariant::NothingAcknowledgedIsLost, what);
        }
    }

    fn beat_later(&self, scene: &mut Scene, session: SessionId, pause: Duration) {
        scene.after(pause, Event::Client { client: self.index, what: ToClient::Beat { session } });
    }

    /// Drops its session, which it may tell.
    pub(super) fn leave_session(&mut self, scene: &mut Scene) {
        self.sessions.former = None;
        self.sessions.opening = None;
        self.sessions.refused = false;
        let Some(held) = self.sessions.held.take() else { return };
        scene.truth[self.region].sessions.given_up(held.id);
        if scene.chance.permille(500) {
            self.tell_agent(scene, held.agent, Ask::CloseSession { session: held.id });
        }
    }

    /// It is told, or believes, that its session is over.
    pub(super) fn session_is_over(&mut self, scene: &mut Scene) {
        if let Some(held) = self.sessions.held.take() {
            scene.truth[self.region].sessions.given_up(held.id);
        }
    }

    /// An arrival was refused for its session.
    pub(super) fn arrives_no_more(&mut self, scene: &mut Scene) {
        if !std::mem::take(&mut self.sessions.as_former) {
            self.session_is_over(scene);
        }
    }

    fn tell_agent(&self, scene: &mut Scene, at: usize, what: Ask) -> u64 {
        let (agent, call) = (self.agents[at % self.agents.len()], scene.next_call());
        let asked = Box::new(Asked { call, client: self.index, what });
        let event = Event::Agent { agent, life: u32::MAX, what: ToAgent::Asked(asked) };
        scene.send(Link::ClientsAgent(agent), Way::There, event);
        call
    }

    /// A heartbeat is due.
    pub(super) fn beat(&mut self, scene: &mut Scene, session: SessionId) {
        let Some(mut held) = self.sessions.held.take_if(|held| held.id == session) else { return };
        if scene.now >= held.until && !held.clings {
            scene.note(|| format!("{} of region {} knows that its session is lost", self.who, self.region));
            scene.truth[self.region].sessions.given_up(held.id);
            return;
        }
        let pause = held.ttl / BEATS;
        if scene.now >= held.silent_until || scene.calm {
            if held.beat.is_some() || scene.chance.permille(60) {
                held.agent = (held.agent + 1) % self.agents.len();
            }
            let call = self.tell_agent(scene, held.agent, Ask::Heartbeat { session });
            held.beat = Some((call, scene.now));
        }
        self.sessions.held = Some(held);
        self.beat_later(scene, session, pause);
    }

    /// Whether this answers the heartbeat that waits for its answer.
    pub(super) fn beat_answered(&mut self, scene: &mut Scene, call: u64, said: &Said) {
        let Some(held) = self.sessions.held.as_mut() else { return };
        let Some((_, sent_at)) = held.beat.take_if(|(waits, _)| *waits == call) else { return };
        match said {
            // What comes too late does not count, unless it asked on.
            Said::Heard { .. } if scene.now >= held.until && !held.clings => {}
            Said::Heard { ttl_ms } => {
                held.until = held.until.max(sent_at + Duration::from_millis(*ttl_ms));
                if !scene.calm && scene.chance.permille(40) {
                    held.silent_until = scene.now + Duration::from_millis(scene.chance.within(500..=25_000));
                }
                let (id, until) = (held.id, held.until);
                self.alive(scene, id, until);
            }
            Said::Over => self.session_is_over(scene),
            _ => held.agent = (held.agent + 1) % self.agents.len(),
        }
    }
}
