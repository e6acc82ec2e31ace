//! The parameters of calls that wait: how long, and which status says "not
//! yet" to a caller that polls on one code.

use std::time::Duration;

use http::Uri;
use muster_protocol::caps::WAIT_MS_MAX;
use muster_wire::problem::Problem;
use muster_wire::time::{format_duration, parse_duration};
use serde::{Deserialize, Deserializer, de};

/// How long a call waits that is there to wait and does not say for how long.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(50);

/// How long a call may wait, as in `wait=50s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait(pub Duration);

impl<'de> Deserialize<'de> for Wait {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wait = parse_duration(&text).map_err(|error| de::Error::custom(format!("wait: {error}")))?;
        let limit = Duration::from_millis(WAIT_MS_MAX);
        if wait > limit {
            let limit = format_duration(limit);
            return Err(de::Error::custom(format!(
                "wait: {text} is over the limit of {limit} a call; call again for more"
            )));
        }
        Ok(Self(wait))
    }
}

impl Wait {
    /// How long a call of this path and query may wait, if it is well formed.
    #[must_use]
    pub(crate) fn of(uri: &Uri) -> Duration {
        let named = |pair: &str| pair.strip_prefix("wait=").map(ToOwned::to_owned);
        let named = uri.query().and_then(|query| query.split('&').find_map(named));
        let limit = Duration::from_millis(WAIT_MS_MAX);
        match named {
            Some(text) => parse_duration(&text).map_or(limit, |wait| wait.min(limit)),
            None if uri.path().ends_with("/wait") || uri.query().is_some_and(|query| query.contains("index=")) => {
                WAIT_DEFAULT
            }
            None => Duration::ZERO,
        }
    }
}

/// Which status stands for 408, as in `pending=425`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending(u16);

impl Pending {
    /// Gives the status to a problem that says "not yet"; others keep theirs.
    #[must_use]
    pub fn apply(pending: Option<Self>, mut problem: Problem) -> Problem {
        if let Some(Self(status)) = pending
            && problem.status == 408
        {
            problem.status = status;
        }
        problem
    }
}

impl<'de> Deserialize<'de> for Pending {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "404" => Ok(Self(404)),
            "408" => Ok(Self(408)),
            "425" => Ok(Self(425)),
            "429" => Ok(Self(429)),
            "503" => Ok(Self(503)),
            _ => Err(de::Error::custom(format!("pending: {text:?} is not one of 404, 408, 425, 429, 503"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_wire::code::Code;

    #[test]
    fn how_long_a_call_may_wait_is_in_its_query_or_its_path() {
        for (uri, waits) in [
            ("/v1/barriers/a/b/generations/k/wait", 50),
            ("/v1/wait?any=a/b@1", 50),
            ("/v1/barriers/a/b/generations/k/wait?whole=true&wait=2m", 120),
            ("/v1/barriers/a/b/generations/k?wait=5s&index=3", 5),
            ("/v1/barriers/a/b/generations/k?wait=soon", 600),
            ("/v1/barriers/a/b/generations/k?index=3", 50),
            ("/v1/barriers/a/b", 0),
        ] {
            assert_eq!(Wait::of(&uri.parse().unwrap()).as_secs(), waits, "{uri}");
        }
    }

    fn wait(text: &str) -> Result<Wait, serde_json::Error> {
        serde_json::from_value(text.into())
    }

    #[test]
    fn waits_are_limited() {
        assert_eq!(wait("10m").unwrap().0, Duration::from_secs(600));
        assert!(wait("601s").unwrap_err().to_string().contains("limit of 10m"));
        assert!(wait("soon").unwrap_err().to_string().contains("not a duration"));
    }

    #[test]
    fn only_not_yet_changes_its_status() {
        let pending = serde_json::from_value::<Pending>("425".into()).unwrap();
        let problem = Pending::apply(Some(pending), Problem::new(Code::StillGathering, "3 are missing"));
        assert_eq!(problem.status, 425);
        let problem = Pending::apply(Some(pending), Problem::new(Code::Broken, "it broke"));
        assert_eq!(problem.status, 409);
        assert!(serde_json::from_value::<Pending>("200".into()).is_err(), "a poll must never be told yes");
    }
}
