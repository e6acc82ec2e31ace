//! Who may call while there is no access control: programs on this machine,
//! and whoever uses a name that was configured. A web page must not: not with
//! a name of its own that points here (`Host`), not from its own origin.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use muster_wire::code::Code;
use muster_wire::problem::Problem;

use crate::failure::Failure;

/// The names under which a service may be called, beside those of the machine
/// itself (`localhost` and loopback addresses).
#[derive(Clone, Debug, Default)]
pub struct Hosts(Arc<BTreeSet<String>>);

impl Hosts {
    /// Names without a port, or base URLs such as an advertised address.
    pub fn new<I: IntoIterator<Item = S>, S: AsRef<str>>(names: I) -> Self {
        Self(Arc::new(names.into_iter().map(|name| bare(name.as_ref())).collect()))
    }

    fn admit(&self, host: &str) -> bool {
        let host = bare(host);
        let loopback = host == "localhost" || host.ends_with(".localhost");
        loopback || address(&host).is_some_and(|ip| ip.is_loopback()) || self.0.contains(&host)
    }

    /// Why a request with these headers is not served.
    fn refuse(&self, authority: Option<&Authority>, headers: &HeaderMap) -> Option<Problem> {
        let host = match (authority, headers.get(HOST)) {
            (Some(authority), _) => authority.as_str().to_owned(),
            (None, Some(host)) => String::from_utf8_lossy(host.as_bytes()).into_owned(),
            (None, None) => return Some(Problem::new(Code::BadRequest, "the request has no Host header")),
        };
        if !self.admit(&host) {
            return Some(self.foreign_host(&host));
        }
        let origin = headers.get(ORIGIN).map(|origin| String::from_utf8_lossy(origin.as_bytes()).into_owned());
        let fetched = headers.get("sec-fetch-site").map(|site| site.as_bytes());
        match origin {
            Some(origin) if !same_site(&origin, &host) => Some(foreign_page(&origin)),
            None if matches!(fetched, Some(b"cross-site" | b"same-site")) => Some(foreign_page("another site")),
            _ => None,
        }
    }

    fn foreign_host(&self, host: &str) -> Problem {
        let host: String = host.chars().take(160).collect();
        let known: Vec<&str> = self.0.iter().map(String::as_str).collect();
        let known = if known.is_empty() { String::new() } else { format!(", {}", known.join(", ")) };
        Problem::new(Code::Forbidden, format!("this service does not answer to the name {host:?}")).hint(format!(
            "there is no access control yet, so it answers only to localhost, loopback addresses{known}; \
             set `advertise` to the address that callers use"
        ))
    }
}

fn foreign_page(origin: &str) -> Problem {
    let origin: String = origin.chars().take(160).collect();
    Problem::new(Code::Forbidden, format!("requests that a web page of {origin} makes are refused"))
        .hint("there is no access control yet; call from a program, not from a page of another origin")
}

/// `http://` and the very name and port that was called.
fn same_site(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(host))
}

/// A name alone: no scheme, no user, no port, no path, lower case.
fn bare(text: &str) -> String {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let name = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, _)) => inside,
        // More than one colon without brackets is an IPv6 address, not a port.
        None if rest.matches(':').count() > 1 => rest,
        None => rest.split(':').next().unwrap_or_default(),
    };
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn address(host: &str) -> Option<IpAddr> {
    host.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Lets pass what the names admit.
pub(crate) async fn guard(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    match hosts.refuse(request.uri().authority(), request.headers()) {
        Some(problem) => Failure::from(problem).into_response(),
        None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(hosts: &Hosts, host: &str, more: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        for (name, value) in more {
            headers.insert(*name, value.parse().unwrap());
        }
        hosts.refuse(None, &headers).is_none()
    }

    #[test]
    fn only_known_names_are_answered() {
        let hosts = Hosts::new(["http://agent-1.us-east.example:7171"]);
        for good in [
            "localhost:7170",
            "LOCALHOST",
            "127.0.0.1:7170",
            "127.8.8.8",
            "[::1]:7170",
            "[::ffff:127.0.0.1]",
            "agent-1.us-east.example:7171",
            "agent-1.us-east.example.",
        ] {
            assert!(verdict(&hosts, good, &[]), "{good} was refused");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1@evil.example",
            "10.0.0.1",
            "",
            "2130706433",
            "0.0.0.0:7170",
        ] {
            assert!(!verdict(&hosts, bad, &[]), "{bad} was answered");
        }
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let hosts = Hosts::default();
        let host = "localhost:7170";
        assert!(verdict(&hosts, host, &[("origin", "http://localhost:7170")]));
        assert!(verdict(&hosts, host, &[("sec-fetch-site", "none")]));
        for origin in ["http://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:7170", ""] {
            assert!(!verdict(&hosts, host, &[("origin", origin)]), "{origin:?} passed");
        }
        assert!(!verdict(&hosts, host, &[("sec-fetch-site", "cross-site")]));
        let problem = Hosts::default().refuse(None, &HeaderMap::new()).unwrap();
        assert_eq!(problem.code, Code::BadRequest);
    }
}
