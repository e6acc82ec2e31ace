//! One input in, outputs out.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Answer, Appended, Input, Logged, NotDone, Output, Phase, Queued, Replica, Stop, Ticket, chain};
use crate::caps;
use crate::entry::{Body, Entry, Snapshot, Witness};
use crate::identity::{Digest, Writer};
use crate::mutant;
use crate::region::Command;

impl Replica {
    /// Takes one input and says what to do.
    #[must_use]
    pub fn step(&mut self, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            Input::Registered(writer) => self.registered(writer),
            Input::RegistrationLost(writer) => self.writer_gone(writer, &mut outputs),
            Input::Submitted { ticket, command } => self.submitted(ticket, *command, &mut outputs),
            Input::ReadRequested(ticket) if self.phase == Phase::Stopped => {
                outputs.push(Output::Answer { ticket, answer: Answer::NotDone(NotDone::Stopped) });
            }
            Input::ReadRequested(ticket) => self.reads.waiting.push(ticket),
            Input::GivenUp(ticket) => self.given_up(ticket, &mut outputs),
            Input::Appended { writer, seq, result } if Some(writer) == self.writer => {
                self.appended(writer, seq, result, &mut outputs);
            }
            // The answer to a former writer's append: the catch-up that came
            // between has told what became of it.
            Input::Appended { .. } => {}
            Input::HeadRead(head) => self.head_read(head, &mut outputs),
            Input::Followed(entries) => self.followed(&entries, &mut outputs),
            Input::FollowEnded | Input::Overdue => self.catch_up(&mut outputs),
            Input::CaughtUp { snapshot, entries, head } => {
                if let Err(stop) = self.caught_up(snapshot.as_deref(), &entries, head, &mut outputs) {
                    self.stop(stop, &mut outputs);
                }
            }
        }
        if self.phase != Phase::Stopped {
            self.flush(&mut outputs);
            self.answer_reads(&mut outputs);
        }
        outputs
    }

    fn submitted(&mut self, ticket: Ticket, command: Command, outputs: &mut Vec<Output>) {
        let refusal = match self.phase {
            Phase::Stopped => Some(NotDone::Stopped),
            _ if self.queue.len() >= caps::QUEUED_COMMANDS_MAX => Some(NotDone::Busy),
            _ => None,
        };
        match refusal {
            Some(why) => outputs.push(Output::Answer { ticket, answer: Answer::NotDone(why) }),
            None => {
                #[cfg(feature = "mutants")]
                self.speak_early(ticket, &command, outputs);
                self.queue.push_back(Queued { ticket, command });
            }
        }
    }

    /// Answers from the bare replica: what no replica may do.
    #[cfg(feature = "mutants")]
    fn speak_early(&self, ticket: Ticket, command: &Command, outputs: &mut Vec<Output>) {
        let body = Body { witness: self.witness(), commands: Vec::from([command.clone()]) };
        let writer = self.writer.unwrap_or_default();
        let entry = Entry { index: self.region.index() + 1, writer, seq: u64::MAX, body };
        let reply = self.region.clone().apply(&entry, &mut Vec::new()).pop();
        let refused = matches!(reply, Some(crate::region::Reply::Refused(_)));
        if mutant!(AcknowledgeBeforeDurable) || mutant!(StaleRefusal) && refused {
            outputs.extend(reply.map(|reply| Output::Answer { ticket, answer: Answer::Reply(reply) }));
        }
    }

    /// Nobody waits for this one any more. What was never appended is taken
    /// back for certain; what was may land.
    fn given_up(&mut self, ticket: Ticket, outputs: &mut Vec<Output>) {
        let queued = self.queue.iter().position(|queued| queued.ticket == ticket);
        let answer = match queued.and_then(|at| self.queue.remove(at)) {
            Some(_) => Answer::NotDone(NotDone::Unavailable),
            None => Answer::Unknown,
        };
        outputs.push(Output::Answer { ticket, answer });
        self.reads.waiting.retain(|waiting| *waiting != ticket);
        self.reads.asked.retain(|asked| *asked != ticket);
        self.reads.at.retain(|(_, at)| *at != ticket);
    }

    fn registered(&mut self, writer: Writer) {
        self.registering = false;
        self.writer = Some(writer);
        self.next_seq = 1;
        // What the former writer had in flight did not land before the
        // catch-up, and can't any more. It goes first, in its order.
        self.resubmit(u64::MAX);
    }

    /// Puts the commands of batches up to a sequence number back at the front
    /// of the queue, in their order.
    fn resubmit(&mut self, through: u64) {
        self.in_flight = self.in_flight.filter(|seq| *seq > through);
        let later = through.checked_add(1).map(|next| self.batches.split_off(&next)).unwrap_or_default();
        for batch in core::mem::replace(&mut self.batches, later).into_values().rev() {
            for queued in batch.commands.into_iter().rev() {
                self.queue.push_front(queued);
            }
        }
    }

    fn writer_gone(&mut self, writer: Writer, outputs: &mut Vec<Output>) {
        if self.writer == Some(writer) {
            self.writer = None;
            self.in_flight = None;
            self.phase = if self.phase == Phase::Stopped { Phase::Stopped } else { Phase::Following };
            self.catch_up(outputs);
        }
    }

    fn appended(&mut self, writer: Writer, seq: u64, result: Appended, outputs: &mut Vec<Output>) {
        if self.in_flight != Some(seq) {
            return;
        }
        match result {
            Appended::Landed { index } => {
                self.in_flight = None;
                // Applied straight from the answer when it is next, so that
                // nobody waits for the follower to bring it back.
                if self.is_following()
                    && index == self.region.index() + 1
                    && let Some(batch) = self.batches.get(&seq)
                {
                    let entry = Logged { index, writer, seq, bytes: batch.bytes.clone() };
                    self.followed(&[entry], outputs);
                }
            }
            Appended::AlreadyThere => self.in_flight = None,
            Appended::WriterGone => self.writer_gone(writer, outputs),
            Appended::HeadGone => self.stop(Stop::HeadGone, outputs),
            // A refusal says nothing of an earlier try, which may still land.
            Appended::Full | Appended::Refused if self.is_in_doubt(seq) => self.append_again(writer, seq, outputs),
            Appended::Full | Appended::Refused => {
                self.in_flight = None;
                let commands = self.batches.remove(&seq).map(|batch| batch.commands).unwrap_or_default();
                let why = if result == Appended::Full { NotDone::Full } else { NotDone::Refused };
                let answer = Answer::NotDone(why);
                outputs.extend(commands.iter().map(|q| Output::Answer { ticket: q.ticket, answer: answer.clone() }));
            }
            Appended::Unknown if mutant!(RetryAppendedTwice) => self.resubmit(seq),
            Appended::Unknown => self.append_again(writer, seq, outputs),
        }
    }

    /// Whether a try of an append was left without an answer.
    fn is_in_doubt(&self, seq: u64) -> bool {
        self.batches.get(&seq).is_some_and(|batch| batch.attempt > 0)
    }

    fn append_again(&mut self, writer: Writer, seq: u64, outputs: &mut Vec<Output>) {
        if let Some(batch) = self.batches.get_mut(&seq) {
            batch.attempt += 1;
            let (bytes, attempt) = (batch.bytes.clone(), batch.attempt);
            outputs.push(Output::Append { writer, seq, bytes, attempt });
        }
    }

    fn followed(&mut self, entries: &[Logged], outputs: &mut Vec<Output>) {
        for logged in entries {
            // While catching up, what follows is read again from there.
            if !self.is_following() {
                return;
            }
            let at_head = || Logged { index: self.region.index() + 1, ..logged.clone() };
            let logged = if mutant!(NoHeadIndex) && logged.index > self.region.index() { &at_head() } else { logged };
            match logged.index.checked_sub(self.region.index()) {
                None | Some(0) => {}
                Some(1) => {
                    if let Err(stop) = self.apply(logged, outputs) {
                        self.stop(stop, outputs);
                    }
                }
                Some(_) => self.catch_up(outputs),
            }
        }
    }

    fn catch_up(&mut self, outputs: &mut Vec<Output>) {
        if self.is_following() {
            self.phase = Phase::CatchingUp { anew: false };
            outputs.push(Output::CatchUp { after: self.region.index() });
        }
    }

    fn caught_up(
        &mut self,
        snapshot: Option<&[u8]>,
        entries: &[Logged],
        head: u64,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Stop> {
        let Phase::CatchingUp { anew } = self.phase else { return Ok(()) };
        if head < self.region.index() && !mutant!(SetBackUnnoticed) {
            return Err(Stop::SetBack { head, seen: self.region.index() });
        }
        if anew {
            self.region = self.blank.clone();
            self.hash = Digest([0; 32]);
            self.recent.clear();
        }
        if let Some(bytes) = snapshot
            && self.restore(bytes)?
        {
            outputs.push(Output::Restored);
        }
        self.phase = Phase::Following;
        self.followed(entries, outputs);
        // Our own entries that a snapshot swallowed took effect, but their
        // replies are gone: the same commands again get the same answers.
        if self.is_following()
            && let Some(last) = self.writer.and_then(|writer| self.region.writers().get(&writer).copied())
        {
            self.resubmit(last);
        }
        if self.is_following() && self.writer.is_none() && !self.registering {
            self.registering = true;
            outputs.push(Output::Register);
        }
        Ok(())
    }

    /// Returns whether the snapshot was further on than this replica.
    fn restore(&mut self, bytes: &[u8]) -> Result<bool, Stop> {
        let unreadable = |why| Stop::Unreadable { index: self.region.index(), why };
        let snapshot = Snapshot::decode(bytes).map_err(|error| unreadable(error.to_string()))?;
        if snapshot.region.name() != self.blank.name() || snapshot.region.history() != self.blank.history() {
            return Err(unreadable("the snapshot is of another region or another history".to_string()));
        }
        let (index, needed) = (snapshot.region.index(), snapshot.region.machine_version());
        if needed > self.runs {
            return Err(Stop::TooNew { index, needed, runs: self.runs });
        }
        let further = index > self.region.index();
        if further {
            self.region = snapshot.region;
            self.hash = snapshot.hash;
            self.recent.clear();
            self.remember();
        }
        Ok(further)
    }

    fn apply(&mut self, logged: &Logged, outputs: &mut Vec<Output>) -> Result<(), Stop> {
        let body = Body::decode(&logged.bytes)
            .map_err(|error| Stop::Unreadable { index: logged.index, why: error.to_string() })?;
        // Whoever skipped what it does not know would differ from the others.
        if let Some(needed) = body.commands.iter().map(Command::needs).find(|needed| *needed > self.runs) {
            return Err(Stop::TooNew { index: logged.index, needed, runs: self.runs });
        }
        if !self.agrees(logged.writer, body.witness, outputs) {
            return Ok(());
        }
        let entry = Entry { index: logged.index, writer: logged.writer, seq: logged.seq, body };
        let mut effects = Vec::new();
        let replies = self.region.apply(&entry, &mut effects);
        self.hash = chain(self.hash, &logged.bytes, &replies);
        self.remember();
        let own = self.writer == Some(logged.writer);
        outputs.extend(effects.into_iter().map(|effect| Output::Effect { effect, own }));
        if own
            && replies.len() == entry.body.commands.len()
            && let Some(batch) = self.batches.remove(&logged.seq)
        {
            self.in_flight = self.in_flight.filter(|seq| *seq != logged.seq);
            let answers = batch.commands.into_iter().zip(replies);
            outputs.extend(answers.map(|(q, reply)| Output::Answer { ticket: q.ticket, answer: Answer::Reply(reply) }));
        }
        Ok(())
    }

    fn remember(&mut self) {
        if self.recent.len() == caps::HASHES_KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(self.witness());
    }

    /// Compares what another replica was when it wrote with what this one was.
    /// Where they differ this one is read anew once; if it comes to the same,
    /// the writer is wrong.
    fn agrees(&mut self, writer: Writer, witness: Witness, outputs: &mut Vec<Output>) -> bool {
        let Some(mine) = self.recent.iter().rev().find(|mine| mine.index == witness.index).copied() else {
            return true;
        };
        if mine.hash == witness.hash || self.distrusted.contains(&writer) {
            return true;
        }
        if self.doubt == Some(mine) {
            self.doubt = None;
            self.distrusted.insert(writer);
            outputs.push(Output::Diverged { writer, index: witness.index });
            return true;
        }
        self.doubt = Some(mine);
        self.phase = Phase::CatchingUp { anew: true };
        outputs.push(Output::CatchUp { after: 0 });
        false
    }

    fn head_read(&mut self, head: Option<u64>, outputs: &mut Vec<Output>) {
        let asked = core::mem::take(&mut self.reads.asked);
        match head {
            Some(index) => self.reads.at.extend(asked.into_iter().map(|ticket| (index, ticket))),
            None => outputs.extend(
                asked
                    .into_iter()
                    .map(|ticket| Output::Answer { ticket, answer: Answer::NotDone(NotDone::Unavailable) }),
            ),
        }
    }

    fn answer_reads(&mut self, outputs: &mut Vec<Output>) {
        let applied = self.region.index();
        self.reads.at.retain(|(index, ticket)| {
            let fresh = *index <= applied;
            if fresh {
                outputs.push(Output::Answer { ticket: *ticket, answer: Answer::Fresh { index: applied } });
            }
            !fresh
        });
        if self.reads.asked.is_empty() && !self.reads.waiting.is_empty() {
            self.reads.asked = core::mem::take(&mut self.reads.waiting);
            outputs.push(Output::ReadHead);
        }
    }

    fn stop(&mut self, stop: Stop, outputs: &mut Vec<Output>) {
        self.phase = Phase::Stopped;
        let queued = self.queue.drain(..).map(|queued| queued.ticket);
        let reads = core::mem::take(&mut self.reads);
        let not_done = queued.chain(reads.waiting).chain(reads.asked).chain(reads.at.into_iter().map(|(_, t)| t));
        outputs.extend(not_done.map(|ticket| Output::Answer { ticket, answer: Answer::NotDone(NotDone::Stopped) }));
        let batches = core::mem::take(&mut self.batches).into_values().flat_map(|batch| batch.commands);
        outputs.extend(batches.map(|queued| Output::Answer { ticket: queued.ticket, answer: Answer::Unknown }));
        outputs.push(Output::Stop(stop));
    }
}
