//! The regions' logs, the store and the bus as processes meet them, and what
//! is checked whenever something becomes durable.

use std::time::Duration;

use muster_protocol::entry::Body;
use muster_protocol::global::{Change, Command, Step};
use muster_protocol::identity::{Epoch, History};
use muster_protocol::invariant::Invariant;
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::{BreakReason, Outcome, Verdict};
use muster_protocol::replica::{Appended, Logged};
use muster_protocol::spec::Leaf;

use super::World;
use crate::event::{Event, LogAnswer, LogRequest, StoreAnswer, StoreRequest, ToAgent, ToCoordinator, Up};
use crate::log::{Follower, Read};
use crate::network::{Link, Way};
use crate::sightings::Sight;
use crate::store::Broken;
use crate::truth::{Truth, follows_a_break};

impl World {
    /// One request at a region's log: all of it, or nothing.
    /// What was meant for another life of the log never arrives.
    pub(super) fn log(
        &mut self,
        (region, history): (usize, History),
        agent: usize,
        life: u32,
        request: LogRequest,
    ) -> Option<LogAnswer> {
        if self.scene.truth[region].region.history() != history {
            return None;
        }
        let now = self.scene.now;
        let log = &mut self.logs[region];
        log.expire(now);
        Some(match request {
            LogRequest::Register { machine_version } => LogAnswer::Registered(log.register(now, machine_version)),
            LogRequest::KeepAlive { writer, sent_at } => {
                LogAnswer::KeptAlive { writer, sent_at, lives: log.keep_alive(writer, now) }
            }
            LogRequest::Append { writer, seq, bytes, seen } => {
                let result = log.append(writer, seq, &bytes, seen);
                if let Appended::Landed { index } = result {
                    self.check_repeat(region, agent, &Logged { index, writer, seq, bytes: bytes.clone() });
                    self.landed(region, Logged { index, writer, seq, bytes });
                }
                LogAnswer::Appended(result)
            }
            LogRequest::Head => LogAnswer::Head(log.read_head()),
            LogRequest::CatchUp { after, follower } => {
                let Read { snapshot, entries, head } = match log.catch_up(after) {
                    Ok(caught_up) => caught_up,
                    Err(what) => {
                        self.scene.violated(Invariant::NothingAcknowledgedIsLost, what);
                        return None;
                    }
                };
                log.followers.retain(|one| one.agent != agent);
                let next = head + 1;
                log.followers.push(Follower { agent, life, follower, next, not_before: Duration::ZERO });
                LogAnswer::CaughtUp { snapshot, entries, head }
            }
            LogRequest::Campaign { writer } => LogAnswer::Elected(log.campaign(writer)),
            LogRequest::Registrations => LogAnswer::Registrations(log.registrations()),
            LogRequest::List { index } => LogAnswer::Listed(log.list(index)),
            LogRequest::PutChunk { epoch, index, number, bytes } => {
                LogAnswer::Put(log.put_chunk(epoch, index, number, &bytes))
            }
            LogRequest::PutManifest { epoch, index, listed, bytes } => {
                let before = log.manifest().map(|manifest| manifest.index);
                let put = log.put_manifest(epoch, index, listed, bytes);
                if put {
                    self.check_manifest(region, before, index, epoch);
                }
                LogAnswer::Put(put)
            }
            LogRequest::Truncate { index, covered } => {
                log.truncate(index, covered);
                LogAnswer::Truncated
            }
        })
    }

    fn check_manifest(&mut self, region: usize, before: Option<u64>, index: u64, epoch: Epoch) {
        let acting = self.scene.truth[region].region.epoch();
        self.scene.check(before.is_none_or(|before| index > before), Invariant::NothingAcknowledgedIsLost, || {
            format!("a snapshot at index {index} took the place of one at {before:?}")
        });
        self.scene.check(epoch >= acting, Invariant::OldEpochsPowerless, || {
            format!("a leader of epoch {epoch} put a snapshot in place after one of epoch {acting} had acted")
        });
    }

    /// A writer puts a command on its log under one number, unless a snapshot
    /// took the reply to it away.
    fn check_repeat(&mut self, region: usize, agent: usize, entry: &Logged) {
        let repeats = self.scene.truth[region].repeats(entry);
        let may = self.agents[agent].process.as_ref().is_none_or(|process| process.swallowed || process.outlived);
        self.scene.check(!repeats || may, Invariant::AtMostOnce, || {
            format!("agent {agent} put a command on its log under two numbers")
        });
    }

