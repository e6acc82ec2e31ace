//! The decision of one batch of reports: one transaction, then the facts.

use std::sync::Arc;

use futures::FutureExt;
use muster_bus::{Headers, Poison};
use muster_protocol::global::{Command, Refusal, Step};
use muster_protocol::name::BarrierName;
use muster_telemetry::TraceContext;
use muster_wire::record::{Downward, Upward, encode};
use tracing::{Instrument, Span};

use super::batch::{Reported, set_aside};
use super::propagation::measure;
use super::{GaveUp, persist};
use crate::coordinator::{Coordinator, headers_of};
use crate::store::{Mode, StoreError};

/// Decides reports, tells the regions, and finds the report that the store
/// can't take, if one spoils the batch.
pub(super) async fn decide(coordinator: &Arc<Coordinator>, reports: Vec<Reported>) -> Result<(), GaveUp> {
    let mut parts = vec![reports];
    while let Some(mut part) = parts.pop() {
        let error = match decide_part(coordinator, &part).await {
            Ok(()) => continue,
            Err(GaveUp::Defect(error)) => error,
            Err(GaveUp::Left) => return Err(GaveUp::Left),
        };
        if part.len() > 1 {
            let rest = part.split_off(part.len() / 2);
            parts.extend([rest, part]);
        } else if let Some(spoiled) = part.pop() {
            set_aside(coordinator, &[(spoiled.place.clone(), poison(&spoiled, &error))]).await?;
        }
    }
    Ok(())
}

fn poison(spoiled: &Reported, error: &StoreError) -> Poison {
    let bytes = encode(&Upward::Report(spoiled.report.clone())).unwrap_or_default();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    Poison { bytes, error: text }
}

async fn decide_part(coordinator: &Arc<Coordinator>, part: &[Reported]) -> Result<(), GaveUp> {
    let commands: Vec<(BarrierName, Command)> = part
        .iter()
        .map(|one| (one.report.generation.barrier.clone(), Command::Report(Box::new(one.report.clone()))))
        .collect();
    // Each report's trace goes on through its part of the transaction.
    let spans: Vec<Span> = part.iter().map(span).collect();
    let whole = tracing::info_span!("decide batch", reports = part.len());
    part.iter().filter_map(|one| TraceContext::from_map(&one.headers)).for_each(|context| context.link(&whole));
    let ask = || coordinator.decide(&*coordinator.store, commands.clone(), Mode::Commit).boxed();
    let steps = persist(coordinator, "reports", ask).instrument(whole).await?;
    fail::fail_point!("coordinator.committed");
    let mut records: Vec<(Downward, Headers)> = Vec::new();
    for ((step, one), span) in steps.into_iter().zip(part).zip(spans) {
        tell_refusal(coordinator, &step, one);
        measure(coordinator, &one.report, &step);
        if !step.facts.is_empty() {
            let headers = headers(&span, part, one);
            records.extend(step.facts.into_iter().map(|fact| (Downward::Fact(fact), headers.clone())));
        }
    }
    coordinator.send_down(records).await;
    fail::fail_point!("coordinator.sent");
    Ok(())
}

fn span(one: &Reported) -> Span {
    let Some(context) = TraceContext::from_map(&one.headers) else { return Span::none() };
    let id = &one.report.generation;
    let span = tracing::info_span!("decide", otel.kind = "consumer", generation = %id, region = %one.report.region);
    context.set_parent(&span);
    span
}

/// The trace that a fact goes on with: its report's, linked to those of the
/// other regions that it decided with.
fn headers(span: &Span, part: &[Reported], one: &Reported) -> Headers {
    let mates = part
        .iter()
        .filter(|mate| mate.report.generation == one.report.generation && mate.report.region != one.report.region);
    mates.filter_map(|mate| TraceContext::from_map(&mate.headers)).for_each(|context| context.link(span));
    let own = headers_of(span);
    // Without an exporter here the caller's trace is carried on as it came.
    match TraceContext::from_map(&one.headers) {
        Some(context) if own.is_empty() => {
            let mut headers = Headers::new();
            context.to_map(&mut headers);
            headers
        }
        _ => own,
    }
}

fn tell_refusal(coordinator: &Coordinator, step: &Step, one: &Reported) {
    let Err(refusal) = &step.reply else { return };
    let (generation, region) = (&one.report.generation, &one.report.region);
    match refusal {
        // A life of the log that does not count; greeting it says so.
        Refusal::ForeignReport => tracing::debug!(%generation, %region, "a report of another life of the region"),
        // Past its retention, and the region has not heard that.
        Refusal::NoSuchGeneration => {
            tracing::debug!(%generation, %region, "a report of a generation that is not there");
            coordinator.collection.tell(&generation.barrier);
        }
        refusal => tracing::warn!(%generation, %region, ?refusal, "a report that fits no generation"),
    }
}
