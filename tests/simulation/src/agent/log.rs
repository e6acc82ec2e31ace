//! Calls to the region's log: each is answered, or given up after a while as
//! unknown; some are repeated with growing pauses, as the driver's tasks do.

use std::time::Duration;

use muster_protocol::entry::Snapshot;
use muster_protocol::identity::{Epoch, Writer};
use muster_protocol::invariant::Invariant;
use muster_protocol::lease::LeaseClock;
use muster_protocol::replica::{Appended, Input};

use super::Agent;
use crate::event::{Event, LogAnswer, LogRequest, ToAgent};
use crate::log::{LEASE_TTL, Listed};
use crate::network::{Link, Way};
use crate::scene::Scene;
use crate::sightings::Sight;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses between tries, doubling.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A call that is on its way, and what it is for.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Register { attempt: u32 },
    KeepAlive { writer: Writer },
    Append { writer: Writer, seq: u64, bytes: Vec<u8>, attempt: u32 },
    Head,
    CatchUp { after: u64, follower: u64, attempt: u32 },
    Campaign { writer: Writer },
    Registrations { known: Vec<Writer> },
    List { epoch: Epoch, snapshot: Box<Snapshot> },
    PutChunk { epoch: Epoch, index: u64, listed: Listed, chunks: Vec<Vec<u8>>, number: usize },
    PutManifest { epoch: Epoch, index: u64, listed: Listed, bytes: usize },
    Truncate { index: u64, covered: u64 },
}

fn backoff(attempt: u32) -> Duration {
    match attempt {
        0 => Duration::ZERO,
        attempt => BACKOFF_MAX.min(BACKOFF_MIN * 2_u32.saturating_pow(attempt - 1)),
    }
}

impl Wanted {
    fn attempt(&self) -> u32 {
        match self {
            Self::Register { attempt } | Self::Append { attempt, .. } | Self::CatchUp { attempt, .. } => *attempt,
            _ => 0,
        }
    }

    fn request(&self, now: Duration, seen: u64, machine_version: u16) -> LogRequest {
        match self {
            Self::Register { .. } => LogRequest::Register { machine_version },
            Self::KeepAlive { writer } => LogRequest::KeepAlive { writer: *writer, sent_at: now },
            Self::Append { writer, seq, bytes, .. } => {
                LogRequest::Append { writer: *writer, seq: *seq, bytes: bytes.clone(), seen }
            }
            Self::Head => LogRequest::Head,
            Self::CatchUp { after, follower, .. } => LogRequest::CatchUp { after: *after, follower: *follower },
            Self::Campaign { writer } => LogRequest::Campaign { writer: *writer },
            Self::Registrations { .. } => LogRequest::Registrations,
            Self::List { snapshot, .. } => LogRequest::List { index: snapshot.region.index() },
            Self::PutChunk { epoch, index, chunks, number, .. } => {
                let bytes = chunks.get(*number).cloned().unwrap_or_default();
                LogRequest::PutChunk { epoch: *epoch, index: *index, number: *number, bytes }
            }
            Self::PutManifest { epoch, index, listed, bytes } => {
                LogRequest::PutManifest { epoch: *epoch, index: *index, listed: *listed, bytes: *bytes }
            }
            Self::Truncate { index, covered } => LogRequest::Truncate { index: *index, covered: *covered },
        }
    }
}

impl Agent {
    pub(super) fn call_log(&mut self, scene: &mut Scene, wanted: Wanted) {
        let Some(process) = &mut self.process else { return };
        let call = scene.next_call();
        let (pause, request) =
            (backoff(wanted.attempt()), wanted.request(scene.now, process.replica.region().index(), self.version));
        process.calls.insert(call, wanted);
        match pause.is_zero() {
            true => self.send_to_log(scene, call, request),
            false => scene.after(pause, self.event(ToAgent::Send { call, request })),
        }
    }

    /// Makes a call as soon as a pause that begins now is over.
    pub(super) fn resume(&mut self, scene: &mut Scene, wanted: Wanted, pause: Duration) {
        let Some(process) = &mut self.process else { return };
        let call = scene.next_call();
        let request = wanted.request(scene.now, process.replica.region().index(), self.version);
        process.calls.insert(call, wanted);
        scene.after(pause, self.event(ToAgent::Send { call, request }));
    }

    pub(super) fn send_to_log(&mut self, scene: &mut Scene, call: u64, request: LogRequest) {
        if let (LogRequest::Register { .. }, Some(process)) = (&request, &mut self.process) {
            process.registering_at = scene.now;
        }
        scene.after(CALL_TIMEOUT, self.event(ToAgent::Unanswered { call }));
        let Some(process) = &self.process else { return };
        let (history, life) = (process.replica.region().history(), self.life);
        let event = Event::Log { region: self.region, history, agent: self.index, life, call, request };
        scene.send(Link::AgentLog(self.index), Way::There, event);
    }

    pub(super) fn append(&mut self, scene: &mut Scene, writer: Writer, seq: u64, bytes: Vec<u8>, attempt: u32) {
        self.call_log(scene, Wanted::Append { writer, seq, bytes, attempt });
    }