    /// An entry is durable: the truth moves on, and followers hear of it.
    fn landed(&mut self, region: usize, entry: Logged) {
        self.scene.note(|| {
            let commands = Body::decode(&entry.bytes).map(|body| body.commands);
            format!("log {region} @{}: {commands:?}", entry.index)
        });
        let findings = self.scene.truth[region].landed(&entry, self.scene.now, &mut self.scene.seen);
        for (invariant, what) in findings {
            self.scene.violated(invariant, format!("region {region} at index {}: {what}", entry.index));
        }
        self.decided_alone(region);
        let now = self.scene.now;
        let mut followers = std::mem::take(&mut self.logs[region].followers);
        for one in followers.iter_mut().filter(|one| one.next <= entry.index) {
            let fate = self.scene.network.fate(&mut self.scene.chance, Link::AgentLog(one.agent), Way::Back, now);
            // Any one event may be lost; the stream goes on.
            let Some(delay) = fate.arrivals.first() else {
                self.scene.seen.sight(Sight::IndexGap);
                continue;
            };
            one.not_before = one.not_before.max(now + *delay) + Duration::from_nanos(1);
            let what = ToAgent::Followed { follower: one.follower, entry: Box::new(entry.clone()) };
            self.scene.at(one.not_before, Event::Agent { agent: one.agent, life: one.life, what });
        }
        self.logs[region].followers = followers;
    }

    /// What a region decides alone needs no coordinator, and nobody's word but
    /// its own.
    fn decided_alone(&mut self, region: usize) {
        let outcomes = std::mem::take(&mut self.scene.truth[region].decided);
        for outcome in outcomes {
            self.scene.note(|| format!("region {region} decided {} {:?}", outcome.generation, outcome.verdict));
            let mut mine = self.agents.iter().filter(|agent| agent.region == region);
            let alone = mine.all(|agent| agent.process.as_ref().is_none_or(|one| !one.listening.is_greeted()));
            self.scene.seen.sight_if(alone, Sight::RegionalAlone);
            let told = self.scene.told.decided(Some(region), &outcome, &mut self.scene.seen);
            // What was decided on a log that is gone is gone with it.
            if let (Err(what), false) = (told, self.scene.truth[region].set_back) {
                self.scene.violated(Invariant::OneOutcome, what);
            }
        }
    }

    pub(super) fn ask_store(&mut self, coordinator: usize, life: u32, call: u64, request: StoreRequest) {
        let request = match request {
            // A transaction waits for its locks: what it saw when it began may
            // have changed when it has them.
            StoreRequest::Begin { batch } => {
                let seen = Box::new(self.store.see(&batch));
                let request = StoreRequest::Commit { batch, seen };
                let wait = Duration::from_micros(self.scene.chance.within(100..=20_000));
                return self.scene.after(wait, Event::Store { coordinator, life, call, request });
            }
            request => request,
        };
        let answer = match self.store(request) {
            Ok(answer) => answer,
            Err((invariant, what)) => return self.scene.violated(invariant, what),
        };
        let what = ToCoordinator::Answered { call, answer };
        let event = Event::Coordinator { coordinator, life, what };
        self.scene.send(Link::CoordinatorStore(coordinator), Way::Back, event);
    }

    fn store(&mut self, request: StoreRequest) -> Result<StoreAnswer, Broken> {
        let now = self.scene.clock();
        Ok(match request {
            StoreRequest::Begin { batch } => StoreAnswer::Steps(self.store.dry_run(&batch, now)?),
            StoreRequest::DryRun { batch } => StoreAnswer::Steps(self.store.dry_run(&batch, now)?),
            StoreRequest::Commit { batch, seen } => {
                let steps = self.store.transact(&batch, &seen, now)?;
                self.decided(&batch, &steps);
                StoreAnswer::Steps(steps)
            }
            StoreRequest::Hello(hello) => StoreAnswer::Welcome(Box::new(self.store.hello(&hello))),
            StoreRequest::Heartbeats(heartbeats) => {
                StoreAnswer::Heard(heartbeats.iter().filter_map(|beat| self.store.heartbeat(beat)).collect())
            }
            StoreRequest::Unanswered { only } => StoreAnswer::Unanswered(self.store.unanswered(only.as_ref())),
            StoreRequest::Due => StoreAnswer::Due(self.store.due(now)),
            StoreRequest::Look { barrier, key } => StoreAnswer::Looked(self.store.look(&barrier, key.as_ref())),
            StoreRequest::Adopt { region, history } => StoreAnswer::Adopted(self.adopt(&region, history)),
        })
    }

