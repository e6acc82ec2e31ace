//! Every metric: its name, kind, labels, unit and sentence, in one table.
//!
//! Each row is also the function that gives the instrument, so that names and
//! labels stand nowhere else: `metrics::arrivals("us-east", "ok").increment(1)`.
//! Names are OpenTelemetry's (`muster.barrier.wait` in s) as Prometheus writes
//! them: `_` for the dots, the unit, and `_total` for a counter. No label holds
//! the name of a barrier or of a participant: there are too many.
//!
//! Instruments taken before [`install`] stay silent for ever; on a hot path,
//! take one after it and keep it. A counter shows once it was touched, so touch
//! with `increment(0)` those that somebody alerts on.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// The content type of what [`render`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Bucket bounds of an operation: from an etcd append to a stalled service, s.
const LATENCY: &[f64] = &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Bucket bounds of what people and their programs take: up to a day, s.
const WAIT: &[f64] = &[0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];

/// Bucket bounds of a number of things in one batch.
const SIZE: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

/// One row of the table; only a histogram has bucket bounds.
struct Metric {
    name: &'static str,
    unit: Unit,
    sentence: &'static str,
    describe: fn(&Metric),
    buckets: &'static [f64],
}

macro_rules! metrics {
    (@type counter) => { Counter };
    (@type gauge) => { Gauge };
    (@type histogram) => { Histogram };
    (@describe counter) => { |row| ::metrics::describe_counter!(row.name, row.unit, row.sentence) };
    (@describe gauge) => { |row| ::metrics::describe_gauge!(row.name, row.unit, row.sentence) };
    (@describe histogram) => { |row| ::metrics::describe_histogram!(row.name, row.unit, row.sentence) };
    (@buckets) => { &[] };
    (@buckets $bounds:ident) => { $bounds };
    ($($kind:ident $([$bounds:ident])? $function:ident($($label:ident),*) = $name:literal in $unit:ident, $sentence:literal;)*) => {
        $(
            #[doc = concat!($sentence, " (`", $name, "`)")]
            pub fn $function($($label: impl Into<SharedString>),*) -> metrics!(@type $kind) {
                ::metrics::$kind!($name $(, stringify!($label) => $label.into())*)
            }
        )*

        const ALL: &[Metric] = &[$(Metric {
            name: $name,
            unit: Unit::$unit,
            sentence: $sentence,
            describe: metrics!(@describe $kind),
            buckets: metrics!(@buckets $($bounds)?),
        }),*];

        /// One instrument of each row, so that a test sees all of them rendered.
        #[cfg(test)]
        fn touch_all() {
            $({
                $(let $label = stringify!($label);)*
                metrics!(@touch $kind $function($($label),*))
            })*
        }
    };
    (@touch counter $call:expr) => { $call.increment(1) };
    (@touch gauge $call:expr) => { $call.set(1.0) };
    (@touch histogram $call:expr) => { $call.record(1.0) };
}

metrics! {
    // What users see.
    counter arrivals(region, result) = "muster_arrivals_total" in Count,
        "Arrivals answered by a region's agent, by result.";
    histogram[WAIT] barrier_wait() = "muster_barrier_wait_seconds" in Seconds,
        "Time from an arrival to the outcome of its generation, per participant.";
    histogram[WAIT] barrier_skew() = "muster_barrier_skew_seconds" in Seconds,
        "Time from the first to the last arrival of a generation.";
    histogram[LATENCY] release_propagation(region) = "muster_release_propagation_seconds" in Seconds,
        "Time from the decision to release until a region applied it.";
    gauge waiters(region) = "muster_waiters" in Count,
        "Requests that wait for an outcome now.";
    gauge generations(state, reason, scope) = "muster_generations" in Count,
        "Generations that are kept, by state, reason of breaking and scope.";
    gauge oldest_gathering() = "muster_oldest_gathering_seconds" in Seconds,
        "Age of the generation that gathers longest; 0 when none gathers.";
    gauge deadline_remaining_min() = "muster_deadline_remaining_seconds_min" in Seconds,
        "Seconds to the nearest deadline of a gathering generation; +Inf when none has one.";
    counter broken(reason) = "muster_broken_total" in Count,
        "Generations that broke, by reason.";

    // The regions, seen from the coordinator.
    gauge region_up(region) = "muster_region_up" in Count,
        "1 while the region's agent is heard, else 0.";
    gauge unanswered_facts(region) = "muster_unanswered_facts" in Count,
        "Facts sent to a region that it has not answered.";
    histogram[SIZE] coordinator_batch_reports() = "muster_coordinator_batch_reports" in Count,
        "Reports decided together in one transaction.";
    histogram[LATENCY] coordinator_transaction() = "muster_coordinator_transaction_seconds" in Seconds,
        "Duration of one transaction of the coordinator on its store.";

    // The region log.
    counter log_appends(region) = "muster_log_appends_total" in Count,
        "Transactions that appended to the region log.";
    histogram[SIZE] log_append_commands(region) = "muster_log_append_commands" in Count,
        "Commands appended together in one transaction.";
    histogram[LATENCY] log_append(region) = "muster_log_append_seconds" in Seconds,
        "Duration of one append to the region log.";
    counter catch_ups(region) = "muster_log_catch_ups_total" in Count,
        "Times a replica listed the region log anew instead of following it.";
    counter range_requests(region, kind) = "muster_log_range_requests_total" in Count,
        "Reads of the region log: kind is read_index, catch_up or snapshot.";

    // The bus.
    counter bus_messages(direction, kind) = "muster_bus_messages_total" in Count,
        "Records sent to and received from Kafka, by direction and kind of record.";
    counter poison_messages() = "muster_bus_poison_messages_total" in Count,
        "Records set aside because they could not be read.";
    histogram[LATENCY] event_lag() = "muster_event_lag_seconds" in Seconds,
        "Time from the sending of a record to its handling.";

    // Never expected: each of these is worth an alert.
    counter fencing_rejections() = "muster_fencing_rejections_total" in Count,
        "Commands refused because a newer leader's epoch was seen.";
    counter invariant_violations(invariant) = "muster_invariant_violations_total" in Count,
        "Violations of a numbered invariant, by its id.";
    counter replica_divergences(region) = "muster_replica_divergences_total" in Count,
        "Replicas of a region found to differ after the same entries.";

    // The HTTP servers, and telemetry itself.
    histogram[LATENCY] http_request_duration(method, route, status) = "muster_http_request_duration_seconds" in Seconds,
        "Duration of an HTTP request; those that wait for an outcome take as long as it does.";
    gauge http_connections() = "muster_http_connections" in Count,
        "Open HTTP connections.";
    counter spans_lost() = "muster_spans_lost_total" in Count,
        "Spans that could not be sent to the OTLP receiver.";
}

