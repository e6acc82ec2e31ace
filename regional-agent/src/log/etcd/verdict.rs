//! What an error of etcd says of the request: in one place, because a request
//! wrongly held for refused is done twice or lost.

use std::time::Duration;

use etcd_client::Error;

use crate::log::LogError;

/// What a failed request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Not carried out, for want of room.
    Full,
    /// Not carried out, for another reason.
    Refused,
    /// A revision that was asked for is compacted; nothing was carried out.
    Compacted,
    /// Carried out or not.
    Unknown,
}

/// One failed try at one member.
#[derive(Debug, thiserror::Error)]
pub(super) enum EtcdError {
    #[error("etcd at {url} gave an error")]
    Answered {
        url: String,
        #[source]
        source: Error,
    },
    #[error("etcd at {url} did not answer within {after:?}")]
    Silent { url: String, after: Duration },
    #[error("etcd at {url} ended a stream")]
    Ended { url: String },
    #[error("etcd at {url} cancelled the watch: {reason}")]
    Cancelled { url: String, reason: String },
}

/// A request that failed, after all its tries.
#[derive(Debug)]
pub(super) struct CallError {
    pub(super) what: &'static str,
    pub(super) error: EtcdError,
    /// Of the last try.
    pub(super) verdict: Verdict,
    /// Whether any try may have been carried out.
    pub(super) doubt: bool,
}

impl From<CallError> for LogError {
    fn from(error: CallError) -> Self {
        Self::Unavailable { what: error.what, source: Box::new(error.error) }
    }
}

// The numbers of gRPC's status codes.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;

impl Verdict {
    pub(super) fn of(error: &EtcdError) -> Self {
        match error {
            EtcdError::Answered { source: Error::GRpcStatus(status), .. } => {
                Self::of_status(status.code().into(), status.message())
            }
            EtcdError::Answered { source: Error::InvalidArgs(_) | Error::InvalidUri(_), .. } => Self::Refused,
            _ => Self::Unknown,
        }
    }

    /// Only etcd's own words are taken for a refusal: a proxy, or the HTTP/2
    /// layer below, gives the same codes to requests that were carried out.
    /// Both its refusals for too much load come before a request is proposed.
    fn of_status(code: i32, message: &str) -> Self {
        if !message.starts_with("etcdserver: ") {
            return Self::Unknown;
        }
        match code {
            RESOURCE_EXHAUSTED if message.contains("space exceeded") => Self::Full,
            OUT_OF_RANGE if message.contains("compacted") => Self::Compacted,
            INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | RESOURCE_EXHAUSTED | FAILED_PRECONDITION
            | UNAUTHENTICATED => Self::Refused,
            _ => Self::Unknown,
        }
    }
}

/// Whether etcd says that the lease of a request does not exist.
pub(super) fn is_lease_gone(error: &EtcdError) -> bool {
    match error {
        EtcdError::Answered { source: Error::GRpcStatus(status), .. } => {
            i32::from(status.code()) == NOT_FOUND && status.message().contains("lease not found")
        }
        // What the client makes of a first keep-alive answered with no time to live.
        EtcdError::Answered { source: Error::LeaseKeepAliveError(text), .. } => text == "lease not found",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_told_apart() {
        for (code, message, verdict) in [
            (8, "etcdserver: mvcc: database space exceeded", Verdict::Full),
            (8, "etcdserver: too many requests", Verdict::Refused),
            (8, "h2 protocol error: too_many_pings", Verdict::Unknown),
            (3, "etcdserver: request is too large", Verdict::Refused),
            (7, "etcdserver: permission denied", Verdict::Refused),
            (16, "etcdserver: invalid auth token", Verdict::Refused),
            (9, "etcdserver: authentication is not enabled", Verdict::Refused),
            (5, "etcdserver: requested lease not found", Verdict::Refused),
            (7, "a proxy says no", Verdict::Unknown),
            (11, "etcdserver: mvcc: required revision has been compacted", Verdict::Compacted),
            (11, "Error, decoded message length too large", Verdict::Unknown),
            (11, "etcdserver: mvcc: required revision is a future revision", Verdict::Unknown),
            (14, "etcdserver: request timed out", Verdict::Unknown),
            (14, "etcdserver: leader changed", Verdict::Unknown),
            (14, "etcdserver: no leader", Verdict::Unknown),
            (4, "context deadline exceeded", Verdict::Unknown),
            (1, "context canceled", Verdict::Unknown),
            (2, "transport error", Verdict::Unknown),
        ] {
            assert_eq!(Verdict::of_status(code, message), verdict, "{code} {message}");
        }
    }

    #[test]
    fn silence_and_an_end_say_nothing() {
        let url = "http://127.0.0.1:1".to_owned();
        assert_eq!(Verdict::of(&EtcdError::Ended { url: url.clone() }), Verdict::Unknown);
        assert_eq!(Verdict::of(&EtcdError::Silent { url, after: Duration::from_secs(1) }), Verdict::Unknown);
    }
}