    pub(super) fn catch_up(&mut self, scene: &mut Scene, after: u64) {
        let Some(process) = &mut self.process else { return };
        process.follower += 1;
        let follower = process.follower;
        self.call_log(scene, Wanted::CatchUp { after, follower, attempt: 0 });
    }

    pub(super) fn keep_alive(&mut self, scene: &mut Scene) {
        let writer = self.process.as_ref().and_then(|process| process.lease.as_ref()).map(|(writer, _)| *writer);
        if let Some(writer) = writer {
            self.call_log(scene, Wanted::KeepAlive { writer });
        }
    }

    pub(super) fn log_answered(&mut self, scene: &mut Scene, call: u64, answer: LogAnswer) {
        let Some(wanted) = self.process.as_mut().and_then(|process| process.calls.remove(&call)) else { return };
        match (wanted, answer) {
            (Wanted::Register { .. }, LogAnswer::Registered(writer)) => self.registered(scene, writer),
            (Wanted::KeepAlive { .. }, LogAnswer::KeptAlive { writer, sent_at, lives }) => {
                self.kept_alive(scene, writer, sent_at, lives);
            }
            (Wanted::Append { writer, seq, .. }, LogAnswer::Appended(result)) => {
                scene.seen.sight_if(result == Appended::WriterGone, Sight::WriterGone);
                scene.seen.sight_if(result == Appended::AlreadyThere, Sight::AlreadyThere);
                self.step(scene, Input::Appended { writer, seq, result });
            }
            (Wanted::Head, LogAnswer::Head(head)) => self.step(scene, Input::HeadRead(Some(head))),
            (Wanted::CatchUp { follower, .. }, LogAnswer::CaughtUp { snapshot, entries, head }) => {
                if self.process.as_ref().is_some_and(|process| process.follower == follower) {
                    let sight = if snapshot.is_some() { Sight::CatchUpBySnapshot } else { Sight::CatchUpByEntries };
                    scene.seen.sight(sight);
                    if let Some(process) = &mut self.process {
                        process.swallowed |= snapshot.is_some();
                    }
                    let before = self.process.as_ref().map_or(0, |process| process.replica.region().index());
                    // The log has grown again to where this agent stood, and
                    // nothing in it says that it is another.
                    if self.process.as_ref().is_some_and(|one| one.outlived) && head >= before && before > 0 {
                        scene.seen.sight(Sight::SetBackUnseen);
                        scene.truth[self.region].forked = true;
                    }
                    self.step(scene, Input::CaughtUp { snapshot, entries, head });
                    self.must_stop(scene, head < before);
                }
            }
            (wanted, answer) => self.turn_answered(scene, wanted, answer),
        }
    }

    /// A log that ends before what this process has seen of it was set back.
    fn must_stop(&self, scene: &mut Scene, set_back: bool) {
        let goes_on = self.process.as_ref().is_some_and(|process| process.stopped.is_none());
        scene.check(!(set_back && goes_on), Invariant::NothingAcknowledgedIsLost, || {
            format!("agent {} goes on with a log that was set back", self.index)
        });
    }

    /// A call came to nothing: what it was is not known.
    pub(super) fn log_silent(&mut self, scene: &mut Scene, call: u64) {
        let Some(wanted) = self.process.as_mut().and_then(|process| process.calls.remove(&call)) else { return };
        match wanted {
            Wanted::Register { attempt } => self.call_log(scene, Wanted::Register { attempt: attempt + 1 }),
            Wanted::KeepAlive { .. } => {}
            Wanted::Append { writer, seq, .. } => {
                self.step(scene, Input::Appended { writer, seq, result: Appended::Unknown });
            }
            Wanted::Head => self.step(scene, Input::HeadRead(None)),
            Wanted::CatchUp { after, follower, attempt } => {
                if self.process.as_ref().is_some_and(|process| process.follower == follower) {
                    self.call_log(scene, Wanted::CatchUp { after, follower, attempt: attempt + 1 });
                }
            }
            wanted => self.turn_silent(scene, &wanted),
        }
    }

    fn registered(&mut self, scene: &mut Scene, writer: Writer) {
        let Some(process) = &mut self.process else { return };
        process.lease = Some((writer, LeaseClock::granted(process.registering_at, LEASE_TTL, LeaseClock::MARGIN)));
        scene.note(|| format!("agent {} is writer {writer}", self.index));
        self.step(scene, Input::Registered(writer));
    }

    fn kept_alive(&mut self, scene: &mut Scene, writer: Writer, sent_at: Duration, lives: bool) {
        let Some(process) = &mut self.process else { return };
        let Some((_, clock)) = process.lease.as_mut().filter(|(mine, _)| *mine == writer) else { return };
        if lives {
            return clock.acknowledged(sent_at, LEASE_TTL);
        }
        process.lease = None;
        scene.note(|| format!("agent {} has lost its lease as writer {writer}", self.index));
        self.step(scene, Input::RegistrationLost(writer));
    }
}
