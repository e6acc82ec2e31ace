//! Logs, traces, and every metric name in one file.
