//! A real SDK with an exporter into memory: what one side sends, the other continues.

use std::sync::{Arc, Mutex};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::prelude::*;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Memory {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// Runs `scenario` under a tracing subscriber like [`crate::init`]'s; its spans.
fn spans_of(scenario: impl FnOnce()) -> Vec<SpanData> {
    let memory = Memory::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(memory.clone()).build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("test"))
        .with_filter(FilterFn::new(crate::is_exported));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), scenario);
    std::mem::take(&mut *memory.0.lock().unwrap())
}

fn named<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    spans.iter().find(|span| span.name == name).unwrap()
}

fn parent() -> TraceContext {
    TraceContext { traceparent: PARENT.to_owned(), tracestate: Some("vendor=opaque".to_owned()) }
}

#[test]
fn headers_continue_the_trace_on_the_other_side() {
    let spans = spans_of(|| {
        let mut headers = HeaderMap::new();
        let client = tracing::info_span!("client");
        client.in_scope(|| TraceContext::current().unwrap().to_headers(&mut headers));
        let server = tracing::info_span!("server");
        TraceContext::from_headers(&headers).unwrap().set_parent(&server);
        server.in_scope(|| tracing::info_span!("inner").in_scope(|| ()));
    });
    let (client, server) = (named(&spans, "client"), named(&spans, "server"));
    assert_eq!(server.span_context.trace_id(), client.span_context.trace_id());
    assert_eq!(server.parent_span_id, client.span_context.span_id());
    assert!(server.parent_span_is_remote);
    let inner = named(&spans, "inner");
    assert_eq!(inner.parent_span_id, server.span_context.span_id());
}

#[test]
fn record_headers_continue_the_trace_and_keep_its_state() {
    let spans = spans_of(|| {
        let mut fields = BTreeMap::new();
        parent().to_map(&mut fields);
        assert_eq!(TraceContext::from_map(&fields), Some(parent()));
        let span = tracing::info_span!("receive");
        TraceContext::from_map(&fields).unwrap().set_parent(&span);
        let onward = TraceContext::of(&span).unwrap();
        assert_eq!(onward.tracestate.as_deref(), Some("vendor=opaque"));
    });
    let receive = named(&spans, "receive");
    assert_eq!(receive.parent_span_id.to_string(), "00f067aa0ba902b7");
}

#[test]
fn batch_links_to_every_crossing_in_it() {
    let spans = spans_of(|| {
        let crossings = ["a", "b"].map(|_| TraceContext::of(&tracing::info_span!("crossing")));
        let batch = tracing::info_span!("batch");
        batch.in_scope(|| {
            for crossing in crossings.iter().flatten() {
                crossing.link(&batch);
            }
        });
    });
    let linked: Vec<_> = named(&spans, "batch").links.iter().map(|link| link.span_context.span_id()).collect();
    let crossings = spans.iter().filter(|span| span.name == "crossing");
    assert_eq!(linked, crossings.map(|span| span.span_context.span_id()).collect::<Vec<_>>());
    assert_eq!(linked.len(), 2);
}

#[test]
fn only_own_spans_at_info_are_exported() {
    let spans = spans_of(|| {
        tracing::info_span!(target: "sqlx", "query").in_scope(|| ());
        tracing::debug_span!("detail").in_scope(|| ());
        tracing::info_span!("own").in_scope(|| tracing::info!(participant = "p-7", "arrived"));
    });
    assert_eq!(spans.len(), 1);
    assert!(spans[0].events.is_empty(), "events may name participants");
}

#[test]
fn traces_off_is_a_no_op_that_still_passes_the_context_on() {
    let span = tracing::info_span!("unheard");
    parent().set_parent(&span);
    parent().link(&span);
    assert_eq!(TraceContext::of(&span), None);
    assert_eq!(TraceContext::current(), None);
    let mut headers = HeaderMap::new();
    parent().to_headers(&mut headers);
    assert_eq!(TraceContext::from_headers(&headers), Some(parent()));
}

#[test]
fn malformed_or_missing_is_none() {
    for bad in ["", "zz", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
        let headers = HeaderMap::from_iter([(HeaderName::from_static(TRACEPARENT), HeaderValue::from_static(bad))]);
        assert_eq!(TraceContext::from_headers(&headers), None, "{bad}");
    }
    assert_eq!(TraceContext::from_map(&BTreeMap::new()), None);
}

#[test]
fn state_over_the_limit_is_dropped_and_several_are_joined() {
    let long = format!("a={}", "x".repeat(TRACESTATE_LEN_MAX));
    let fields = BTreeMap::from([(TRACEPARENT.to_owned(), PARENT.to_owned()), (TRACESTATE.to_owned(), long)]);
    assert_eq!(TraceContext::from_map(&fields).unwrap().tracestate, None);

    let mut headers = HeaderMap::new();
    headers.insert(TRACEPARENT, HeaderValue::from_static(PARENT));
    headers.append(TRACESTATE, HeaderValue::from_static("a=1"));
    headers.append(TRACESTATE, HeaderValue::from_static("b=2"));
    let joined = TraceContext::from_headers(&headers).unwrap().tracestate;
    assert_eq!(joined.as_deref(), Some("a=1,b=2"));
}
