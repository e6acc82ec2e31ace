//! Finding the generation that a call means, or saying what is wrong.

use std::collections::BTreeMap;

use muster_http::{Answer, Failure};
use muster_protocol::generation::State;
use muster_protocol::global::{Barrier, Declared};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::spec::Generations;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::reference::Reference;

use super::refuse;
use crate::coordinator::{Coordinator, Regions, now};
use crate::status::View;
use crate::store::{GenerationFilter, GenerationRow};

/// Open generations that a refusal lists.
const OPEN_LISTED_MAX: u32 = 20;

/// What there is of a generation.
pub(super) enum Found {
    /// It is there.
    Row(Box<GenerationRow>),
    /// It is not open yet, and may be.
    NotYet(Failure),
}

/// A generation for a read.
pub(super) async fn generation(
    coordinator: &Coordinator,
    barrier: &BarrierName,
    id: &Reference,
) -> Answer<GenerationRow> {
    match find(coordinator, barrier, id).await? {
        Found::Row(row) => Ok(*row),
        Found::NotYet(_) => Err(Problem::new(Code::NoSuchGeneration, format!("{barrier}@{id} is not open"))
            .hint("a key opens with its first arrival, or `muster open`")
            .into()),
    }
}

/// A generation for a call that waits or changes something: the path must name
/// it, unless the barrier has but one.
pub(super) async fn named(coordinator: &Coordinator, barrier: &BarrierName, id: &Reference) -> Answer<Found> {
    if *id == Reference::Latest {
        let defined = coordinator.calls.barrier(barrier).await.map_err(refuse::store)?;
        if let Some(spec) = defined.as_ref().and_then(Barrier::spec)
            && spec.generations != Generations::Single
        {
            return Err(generation_required(coordinator, barrier).await);
        }
    }
    find(coordinator, barrier, id).await
}

async fn generation_required(coordinator: &Coordinator, barrier: &BarrierName) -> Failure {
    let filter = GenerationFilter {
        barrier: Some(barrier.clone()),
        states: vec![State::Gathering],
        ..GenerationFilter::default()
    };
    let open = match coordinator.calls.generations(&filter, None, OPEN_LISTED_MAX).await {
        Ok(page) => page.items,
        Err(error) => return refuse::store(error),
    };
    let open: Vec<String> = open.iter().map(|row| row.generation.id.label().to_string()).collect();
    let which = if open.is_empty() { "none is open".to_owned() } else { format!("open: {}", open.join(", ")) };
    let detail = format!("{barrier} has many generations: name the one that is meant, not `latest`; {which}");
    Problem::new(Code::GenerationRequired, detail).with("open", open).into()
}

/// A generation, or what is wrong with asking for it.
pub(super) async fn find(coordinator: &Coordinator, barrier: &BarrierName, id: &Reference) -> Answer<Found> {
    if let Some(row) = coordinator.calls.generation(barrier, id).await.map_err(refuse::store)? {
        return Ok(Found::Row(Box::new(row)));
    }
    let known = coordinator.calls.barrier(barrier).await.map_err(refuse::store)?;
    let known = known.filter(|known| known.revision > 0).ok_or_else(|| refuse::not_defined(barrier))?;
    // It may have opened between the two reads; then the barrier counts it, and
    // without this look it would be taken for one that is past its retention.
    if let Some(row) = coordinator.calls.generation(barrier, id).await.map_err(refuse::store)? {
        return Ok(Found::Row(Box::new(row)));
    }
    let Some(spec) = known.spec() else {
        return Err(Failure::new(Code::Deleted, format!("{barrier} was deleted, and {id} is not kept")));
    };
    absent(&known, spec.generations, id)
}

/// Why a defined barrier has no such generation.
fn absent(barrier: &Barrier, generations: Generations, id: &Reference) -> Answer<Found> {
    let name = &barrier.name;
    let never = |code, detail: String| Err(Failure::new(code, detail));
    let not_yet = || {
        let problem = Problem::new(Code::NotOpenYet, format!("{name}@{id} is not open yet"));
        Ok(Found::NotYet(problem.hint("the same call again waits on").into()))
    };
    match (generations, id.number()) {
        (Generations::Keyed { .. }, _) => match id.round() {
            Some(round) if round > 0 => never(Code::NoSuchGeneration, format!("{name}@{id} is no round of its key")),
            _ => not_yet(),
        },
        (_, None) if *id == Reference::Latest => not_yet(),
        (_, None) => {
            never(Code::NoSuchGeneration, format!("{name} has no keys: its generations are numbered, and {id} is none"))
        }
        (_, Some(0)) => never(Code::NoSuchGeneration, format!("the generations of {name} count from 1")),
        (_, Some(n)) if n < barrier.next_n && barrier.may_have_lost(n) => never(
            Code::NoSuchGeneration,
            format!("{name}@{n} was lost when the database was set back, and no region has told of it since"),
        ),
        (_, Some(n)) if n < barrier.next_n => {
            never(Code::Expired, format!("{name}@{n} ended and is past its retention"))
        }
        (Generations::Cyclic, Some(_)) => not_yet(),
        (_, Some(n)) => {
            let last = barrier.next_n.saturating_sub(1);
            never(Code::NoSuchGeneration, format!("{name} crosses once, as generation {last}; there is no {n}"))
        }
    }
}

/// What is needed to speak of generations, read together.
pub(super) struct Words {
    regions: std::sync::Arc<Regions>,
    declared: BTreeMap<RegionName, Declared>,
    era: muster_protocol::identity::Era,
}

impl Words {
    pub(super) async fn read(coordinator: &Coordinator) -> Answer<Self> {
        let regions = coordinator.regions().await.map_err(refuse::store)?;
        let era = coordinator.era().await.map_err(refuse::store)?;
        let declared = regions.iter().map(|(name, region)| (name.clone(), region.declared())).collect();
        Ok(Self { regions, declared, era })
    }

    pub(super) fn view<'a>(&'a self, coordinator: &Coordinator, row: &'a GenerationRow) -> View<'a> {
        let id = &row.generation.id;
        let waiting = coordinator.hub.waiting(&id.barrier, id.n);
        View { row, regions: &self.regions, declared: &self.declared, era: &self.era, waiting, now: now() }
    }

    pub(super) fn regions(&self) -> &Regions {
        &self.regions
    }

    pub(super) fn era(&self) -> &muster_protocol::identity::Era {
        &self.era
    }
}
