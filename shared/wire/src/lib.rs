//! What crosses a process border: HTTP bodies, Kafka records, log entries, each with a version.
