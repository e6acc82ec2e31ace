//! What is true of a region: its log replayed once, entry by entry, as each
//! became durable. Every replica, every answer and every decision is held
//! against it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_protocol::entry::{Body, Entry, Witness};
use muster_protocol::generation::{GenerationId, State};
use muster_protocol::global;
use muster_protocol::identity::{Digest, Epoch, History, Timestamp, Writer};
use muster_protocol::invariant::{self, Acknowledged, Invariant};
use muster_protocol::name::{BarrierName, ParticipantId, RegionName, ZoneName};
use muster_protocol::outcome::Outcome;
use muster_protocol::region::{Arrive, Command, Effect, Ended, Refusal, Region, Reply, Withdraw};
use muster_protocol::replica::Logged;
use muster_protocol::spec::Spec;

use crate::regional::Regional;
use crate::sessions::{Sessions, owners};
use crate::sightings::{Sight, Sightings};

/// Which withdrawal.
type Taking = (BarrierName, u64, ParticipantId, u32);

/// The truth of one region.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) region: Region,
    /// Generations that arrivals were submitted for, by their stamp.
    submitted: BTreeMap<Timestamp, u64>,
    /// What replaying the log said to each arrival, by its stamp.
    arrivals: BTreeMap<Timestamp, Vec<Reply>>,
    withdrawals: BTreeMap<Taking, Vec<Reply>>,
    /// Arrivals that somebody was told will never be done.
    never: BTreeSet<Timestamp>,
    effective: BTreeSet<(Writer, u64)>,
    /// What the region has forgotten: it stays so.
    forgotten: BTreeSet<(BarrierName, u64)>,
    /// Where each arrival first came to lie.
    places: BTreeMap<Timestamp, (Writer, u64)>,
    /// The hash that the first replica to come there had at each index.
    hashes: BTreeMap<u64, Digest>,
    /// What was acknowledged, to be kept.
    acknowledged: Vec<Acknowledged>,
    /// Outcomes as they were first applied.
    outcomes: BTreeMap<(BarrierName, u64), Digest>,
    pub(crate) sessions: Sessions,
    regional: Regional,
    /// What the last entry decided.
    pub(crate) decided: Vec<Outcome>,
    /// The log was set back, or began another life: what was acknowledged may
    /// be gone.
    pub(crate) set_back: bool,
    /// An agent goes on with what it had of the log before that, and can't know.
    pub(crate) forked: bool,
    former: Former,
    /// The store lost of some barrier what may not come again as it was.
    pub(crate) doubtful: bool,
}

/// What the log was before it was set back or began another life: what it
/// promised then it had promised, until the coordinator takes another life for
/// the one that counts.
#[derive(Clone, Debug, Default)]
struct Former {
    lives: Vec<Region>,
    forked: bool,
}

type Findings = Vec<(Invariant, String)>;

impl Truth {
    pub(crate) fn new(name: RegionName, history: History) -> Self {
        Self {
            region: Region::new(name, history, 0),
            submitted: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            withdrawals: BTreeMap::new(),
            never: BTreeSet::new(),
            effective: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            places: BTreeMap::new(),
            hashes: BTreeMap::new(),
            acknowledged: Vec::new(),
            outcomes: BTreeMap::new(),
            sessions: Sessions::default(),
            regional: Regional::default(),
            decided: Vec::new(),
            set_back: false,
            forked: false,
            former: Former::default(),
            doubtful: false,
        }
    }

    /// An agent submitted an arrival; its stamp is its own.
    pub(crate) fn submitted(&mut self, arrive: &Arrive) {
        self.submitted.insert(arrive.at, arrive.n);
    }

