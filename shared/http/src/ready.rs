//! `/readyz`: may I be sent traffic? With `?need=global` also what local work
//! can do without for a while; with `?verbose` every check.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use muster_wire::answer::{Check, Ready};
use serde::Deserialize;

/// The parameters of `/readyz`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Print every check.
    pub verbose: Option<String>,
    /// What must be there.
    pub need: Option<Need>,
}

/// What must be there for a yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// What work inside the region needs.
    Local,
    /// Everything.
    Global,
}

/// The answer: 200, or 503 when something that is needed does not answer.
pub fn answer(parameters: &Parameters, checks: Vec<Check>) -> Response {
    let global = parameters.need == Some(Need::Global);
    let ready = checks.iter().all(|check| check.ok || !(check.required || global));
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Whoever gets a no is told why, asked or not.
    let verbose = parameters.verbose.is_some() || !ready;
    let checks = if verbose { checks } else { Vec::new() };
    (status, axum::Json(Ready { ready, checks })).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_local_work_does_not_need_counts_only_when_asked() {
        let checks = || vec![Check { name: "bus".into(), ok: false, required: false, detail: None }];
        assert_eq!(answer(&Parameters::default(), checks()).status(), 200);
        let global = Parameters { need: Some(Need::Global), verbose: None };
        assert_eq!(answer(&global, checks()).status(), 503);
    }
}
