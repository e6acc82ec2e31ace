//! Looking: one arrival, the region's participants, and the status document.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use muster_http::{Answer, Call, Failure, GenerationPath, ParticipantPath, extract};
use muster_protocol::generation::GenerationId;
use muster_protocol::name::{ParticipantId, RegionName, ZoneName};
use muster_protocol::region::{Generation, Region};
use muster_protocol::report::{RegionReport, ZoneReport};
use muster_wire::answer::{self, Page, ParticipantState, RegionState};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::time::rfc3339;
use muster_wire::verdict;
use serde::Deserialize;

use super::locate::{Place, Purpose};
use super::participant::Roll;
use super::{Api, speak};
use crate::sessions::Sessions;

const PAGE_DEFAULT: usize = 1_000;
const PAGE_MAX: usize = 10_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrivalParameters {
    region: Option<RegionName>,
}

/// One participant. Read after a look at the head, so that "missing" is true.
pub(super) async fn arrival(State(api): State<Api>, path: ParticipantPath, call: Call) -> Answer<Response> {
    let parameters: ArrivalParameters = extract::query(&call.uri)?;
    api.own_region(parameters.region.as_ref())?;
    let Place::Here(id) = api.locate(&path.barrier, &path.id, Purpose::Look, &[], None).await? else {
        return Err(api.no_part(&path.barrier));
    };
    api.handle.fresh().await.map_err(speak::no_answer)?;
    api.with_details(&id)?;
    let found = api.handle.read(|region| {
        let generation = region.generation(&id.barrier, id.n)?;
        let slice = region.barrier(&id.barrier)?.slice(generation);
        let known = generation.arrival(&path.participant).is_some()
            || generation.worker(&path.participant).is_some()
            || slice.is_none_or(|slice| slice.participants.admits(&path.participant));
        let roll = Roll { region, generation, slice, sessions: &api.sessions };
        known.then(|| roll.participant(&path.participant))
    });
    match found {
        Some(participant) => Ok(axum::Json(participant).into_response()),
        None => Err(Failure::new(
            Code::NotExpected,
            format!("{}/{} is not a participant of {id}", api.region, path.participant),
        )),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParticipantsParameters {
    state: Option<ParticipantState>,
    region: Option<RegionName>,
    cursor: Option<ParticipantId>,
    limit: Option<usize>,
}

/// The region's participants, by id, read after a look at the head as well.
/// Those of another region are that region's to tell: the coordinator finds it.
pub(super) async fn participants(State(api): State<Api>, path: GenerationPath, call: Call) -> Answer<Response> {
    let parameters: ParticipantsParameters = extract::query(&call.uri)?;
    if parameters.region.as_ref().is_some_and(|region| *region != api.region) {
        return api.coordinator.forward(&call).await;
    }
    let Place::Here(id) = api.locate(&path.barrier, &path.id, Purpose::Look, &[], None).await? else {
        return api.coordinator.forward(&call).await;
    };
    api.handle.fresh().await.map_err(speak::no_answer)?;
    api.with_details(&id)?;
    let limit = page_limit(parameters.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let page = api.handle.read(|region| page(region, &api.sessions, &id, &parameters, limit));
    Ok(axum::Json(page).into_response())
}

fn page(
    region: &Region,
    sessions: &Sessions,
    id: &GenerationId,
    parameters: &ParticipantsParameters,
    limit: usize,
) -> Page<answer::Participant> {
    let generation = region.generation(&id.barrier, id.n);
    let Some((barrier, generation)) = region.barrier(&id.barrier).zip(generation) else {
        return Page { items: Vec::new(), cursor: None };
    };
    let slice = barrier.slice(generation);
    let after = |who: &ParticipantId| parameters.cursor.as_ref().is_none_or(|cursor| who > cursor);
    let known = generation.arrivals().map(|(who, _)| who).chain(generation.absences().map(|(who, _)| who));
    let known = known.chain(generation.workers().map(|(who, _)| who));
    let mut ids: Vec<ParticipantId> = known.filter(|who| after(who)).cloned().collect();
    if let Some(slice) = slice {
        ids.extend(generation.missing_ids(slice).filter(|who| after(who)));
    }
    ids.sort();
    ids.dedup();
    let roll = Roll { region, generation, slice, sessions };
    let mut wanted = ids.iter().filter(|who| parameters.state.is_none_or(|state| roll.state(who) == state));
    let page: Vec<_> = wanted.by_ref().take(limit).collect();
    let more = wanted.next().is_some();
    let cursor = page.last().filter(|_| more).map(ToString::to_string);
    Page { items: page.into_iter().map(|who| roll.participant(who)).collect(), cursor }
}

/// How many rows of a list one page has.
pub(super) fn page_limit(asked: Option<usize>, default: usize, max: usize) -> Answer<usize> {
    let limit = asked.unwrap_or(default);
    if (1..=max).contains(&limit) {
        return Ok(limit);
    }
    Err(Failure::new(Code::BadRequest, format!("limit: a page has 1 to {max} rows; follow `cursor` for more")))
}

impl Api {
    /// Who arrived is told as long as it is known: once the details are gone,
    /// everybody would look missing.
    fn with_details(&self, id: &GenerationId) -> Answer<()> {
        match self.handle.read(|region| region.generation(&id.barrier, id.n).is_some_and(Generation::is_closed)) {
            true => Err(Problem::new(Code::Expired, format!("who arrived at {id} is past its retention"))
                .hint("its verdict is kept longer: ask for its status, or wait")
                .into()),
            false => Ok(()),
        }
    }
}

/// The world's view of a generation is the coordinator's; when it is away, the
/// region tells its own part and says that it knows no more.
pub(super) async fn status(api: &Api, path: &GenerationPath, call: &Call) -> Answer<Response> {
    let away = match api.coordinator.forward(call).await {
        Ok(response) if response.status() != http::StatusCode::SERVICE_UNAVAILABLE => return Ok(response),
        Ok(unavailable) => Ok(unavailable),
        Err(away) => Err(away),
    };
    let here = api.handle.read(|region| {
        let id = super::locate::find(region, &path.barrier, &path.id)?;
        own_part(region, region.generation(&id.barrier, id.n)?, api.handle.waiters().count(&id.barrier, id.n))
    });
    here.map_or(away, |status| Ok(axum::Json(status).into_response()))
}

fn own_part(region: &Region, generation: &Generation, waiting: usize) -> Option<answer::Status> {
    let id = generation.id();
    let report = region.report(&id.barrier, id.n)?;
    let ended = generation.ended();
    let outcome = ended.map(|ended| &ended.outcome);
    let release = outcome.and_then(verdict::release_status);
    let broken = outcome.and_then(verdict::broken_status);
    let reason = match (&release, &broken) {
        (_, Some(broken)) => broken.reason,
        (Some(_), None) => answer::Reason::Released,
        (None, None) => answer::Reason::WaitingForRegions,
    };
    let path = format!("/v1/barriers/{}/generations/{}", id.barrier, id.label());
    Some(answer::Status {
        barrier: id.barrier.clone(),
        generation: id.label().to_string(),
        n: id.n,
        round: id.round,
        state: generation.state(),
        reason,
        message: format!(
            "no coordinator answers; in {} {} of {} have arrived, other regions are unknown",
            report.region, report.arrived, report.expected
        ),
        expected: report.expected.into(),
        arrived: report.arrived.into(),
        failed: report.failed.into(),
        waiting: waiting as u64,
        opened_at: rfc3339(generation.opened_at()),
        deadline_at: None,
        decided_at: ended.map(|ended| rfc3339(ended.outcome.decided_at)),
        index: speak::index(region),
        owner: String::new(),
        next: None,
        regions: vec![region_status(&report, answer::Link::Unknown)],
        release,
        broken,
        skew_seconds: None,
        links: BTreeMap::from([("wait".to_owned(), format!("{path}/wait"))]),
    })
}

/// One region's part of a generation, as its report tells it.
pub(super) fn region_status(report: &RegionReport, link: answer::Link) -> answer::RegionStatus {
    let zone = |(name, zone): (&ZoneName, &ZoneReport)| {
        let ZoneReport { expected, arrived, failed, complete } = *zone;
        (name.clone(), answer::ZoneStatus { arrived, expected, failed, complete })
    };
    let completed_at = report.last_arrival_at.filter(|_| report.complete);
    answer::RegionStatus {
        name: report.region.clone(),
        state: match (report.over_failures, report.complete) {
            (true, _) => RegionState::Failed,
            (false, true) => RegionState::Complete,
            (false, false) => RegionState::Gathering,
        },
        arrived: report.arrived,
        expected: report.expected,
        failed: report.failed,
        missing: report.missing.names.clone(),
        missing_count: report.missing.count,
        retrying: report.retrying,
        working: report.apart.working,
        lost: report.apart.lost,
        excluded: report.apart.excluded,
        waived: report.apart.waived,
        zones: report.zones.iter().map(zone).collect(),
        completed_at: completed_at.map(rfc3339),
        applied: report.applied.is_some(),
        link,
        as_of_seconds: Some(0.0),
    }
}
