use std::time::Duration;

use muster_protocol::identity::SessionId;
use muster_protocol::name::RegionName;
use muster_wire::code::Code;
use muster_wire::request::{Drain, DrainOpen, Keep, OpenSession, SessionParticipant, Waive};

use crate::canned::{Canned, Reply};
use crate::session::Pulse;
use crate::{AuditFilter, Client, Session, SessionState, Target};

/// Long enough that only a defect reaches it.
const LONG: Duration = Duration::from_secs(60);

fn opened(ttl_seconds: f64) -> Reply {
    let body = format!(
        r#"{{"session":"{}","ttlSeconds":{ttl_seconds},"heartbeatSeconds":1.0,"participants":[
            {{"barrier":"etl/map","generation":"k","n":7,"id":"17","attempt":3,"done":false}}]}}"#,
        SessionId([7; 16])
    );
    Reply::Http(201, body)
}

fn taken(ttl_seconds: f64) -> Reply {
    Reply::Http(200, format!(r#"{{"session":"{}","ttlSeconds":{ttl_seconds}}}"#, SessionId([7; 16])))
}

fn open() -> OpenSession {
    let one = SessionParticipant {
        barrier: "etl/map".parse().unwrap(),
        generation: Some("k".to_owned()),
        id: "17".parse().unwrap(),
    };
    OpenSession { id: Some(SessionId([7; 16])), participants: vec![one], ..OpenSession::default() }
}

async fn session(servers: &[&Canned]) -> Session {
    let client = Client::new(servers.iter().map(|server| &server.address)).unwrap().patience(LONG);
    client.session(open()).await.unwrap()
}

/// Waits for so many calls.
async fn seen(server: &Canned, count: usize) -> Vec<String> {
    let enough = async {
        while server.calls().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, enough).await.expect("calls");
    server.calls()
}

#[tokio::test]
async fn a_session_is_kept_alive_and_tells_its_progress() {
    let server = Canned::start([opened(1.5), taken(1.5)]).await;
    let session = session(&[&server]).await;
    assert_eq!((session.id(), session.participants()[0].attempt), (SessionId([7; 16]), 3));
    session.tell_progress("half");
    let calls = seen(&server, 3).await;
    let id = SessionId([7; 16]);
    assert_eq!(calls[1], format!(r#"PUT /v1/sessions/{id}/heartbeat {{"progress":"half"}}"#));
    assert_eq!(*session.state().borrow(), SessionState::Alive);
    session.close().await.unwrap();
    assert_eq!(server.calls().last().unwrap(), &format!("DELETE /v1/sessions/{id} "));
    let before = server.calls().len();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(server.calls().len(), before, "a closed session has no pulse");
}

#[tokio::test]
async fn a_lost_answer_opens_the_same_session_again() {
    let server = Canned::start([Reply::HangUp, opened(60.0), taken(60.0)]).await;
    let client = Client::new([&server.address]).unwrap().patience(LONG);
    let session = client.session(OpenSession { id: None, ..open() }).await.unwrap();
    let calls = server.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], calls[1]);
    assert!(calls[0].contains(&session.id().to_string()), "{calls:?}");
}

#[tokio::test]
async fn a_silent_region_is_a_loss_before_the_time_is_up() {
    for trouble in [Reply::HangUp, Reply::Silence, Reply::problem(Code::Unavailable), Reply::Http(200, "hi".into())] {
        let server = Canned::start([opened(1.0), trouble.clone()]).await;
        let started = tokio::time::Instant::now();
        let session = session(&[&server]).await;
        let over = tokio::time::timeout(LONG, session.over()).await.unwrap();
        assert_eq!(over.code, Code::SessionLost, "{trouble:?}");
        assert_eq!(over.code.exit(), 5);
        assert!(over.detail.starts_with("no heartbeat was answered for "), "{over}");
        assert!(started.elapsed() >= Duration::from_millis(900), "{trouble:?}: lost too early");
        assert!(server.calls().len() > 2, "{trouble:?}: a heartbeat is repeated");
        assert!(matches!(&*session.state().borrow(), SessionState::Over(_)));
    }
}

#[tokio::test]
async fn the_time_counts_from_when_the_answered_heartbeat_was_sent() {
    let (_progress, news) = tokio::sync::watch::channel(None);
    let ttl = Duration::from_secs(30);
    let answered = tokio::time::Instant::now() - Duration::from_millis(26_900);
    let client = Client::new([Canned::nobody().await]).unwrap();
    let pulse = Pulse { client, id: SessionId([7; 16]), region: None, ttl, answered, index: 0, progress: news };
    assert!(pulse.end() < answered + ttl, "before the region gives the place away");
    let over = tokio::time::timeout(LONG, pulse.beat()).await.unwrap();
    assert_eq!(over.code, Code::SessionLost);
    assert!(over.detail.contains("answered for 2") && over.detail.contains("of the 30s"), "{over}");
}

#[tokio::test]
async fn a_region_that_ends_a_session_is_believed_at_once() {
    for code in [Code::Fenced, Code::SessionLost] {
        let server = Canned::start([opened(1.5), Reply::problem(code)]).await;
        let over = tokio::time::timeout(LONG, session(&[&server]).await.over()).await.unwrap();
        assert_eq!((over.code, over.detail), (code, format!("this is {code}")));
        assert_eq!(server.calls().len(), 2);
    }
}

#[tokio::test]
async fn any_address_takes_a_heartbeat() {
    let gone = Canned::start([opened(2.0), Reply::problem(Code::Draining)]).await;
    let other = Canned::start([taken(2.0)]).await;
    let session = session(&[&gone, &other]).await;
    assert!(seen(&other, 3).await.iter().all(|call| call.contains("/heartbeat ")));
    assert_eq!(gone.calls().len(), 2, "it stays at the one that answered");
    assert_eq!(*session.state().borrow(), SessionState::Alive);
}

fn status(generation: &str, n: u64, round: u32) -> String {
    format!(
        r#"{{"barrier":"etl/map","generation":"{generation}","n":{n},"round":{round},"state":"broken","reason":"aborted",
        "message":"","expected":1,"arrived":0,"failed":0,"waiting":0,"openedAt":"","deadlineAt":null,"decidedAt":null,
        "index":"","owner":"","next":null,"regions":[],"release":null,"broken":null,"skewSeconds":null,"links":{{}}}}"#
    )
}

