//! A span's identity as it travels: [W3C Trace Context][w3c] in HTTP headers and
//! in the headers of Kafka records.
//!
//! [w3c]: https://www.w3.org/TR/trace-context/

use std::collections::{BTreeMap, HashMap};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use serde::{Deserialize, Serialize};
use tracing::Span;
use tracing_opentelemetry::{OpenTelemetrySpanExt, SetParentError};

/// Name of the header, in HTTP and Kafka, with the identity of a span.
const TRACEPARENT: &str = "traceparent";
/// Name of the header with what the tracing systems on the way added.
const TRACESTATE: &str = "tracestate";

/// What W3C asks everybody to carry; a longer state is dropped, not cut.
const TRACESTATE_LEN_MAX: usize = 512;

/// Which span of which trace something belongs to.
///
/// Values from the network are checked on the way in: [`TraceContext::from_headers`]
/// and [`TraceContext::from_map`] give `None` for what is missing or malformed, and a
/// deserialized value that is malformed is without effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// `00-<trace id>-<span id>-<flags>`, in lower-case hexadecimal.
    pub traceparent: String,
    /// What other tracing systems carry along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

impl TraceContext {
    /// That of the current span; `None` outside of any, or when traces are off.
    pub fn current() -> Option<Self> {
        Self::of(&Span::current())
    }

    /// That of `span`. It starts the span, so set its parent before.
    pub fn of(span: &Span) -> Option<Self> {
        let context = span.context();
        if !context.has_active_span() {
            return None;
        }
        let mut fields = HashMap::new();
        TraceContextPropagator::new().inject_context(&context, &mut fields);
        Self::checked(fields.remove(TRACEPARENT)?, fields.remove(TRACESTATE))
    }

    /// That of a request, if it came with one.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let parent = headers.get(TRACEPARENT)?.to_str().ok()?;
        let states: Vec<&str> = headers.get_all(TRACESTATE).iter().filter_map(|state| state.to_str().ok()).collect();
        Self::checked(parent.to_owned(), Some(states.join(",")))
    }

    /// Adds it to a request, replacing what was there.
    pub fn to_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in self.pairs() {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }

    /// That of a record, if its headers have one.
    pub fn from_map(fields: &BTreeMap<String, String>) -> Option<Self> {
        let parent = fields.get(TRACEPARENT)?;
        Self::checked(parent.clone(), fields.get(TRACESTATE).cloned())
    }

    /// Adds it to a record's headers, replacing what was there.
    pub fn to_map(&self, fields: &mut BTreeMap<String, String>) {
        for (name, value) in self.pairs() {
            fields.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Makes `span` a child of it. Call it before the span is entered: a span
    /// that runs already keeps its parent.
    pub fn set_parent(&self, span: &Span) {
        if let Some(parent) = self.context()
            && let Err(SetParentError::AlreadyStarted) = span.set_parent(parent)
        {
            tracing::debug!("the span runs already and keeps its parent");
        }
    }

    /// Adds it to what `span` came from, beside its parent: a batch has one
    /// parent at most, and a link to each of the crossings in it.
    pub fn link(&self, span: &Span) {
        if let Some(context) = self.context() {
            span.add_link(context.span().span_context().clone());
        }
    }

    fn checked(traceparent: String, tracestate: Option<String>) -> Option<Self> {
        let tracestate = tracestate.filter(|state| !state.is_empty() && state.len() <= TRACESTATE_LEN_MAX);
        let unchecked = Self { traceparent, tracestate };
        unchecked.context().map(|_| unchecked)
    }

    fn context(&self) -> Option<Context> {
        let fields: HashMap<String, String> =
            self.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &fields);
        context.has_active_span().then_some(context)
    }

    fn pairs(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.tracestate.as_deref().map(|state| (TRACESTATE, state));
        std::iter::once((TRACEPARENT, self.traceparent.as_str())).chain(state)
    }
}

#[cfg(test)]
#[path = "trace_context_tests.rs"]
mod tests;
