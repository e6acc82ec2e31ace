use alloc::vec;
use std::prelude::v1::*;

use super::*;
use crate::identity::Timestamp;
use crate::participants::Participants;
use crate::region::tests::{World, id};
use crate::region::{OpenSession, Reply, Work};

const TTL_MS: u64 = 10_000;
const US: Writer = Writer(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An agent with one session, heard at 100 s and sure since then.
struct Agent {
    world: World,
    machine: Heartbeats,
}

fn session() -> SessionId {
    SessionId([7; 16])
}

fn at(second: u64) -> Footing {
    Footing { writer: Some(US), proven_for: ms(5_000), now: ms(second * 1_000) }
}

fn unproven(second: u64) -> Footing {
    Footing { proven_for: Duration::ZERO, ..at(second) }
}

impl Agent {
    fn new() -> Self {
        let mut world = World::new(Participants::Count(3));
        let work = Work { barrier: id(1).barrier, n: 1, participant: "p".parse().unwrap() };
        let open = OpenSession { id: session(), ttl_ms: TTL_MS, works: vec![work], at: Timestamp(1) };
        assert!(matches!(world.run(Command::OpenSession(open)), Reply::SessionOpened(_)));
        let mut agent = Self { world, machine: Heartbeats::default() };
        agent.look(100);
        agent
    }

    /// A look at a fresh state.
    fn look(&mut self, second: u64) -> Vec<Command> {
        self.machine.read_at(at(second).now);
        self.machine.look(&self.world.region, at(second))
    }

    /// Looks each second, and gives the first at which the session expires.
    fn expires_between(&mut self, from: u64, to: u64) -> Option<u64> {
        (from..=to).find(|second| !self.look(*second).is_empty())
    }

    fn heartbeat(&mut self, footing: Footing) -> Took {
        self.machine.heartbeat(session(), &self.world.region, footing)
    }
}

const TAKEN: Took = Took::Acknowledged { ttl_ms: TTL_MS };

#[test]
fn a_session_expires_its_time_and_a_margin_after_the_last_heartbeat_arrived() {
    let mut agent = Agent::new();
    assert_eq!(agent.heartbeat(at(101)), TAKEN);
    assert_eq!(agent.expires_between(101, 112), None);
    assert_eq!(agent.look(113), [Command::ExpireSession { session: session(), attach: 1 }]);
    assert_eq!(agent.look(114).len(), 1, "it is said until it is applied");
    agent.world.run(Command::ExpireSession { session: session(), attach: 1 });
    assert!(agent.look(115).is_empty());
    assert_eq!(agent.heartbeat(at(115)), Took::Unknown);
    assert!(!agent.machine.has_any());
}

#[test]
fn each_heartbeat_gives_the_whole_time_again() {
    let mut agent = Agent::new();
    for second in 100..150 {
        assert!(agent.look(second).is_empty(), "{second}");
        assert_eq!(agent.heartbeat(at(second)), TAKEN);
    }
    assert_eq!(agent.machine.last_heard(session()), Some(ms(149_000)));
    assert_eq!(agent.expires_between(150, 200), Some(161));
}

#[test]
fn nothing_is_acknowledged_that_the_agent_cannot_stand_for() {
    let mut agent = Agent::new();
    assert_eq!(agent.heartbeat(unproven(101)), Took::Unsure, "its lease is not proven");
    assert_eq!(agent.heartbeat(Footing { writer: None, ..at(101) }), Took::Unsure, "it is not registered");
    assert_eq!(agent.heartbeat(at(103)), Took::Unsure, "its state is too old to know of another owner");
    agent.machine.read_at(at(103).now);
    assert_eq!(agent.heartbeat(at(103)), TAKEN);
}

#[test]
fn a_session_of_another_agent_is_attached_first_and_never_expired_here() {
    let mut agent = Agent::new();
    agent.world.run_as(Writer(2), Command::AttachSession(session()));
    assert_eq!(agent.heartbeat(at(101)), Took::Attach);
    assert_eq!(agent.expires_between(101, 200), None);
    assert!(!agent.machine.has_any());
    // It comes back: what was heard before it left says nothing.
    agent.world.run(Command::AttachSession(session()));
    assert_eq!(agent.expires_between(201, 250), Some(213));
    assert_eq!(agent.look(214), [Command::ExpireSession { session: session(), attach: 3 }]);
}

#[test]
fn a_session_that_left_and_came_back_between_two_looks_counts_anew() {
    let mut agent = Agent::new();
    assert_eq!(agent.expires_between(101, 105), None);
    agent.world.run_as(Writer(2), Command::AttachSession(session()));
    agent.world.run(Command::AttachSession(session()));
    assert_eq!(agent.expires_between(106, 117), None);
    assert_eq!(agent.look(118), [Command::ExpireSession { session: session(), attach: 3 }]);
}

#[test]
fn after_doubt_everybody_has_the_whole_time_again() {
    // What made it unsure, from 105 s until just before 120 s.
    let doubts: [fn(&mut Agent, u64); 4] = [
        |agent, second| assert!(agent.machine.look(&agent.world.region, unproven(second)).is_empty()),
        |agent, second| {
            let gone = Footing { writer: None, ..at(second) };
            agent.machine.read_at(gone.now);
            assert!(agent.machine.look(&agent.world.region, gone).is_empty());
        },
        // The state is not read anew.
        |agent, second| assert!(agent.machine.look(&agent.world.region, at(second)).is_empty() || second < 107),
        // The process does not run.
        |_, _| {},
    ];
    for (case, doubt) in doubts.into_iter().enumerate() {
        let mut agent = Agent::new();
        assert_eq!(agent.expires_between(101, 104), None);
        (105..120).for_each(|second| doubt(&mut agent, second));
        assert_eq!(agent.expires_between(120, 200), Some(132), "case {case}");
    }
}

#[test]
fn a_session_whose_opening_was_answered_by_nobody_expires_too() {
    let mut agent = Agent::new();
    let work = Work { barrier: id(1).barrier, n: 1, participant: "q".parse().unwrap() };
    let lost = SessionId([8; 16]);
    agent.look(101);
    agent.world.run(Command::OpenSession(OpenSession { id: lost, ttl_ms: 3_000, works: vec![work], at: Timestamp(1) }));
    let expired = (102..200).find_map(|second| Some((second, agent.look(second).into_iter().next()?)));
    assert_eq!(expired, Some((107, Command::ExpireSession { session: lost, attach: 1 })));
}

#[test]
fn what_was_said_to_be_silent_is_acknowledged_no_more() {
    let mut agent = Agent::new();
    assert_eq!(agent.expires_between(101, 120), Some(112));
    // Its word is on its way to the log, and the client asks on.
    assert_eq!(agent.heartbeat(at(112)), Took::Unsure);
    assert_eq!(agent.look(113).len(), 1, "the word stands until it is applied or refuted");
    // Not even a doubt of its own takes it back: it may still land.
    assert_eq!(agent.machine.look(&agent.world.region, unproven(114)), vec![]);
    agent.look(115);
    assert_eq!(agent.heartbeat(at(115)), Took::Unsure);
    // Another agent heard the session meanwhile, which refutes the word.
    agent.world.run_as(Writer(2), Command::AttachSession(session()));
    agent.world.run(Command::AttachSession(session()));
    assert!(matches!(agent.heartbeat(at(115)), Took::Acknowledged { .. }));
    assert_eq!(agent.look(116), vec![]);
}