    /// Another life of a region's log counts from now on.
    fn adopt(&mut self, region: &RegionName, history: History) -> Option<bool> {
        let adopted = self.store.adopt(region, history);
        self.scene.note(|| format!("adopt {history} of {region}: {adopted:?}"));
        self.scene.seen.sight_if(adopted.is_none(), Sight::AdoptedTooEarly);
        let at = self.workload.regions.iter().position(|name| name == region);
        if let (Some(true), Some(truth)) = (adopted, at.and_then(|at| self.scene.truth.get_mut(at))) {
            truth.adopted();
            self.scene.seen.sight(Sight::Adopted);
        }
        adopted
    }

    /// Decisions are durable: each is held against what is true of its regions.
    fn decided(&mut self, batch: &[(BarrierName, Command)], steps: &[Step]) {
        for ((name, _), change) in
            batch.iter().zip(steps).flat_map(|(named, step)| step.changes.iter().map(move |change| (named, change)))
        {
            let Change::Decided { n, decided } = change else { continue };
            self.scene.note(|| format!("decided {} {:?}", decided.outcome.generation, decided.outcome.verdict));
            match self.check_anew(name, *n, &decided.outcome) {
                Ok(anew) => self.scene.seen.sight_if(anew, Sight::DecidedAnewUnheard),
                Err(what) => self.scene.violated(Invariant::OneOutcome, what),
            }
            self.scene.seen.sight_if(self.is_adopted(&decided.outcome), Sight::EndAdopted);
            if let Err(what) = self.scene.told.decided(None, &decided.outcome, &mut self.scene.seen) {
                self.scene.violated(Invariant::OneOutcome, what);
            }
            let Some((generation, spec)) = self.store.barrier(name).and_then(|barrier| barrier.loaded(*n)) else {
                continue;
            };
            match &decided.outcome.verdict {
                Verdict::Released(release) => {
                    self.scene.seen.sight_if(release.forced.is_some(), Sight::Forced);
                    self.scene.seen.sight_if(!release.left_out.is_empty(), Sight::LeftOut);
                    let promised = |leaf: &Leaf| {
                        let at = self.workload.regions.iter().position(|name| *name == leaf.region).unwrap_or(0);
                        let waived = release.waived.get(&leaf.region).is_some_and(String::is_empty);
                        let truth = &self.scene.truth[at];
                        waived || truth.promised(name, *n, leaf.zone.as_ref())
                    };
                    let holds = spec.release_when.holds(spec.regions.keys(), &promised)
                        || release.forced.is_some()
                        || self.is_adopted(&decided.outcome);
                    let leaves = spec.release_when.leaves();
                    let by_zone = leaves.iter().any(|leaf| leaf.zone.is_some());
                    self.scene.seen.sight_if(by_zone, Sight::ZonesReleased);
                    // A zone promised, and its region had not.
                    let ahead = |leaf: &&Leaf| leaf.zone.is_some() && release.left_out.contains(&leaf.region);
                    self.scene.seen.sight_if(leaves.into_iter().any(|leaf| ahead(&leaf)), Sight::ZoneAheadOfRegion);
                    self.scene.check(holds, Invariant::ReleasedOnlyWhenComplete, || {
                        format!("{name} {n} was released, and the regions that its rule needs had not promised")
                    });
                }
                Verdict::Broken(broken) => {
                    let passed = generation.deadline_at.is_some_and(|at| at <= self.scene.clock());
                    let adopted = self.is_adopted(&decided.outcome);
                    let due = broken.reason != BreakReason::DeadlineExceeded || passed || adopted;
                    self.scene.check(due, Invariant::RefusalsAreFinal, || {
                        format!("{name} {n} was out of time before its deadline")
                    });
                    self.scene.seen.sight_if(broken.reason == BreakReason::NameTaken, Sight::BrokenNameTaken);
                    if broken.reason == BreakReason::PredecessorBroken {
                        self.scene.seen.sight(Sight::PredecessorBroke);
                        let before = spec.after.as_ref().and_then(|after| self.store.barrier(after));
                        let follows = follows_a_break(&decided.outcome.generation, spec, before);
                        self.scene.check(follows || self.scene.told.rolled_back, Invariant::GenerationsApart, || {
                            format!("{name} {n} broke, and what it comes after had not")
                        });
                    }
                    self.check_abort(name, *n, batch);
                }
            }
        }
    }

