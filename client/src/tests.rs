use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_wire::code::Code;
use muster_wire::request::Arrival;
use tokio::time::Instant;

use crate::canned::{Canned, Reply};
use crate::{Apply, Client, Error, Target, Waiting};

/// Long enough that only a defect reaches it.
const LONG: Duration = Duration::from_secs(60);

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(300))
}

fn client(servers: &[&Canned]) -> Client {
    Client::new(servers.iter().map(|server| &server.address)).unwrap().patience(LONG)
}

fn target() -> Target {
    "etl/map@7".parse().unwrap()
}

fn arrival() -> Arrival {
    Arrival { attempt: Some(2), ..Arrival::default() }
}

#[tokio::test]
async fn a_refused_connection_leads_to_the_next_address() {
    let server = Canned::start([Reply::released("released")]).await;
    let client = Client::new([Canned::nobody().await, server.address.clone()]).unwrap();
    assert_eq!(client.wait(&target(), None).await.unwrap().n, 7);
    // And it stays there.
    client.wait(&target(), None).await.unwrap();
    assert_eq!(server.calls(), vec!["GET /v1/barriers/etl/map/generations/7/wait?wait=50000ms "; 2]);
}

#[tokio::test]
async fn draining_and_busy_services_are_asked_again() {
    let draining = Canned::start([Reply::problem(Code::Draining)]).await;
    let busy =
        Canned::start([Reply::problem(Code::Busy), Reply::problem(Code::Behind), Reply::released("releasing")]).await;
    let troubles = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&troubles);
    let client = client(&[&draining, &busy]).on_trouble(move |trouble| seen.lock().unwrap().push(trouble.why.clone()));
    client.wait(&target(), None).await.unwrap();
    assert_eq!(busy.calls().len(), 3);
    assert!(draining.calls().len() >= 2, "each address has its turn");
    assert!(troubles.lock().unwrap()[0].starts_with("draining"));
}

#[tokio::test]
async fn not_yet_is_the_same_call_again() {
    let script = [Reply::problem(Code::NotOpenYet), Reply::problem(Code::StillGathering), Reply::released("released")];
    let server = Canned::start(script).await;
    client(&[&server]).wait(&target(), None).await.unwrap();
    assert_eq!(server.calls().len(), 3);
    assert!(server.calls().iter().all(|call| call == &server.calls()[0]));
}

#[tokio::test]
async fn time_that_is_up_is_told_with_the_last_answer() {
    let server = Canned::start([Reply::problem(Code::StillGathering)]).await;
    let error = client(&[&server]).wait(&target(), soon()).await.unwrap_err();
    assert!(matches!(&error, Error::TimedOut { last: Some(problem) } if problem.code == Code::StillGathering));
    assert_eq!(error.exit_code(), 124);
    // No time at all still asks once.
    let error = client(&[&server]).wait(&target(), Some(Instant::now())).await.unwrap_err();
    assert_eq!(error.exit_code(), 124);
    assert!(server.calls().last().unwrap().contains("wait=0ms"));
}

