//! Leading, one turn a second: stand for election, take over, count time, look
//! for lost agents, put a snapshot in place. Each step waits for the one before
//! it, so a pause can come between any two.

use std::collections::VecDeque;
use std::time::Duration;

use muster_protocol::identity::{Epoch, Timestamp, Writer};
use muster_protocol::leadership::{Elected, Leadership};
use muster_protocol::region::{Command, Reply};

use super::log::Wanted;
use super::{Agent, Whose};
use crate::event::{Event, Fault, LogAnswer};
use crate::log::{Listed, cut};
use crate::network::{Link, Way};
use crate::scene::Scene;
use crate::sightings::Sight;

/// What a turn is at.
pub(super) struct Lead {
    machine: Leadership,
    busy: bool,
    /// Elected as, in which epoch, until its word is applied.
    elected: Option<(Writer, Epoch)>,
    todo: VecDeque<Command>,
    next: Next,
}

/// What follows the commands of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Agents,
    Snapshot,
}

impl Lead {
    pub(super) fn new(snapshot_every: u64) -> Self {
        let machine = Leadership::new(snapshot_every);
        Self { machine, busy: false, elected: None, todo: VecDeque::new(), next: Next::Agents }
    }

    pub(super) fn leads(&self) -> bool {
        self.machine.epoch().is_some()
    }
}

impl Agent {
    /// Begins a turn, unless the last one still goes on.
    pub(super) fn turn(&mut self, scene: &mut Scene) {
        let Some(process) = self.process.as_mut().filter(|process| !process.lead.busy) else { return };
        let writer = process.replica.writer().filter(|_| process.replica.is_following());
        match writer {
            Some(writer) => {
                process.lead.busy = true;
                self.call_log(scene, Wanted::Campaign { writer });
            }
            None => drop(process.lead.machine.elected(None)),
        }
    }

    pub(super) fn turn_answered(&mut self, scene: &mut Scene, wanted: Wanted, answer: LogAnswer) {
        match (wanted, answer) {
            (Wanted::Campaign { writer }, LogAnswer::Elected(epoch)) => self.elected(scene, writer, epoch),
            (Wanted::Registrations { known }, LogAnswer::Registrations(registered)) => {
                let Some(process) = &mut self.process else { return };
                let (machine, region) = (&process.lead.machine, process.replica.region());
                let raises = machine.raises_version(region, registered.iter().map(|(_, version)| *version));
                let registered: Vec<Writer> = registered.into_iter().map(|(writer, _)| writer).collect();
                process.lead.todo = machine.lost_agents(&known, &registered).into_iter().chain(raises).collect();
                process.lead.next = Next::Snapshot;
                self.go_on(scene);
            }
            (Wanted::List { epoch, snapshot }, LogAnswer::Listed(listed)) => {
                let index = snapshot.region.index();
                if index <= listed.floor {
                    return self.snapshot_ends(scene, Some(index));
                }
                let chunks = cut(&snapshot.encode());
                self.call_log(scene, Wanted::PutChunk { epoch, index, listed, chunks, number: 0 });
            }
            (Wanted::PutChunk { epoch, index, listed, chunks, number }, LogAnswer::Put(true)) => {
                let asleep = self.mishap(scene);
                let wanted = match number + 1 < chunks.len() {
                    true => Wanted::PutChunk { epoch, index, listed, chunks, number: number + 1 },
                    false => {
                        let bytes = chunks.iter().map(Vec::len).sum();
                        Wanted::PutManifest { epoch, index, listed, bytes }
                    }
                };
                match asleep {
                    true => self.fall_asleep(scene, wanted),
                    false => self.call_log(scene, wanted),
                }
            }
            (Wanted::PutManifest { index, listed: Listed { covered, .. }, .. }, LogAnswer::Put(true)) => {
                scene.seen.sight(Sight::SnapshotInstalled);
                scene.note(|| format!("agent {} put a snapshot at index {index} in place", self.index));
                self.call_log(scene, Wanted::Truncate { index, covered });
            }
            (Wanted::PutChunk { index, .. } | Wanted::PutManifest { index, .. }, LogAnswer::Put(false)) => {
                scene.seen.sight(Sight::SnapshotRefused);
                self.snapshot_ends(scene, Some(index));
            }
            (Wanted::Truncate { index, .. }, _) => self.snapshot_ends(scene, Some(index)),
            _ => self.end_turn(),
        }
    }

