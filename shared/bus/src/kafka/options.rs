//! How to reach Kafka, and what to call the topics.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use muster_wire::time::{format_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::BusError;

/// Longest prefix: with `.region.` and the longest region it stays a topic's name.
const PREFIX_CHARACTERS_MAX: usize = 150;

/// Client properties whose values are no secrets and may be shown.
const SHOWN: [&str; 7] = [
    "client.id",
    "client.rack",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
];

/// Beginnings of the client properties that are the operator's to set. All
/// others decide what the bus promises, and are set here.
const FREE: [&str; 8] =
    ["sasl.", "ssl.", "security.", "client.", "broker.address.", "socket.", "reconnect.backoff.", "debug"];

/// How to reach Kafka, and what to call the topics.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct KafkaOptions {
    /// Brokers to ask for the others: `host:port`, by commas.
    pub bootstrap: String,
    /// What the names of topics and of the group begin with. Services that
    /// belong together have the same one.
    pub prefix: String,
    /// Replicas of each topic that is created; without it, the broker's default.
    pub replication: Option<i32>,
    /// How long created topics keep a record, such as `1d`. What was missed for
    /// longer is said again, so this costs no correctness.
    #[serde(serialize_with = "write_duration", deserialize_with = "read_duration")]
    pub retention: Duration,
    /// Further properties of the client, for security and sockets: `sasl.*`,
    /// `ssl.*`, `security.protocol`, `client.id` and the like. Values that may
    /// be secret are neither shown nor serialized.
    #[serde(serialize_with = "write_properties")]
    pub properties: BTreeMap<String, String>,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        Self {
            bootstrap: "127.0.0.1:9092".to_owned(),
            prefix: "muster".to_owned(),
            replication: None,
            retention: Duration::from_secs(86_400),
            properties: BTreeMap::new(),
        }
    }
}

impl fmt::Debug for KafkaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaOptions")
            .field("bootstrap", &self.bootstrap)
            .field("prefix", &self.prefix)
            .field("replication", &self.replication)
            .field("retention", &self.retention)
            .field("properties", &shown(&self.properties))
            .finish()
    }
}

impl KafkaOptions {
    /// Refuses what can't be right, before anything is connected.
    pub(super) fn check(&self) -> Result<(), BusError> {
        let refuse = |what: String| Err(BusError::Misconfigured { what });
        if self.bootstrap.trim().is_empty() {
            return refuse("no broker is given; set bootstrap to host:port of a Kafka broker".to_owned());
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let length = self.prefix.chars().count();
        if length == 0 || length > PREFIX_CHARACTERS_MAX || !self.prefix.chars().all(legal) {
            let prefix: String = self.prefix.chars().take(40).collect();
            return refuse(format!(
                "{prefix:?} can't begin a topic's name; write 1 to {PREFIX_CHARACTERS_MAX} of A-Z a-z 0-9 . _ -"
            ));
        }
        if self.replication.is_some_and(|replicas| !(1..=i32::from(i16::MAX)).contains(&replicas)) {
            return refuse("replication must be at least 1; leave it out for the broker's default".to_owned());
        }
        if self.retention < Duration::from_secs(60) {
            return refuse("retention must be at least 1m, or records go before they are read".to_owned());
        }
        match self.properties.keys().find(|key| !FREE.iter().any(|free| key.starts_with(free))) {
            Some(key) => refuse(format!(
                "the client property {key} can't be set here, since what the bus promises may depend on it; \
                 those that begin with {} can",
                FREE.join(", ")
            )),
            None => Ok(()),
        }
    }
}

fn shown(properties: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    properties
        .iter()
        .map(|(key, value)| (key.as_str(), if SHOWN.contains(&key.as_str()) { value.as_str() } else { "***" }))
        .collect()
}

fn write_properties<S: Serializer>(properties: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(shown(properties))
}

fn write_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(*duration))
}

fn read_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut KafkaOptions)) -> String {
        let mut options = KafkaOptions::default();
        change(&mut options);
        options.check().unwrap_err().to_string()
    }

    #[test]
    fn options_have_defaults_and_refuse_what_they_do_not_know() {
        let options: KafkaOptions = serde_json::from_str("{}").unwrap();
        assert_eq!(options, KafkaOptions::default());
        options.check().unwrap();
        let options: KafkaOptions = serde_json::from_str(r#"{"bootstrap":"k:1","retention":"2h"}"#).unwrap();
        assert_eq!((options.bootstrap.as_str(), options.retention), ("k:1", Duration::from_secs(7_200)));
        let error = serde_json::from_str::<KafkaOptions>(r#"{"bootstrp":"k:1"}"#).unwrap_err();
        assert!(error.to_string().contains("bootstrp"), "{error}");
        assert!(serde_json::from_str::<KafkaOptions>(r#"{"retention":"long"}"#).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut options = KafkaOptions::default();
        for key in ["sasl.password", "ssl.key.password", "ssl.key.pem"] {
            options.properties.insert(key.to_owned(), "hunter2".to_owned());
        }
        options.properties.insert("sasl.username".to_owned(), "muster".to_owned());
        for text in [format!("{options:?}"), serde_json::to_string(&options).unwrap()] {
            assert!(!text.contains("hunter2") && text.contains("sasl.password"), "{text}");
            assert!(text.contains(r#""sasl.username""#) && text.contains(r#""muster""#), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_right_is_refused_with_what_to_do() {
        for (text, expected) in [
            (refusal(|options| options.bootstrap = " ".to_owned()), "set bootstrap"),
            (refusal(|options| options.prefix = "a/b".to_owned()), "\"a/b\" can't begin a topic's name"),
            (refusal(|options| options.prefix = String::new()), "write 1 to 150"),
            (refusal(|options| options.replication = Some(0)), "at least 1"),
            (refusal(|options| options.retention = Duration::from_secs(1)), "at least 1m"),
            (refusal(|options| drop(options.properties.insert("acks".to_owned(), "0".to_owned()))), "property acks"),
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }
}