#[tokio::test]
async fn a_broken_generation_is_final() {
    let server = Canned::start([Reply::problem(Code::Broken)]).await;
    let error = client(&[&server]).wait(&target(), None).await.unwrap_err();
    assert!(error.is(Code::Broken));
    assert_eq!(error.exit_code(), 3);
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn only_a_release_is_a_release() {
    let impostors = [
        Reply::Http(200, String::new()),
        Reply::Http(200, "<html>welcome to this airport</html>".to_owned()),
        Reply::Http(200, "{}".to_owned()),
        Reply::Http(204, String::new()),
        Reply::Http(302, String::new()),
        Reply::Http(404, "not here".to_owned()),
        Reply::released("gathering"),
        Reply::released("broken"),
        match (Reply::released("released"), Reply::problem(Code::Broken)) {
            (Reply::Http(_, body), _) => Reply::Http(201, body),
            _ => unreachable!(),
        },
        match Reply::problem(Code::Broken) {
            Reply::Http(_, body) => Reply::Http(200, body),
            _ => unreachable!(),
        },
    ];
    for impostor in impostors {
        let server = Canned::start([impostor.clone()]).await;
        let client = client(&[&server]).patience(Duration::from_millis(100));
        for outcome in [
            client.wait(&target(), None).await,
            client.arrive_and_wait(&target(), &"1".parse().unwrap(), &arrival(), None).await,
        ] {
            let error = outcome.expect_err(&format!("{impostor:?} passed for a release"));
            assert_eq!(error.exit_code(), 75, "{impostor:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_the_same_call_again() {
    let server = Canned::start([Reply::HangUp, Reply::problem(Code::OutcomeUnknown), Reply::arrived()]).await;
    let arrived = client(&[&server]).arrive(&target(), &"1".parse().unwrap(), &arrival()).await.unwrap();
    assert!(arrived.first);
    assert_eq!(server.calls(), vec![r#"PUT /v1/barriers/etl/map/generations/7/arrivals/1 {"attempt":2}"#; 3]);
}

#[tokio::test]
async fn what_may_have_been_done_is_told_as_unknown() {
    let lost = Canned::start([Reply::HangUp]).await;
    let hurried = client(&[&lost]).patience(Duration::from_millis(200));
    let error = hurried.arrive(&target(), &"1".parse().unwrap(), &arrival()).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    assert_eq!(error.exit_code(), 75);
    // A read that was lost did nothing.
    let error = hurried.status(&target(), None).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    // Neither did a call that was never sent, or that was refused for now.
    for script in [Reply::problem(Code::Behind), Reply::problem(Code::StorageFull)] {
        let server = Canned::start([script]).await;
        let client = client(&[&server]).patience(Duration::from_millis(200));
        let error = client.arrive(&target(), &"1".parse().unwrap(), &arrival()).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { last: Some(_), .. }), "{error:?}");
        assert!(error.to_string().starts_with("not done: this is "), "{error}");
    }
    let nobody = Client::new([Canned::nobody().await]).unwrap().patience(Duration::from_millis(200));
    let error = nobody.arrive(&target(), &"1".parse().unwrap(), &arrival()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { why, .. } if why.contains("refused")), "{error:?}");
    assert!(error.to_string().contains("can't be reached: Connection refused"), "{error}");
}

#[tokio::test]
async fn a_refusal_that_the_lost_call_may_have_caused_is_unknown() {
    let server = Canned::start([Reply::HangUp, Reply::problem(Code::Precondition)]).await;
    let how = Apply { if_match: Some(3), ..Apply::default() };
    let error = client(&[&server]).apply(&target().barrier, "{}", how).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    let server = Canned::start([Reply::problem(Code::Precondition)]).await;
    let error = client(&[&server]).apply(&target().barrier, "{}", how).await.unwrap_err();
    assert!(error.is(Code::Precondition));
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let server = Canned::start([Reply::Silence]).await;
    let error = client(&[&server]).wait(&target(), Some(Instant::now())).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { why, .. } if why.contains("no answer within")), "{error:?}");
}

#[tokio::test]
async fn a_definition_that_does_not_exist_yet_can_be_awaited() {
    let script =
        [Reply::problem(Code::NotDefined), Reply::problem(Code::NoSuchGeneration), Reply::released("released")];
    let server = Canned::start(script).await;
    let patient = Waiting { until: None, await_definition: true };
    client(&[&server]).wait_as(&target(), patient).await.unwrap();
    let server = Canned::start([Reply::problem(Code::NotDefined)]).await;
    let error = client(&[&server]).wait_as(&target(), Waiting::default()).await.unwrap_err();
    assert!(error.is(Code::NotDefined));
    let hurried = Waiting { until: soon(), await_definition: true };
    assert_eq!(client(&[&server]).wait_as(&target(), hurried).await.unwrap_err().exit_code(), 124);
}

#[tokio::test]
async fn any_needs_one_and_all_needs_all() {
    let script = [Reply::problem(Code::Broken), Reply::released("released")];
    let targets = [target(), target()];
    let server = Canned::start(script.clone()).await;
    client(&[&server]).wait_any(&targets, Waiting::default()).await.unwrap();
    let server = Canned::start(script).await;
    let error = client(&[&server]).wait_all(&targets, Waiting::default()).await.unwrap_err();
    assert!(error.is(Code::Broken));
    let server = Canned::start([Reply::problem(Code::Broken)]).await;
    assert_eq!(client(&[&server]).wait_any(&targets, Waiting::default()).await.unwrap_err().exit_code(), 3);
}

#[tokio::test]
async fn lists_are_read_to_their_last_page() {
    let page = |name: &str, cursor: &str| {
        let region =
            format!(r#"{{"name":"{name}","link":"up","history":null,"index":null,"lastHeardAt":null,"agents":[]}}"#);
        Reply::Http(200, format!(r#"{{"items":[{region}]{cursor}}}"#))
    };
    let server = Canned::start([page("a", r#","cursor":"x y""#), page("b", "")]).await;
    let regions = client(&[&server]).regions().await.unwrap();
    assert_eq!(regions.iter().map(|region| region.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(server.calls()[1], "GET /v1/regions?cursor=x+y ");
}

#[tokio::test]
async fn readiness_is_an_answer_also_when_it_is_no() {
    let server = Canned::start([Reply::Http(503, r#"{"ready":false,"checks":[]}"#.to_owned())]).await;
    assert!(!client(&[&server]).ready(true).await.unwrap().ready);
    assert_eq!(server.calls(), ["GET /readyz?verbose=true&need=global "]);
}

#[tokio::test]
async fn a_batch_must_be_answered_in_full() {
    let server = Canned::start([Reply::Http(200, r#"{"arrivals":[]}"#.to_owned())]).await;
    let client = client(&[&server]).patience(Duration::from_millis(100));
    let one = serde_json::from_str(r#"{"participant":"1"}"#).unwrap();
    let error = client.arrive_all(&target(), vec![one]).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
}

fn barrier(generations: &str) -> Reply {
    let body = format!(
        r#"{{"name":"etl/map","revision":1,"spec":{{}},"effective":{{"generations":"{generations}"}},"gathering":1}}"#
    );
    Reply::Http(200, body)
}

#[tokio::test]
async fn a_barrier_alone_means_its_only_generation() {
    let status = r#"{"barrier":"etl/map","generation":"3","n":3,"round":0,"state":"gathering","reason":"idle","message":"",
        "expected":1,"arrived":0,"failed":0,"waiting":0,"openedAt":"","deadlineAt":null,"decidedAt":null,"index":"","owner":"",
        "next":null,"regions":[],"release":null,"broken":null,"skewSeconds":null,"links":{}}"#;
    let script = [barrier("single"), Reply::Http(200, status.to_owned()), Reply::released("released")];
    let server = Canned::start(script).await;
    client(&[&server]).wait(&"etl/map".parse().unwrap(), None).await.unwrap();
    assert_eq!(server.calls()[2], "GET /v1/barriers/etl/map/generations/3/wait?wait=50000ms ");
}

#[tokio::test]
async fn a_barrier_of_many_generations_is_asked_which() {
    let row = |id: &str, state: &str| {
        format!(
            r#"{{"barrier":"etl/map","generation":"{id}","n":1,"state":"{state}","reason":"idle","arrived":0,"expected":1,
            "openedAt":"","deadlineAt":null,"decidedAt":null}}"#
        )
    };
    let rows = format!(r#"{{"items":[{},{}]}}"#, row("b", "gathering"), row("a", "released"));
    let server = Canned::start([barrier("keyed"), Reply::Http(200, rows)]).await;
    let bare: Target = "etl/map".parse().unwrap();
    let error = client(&[&server]).arrive(&bare, &"1".parse().unwrap(), &arrival()).await.unwrap_err();
    assert!(error.is(Code::GenerationRequired));
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("etl/map@b"), "{error}");
}
