//! Instants as people think of them: how long ago, how long still.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_protocol::identity::Timestamp;
use muster_wire::time::{format_duration, parse_rfc3339};

/// This machine's time.
pub(crate) fn now() -> Timestamp {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// `38m ago`; the text itself when it is no instant.
pub(crate) fn ago(now: Timestamp, at: &str) -> String {
    match parse_rfc3339(at) {
        Some(at) => format!("{} ago", short(now.0.saturating_sub(at.0) as f64 / 1_000.0)),
        None => at.to_owned(),
    }
}

/// `in 1h22m`, or `now`.
pub(crate) fn until(now: Timestamp, at: &str) -> String {
    match parse_rfc3339(at) {
        Some(at) if at.0 > now.0 => format!("in {}", short((at.0 - now.0) as f64 / 1_000.0)),
        Some(_) => "now".to_owned(),
        None => at.to_owned(),
    }
}

/// `1.4s`, `38m`, `1h22m`.
pub(super) fn short(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "?".to_owned();
    }
    match seconds < 10.0 {
        true => format!("{seconds:.1}s"),
        false => format_duration(Duration::from_secs(seconds as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let now = parse_rfc3339("2026-10-07T12:00:00Z").unwrap();
        assert_eq!(ago(now, "2026-10-07T11:22:00Z"), "38m ago");
        assert_eq!(ago(now, "2026-10-07T11:59:58.600Z"), "1.4s ago");
        assert_eq!(ago(now, "2026-10-07T12:00:05Z"), "0.0s ago", "clocks differ");
        assert_eq!(until(now, "2026-10-07T13:22:07Z"), "in 1h22m");
        assert_eq!(until(now, "2026-10-07T11:00:00Z"), "now");
        assert_eq!(short(f64::NAN), "?");
        assert_eq!(short(1e300), format_duration(Duration::from_secs(u64::MAX)));
    }
}