    /// A step of the turn came to nothing: the next turn begins anew.
    pub(super) fn turn_silent(&mut self, scene: &mut Scene, wanted: &Wanted) {
        match wanted {
            Wanted::Campaign { writer } => self.elected(scene, *writer, None),
            _ => self.end_turn(),
        }
    }

    fn elected(&mut self, scene: &mut Scene, writer: Writer, epoch: Option<Epoch>) {
        let Some(process) = &mut self.process else { return };
        match process.lead.machine.elected(epoch) {
            Elected::Another(_) => self.end_turn(),
            Elected::Acts => self.count_time(scene),
            Elected::TakesOver(command) => {
                process.lead.elected = epoch.map(|epoch| (writer, epoch));
                self.submit(scene, command, Whose::TookOver);
            }
        }
    }

    pub(super) fn took_over(&mut self, scene: &mut Scene, reply: Option<&Reply>) {
        let Some(process) = &mut self.process else { return };
        let elected = process.lead.elected.take();
        if let (Some((writer, epoch)), Some(reply)) = (elected, reply)
            && process.lead.machine.took_over(writer, epoch, reply, scene.now)
        {
            scene.note(|| format!("agent {} leads in epoch {epoch}", self.index));
            return self.count_time(scene);
        }
        self.end_turn();
    }

    fn count_time(&mut self, scene: &mut Scene) {
        let Some(process) = &mut self.process else { return };
        let at = Timestamp(u64::try_from(scene.now.as_millis()).unwrap_or(u64::MAX));
        let counted = process.lead.machine.count_time(process.replica.region(), scene.now, at);
        process.lead.todo = counted.into_iter().collect();
        process.lead.next = Next::Agents;
        self.go_on(scene);
    }

    pub(super) fn led(&mut self, scene: &mut Scene, reply: Option<&Reply>) {
        if let (Some(process), Some(reply)) = (&mut self.process, reply) {
            process.lead.machine.heed(reply);
        }
        self.go_on(scene);
    }

    /// The next command of the step, or the next step.
    fn go_on(&mut self, scene: &mut Scene) {
        let Some(process) = &mut self.process else { return };
        if let Some(command) = process.lead.todo.pop_front() {
            if self.mishap(scene) {
                self.cut_off(scene);
            }
            return self.submit(scene, command, Whose::Led);
        }
        if process.lead.next == Next::Agents {
            process.lead.next = Next::Snapshot;
            if process.lead.machine.looks_for_agents(process.replica.region(), scene.now) {
                let known = process.replica.region().writers().keys().copied().collect();
                return self.call_log(scene, Wanted::Registrations { known });
            }
        }
        match process.lead.machine.snapshot_due(process.replica.region()) {
            Some(epoch) => {
                let (snapshot, _) = process.replica.snapshot();
                self.call_log(scene, Wanted::List { epoch, snapshot: Box::new(snapshot) });
            }
            None => self.end_turn(),
        }
    }

    fn mishap(&self, scene: &mut Scene) -> bool {
        !scene.calm && scene.chance.permille(self.mishaps)
    }

    /// From the log, beyond the lease, with something to say.
    fn cut_off(&self, scene: &mut Scene) {
        let until = scene.now + Duration::from_millis(scene.chance.within(8_000..=25_000));
        scene.network.cut(Link::AgentLog(self.index), Way::There, until);
        scene.network.cut(Link::AgentLog(self.index), Way::Back, until);
    }

    /// Between two steps of a snapshot; it goes on with what it believed.
    fn fall_asleep(&mut self, scene: &mut Scene, then: Wanted) {
        let lasts = Duration::from_millis(scene.chance.within(1_000..=25_000));
        scene.note(|| format!("agent {} falls asleep in a snapshot", self.index));
        self.paused_until = Some(scene.now + lasts);
        self.resume(scene, then, lasts);
        scene.after(lasts, Event::Fault(Fault::Wake { sleeper: self.index }));
    }

    fn snapshot_ends(&mut self, _scene: &mut Scene, at: Option<u64>) {
        if let (Some(process), Some(index)) = (&mut self.process, at) {
            process.lead.machine.snapshot_done(index);
        }
        self.end_turn();
    }

    fn end_turn(&mut self) {
        if let Some(process) = &mut self.process {
            process.lead.busy = false;
        }
    }
}