    /// An entry became durable.
    pub(crate) fn landed(&mut self, logged: &Logged, now: Duration, seen: &mut Sightings) -> Findings {
        let mut findings = Findings::new();
        let body = match Body::decode(&logged.bytes) {
            Ok(body) => body,
            Err(error) => return vec![(Invariant::ReplicasAgree, format!("an entry can't be read: {error}"))],
        };
        let (epoch, version) = (self.region.epoch(), self.region.machine_version());
        let again = self.effective.contains(&(logged.writer, logged.seq));
        let entry = Entry { index: logged.index, writer: logged.writer, seq: logged.seq, body };
        let owners = owners(&self.region, &entry.body.commands);
        let mut effects = Vec::new();
        let replies = self.region.apply(&entry, &mut effects);
        seen.sight_if(again, Sight::TruncatedRetryLandedAgain);
        if !invariant::at_most_once(again, &replies) {
            findings.push((Invariant::AtMostOnce, format!("entry {}/{} took effect twice", logged.writer, logged.seq)));
        }
        if !replies.is_empty() {
            self.effective.insert((logged.writer, logged.seq));
        }
        let mut of_sessions = Findings::new();
        let (mut epoch, mut version) = (epoch, version);
        for (command, reply) in entry.body.commands.iter().zip(&replies) {
            self.replied(command, reply, epoch, &mut findings, seen);
            self.sessions.replied(logged.writer, &owners, command, reply, &mut of_sessions, seen);
            if !invariant::version_respected(command, version) {
                findings.push((
                    Invariant::ReplicasAgree,
                    format!("{command:?} is on the log at machine version {version}"),
                ));
            }
            if let (Command::VersionRaised { version: raised, .. }, Reply::Done { .. }) = (command, reply) {
                version = version.max(*raised);
            }
            if let (Command::TookOver { epoch: newer }, Reply::Done { .. }) = (command, reply) {
                epoch = (*newer).max(epoch);
            }
        }
        let conflicts = effects.iter().any(|effect| matches!(effect, Effect::Conflict { .. }));
        seen.sight_if(conflicts, Sight::ConflictAlarm);
        let ticked = entry.body.commands.iter().any(|command| matches!(command, Command::Ticked { .. }));
        self.sessions.landed(&self.region, &effects, ticked, now, &mut of_sessions, seen);
        self.decided = self.regional.landed(&self.region, &entry.body.commands, &effects, now, &mut findings, seen);
        if !self.set_back {
            findings.append(&mut of_sessions);
        }
        self.check(&mut findings);
        findings
    }

    fn replied(
        &mut self,
        command: &Command,
        reply: &Reply,
        epoch: Epoch,
        findings: &mut Findings,
        seen: &mut Sightings,
    ) {
        if !invariant::old_epoch_powerless(command, epoch, reply) {
            let what = format!("{command:?} had effect after a leader of epoch {epoch} had acted");
            findings.push((Invariant::OldEpochsPowerless, what));
        }
        match command {
            Command::Arrive(arrive) => {
                if self.never.contains(&arrive.at) {
                    let what = format!("{arrive:?} was done after somebody was told that it never will be");
                    findings.push((Invariant::RefusalsAreFinal, what));
                }
                self.arrivals.entry(arrive.at).or_default().push(reply.clone());
            }
            Command::Withdraw(withdraw) => self.withdrawals.entry(taking(withdraw)).or_default().push(reply.clone()),
            Command::ClockAdvanced { .. } | Command::Ticked { .. } => seen.sight(Sight::ClockAdvanced),
            Command::VersionRaised { .. } => seen.sight(Sight::VersionRaised),
            Command::AgentLost { .. } => seen.sight(Sight::AgentLost),
            _ => {}
        }
        seen.sight_if(matches!(reply, Reply::Refused(Refusal::OldEpoch { .. })), Sight::OldEpochRefused);
    }

