//! One trace from an arrival, through Kafka and the coordinator, back to the
//! wake-ups of another region.

use std::sync::Arc;

use futures::future::try_join_all;
use http::{HeaderName, HeaderValue};
use serde_json::json;

use super::{Outcome, on_processes};
use crate::cluster::processes::{Extras, Processes};
use crate::cluster::{Cluster, Shape};
use crate::otlp::{Receiver, Span};
use crate::services::Services;
use crate::until::until;
use crate::worker::Worker;
use crate::world::World;

#[test]
fn a_trace_leads_from_an_arrival_to_the_wake_ups() {
    on_processes(async || {
        let receiver = Receiver::start()?;
        let extras = Extras { otlp_endpoint: Some(receiver.endpoint.clone()), ..Extras::default() };
        let cluster = Processes::start(Shape::default(), Services::given()?, extras).await?;
        follow(&cluster, &receiver).await.inspect_err(|_| eprintln!("{}", cluster.last_words()))
    });
}

async fn follow(cluster: &Arc<Processes>, receiver: &Receiver) -> Outcome {
    let world = World::new(&**cluster);
    world.define("map", json!({})).await?;
    let target = world.target("map", 1);
    let workers = world.workers(&["1"]);
    world.require(&target, &workers);
    let trace = format!("{:032x}", rand::random::<u128>() | 1);
    let (last, others) = workers.split_last().ok_or_else(|| anyhow::anyhow!("nobody"))?;
    let traced = traced(last, &trace)?;
    let waits = try_join_all(others.iter().map(|worker| worker.cross(&target)));
    let arriving = async {
        world.until_status(&target, "all others arrived", |status| status.arrived == 2).await?;
        anyhow::Ok(last.with(traced).cross(&target).await?)
    };
    let (waited, arrived) = futures::join!(waits, arriving);
    waited?;
    arrived?;

    // (name of the span, which service it is of)
    const PATH: &[(&str, &str)] = &[
        ("arrivals/{participant}", "muster-regional-agent"),
        ("append", "muster-regional-agent"),
        ("report", "muster-regional-agent"),
        ("decide", "muster-global-coordinator"),
        ("apply", "muster-regional-agent"),
        ("wake", "muster-regional-agent"),
    ];
    until("every step is in one trace", || async {
        let spans = receiver.trace(&trace);
        match PATH.iter().find(|(name, service)| !spans.iter().any(|span| span.is(name, service))) {
            None => Ok(()),
            Some(missing) => Err(format!("{missing:?} of {trace} is missing in {spans:#?}")),
        }
    })
    .await?;
    // Each leads to the next: from a wake-up up its parents to the arrival.
    for region in others.iter().map(|worker| &worker.region) {
        // Spans come in batches: a child may be here before its parents are.
        until(&format!("a wake-up in {region} leads back to the arrival"), || async {
            let spans = receiver.trace(&trace);
            let woken = spans.iter().find(|span| span.name == "wake" && span.instance.contains(region.as_str()));
            let names = woken.map(|woken| ancestors(&spans, woken)).unwrap_or_default();
            let leads = |to: &str| names.iter().any(|name| name.contains(to));
            if leads("arrivals/{participant}") && leads("decide") {
                Ok(())
            } else {
                Err(format!("{names:?} in {spans:#?}"))
            }
        })
        .await?;
    }
    world.judge().await
}

fn traced(worker: &Worker, trace: &str) -> anyhow::Result<muster_client::Client> {
    let parent = HeaderValue::from_str(&format!("00-{trace}-00f067aa0ba902b7-01"))?;
    Ok(worker.client.clone().header(HeaderName::from_static("traceparent"), parent))
}

/// The names of the spans from one up to the root.
fn ancestors(spans: &[Span], from: &Span) -> Vec<String> {
    let mut names = vec![from.name.clone()];
    let mut parent = from.parent.clone();
    while let Some(span) = spans.iter().find(|span| span.id == parent) {
        names.push(span.name.clone());
        parent = span.parent.clone();
    }
    names
}