    /// Whether a region has applied this end before the store has it: the store
    /// lost it, and takes it from there.
    fn is_adopted(&self, outcome: &Outcome) -> bool {
        let applied =
            |truth: &Truth| truth.applied(&outcome.generation).is_some_and(|end| end.digest == outcome.digest());
        self.scene.truth.iter().any(applied)
    }

    /// What a store lost may be decided anew only while no region that has
    /// spoken since then had applied it.
    fn check_anew(&self, name: &BarrierName, n: u64, outcome: &Outcome) -> Result<bool, String> {
        let Some((generation, spec)) = self.store.barrier(name).and_then(|barrier| barrier.loaded(n)) else {
            return Ok(false);
        };
        let mut anew = false;
        for region in spec.regions.keys() {
            let Some(at) = self.workload.regions.iter().position(|name| name == region) else { continue };
            let Some(end) = self.scene.truth[at].applied(&outcome.generation) else { continue };
            if end.digest == outcome.digest() {
                continue;
            }
            anew = true;
            if generation.reports.get(region).is_some_and(|report| report.stamp.index >= end.index) {
                return Err(format!("{} was decided anew, and {region} had said that it ended", generation.id));
            }
        }
        Ok(anew)
    }

    /// What somebody did to one generation ends that one.
    fn check_abort(&mut self, name: &BarrierName, n: u64, batch: &[(BarrierName, Command)]) {
        let asked = batch.iter().any(|(named, command)| match command {
            Command::Abort { n: meant, .. }
            | Command::Expire { n: meant }
            | Command::Release { n: meant, .. }
            | Command::Waive { n: meant, .. }
            | Command::PredecessorBroke { n: meant, .. } => named == name && *meant == n,
            Command::Report(report) => named == name && report.generation.n == n,
            Command::Delete { .. } => named == name,
            Command::Define { .. } | Command::Open { .. } | Command::Retry { .. } | Command::Collect { .. } => false,
        });
        self.scene.check(asked, Invariant::GenerationsApart, || format!("{name} {n} was ended by an act on another"));
    }

    /// A record on the bus goes to whoever reads its part, mostly.
    pub(super) fn up(&mut self, up: Up) {
        let part = match &up {
            Up::Report(report) => report.generation.barrier.as_str().bytes().map(usize::from).sum(),
            Up::Hello(hello) => hello.region.as_str().bytes().map(usize::from).sum(),
            Up::Heartbeat(beat) => beat.region.as_str().bytes().map(usize::from).sum::<usize>(),
        };
        let living: Vec<usize> = self.coordinators.iter().filter(|one| one.is_up()).map(|one| one.index).collect();
        if living.is_empty() {
            return self.read_again(up);
        }
        // A member that was put out of the group may go on reading for a while.
        let zombie = !self.scene.calm && self.scene.chance.permille(100);
        let coordinator = if zombie { *self.scene.chance.pick(&living) } else { living[part % living.len()] };
        let life = self.coordinators[coordinator].life;
        let what = ToCoordinator::Read(Box::new(up.clone()));
        let event = Event::Coordinator { coordinator, life, what };
        if !self.scene.send(Link::CoordinatorBus(coordinator), Way::Back, event) {
            self.read_again(up);
        }
    }

    /// What the bus has is read until somebody has dealt with it. Everything but
    /// an end is told again, and may be lost here.
    pub(super) fn read_again(&mut self, up: Up) {
        if matches!(&up, Up::Report(report) if report.outcome.is_some()) {
            self.scene.after(Duration::from_secs(1), Event::Up(up));
        }
    }
}
