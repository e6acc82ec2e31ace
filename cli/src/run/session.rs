//! The session that `muster run` works under: whoever falls silent is lost, and
//! of two that work for one participant the later wins.

use std::time::Duration;

use muster_client::{Client, Error, Session, Target};
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use muster_wire::request::{OpenSession, SessionParticipant};

use crate::failure::Failure;
use crate::participant::Participant;

/// How long a service that does not know sessions may take to say so.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the end of a session may take; else it falls silent by itself.
const CLOSE: Duration = Duration::from_secs(2);

/// Opens a session for one participant; `None` where there can be none, which
/// is told.
pub(super) async fn open(
    client: &Client,
    target: &Target,
    participant: &Participant,
) -> Result<Option<Session>, Failure> {
    let work = SessionParticipant {
        barrier: target.barrier.clone(),
        generation: target.generation.as_ref().map(ToString::to_string),
        id: participant.id.clone(),
    };
    let open = OpenSession {
        // The same both times, so that nothing is opened twice.
        id: Some(Session::new_id()),
        ttl: None,
        participants: vec![work],
        region: participant.region.clone(),
    };
    let mut opened = client.clone().patience(PATIENCE).session(open.clone()).await;
    if let Err(Error::Unreachable { last, .. } | Error::Unknown { last, .. }) = &opened
        && !last.as_deref().is_some_and(knows_no_sessions)
    {
        // A region that only changes its leader is waited for as by an arrival.
        opened = client.session(open).await;
    }
    match opened {
        Ok(session) => Ok(Some(session)),
        // Who comes after the release works for nobody, and is told on arrival.
        Err(error) if error.is(Code::AlreadyDecided) => Ok(None),
        Err(error) if error.problem().is_some_and(knows_no_sessions) => {
            eprintln!("muster: nobody watches {} while it works: {error}", participant.id);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Services of another age: an agent without sessions has no such path, and a
/// region in which one of several has none refuses them.
fn knows_no_sessions(problem: &Problem) -> bool {
    match problem.code {
        Code::NotFound | Code::MethodNotAllowed => true,
        Code::Unavailable => problem.detail.contains("version that knows sessions"),
        _ => false,
    }
}

/// Ends a session: a participant that has not arrived is missing again, not
/// lost.
pub(super) async fn close(session: Session) {
    match tokio::time::timeout(CLOSE, session.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "close a session"),
        Err(_) => tracing::debug!("the session falls silent by itself"),
    }
}

/// Waits until the session is over; for ever when there is none.
pub(super) async fn over(session: Option<&Session>) -> Problem {
    match session {
        Some(session) => session.over().await,
        None => std::future::pending().await,
    }
}

/// Whether an arrival counts only while its session lives. Who can't say is
/// taken to mean it: a false alarm runs again, and finds itself arrived.
pub(super) async fn arrival_needs_it(client: &Client, target: &Target) -> bool {
    let definition = client.clone().patience(PATIENCE).barrier(&target.barrier).await;
    definition.map_or(true, |barrier| barrier.effective["keepArrivals"] != true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_another_age_are_told_from_services_that_are_away() {
        let said = |code, detail: &str| knows_no_sessions(&Problem::new(code, detail));
        assert!(said(Code::NotFound, "there is nothing at this path"));
        assert!(said(Code::Unavailable, "not every agent of us-east runs a version that knows sessions"));
        assert!(!said(Code::Unavailable, "the region's log did not answer in time; nothing was done"));
        assert!(!said(Code::NotDefined, "etl/map is not defined"));
    }
}
