//! Records between values and bytes, the same for every adapter, and counted.

use std::time::Duration;

use muster_protocol::fact::Fact;
use muster_telemetry::{metrics, wall_clock_ms};
use muster_wire::record::{Downward, Upward, decode, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{BusError, Headers, Place, Poison, Received};

/// The header with the instant a record was sent, in milliseconds since the
/// Unix epoch. It measures the way, and is nobody's business past it.
const SENT_AT: &str = "muster-sent-at";

/// A value that travels.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// Its kind, as metrics name it.
    fn kind(&self) -> &'static str;
    /// What keeps records that belong together in one partition.
    fn key(&self) -> &str;
}

impl Record for Upward {
    fn kind(&self) -> &'static str {
        match self {
            Self::Report(_) => "report",
            Self::Hello(_) => "hello",
            Self::Heartbeat(_) => "heartbeat",
        }
    }

    fn key(&self) -> &str {
        self.partition_key()
    }
}

impl Record for Downward {
    fn kind(&self) -> &'static str {
        match self {
            Self::Fact(Fact::Opened(_)) => "opened",
            Self::Fact(Fact::Decided(_)) => "decided",
            Self::Fact(Fact::Closed(_)) => "closed",
            Self::Fact(Fact::Waived(_)) => "waived",
            Self::Welcome(_) => "welcome",
        }
    }

    fn key(&self) -> &str {
        self.partition_key()
    }
}

/// A record as it goes out.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    /// The kind of what it says.
    pub(crate) kind: &'static str,
    /// What keeps it with its like.
    pub(crate) key: String,
    /// What it says.
    pub(crate) bytes: Vec<u8>,
    /// What travels with it.
    pub(crate) headers: Headers,
}

impl Parcel {
    /// Writes a value as a record.
    pub(crate) fn pack<T: Record>(value: &T, headers: Headers) -> Result<Self, BusError> {
        let bytes = encode(value).map_err(|error| BusError::Misconfigured {
            what: format!("a {} can't be written as JSON ({error}); this is a defect of this build", value.kind()),
        })?;
        let mut headers = headers;
        headers.insert(SENT_AT.to_owned(), wall_clock_ms().to_string());
        Ok(Self { kind: value.kind(), key: value.key().to_owned(), bytes, headers })
    }

    /// Counts it among those the bus has.
    pub(crate) fn count_sent(&self) {
        metrics::bus_messages("sent", self.kind).increment(1);
    }
}

/// Reads a record's bytes, and counts it.
pub(crate) fn unpack<T: Record>(place: Place, mut headers: Headers, bytes: &[u8]) -> Received<T> {
    if let Some(sent_at) = headers.remove(SENT_AT).and_then(|sent_at| sent_at.parse::<u64>().ok()) {
        // By two machines' clocks: as good as they agree.
        metrics::event_lag().record(Duration::from_millis(wall_clock_ms().saturating_sub(sent_at)));
    }
    let content = decode::<T>(bytes).map_err(|error| Poison { bytes: bytes.to_vec(), error: sentence(&error) });
    let kind = content.as_ref().map_or("poison", Record::kind);
    metrics::bus_messages("received", kind).increment(1);
    Received { place, headers, content }
}

/// An error with its causes, as one sentence.
fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_protocol::fact::Closed;
    use muster_protocol::generation::GenerationId;

    #[test]
    fn the_instant_of_sending_travels_and_stays_inside() {
        let generation = GenerationId { barrier: "etl/map".parse().unwrap(), n: 1, key: None, round: 0 };
        let value = Downward::Fact(Fact::Closed(Closed { generation, regions: Vec::new(), kept: Vec::new() }));
        let headers = Headers::from([("traceparent".to_owned(), "x".to_owned())]);
        let parcel = Parcel::pack(&value, headers.clone()).unwrap();
        assert!(parcel.headers.contains_key(SENT_AT));
        let place = Place { topic: "muster.global".to_owned(), partition: 3, offset: 7 };
        assert_eq!(unpack::<Downward>(place, parcel.headers, &parcel.bytes).headers, headers);
    }

    #[test]
    fn what_cannot_be_read_keeps_its_bytes_and_says_why() {
        let place = Place { topic: "muster.global".to_owned(), partition: 3, offset: 7 };
        for (bytes, why) in [
            (&b"\xff\x00"[..], "not of the expected form: "),
            (br#"{"v":9,"kind":"welcome","body":{}}"#, "version 9"),
            (br#"{"v":1,"kind":"goodbye","body":{}}"#, "goodbye"),
            (b"", "not of the expected form: "),
        ] {
            let received = unpack::<Downward>(place.clone(), Headers::new(), bytes);
            let poison = received.content.unwrap_err();
            assert_eq!((poison.bytes.as_slice(), &received.place), (bytes, &place));
            assert!(poison.error.contains(why), "{}", poison.error);
        }
    }
}
