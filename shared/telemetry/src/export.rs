//! Spans leave over OTLP/HTTP: a batch thread with its own blocking client, so
//! that no async runtime takes part in sending, flushing or shutting down.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, OTEL_BSP_SCHEDULE_DELAY, Sampler, SdkTracer, SdkTracerProvider, SpanData,
    SpanExporter,
};

use crate::{Error, Options, metrics};

/// Short, so that a person or a test that looks right after sees the trace;
/// `OTEL_BSP_SCHEDULE_DELAY` overrides it.
const SCHEDULE_DELAY: Duration = Duration::from_millis(200);

/// The last spans are worth this wait at the end of a process, and no more.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Keeps the export of traces alive; flushes it on [`Guard::shutdown`] or drop.
#[must_use = "dropping the guard ends the export of traces"]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Guard {
    /// Whether spans are exported.
    pub fn exports_traces(&self) -> bool {
        self.provider.is_some()
    }

    /// Sends what is left and ends the export; returns after 3 seconds at most.
    ///
    /// It cannot deadlock: sending happens on a thread of its own without the
    /// caller's runtime, and this call only waits for that thread with a limit.
    /// It blocks the calling thread, so call it where the program ends.
    pub fn shutdown(mut self) {
        self.close();
    }

    fn close(&mut self) {
        let Some(provider) = self.provider.take() else {
            return;
        };
        let (done, closed) = mpsc::channel();
        let spawned = thread::Builder::new().name("traces-shutdown".to_owned()).spawn(move || {
            // The limit within is the same: whoever waits has given up by then.
            let _ = done.send(provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT));
        });
        let result = spawned.map(|_| closed.recv_timeout(SHUTDOWN_TIMEOUT));
        if !matches!(result, Ok(Ok(Ok(())))) {
            tracing::warn!("the last spans were not all sent");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("exports_traces", &self.exports_traces()).finish()
    }
}

/// A tracer when an endpoint is configured, and the guard either way.
pub(crate) fn start(options: &Options) -> Result<(Option<SdkTracer>, Guard), Error> {
    if !is_configured(options)? {
        return Ok((None, Guard { provider: None }));
    }
    let mut builder = opentelemetry_otlp::SpanExporter::builder().with_http();
    if let Some(base) = &options.otlp_endpoint {
        builder = builder.with_endpoint(format!("{}/v1/traces", base.trim_end_matches('/')));
    }
    let exporter = builder.build().map_err(Error::Exporter)?;
    let provider = provider(options, exporter);
    let tracer = provider.tracer("muster");
    Ok((Some(tracer), Guard { provider: Some(provider) }))
}

fn is_configured(options: &Options) -> Result<bool, Error> {
    let variable = |name| std::env::var(name).ok();
    let endpoint = options
        .otlp_endpoint
        .clone()
        .or_else(|| variable(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT))
        .or_else(|| variable(OTEL_EXPORTER_OTLP_ENDPOINT))
        .filter(|endpoint| !endpoint.is_empty());
    match endpoint {
        Some(endpoint) if !endpoint.starts_with("http://") => Err(Error::Endpoint { endpoint }),
        endpoint => Ok(endpoint.is_some()),
    }
}

fn provider<E: SpanExporter + 'static>(options: &Options, exporter: E) -> SdkTracerProvider {
    let mut batch = BatchConfigBuilder::default();
    if std::env::var_os(OTEL_BSP_SCHEDULE_DELAY).is_none() {
        batch = batch.with_scheduled_delay(SCHEDULE_DELAY);
    }
    let processor = BatchSpanProcessor::builder(Reporting::new(exporter)).with_batch_config(batch.build()).build();
    let resource = Resource::builder()
        .with_service_name(options.service_name.clone())
        .with_attribute(KeyValue::new("service.instance.id", options.service_instance.clone()))
        .build();
    let builder = SdkTracerProvider::builder().with_resource(resource).with_span_processor(processor);
    match options.sample_ratio {
        Some(ratio) => builder.with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)))),
        None => builder,
    }
    .build()
}

/// Says once that the receiver is away, once that it is back, and counts every
/// span lost meanwhile: the SDK is silent about all three.
#[derive(Debug)]
struct Reporting<E> {
    exporter: E,
    failing: AtomicBool,
}

impl<E> Reporting<E> {
    fn new(exporter: E) -> Self {
        Self { exporter, failing: AtomicBool::new(false) }
    }

    fn report(&self, spans: usize, result: &OTelSdkResult) {
        let before = self.failing.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Ok(()) if before => tracing::info!("traces are sent again"),
            Ok(()) => {}
            Err(error) => {
                metrics::spans_lost().increment(spans as u64);
                if !before {
                    tracing::warn!(%error, "traces cannot be sent, spans are lost");
                }
            }
        }
    }
}

impl<E: SpanExporter> SpanExporter for Reporting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        self.report(spans, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