#[tokio::test]
async fn overrides_name_one_generation() {
    let overruled = Reply::Http(200, format!(r#"{{"status":{},"changed":true}}"#, status("k", 7, 0)));
    let server = Canned::start([overruled]).await;
    let client = Client::new([&server.address]).unwrap();
    let target: Target = "etl/map@k".parse().unwrap();
    client.abort(&target, "why", true).await.unwrap();
    client.release(&target, "why", false).await.unwrap();
    let waive = Waive { region: "a".parse().unwrap(), participants: Some("[1-3]".into()), reason: "why".into() };
    assert!(client.waive(&target, &waive, false).await.unwrap().changed);
    client.retry(&target, Keep::None, "why", false).await.unwrap();
    let expected = [
        r#"POST /v1/barriers/etl/map/generations/k/abort?dryRun=true {"reason":"why"}"#,
        r#"POST /v1/barriers/etl/map/generations/k/release {"force":true,"reason":"why"}"#,
        r#"POST /v1/barriers/etl/map/generations/k/waive {"region":"a","participants":"[1-3]","reason":"why"}"#,
        r#"POST /v1/barriers/etl/map/generations/k/retry {"keep":"none","reason":"why"}"#,
    ];
    assert_eq!(server.calls(), expected);
}

#[tokio::test]
async fn regions_are_drained_and_audits_are_read() {
    let region = r#"{"name":"a","link":"up","history":null,"index":null,"lastHeardAt":null,"agents":[],
        "drained":{"until":"2026-10-07T00:00:00.000Z","actor":null,"reason":"why"}}"#;
    let row = r#"{"at":"2026-10-07T00:00:00.000Z","action":"drain","barrier":null,"generation":null,"actor":"me",
        "reason":"why","object":"a"}"#;
    let page = format!(r#"{{"items":[{row}],"cursor":"x"}}"#);
    let server = Canned::start([region, region, &page].map(|body| Reply::Http(200, body.to_owned()))).await;
    let client = Client::new([&server.address]).unwrap();
    let a: RegionName = "a".parse().unwrap();
    let drain = Drain { until: "2h".into(), open: DrainOpen::Waive, reason: "why".into() };
    assert!(client.drain_region(&a, &drain).await.unwrap().drained.is_some());
    client.resume_region(&a, "why").await.unwrap();
    let filter = AuditFilter { since: Some("7d".into()), limit: Some(5), ..AuditFilter::default() };
    assert_eq!(client.audit(&filter).await.unwrap()[0].object, "a");
    let expected = [
        r#"POST /v1/regions/a/drain {"until":"2h","open":"waive","reason":"why"}"#,
        r#"POST /v1/regions/a/resume {"reason":"why"}"#,
        "GET /v1/audit?since=7d&limit=5 ",
    ];
    assert_eq!(server.calls(), expected);
}
