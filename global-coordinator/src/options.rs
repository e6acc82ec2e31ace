//! What a coordinator can be told. Unknown keys are refused; secrets are never
//! printed.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use muster_protocol::name::RegionName;
use serde::{Deserialize, Serialize, Serializer};

/// Everything a coordinator can be told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Where it listens for HTTP.
    pub listen: SocketAddr,
    /// Listen on addresses that other machines reach. There is no access
    /// control: whoever reaches it may do everything.
    pub allow_remote: bool,
    /// The address that agents and people call it by, such as
    /// `http://coordinator.example:7170`. Empty: only by names of this machine.
    pub advertise: String,
    /// Regions to declare at the start.
    pub regions: Vec<RegionName>,
    /// Where the truth of the world is kept.
    pub store: StoreOptions,
    /// The bus to the regions.
    #[cfg(feature = "kafka")]
    pub kafka: muster_bus::kafka::KafkaOptions,
    /// Logs and traces.
    pub telemetry: TelemetryOptions,
    /// HTTP connections at once; callers over it are told `busy`.
    pub connections_max: usize,
    /// Calls that wait at once; more are told `busy`.
    pub waits_max: usize,
    /// Seconds that calls may go on after the stop began.
    pub shutdown_deadline_seconds: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7170)),
            allow_remote: false,
            advertise: String::new(),
            regions: Vec::new(),
            store: StoreOptions::default(),
            #[cfg(feature = "kafka")]
            kafka: muster_bus::kafka::KafkaOptions::default(),
            telemetry: TelemetryOptions::default(),
            connections_max: 20_000,
            waits_max: 100_000,
            shutdown_deadline_seconds: 10,
        }
    }
}

/// Where the truth of the world is kept: Postgres, or embedded in a file. A
/// coordinator that is told neither does not start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreOptions {
    /// Postgres, such as `postgres://muster@127.0.0.1:5432/muster`.
    pub postgres: Option<PostgresUrl>,
    /// The file of the embedded store.
    pub path: Option<PathBuf>,
}

/// Logs and traces.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryOptions {
    /// Base address of an OTLP/HTTP receiver, such as `http://127.0.0.1:4318`.
    pub otlp_endpoint: Option<String>,
    /// Part of new traces to record, 0 to 1.
    pub sample_ratio: Option<f64>,
}

/// A Postgres URL, which may hold a password: it prints without.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// A URL as it was configured.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The URL with its password, for the driver alone.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Parameters may hold a password too, so none of them is printed.
        let (address, parameters) = self.0.split_once('?').map_or((self.0.as_str(), ""), |(a, _)| (a, "?…"));
        let Some((scheme, rest)) = address.split_once("://") else { return f.write_str("…") };
        match rest.rsplit_once('@') {
            Some((user, host)) => {
                let (user, password) = user.split_once(':').map_or((user, ""), |(user, _)| (user, ":…"));
                write!(f, "{scheme}://{user}{password}@{host}{parameters}")
            }
            None => write!(f, "{scheme}://{rest}{parameters}"),
        }
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for PostgresUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_listen_on_this_machine_alone() {
        let options: Options = serde_json::from_str("{}").unwrap();
        assert_eq!(options.listen.to_string(), "127.0.0.1:7170");
        assert!(!options.allow_remote);
    }

    #[test]
    fn unknown_keys_are_refused_at_every_depth() {
        for text in [r#"{"listne": "127.0.0.1:1"}"#, r#"{"store": {"postgre": ""}}"#, r#"{"kafka": {"brokers": ""}}"#] {
            let error = serde_json::from_str::<Options>(text).unwrap_err().to_string();
            assert!(error.contains("unknown field"), "{text}: {error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        for url in [
            "postgres://muster:s3cret@db:5432/muster",
            "postgres://muster:s3cr:s3cret@db/muster?sslmode=require",
            "postgres://db/muster?password=s3cret",
            "postgres://muster:p@s3cret@db/muster",
            "host=db password=s3cret",
        ] {
            let store = StoreOptions { postgres: Some(PostgresUrl::new(url)), path: None };
            let printed = format!("{store:?} {}", serde_json::to_string(&store).unwrap());
            assert!(!printed.contains("s3c"), "{printed}");
        }
        assert_eq!(PostgresUrl::new("postgres://muster:x@db/m").to_string(), "postgres://muster:…@db/m");
    }
}
