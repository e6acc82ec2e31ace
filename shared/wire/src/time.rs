//! Durations as people write them, `30s`, `2h`, `7d`, and instants as answers
//! print them (RFC 3339).

use std::time::Duration;

use muster_protocol::identity::Timestamp;

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration; write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d")]
pub struct InvalidDuration(pub String);

/// Reads a duration such as `500ms`, `30s`, `5m`, `2h`, `7d` or `1h30m`.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.chars().take(40).collect());
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(invalid)?;
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_len);
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(invalid()),
        };
        let part = number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = tail;
    }
    Ok(total)
}

/// Writes a duration the way it is read, in its two largest units.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis() as u64;
    if ms < 1_000 {
        return format!("{ms}ms");
    }
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut seconds = ms / 1_000;
    let mut parts = Vec::new();
    for (unit, size) in units {
        if seconds >= size {
            parts.push(format!("{}{unit}", seconds / size));
            seconds %= size;
        }
    }
    parts.truncate(2);
    parts.concat()
}

/// An instant as RFC 3339 in UTC, with milliseconds.
#[must_use]
pub fn rfc3339(at: Timestamp) -> String {
    let instant = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    instant.map_or_else(|| at.0.to_string(), |instant| format!("{instant:.3}"))
}

/// Reads an instant that [`rfc3339`] wrote.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let instant: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(instant.as_millisecond()).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("1h30m", 5_400_000), ("7d", 604_800_000), ("0s", 0)] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for bad in ["", "5", "s", "5 s", "-5s", "5w", "1.5h", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
        assert_eq!(format_duration(Duration::from_secs(5_400)), "1h30m");
        assert_eq!(format_duration(Duration::from_millis(12)), "12ms");
    }

    #[test]
    fn instants_survive_the_round_trip() {
        let at = Timestamp(1_791_374_400_123);
        assert_eq!(parse_rfc3339(&rfc3339(at)), Some(at));
    }
}
