//! Which fault comes when: drawn from one seed, and nothing else.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::fault::{Blow, Fault};
use crate::cluster::{Part, Shape};
use crate::links::{End, Trouble, Way};

/// One of those who do harm, each on its own and at its own pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    /// At agents.
    Agents,
    /// At coordinators.
    Coordinators,
    /// At links.
    Links,
    /// At etcd and Postgres.
    Databases,
    /// At Kafka, which takes its time to come back.
    Kafka,
    /// In what services keep.
    Insides,
}

impl Hand {
    /// All of them.
    pub(super) const ALL: [Self; 6] =
        [Self::Agents, Self::Coordinators, Self::Links, Self::Databases, Self::Kafka, Self::Insides];
}

/// What one hand does, one thing after another.
pub(super) struct Plan {
    hand: Hand,
    shape: Shape,
    /// Points at which a part may die.
    points: Vec<(bool, &'static str)>,
    chance: StdRng,
}

/// One thing a hand does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deed {
    /// How long after the last.
    pub(super) after: Duration,
    /// What.
    pub(super) fault: Fault,
    /// How long it lasts.
    pub(super) lasts: Duration,
}

impl Plan {
    /// The plan of a hand; `points` tells of each point whether it is an
    /// agent's.
    pub(super) fn new(seed: u64, hand: Hand, shape: &Shape, points: &[(bool, &'static str)]) -> Self {
        let chance = StdRng::seed_from_u64(seed.wrapping_mul(8).wrapping_add(hand as u64));
        Self { hand, shape: shape.clone(), points: points.to_vec(), chance }
    }

    /// What it does next.
    pub(super) fn deed(&mut self) -> Deed {
        let fault = match self.hand {
            Hand::Agents => self.hurt_part(true),
            Hand::Coordinators => self.hurt_part(false),
            Hand::Links => {
                let (part, end) = (self.part(None), *self.one(&End::ALL));
                Fault::Link(part, end, self.trouble())
            }
            Hand::Databases => {
                let etcds = self.shape.regions.iter().map(|region| format!("etcd-{region}"));
                let databases: Vec<String> = etcds.chain(["postgres".to_owned()]).collect();
                let name = self.one(&databases).clone();
                self.hurt_service(name)
            }
            Hand::Kafka => self.hurt_service("kafka".to_owned()),
            Hand::Insides => match self.chance.random_bool(0.5) {
                true => Fault::Disconnect,
                false => Fault::Compact(self.region()),
            },
        };
        let (after, lasts) = match self.hand {
            Hand::Agents => (700..3_500, 50..2_000),
            // What a dead one read waits for seconds: nothing would ever be
            // decided if they died faster.
            Hand::Coordinators => (4_000..12_000, 50..2_000),
            Hand::Links => (500..4_000, 500..5_000),
            Hand::Databases => (800..4_500, 100..2_000),
            Hand::Kafka => (8_000..20_000, 100..2_000),
            Hand::Insides => (3_000..8_000, 0..1),
        };
        // Sometimes for longer than any lease.
        let lasts = match &fault {
            Fault::Pause(_) if self.chance.random_bool(0.2) => 5_000..15_000,
            _ => lasts,
        };
        let mut ms = |range| Duration::from_millis(self.chance.random_range(range));
        Deed { after: ms(after), fault, lasts: ms(lasts) }
    }

    fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.chance.random_range(0..all.len())]
    }

    fn part(&mut self, agents: Option<bool>) -> Part {
        let mut parts = self.shape.parts();
        parts.retain(|part| agents.is_none_or(|agents| agents == matches!(part, Part::Agent(..))));
        self.one(&parts).clone()
    }

    fn region(&mut self) -> muster_protocol::name::RegionName {
        let regions = self.shape.regions.clone();
        self.one(&regions).clone()
    }

    fn hurt_part(&mut self, agents: bool) -> Fault {
        let part = self.part(Some(agents));
        match self.chance.random_range(0..10) {
            0..4 => Fault::Kill(part),
            4..6 => Fault::Stop(part),
            6..8 => Fault::Pause(part),
            _ => {
                let mut points = self.points.clone();
                points.retain(|(its, _)| *its == agents);
                let (_, point) = *self.one(&points);
                Fault::DieAt(part, point)
            }
        }
    }

    fn trouble(&mut self) -> Trouble {
        let way = *self.one(&[Way::Ask, Way::Answer, Way::Both]);
        match self.chance.random_range(0..10) {
            0..4 => Trouble::Cut(way),
            4..6 => Trouble::HalfOpen(way),
            6 => Trouble::Refused,
            7 => Trouble::Reset,
            8 => Trouble::Slow(Duration::from_millis(self.chance.random_range(20..800))),
            _ => Trouble::Throttled(self.chance.random_range(1..50)),
        }
    }

    fn hurt_service(&mut self, name: String) -> Fault {
        Fault::Service(name, *self.one(&[Blow::Kill, Blow::Stop, Blow::Pause]))
    }
}
