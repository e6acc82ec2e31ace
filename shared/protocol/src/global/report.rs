//! Reports: states of regions, of which the newest counts.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use super::apply::{Opening, Work};
use super::{Change, Refusal, Reply};
use crate::fact::Fact;
use crate::generation::GenerationId;
use crate::identity::Era;
use crate::mutant;
use crate::outcome::Outcome;
use crate::report::RegionReport;

impl Work<'_> {
    pub(super) fn report(&mut self, report: &RegionReport) -> Result<Reply, Refusal> {
        let n = report.generation.n;
        let current = self.context.regions.get(&report.region).and_then(|declared| declared.history);
        if current != Some(report.stamp.history) {
            return Err(Refusal::ForeignReport);
        }
        if self.barrier.takes_up(n) && !self.barrier.generations.contains_key(&n) {
            self.reopen(&report.generation)?;
        }
        let (generation, spec) = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?;
        if generation.id != report.generation || !spec.regions.contains_key(&report.region) {
            return Err(Refusal::ForeignReport);
        }
        // Every region had applied it, and this one's log was set back since:
        // nothing else tells it.
        let over = generation.decided.as_ref().filter(|_| generation.settled || generation.closed);
        if let (Some(decided), None) = (over, report.applied) {
            self.facts.push(Fact::Decided(decided.clone()));
        }
        let known = generation.reports.get(&report.region);
        let standing = known.filter(|known| stands(known, report, generation.decided.is_some()));
        let new = standing.map_or(Cow::Borrowed(report), |known| Cow::Owned(known.confirmed_by(report)));
        if !known.is_none_or(|known| is_newer(&new, known)) {
            return Ok(Reply::Reported { newer: false });
        }
        let new = new.into_owned();
        // Nobody counts the time of a cyclic generation that nobody came to.
        let starts =
            generation.decided.is_none() && generation.deadline_at.is_none() && report.first_arrival_at.is_some();
        let deadline_at = spec.deadline_ms.filter(|_| starts).map(|ms| self.context.now.plus_ms(ms));
        self.changes.push(Change::Reported { n, report: Box::new(new.clone()) });
        if let Some(at) = deadline_at {
            self.changes.push(Change::DeadlineSet { n, at });
        }
        if let Some(generation) = self.barrier.generations.get_mut(&n) {
            generation.reports.insert(report.region.clone(), new);
            generation.deadline_at = generation.deadline_at.or(deadline_at);
        }
        if let Some(outcome) = report.outcome.as_deref() {
            self.adopt(n, report, outcome)?;
        }
        self.evaluate(n)?;
        self.settle(n);
        Ok(Reply::Reported { newer: true })
    }

    /// An end that a region has applied was decided once, whatever this
    /// database remembers of it: it is taken for what it is, not made anew.
    fn adopt(&mut self, n: u64, report: &RegionReport, outcome: &Outcome) -> Result<(), Refusal> {
        let (generation, _) = self.barrier.loaded(n).ok_or(Refusal::NoSuchGeneration)?;
        let its_own = outcome.generation == generation.id && report.applied == Some(outcome.digest());
        if generation.decided.is_none() && its_own && !mutant!(EndNotAdopted) {
            self.end_as(n, outcome.clone())?;
        }
        Ok(())
    }

    /// A region knows of a generation that this database has not opened: it
    /// lost the opening with its latest commits. The number is taken, and the
    /// generation goes on; nothing of it is decided before every region has
    /// spoken again. Numbers that this one jumps over may be told next.
    fn reopen(&mut self, id: &GenerationId) -> Result<(), Refusal> {
        let mut keyed = self.barrier.generations.values().filter(|known| known.id.key.is_some());
        let known = keyed.any(|known| known.id.key == id.key && known.id.round >= id.round);
        if self.barrier.spec().is_none() || known {
            return Err(Refusal::NoSuchGeneration);
        }
        let mut generation = self.new_generation(id.key.as_ref(), id.round, Opening::Asked);
        generation.id = id.clone();
        generation.era = Era::lost();
        self.insert(generation);
        Ok(())
    }
}

/// An end was made of what was known then: who had arrived stays as it was,
/// though another life of the log knows less.
fn stands(known: &RegionReport, report: &RegionReport, decided: bool) -> bool {
    decided && (known.applied.is_some() || (known.complete, known.arrived) > (report.complete, report.arrived))
}

/// Of one life of a region's log the higher index counts. What differs at one
/// index was said after a later command of one entry, or for another life of
/// the database.
fn is_newer(report: &RegionReport, known: &RegionReport) -> bool {
    report.stamp.history != known.stamp.history && !mutant!(StampWithoutHistory)
        || report.stamp.index > known.stamp.index
        || report.stamp.index == known.stamp.index && report != known
}
