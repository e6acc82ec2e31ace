//! What is true of the barriers that a region decides alone: each end as it was
//! decided, held against the state of the very log that decided it.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::generation::{GenerationId, State};
use muster_protocol::global;
use muster_protocol::invariant::Invariant;
use muster_protocol::name::BarrierName;
use muster_protocol::outcome::{Break, BreakReason, Outcome, Release, Verdict};
use muster_protocol::region::{Command, Effect, Region};
use muster_protocol::spec::{Leaf, Spec};

use crate::sightings::{Sight, Sightings};
use crate::truth::{follows_a_break, has_promised};

type Findings = Vec<(Invariant, String)>;

/// The barriers of one region that it decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regional {
    /// Since when the time of each generation may count.
    since: BTreeMap<(BarrierName, u64), Duration>,
}

/// One generation that ended, as it was decided.
struct End<'a> {
    region: &'a Region,
    commands: &'a [Command],
    generation: &'a global::Generation,
    spec: &'a Spec,
}

impl Regional {
    /// An entry is applied. Returns what it decided.
    pub(crate) fn landed(
        &mut self,
        region: &Region,
        commands: &[Command],
        effects: &[Effect],
        now: Duration,
        findings: &mut Findings,
        seen: &mut Sightings,
    ) -> Vec<Outcome> {
        for barrier in region.regional_barriers() {
            for one in barrier.generations.values().filter(|one| one.decided.is_none()) {
                let first =
                    region.generation(&barrier.name, one.id.n).is_some_and(|one| one.arrivals().next().is_some());
                if first || one.deadline_at.is_some() {
                    self.since.entry((barrier.name.clone(), one.id.n)).or_insert(now);
                }
            }
        }
        if let Some((one, before)) = orphaned(region).next() {
            findings.push((Invariant::Live, format!("{one} gathers, and {before}, which it comes after, is broken")));
        }
        for effect in effects {
            if let Effect::Opened { barrier, n } = effect
                && let Some((opened, _)) = region.regional_barrier(barrier).and_then(|barrier| barrier.loaded(*n))
            {
                seen.sight_if(opened.id.round > 0, Sight::RegionalRetried);
            }
        }
        let ended = effects.iter().filter_map(|effect| match effect {
            Effect::Ended { barrier, n } => Some((region.regional_barrier(barrier)?, *n)),
            _ => None,
        });
        let mut outcomes = Vec::new();
        for (barrier, n) in ended {
            let Some((generation, spec)) = barrier.loaded(n) else { continue };
            let Some(decided) = &generation.decided else { continue };
            let end = End { region, commands, generation, spec };
            match &decided.outcome.verdict {
                Verdict::Released(release) => end.released(release, findings, seen),
                Verdict::Broken(broken) => {
                    let since = self.since.get(&(barrier.name.clone(), n)).copied().unwrap_or(now);
                    end.broken(broken, now - since, findings, seen);
                }
            }
            if !generation.settled {
                findings.push((Invariant::Live, format!("{} is not settled where it was decided", generation.id)));
            }
            outcomes.push(decided.outcome.clone());
        }
        outcomes
    }
}

/// What gathers though its predecessor is broken.
fn orphaned(region: &Region) -> impl Iterator<Item = (&GenerationId, &GenerationId)> {
    let gathering = region.regional_barriers().flat_map(|barrier| {
        let open = barrier.generations.values().filter(|one| one.decided.is_none());
        open.filter_map(|one| Some((&one.id, barrier.specs.get(&one.revision)?)))
    });
    gathering.filter_map(|(id, spec)| {
        let before = region.regional_barrier(spec.after.as_ref()?)?.counterpart(id)?;
        (before.state() == State::Broken).then_some((id, &before.id))
    })
}

impl End<'_> {
    fn released(&self, release: &Release, findings: &mut Findings, seen: &mut Sightings) {
        let Self { region, generation, spec, .. } = self;
        seen.sight(Sight::RegionalReleased);
        seen.sight_if(release.forced.is_some(), Sight::RegionalForced);
        seen.sight_if(!release.waived.is_empty(), Sight::RegionalWaived);
        let id = &generation.id;
        let waived = release.waived.get(region.name()).is_some_and(String::is_empty);
        let promised = |leaf: &Leaf| waived || has_promised(region, &id.barrier, id.n, leaf.zone.as_ref());
        seen.sight_if(!spec.release_when.leaves().iter().all(|leaf| leaf.zone.is_none()), Sight::ZonesReleased);
        // A tick in the same entry may take the details away again.
        let closed = region.generation(&id.barrier, id.n).is_none_or(|one| one.is_closed());
        if !spec.release_when.holds(spec.regions.keys(), &promised) && release.forced.is_none() && !closed {
            findings
                .push((Invariant::ReleasedOnlyWhenComplete, format!("{id} was released by a region that lacks some")));
        }
    }

    fn broken(&self, broken: &Break, lasted: Duration, findings: &mut Findings, seen: &mut Sightings) {
        let Self { region, commands, generation, spec } = self;
        let id = &generation.id;
        match broken.reason {
            BreakReason::DeadlineExceeded => {
                seen.sight(Sight::RegionalDeadline);
                let time = spec.deadline_ms.map_or(Duration::MAX, Duration::from_millis);
                if lasted < time {
                    let what = format!("{id} was out of time after {lasted:?}, before its {time:?} had passed");
                    findings.push((Invariant::RefusalsAreFinal, what));
                }
            }
            BreakReason::Aborted => {
                seen.sight(Sight::RegionalAborted);
                let asked = |command: &Command| match command {
                    Command::Regional(said) => {
                        said.barrier == id.barrier
                            && matches!(said.command, global::Command::Abort { n, .. } if n == id.n)
                    }
                    _ => false,
                };
                if !commands.iter().any(asked) {
                    findings.push((Invariant::GenerationsApart, format!("{id} was ended by an act on another")));
                }
            }
            BreakReason::PredecessorBroken => {
                seen.sight(Sight::RegionalPredecessorBroke);
                let before = spec.after.as_ref().and_then(|after| region.regional_barrier(after));
                if !follows_a_break(id, spec, before) {
                    findings
                        .push((Invariant::GenerationsApart, format!("{id} broke, and what it comes after had not")));
                }
            }
            _ => {}
        }
    }
}