/// How often recorded values are moved into their buckets when nobody scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Makes the process record its metrics, and gives what renders them. The first
/// call installs, each later one returns the same: services share a process.
pub fn install() -> PrometheusHandle {
    HANDLE.get_or_init(install_once).clone()
}

/// All metrics of the process in the text format of Prometheus ([`CONTENT_TYPE`]).
pub fn render() -> String {
    install().render()
}

fn install_once() -> PrometheusHandle {
    let mut builder = PrometheusBuilder::new();
    for row in ALL.iter().filter(|row| !row.buckets.is_empty()) {
        builder = builder
            .set_buckets_for_metric(Matcher::Full(row.name.to_owned()), row.buckets)
            .expect("the list of bounds is not empty");
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    if ::metrics::set_global_recorder(recorder).is_err() {
        tracing::warn!("metrics are recorded elsewhere in this process, ours stay empty");
    }
    for row in ALL {
        (row.describe)(row);
    }
    spawn_upkeep(handle.clone());
    handle
}

/// Values wait in a list until somebody scrapes or this thread empties it.
fn spawn_upkeep(handle: PrometheusHandle) {
    let spawned = thread::Builder::new().name("metrics-upkeep".to_owned()).spawn(move || {
        loop {
            thread::sleep(UPKEEP_INTERVAL);
            handle.run_upkeep();
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "metrics grow in memory between scrapes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_renders_with_its_sentence_and_kind() {
        install();
        touch_all();
        let text = render();
        for row in ALL {
            let help = format!("# HELP {} {}\n", row.name, row.sentence);
            assert!(text.contains(&help), "{help} in:\n{text}");
            let kind = match (row.buckets.is_empty(), row.name.ends_with("_total")) {
                (false, _) => "histogram",
                (true, true) => "counter",
                (true, false) => "gauge",
            };
            let kind = format!("# TYPE {} {kind}\n", row.name);
            assert!(text.contains(&kind), "{kind} in:\n{text}");
        }
    }

    #[test]
    fn names_follow_the_conventions() {
        for row in ALL {
            assert!(row.name.starts_with("muster_"), "{}", row.name);
            let seconds = row.unit == Unit::Seconds;
            assert_eq!(row.name.contains("_seconds"), seconds, "{}", row.name);
            assert!(row.sentence.ends_with('.'), "{}", row.sentence);
            assert!(row.buckets.is_sorted_by(|a, b| a < b), "{}", row.name);
        }
    }

    #[test]
    fn labels_carry_the_names_of_the_parameters() {
        install();
        broken("deadline").increment(2);
        let text = render();
        assert!(text.contains("muster_broken_total{reason=\"deadline\"} 2"), "{text}");
    }

    #[test]
    fn installing_again_gives_the_same_recorder() {
        install();
        fencing_rejections().increment(1);
        assert!(install().render().contains("muster_fencing_rejections_total"));
        assert!(render().contains("muster_fencing_rejections_total"));
    }
}