    /// Every invariant that a region's state can show.
    fn check(&mut self, findings: &mut Findings) {
        let region = &self.region;
        if !invariant::missing_is_exact(region) {
            findings.push((Invariant::MissingIsExact, "missing is not required minus arrived".to_owned()));
        }
        if !invariant::completion_is_kept(region) {
            findings.push((Invariant::ReleasedOnlyWhenComplete, "a region took its promise back".to_owned()));
        }
        if !invariant::zones_add_up(region) {
            let what = "a zone counts who is not in it, or took its promise back".to_owned();
            findings.push((Invariant::ReleasedOnlyWhenComplete, what));
        }
        if !invariant::region_promised_before_release(region) && !self.set_back && !self.doubtful {
            findings.push((Invariant::ReleasedOnlyWhenComplete, "released without its own promise".to_owned()));
        }
        if let Some(at) = invariant::counted_elsewhere(region, |at| self.submitted.get(&at).copied()) {
            findings.push((Invariant::GenerationsApart, format!("an arrival counts in another generation: {at}")));
        }
        if let Some(lost) = self.acknowledged.iter().find(|one| !one.is_kept(region)) {
            findings.push((Invariant::NothingAcknowledgedIsLost, format!("{lost:?} is gone")));
        }
        for (name, barrier) in region.barriers() {
            let newest = barrier.latest().map_or(0, |latest| latest.id().n);
            for n in 1..=newest {
                if barrier.has_forgotten(n) {
                    self.forgotten.insert((name.clone(), n));
                } else if barrier.generation(n).is_some() && self.forgotten.contains(&(name.clone(), n)) {
                    findings.push((Invariant::Bounded, format!("{name} {n} was forgotten and is back")));
                }
            }
            for ended in barrier.generations().filter_map(|generation| Some((generation.id().n, generation.ended()?))) {
                let first = *self.outcomes.entry((name.clone(), ended.0)).or_insert(ended.1.digest);
                if first != ended.1.digest {
                    findings.push((Invariant::OneOutcome, format!("{name} {} ended in two ways", ended.0)));
                }
            }
        }
    }

    /// Whether a writer put a command on its log under two numbers.
    pub(crate) fn repeats(&mut self, logged: &Logged) -> bool {
        let Ok(body) = Body::decode(&logged.bytes) else { return false };
        let mut repeats = false;
        for command in &body.commands {
            if let Command::Arrive(arrive) = command {
                let place = (logged.writer, logged.seq);
                let first = *self.places.entry(arrive.at).or_insert(place);
                repeats |= first.0 == place.0 && first.1 != place.1;
            }
        }
        repeats
    }

    /// A client was told that its arrival counts, or that it was withdrawn.
    pub(crate) fn acknowledged(&mut self, acknowledged: Acknowledged) {
        if !self.acknowledged.contains(&acknowledged) {
            self.acknowledged.push(acknowledged);
        }
    }

    /// Whether replaying the log gave this reply to this command.
    pub(crate) fn gave(&self, command: &Command, reply: &Reply) -> bool {
        let given = match command {
            Command::Arrive(arrive) => self.arrivals.get(&arrive.at),
            Command::Withdraw(withdraw) => self.withdrawals.get(&taking(withdraw)),
            _ => return true,
        };
        given.is_some_and(|given| given.contains(reply))
    }

    /// A client was told that a command was not done and never will be.
    pub(crate) fn not_done(&mut self, command: &Command) {
        if let Command::Arrive(arrive) = command {
            self.never.insert(arrive.at);
        }
    }

    /// Whether an arrival is on the log.
    pub(crate) fn holds(&self, command: &Command) -> bool {
        matches!(command, Command::Arrive(arrive) if self.arrivals.contains_key(&arrive.at))
    }

    /// A replica's hash at its index, against those of all others (I12).
    pub(crate) fn agrees(&mut self, witness: Witness) -> bool {
        let first = *self.hashes.entry(witness.index).or_insert(witness.hash);
        invariant::replicas_agree(Witness { index: witness.index, hash: first }, witness)
    }

    /// Whether what arrived in a generation stays, whoever is lost.
    pub(crate) fn keeps(&self, barrier: &BarrierName, n: u64) -> bool {
        let Some(barrier) = self.region.barrier(barrier) else { return true };
        let slice = barrier.generation(n).and_then(|generation| barrier.slice(generation));
        slice.is_none_or(|slice| slice.keep_arrivals)
    }

    /// Whether a region or zone has promised, by the life of its log that counts.
    pub(crate) fn promised(&self, barrier: &BarrierName, n: u64, zone: Option<&ZoneName>) -> bool {
        let mut lives = self.former.lives.iter().chain([&self.region]);
        // What an agent has of a log that is gone nobody can read any more.
        self.forked || self.former.forked || lives.any(|region| has_promised(region, barrier, n, zone))
    }

