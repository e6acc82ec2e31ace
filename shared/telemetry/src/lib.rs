//! Logs, traces, and every metric name in one file.
//!
//! [`init`] is called once by a program's `main` and returns a [`Guard`] that
//! flushes at the end. Logs go to standard error: for people on a terminal,
//! JSON otherwise. Traces leave over OTLP/HTTP only when an endpoint is
//! configured; [`TraceContext`] carries them across HTTP and Kafka and costs
//! next to nothing when they are off. [`metrics`] needs no [`init`].
//!
//! A log line never carries a `Debug` of options: connection options of etcd
//! and Postgres print their passwords.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod export;
pub mod metrics;
mod trace_context;
mod wall_clock;

pub use export::Guard;
pub use trace_context::TraceContext;
pub use wall_clock::wall_clock_ms;

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{EnvFilter, FilterFn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// The variable with the log filter, in the syntax of `tracing`'s `EnvFilter`
/// (`info,muster_bus=debug`). Unset or empty: the level of [`Options`].
pub const LOG_VARIABLE: &str = "MUSTER_LOG";

/// Chatty at info, and seldom what a reader of Muster's log looks for.
const NOISY: &[&str] = &["h2", "hyper", "librdkafka", "rdkafka", "reqwest", "sqlx", "tonic", "tower"];

/// What a program says about itself, and where its traces go.
#[derive(Clone, Debug)]
pub struct Options {
    /// OpenTelemetry's `service.name`, like `muster-regional-agent`.
    pub service_name: String,
    /// OpenTelemetry's `service.instance.id`: unique among running processes.
    pub service_instance: String,
    /// Base address of an OTLP/HTTP receiver, like `http://127.0.0.1:4318`.
    /// `None`: what `OTEL_EXPORTER_OTLP_ENDPOINT` says; traces are off without it.
    pub otlp_endpoint: Option<String>,
    /// Part of new traces to record, 0 to 1; a caller's decision always stands.
    /// `None`: what `OTEL_TRACES_SAMPLER` says, else all of them.
    pub sample_ratio: Option<f64>,
    /// What is logged when [`LOG_VARIABLE`] is unset.
    pub log_level: LevelFilter,
}

impl Options {
    /// Options of a service that logs at info and exports as the environment says.
    pub fn new(service_name: impl Into<String>, service_instance: impl Into<String>) -> Self {
        Self {
            service_name: service_name.into(),
            service_instance: service_instance.into(),
            otlp_endpoint: None,
            sample_ratio: None,
            log_level: LevelFilter::INFO,
        }
    }
}

/// An error with all that caused it, on one line: in JSON a field that is an
/// error shows the outermost sentence alone.
pub fn chain(error: &dyn std::error::Error) -> impl std::fmt::Display {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Why telemetry could not start. Each is a mistake in configuration or code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The filter in [`LOG_VARIABLE`] does not parse.
    #[error("read the log filter in {LOG_VARIABLE}")]
    Filter(#[source] tracing_subscriber::filter::ParseError),
    /// The endpoint is not one this build can send to.
    #[error("send traces to {endpoint:?}: the address must start with http:// (for TLS, run a collector beside it)")]
    Endpoint {
        /// The address as configured.
        endpoint: String,
    },
    /// The exporter refuses its configuration.
    #[error("prepare the export of traces")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    /// [`init`] was called before in this process.
    #[error("start logging: it was started before in this process")]
    Again(#[source] tracing_subscriber::util::TryInitError),
}

/// Starts logs and, when an endpoint is configured, traces: for the whole
/// process, once. Keep the [`Guard`] until the end of `main`.
///
/// # Errors
/// See [`Error`]; an unreachable receiver is none, spans are then lost and counted.
pub fn init(options: &Options) -> Result<Guard, Error> {
    let filter = log_filter(std::env::var(LOG_VARIABLE).ok().as_deref(), options.log_level)?;
    let terminal = std::io::stderr().is_terminal();
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = if terminal { lines.boxed() } else { lines.json().flatten_event(true).boxed() };
    let (tracer, guard) = export::start(options)?;
    let spans = tracer.map(|tracer| {
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(FilterFn::new(is_exported))
    });
    Registry::default().with(lines.with_filter(filter)).with(spans).with(AskAnew).try_init().map_err(Error::Again)?;
    Ok(guard)
}

/// Has every event and span ask the filters anew.
///
/// A filter of one layer keeps its answer in the thread, for the event that
/// follows. A mere question, `log::log_enabled!`, has no event, and its answer
/// would meet the next event of the thread that is let through by a cache: the
/// Kafka client asks whenever one is made, and a no to it would swallow what
/// comes next on that thread, a warning or a span of a trace.
struct AskAnew;

impl<S: Subscriber> Layer<S> for AskAnew {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
}

/// Traces hold Muster's own spans, whatever the log filter says. Events stay in
/// the log: they may name participants, which traces leave out.
fn is_exported(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && *metadata.level() <= tracing::Level::INFO && metadata.target().starts_with("muster")
}

fn log_filter(variable: Option<&str>, level: LevelFilter) -> Result<EnvFilter, Error> {
    let directives = match variable {
        Some(given) if !given.trim().is_empty() => given.to_owned(),
        _ => default_directives(level),
    };
    EnvFilter::builder().parse(directives).map_err(Error::Filter)
}

fn default_directives(level: LevelFilter) -> String {
    let cap = level.min(LevelFilter::WARN);
    NOISY.iter().fold(level.to_string(), |all, noisy| format!("{all},{noisy}={cap}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what reaches it.
    #[derive(Clone, Default)]
    struct Counter(std::sync::Arc<std::sync::atomic::AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Counter {
        fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Something that is only ever asked about.
    struct Question;

    static QUESTION: Metadata<'static> = tracing::metadata! {
        name: "question",
        target: "librdkafka",
        level: tracing::Level::INFO,
        fields: &[],
        callsite: &Question,
        kind: tracing::metadata::Kind::EVENT,
    };

    impl tracing::callsite::Callsite for Question {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            &QUESTION
        }
    }

    #[test]
    fn a_question_without_an_event_swallows_no_other_event() {
        let counter = Counter::default();
        let filter = log_filter(None, LevelFilter::INFO).unwrap();
        let subscriber = Registry::default().with(counter.clone().with_filter(filter)).with(AskAnew);
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                // What `log::log_enabled!` does.
                tracing::dispatcher::get_default(|dispatch| dispatch.enabled(&QUESTION));
                tracing::warn!("must be heard");
            }
        });
        assert_eq!(counter.0.load(std::sync::atomic::Ordering::Relaxed), 3);
    }

    #[test]
    fn a_chain_tells_every_cause() {
        let error = log_filter(Some("muster=loudly"), LevelFilter::INFO).unwrap_err();
        let told = chain(&error).to_string();
        assert!(told.starts_with("read the log filter in MUSTER_LOG: error parsing level filter"), "{told}");
    }

    #[test]
    fn default_filter_quiets_dependencies() {
        let filter = log_filter(None, LevelFilter::INFO).unwrap().to_string();
        assert!(filter.contains("sqlx=warn"), "{filter}");
        assert!(filter.contains("info"), "{filter}");
    }

    #[test]
    fn default_filter_never_raises_a_dependency_above_the_level() {
        let filter = log_filter(None, LevelFilter::ERROR).unwrap().to_string();
        assert!(filter.contains("sqlx=error"), "{filter}");
    }

    #[test]
    fn variable_replaces_the_default() {
        let filter = log_filter(Some("muster_bus=debug"), LevelFilter::INFO).unwrap();
        assert_eq!(filter.to_string(), "muster_bus=debug");
        assert!(log_filter(Some(" "), LevelFilter::INFO).is_ok());
    }

    #[test]
    fn malformed_variable_is_refused() {
        let refused = log_filter(Some("muster=loudly"), LevelFilter::INFO);
        assert!(matches!(refused, Err(Error::Filter(_))));
    }
}
