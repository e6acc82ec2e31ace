//! One entry in, one reply per command out.

use alloc::vec::Vec;

use super::{Command, Effect, MACHINE_VERSION, Refusal, Region, Reply};
use crate::entry::Entry;
use crate::identity::{Epoch, Writer};
use crate::mutant;

impl Region {
    /// Applies the entry at the next index. The caller guarantees that
    /// `entry.index` is [`Region::index`] + 1.
    ///
    /// An entry whose sequence number is not newer than its writer's last is
    /// ignored, and has no replies: it took effect before (I14).
    pub fn apply(&mut self, entry: &Entry, effects: &mut Vec<Effect>) -> Vec<Reply> {
        debug_assert_eq!(entry.index, self.index + 1, "entries are applied in order");
        self.index = entry.index;
        let last = self.writers.entry(entry.writer).or_insert(0);
        if entry.seq <= *last && !mutant!(NoWriterTable) {
            return Vec::new();
        }
        *last = entry.seq;
        entry.body.commands.iter().map(|command| self.command(entry.writer, command, effects)).collect()
    }

    pub(super) fn command(&mut self, by: Writer, command: &Command, effects: &mut Vec<Effect>) -> Reply {
        if command.machine_version() > self.machine_version {
            return Reply::Refused(Refusal::VersionTooLow);
        }
        let result = match command {
            Command::Fact(fact) => self.fact(fact, effects),
            Command::Arrive(arrive) => self.arrive(arrive, effects),
            Command::Withdraw(withdraw) => self.withdraw(withdraw, effects),
            Command::TookOver { epoch } => self.took_over(*epoch, effects),
            Command::ClockAdvanced { epoch, from_ms, to_ms } => self.advance_clock(*epoch, *from_ms, *to_ms),
            Command::AgentLost { epoch, writer } => self.agent_lost(by, *epoch, *writer),
            Command::VersionRaised { epoch, version } => self.raise_version(*epoch, *version),
            Command::Ticked { epoch, from_ms, to_ms, at } => self.tick(*epoch, *from_ms, *to_ms, *at, effects),
            Command::OpenSession(open) => self.open_session(by, open, effects),
            Command::AttachSession(id) => self.attach_session(by, *id),
            Command::CloseSession(id) => self.close_session(*id, effects),
            Command::ExpireSession { session, attach } => self.expire_session(by, *session, *attach, effects),
            Command::Regional(regional) => self.regional(regional, effects),
        };
        result.unwrap_or_else(Reply::Refused)
    }

    fn took_over(&mut self, epoch: Epoch, effects: &mut Vec<Effect>) -> Result<Reply, Refusal> {
        if epoch < self.epoch {
            return Err(Refusal::OldEpoch { current: self.epoch });
        }
        let changed = epoch > self.epoch;
        self.epoch = epoch;
        effects.push(Effect::TookOver { epoch });
        Ok(Reply::Done { changed })
    }

    /// Commands of a leader that a newer one has succeeded have no effect (I7).
    fn led_by(&self, epoch: Epoch) -> Result<(), Refusal> {
        if epoch == self.epoch || mutant!(NoEpochCheck) {
            Ok(())
        } else {
            Err(Refusal::OldEpoch { current: self.epoch })
        }
    }

    pub(super) fn advance_clock(&mut self, epoch: Epoch, from_ms: u64, to_ms: u64) -> Result<Reply, Refusal> {
        self.led_by(epoch)?;
        if from_ms != self.clock_ms || to_ms < from_ms {
            return Err(Refusal::ClockMoved);
        }
        self.clock_ms = to_ms;
        Ok(Reply::Done { changed: to_ms > from_ms })
    }

    fn agent_lost(&mut self, by: Writer, epoch: Epoch, writer: Writer) -> Result<Reply, Refusal> {
        self.led_by(epoch)?;
        // An agent whose entry is being applied is not lost to its own word.
        let changed = writer != by && self.writers.remove(&writer).is_some();
        if changed {
            self.orphan_sessions(writer);
        }
        Ok(Reply::Done { changed })
    }

    fn count_all_zones(&mut self) {
        for barrier in self.barriers.values_mut() {
            let gathering = barrier.generations.values_mut().filter(|generation| generation.ended.is_none());
            for generation in gathering {
                if let Some(slice) = generation.spec.and_then(|spec| barrier.slices.get(&spec)) {
                    generation.count_zones(self.index, slice);
                }
            }
        }
    }

    fn raise_version(&mut self, epoch: Epoch, version: u16) -> Result<Reply, Refusal> {
        self.led_by(epoch)?;
        if version > MACHINE_VERSION {
            return Err(Refusal::VersionTooHigh);
        }
        let changed = version > self.machine_version;
        self.machine_version = self.machine_version.max(version);
        if changed {
            self.retain_all();
            self.count_all_zones();
        }
        Ok(Reply::Done { changed })
    }
}