    /// The coordinator takes this life for the one that counts: what a former
    /// one promised counts no more for what is decided from now on.
    pub(crate) fn adopted(&mut self) {
        self.former = Former::default();
    }

    /// How a generation of the coordinator ended here, if it has.
    pub(crate) fn applied(&self, id: &GenerationId) -> Option<&Ended> {
        let coordinators = self.region.regional_barrier(&id.barrier).is_none();
        self.region.generation(&id.barrier, id.n).filter(|_| coordinators)?.ended()
    }

    /// The log came back from a backup: the truth is what it says now. What was
    /// acknowledged is lost if it can't be read any more, and else it stays.
    pub(crate) fn set_back(&mut self, entries: &[Logged]) {
        let blank = Region::new(self.region.name().clone(), self.region.history(), 0);
        let (acknowledged, forked) = (std::mem::take(&mut self.acknowledged), self.forked);
        let regional = std::mem::take(&mut self.regional);
        self.goes_on_as(blank);
        self.forked = forked;
        entries.iter().for_each(|entry| drop(self.landed(entry, Duration::ZERO, &mut Sightings::default())));
        self.acknowledged = acknowledged.into_iter().filter(|one| one.is_kept(&self.region)).collect();
        // A time that began goes on.
        self.regional = regional;
    }

    /// The log begins another life, with all that could be read of it, or with
    /// nothing. Of what was acknowledged only that goes on which is there.
    pub(crate) fn begins_anew(&mut self, region: Region, keeps: bool) {
        let (acknowledged, regional) = (std::mem::take(&mut self.acknowledged), std::mem::take(&mut self.regional));
        let never = std::mem::take(&mut self.never);
        self.former.forked |= self.forked;
        self.goes_on_as(region);
        self.never = never;
        if keeps {
            (self.acknowledged, self.regional) = (acknowledged, regional);
        }
    }

    fn goes_on_as(&mut self, region: Region) {
        let mut anew = Self::new(region.name().clone(), region.history());
        anew.submitted = std::mem::take(&mut self.submitted);
        anew.set_back = true;
        // One outcome stays one, though it is applied a second time.
        anew.outcomes = std::mem::take(&mut self.outcomes);
        anew.outcomes.retain(|(barrier, _), _| self.region.regional_barrier(barrier).is_none());
        anew.former = std::mem::take(&mut self.former);
        anew.former.lives.push(std::mem::replace(&mut self.region, region.clone()));
        anew.region = region;
        *self = anew;
    }
}

/// Whether a region or zone has promised, and everybody in it has spoken.
pub(crate) fn has_promised(region: &Region, barrier: &BarrierName, n: u64, zone: Option<&ZoneName>) -> bool {
    let Some(generation) = region.generation(barrier, n) else { return false };
    let slice = region.barrier(barrier).and_then(|barrier| barrier.slice(generation));
    let set = zone.zip(slice).and_then(|(zone, slice)| slice.participants.zones().find(|(name, _)| *name == zone));
    let spoken = |id| generation.arrival(&id).is_some() || generation.absence(&id).is_some();
    // The promise of a region is one of each of its zones.
    let zone = || generation.zone(zone?)?.completed;
    generation.completed().is_some()
        || zone().is_some() && set.is_some_and(|(_, ids)| generation.is_closed() || ids.iter().all(spoken))
}

/// Whether some round of what a generation comes after is broken, or is
/// forgotten.
pub(crate) fn follows_a_break(of: &GenerationId, spec: &Spec, predecessor: Option<&global::Barrier>) -> bool {
    let (Some(_), Some(before)) = (&spec.after, predecessor) else { return false };
    let same = |id: &GenerationId| if of.key.is_some() { id.key == of.key } else { id.n == of.n };
    let mut rounds = before.generations.values().filter(|one| same(&one.id)).peekable();
    rounds.peek().is_none() || rounds.any(|one| one.state() == State::Broken)
}

fn taking(withdraw: &Withdraw) -> Taking {
    (withdraw.barrier.clone(), withdraw.n, withdraw.participant.clone(), withdraw.attempt)
}
