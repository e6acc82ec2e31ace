//! The server as callers see it, over real sockets.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post, put};
use http::StatusCode;
use muster_wire::answer::Version;
use muster_wire::code::Code;
use muster_wire::problem::Problem;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Answer, BarrierPath, Call, Failure, Forwarder, Json, Options, Query, poll, routes, serve};

/// No step of these tests takes this long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

struct Server {
    base: String,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(router: Router, options: Options, shutdown: CancellationToken) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(serve(listener, router, options, shutdown.clone()));
        Self { base, shutdown, serving }
    }

    async fn of(router: Router) -> Self {
        Self::start(router, Options::default(), CancellationToken::new()).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.base.trim_start_matches("http://")).await.unwrap()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.serving).await.unwrap().unwrap();
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap()
}

async fn problem(response: reqwest::Response) -> Problem {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let status = response.status().as_u16();
    let problem: Problem = response.json().await.unwrap();
    assert_eq!(problem.status, status);
    problem
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Waiting {
    wait: Option<poll::Wait>,
}

fn routes_for_tests() -> Router {
    let version = Version { service: "test".into(), version: "0".into(), machine_version: 1 };
    Router::new()
        .route("/note", put(|Json(note): Json<Note>| async move { note.note.unwrap_or_else(|| "none".into()) }))
        .route("/wait", get(|Query(q): Query<Waiting>| async move { format!("{:?}", q.wait.map(|wait| wait.0)) }))
        .route("/b/{namespace}/{name}", get(|BarrierPath(name): BarrierPath| async move { name.to_string() }))
        .route("/panic", get(panics))
        .merge(routes::common(version))
}

async fn panics() -> StatusCode {
    panic!("on purpose")
}

#[tokio::test]
async fn what_cannot_be_served_is_a_problem_document() {
    let server = Server::of(routes_for_tests()).await;
    let client = client();
    assert_eq!(problem(client.get(server.url("/nowhere")).send().await.unwrap()).await.code, Code::NotFound);
    let response = client.delete(server.url("/note")).send().await.unwrap();
    assert!(response.headers().contains_key("allow"));
    assert_eq!(problem(response).await.code, Code::MethodNotAllowed);
    for path in ["/b/etl/Map", "/b/etl/a%2Fb", "/b/..%2Fetl/map", "/b/etl/%FF"] {
        let response = client.get(server.url(path)).send().await.unwrap();
        assert_eq!(problem(response).await.code, Code::InvalidName, "{path}");
    }
    assert_eq!(client.get(server.url("/b/etl/m%61p")).send().await.unwrap().text().await.unwrap(), "etl/map");
    let foreign = client.get(server.url("/livez")).header("host", "evil.example").send().await.unwrap();
    assert_eq!(problem(foreign).await.code, Code::Forbidden);
    let page = client.get(server.url("/livez")).header("origin", "http://evil.example").send().await.unwrap();
    assert_eq!(problem(page).await.code, Code::Forbidden);
    server.stop().await;
}

#[tokio::test]
async fn bodies_are_read_or_refused_with_their_place() {
    let server = Server::of(routes_for_tests()).await;
    let client = client();
    let put = |body: Vec<u8>| {
        let request = client.put(server.url("/note")).header("content-type", "application/x-www-form-urlencoded");
        request.body(body).send()
    };
    assert_eq!(client.put(server.url("/note")).send().await.unwrap().text().await.unwrap(), "none");
    assert_eq!(put(b"{\"note\": \"x\"}".to_vec()).await.unwrap().text().await.unwrap(), "x");
    let unknown = problem(put(b"{\"nota\": 1}".to_vec()).await.unwrap()).await;
    assert_eq!(unknown.code, Code::BadRequest);
    assert!(unknown.detail.contains("`nota`") && unknown.detail.contains("`note`"), "{}", unknown.detail);
    let malformed = problem(put(b"{\n \"note\": x}".to_vec()).await.unwrap()).await;
    assert!(malformed.detail.contains("line 2 column"), "{}", malformed.detail);
    assert_eq!(problem(put(b"\xff\xfe".to_vec()).await.unwrap()).await.code, Code::BadRequest);
    let large = problem(put(vec![b' '; 64 * 1024 + 1]).await.unwrap()).await;
    assert_eq!(large.code, Code::TooLarge);
    assert!(large.detail.contains("65536"), "{}", large.detail);
    server.stop().await;
}

#[tokio::test]
async fn a_body_without_a_length_is_limited_too() {
    let server = Server::of(routes_for_tests()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"PUT /note HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    let chunk = [b"8000\r\n".as_slice(), &[b' '; 0x8000], b"\r\n"].concat();
    for _ in 0..3 {
        // The server may close after it has refused.
        let _ = stream.write_all(&chunk).await;
    }
    let _ = stream.write_all(b"0\r\n\r\n").await;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    server.stop().await;
}

#[tokio::test]
async fn unknown_parameters_are_refused_with_the_known() {
    let server = Server::of(routes_for_tests()).await;
    let client = client();
    for (query, says) in [("wiat=5s", "`wait`"), ("wait=5", "not a duration"), ("wait=11m", "limit of 10m")] {
        let refused = problem(client.get(server.url(&format!("/wait?{query}"))).send().await.unwrap()).await;
        assert_eq!(refused.code, Code::BadRequest);
        assert!(refused.detail.contains(says), "{query}: {}", refused.detail);
    }
    let taken = client.get(server.url("/wait?wait=1m")).send().await.unwrap().text().await.unwrap();
    assert_eq!(taken, "Some(60s)");
    server.stop().await;
}

/// Reads one response of a kept connection: its status line, its body dropped.
async fn status_line(stream: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(seen).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    head.lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn a_panic_ends_its_request_alone() {
    let server = Server::of(routes_for_tests()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /panic HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(status_line(&mut stream).await.contains("500"));
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(status_line(&mut stream).await.contains("200"), "the connection must live on");
    let metrics = client().get(server.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("route=\"/panic\",status=\"500\""), "{metrics}");
    server.stop().await;
}

#[tokio::test]
async fn http_2_is_spoken_without_tls() {
    let server = Server::of(routes_for_tests()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4, "a SETTINGS frame answers");
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn callers_over_the_bound_are_told() {
    let options = Options { connections_max: 1, ..Options::default() };
    let server = Server::start(routes_for_tests(), options, CancellationToken::new()).await;
    let mut first = server.connect().await;
    first.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(status_line(&mut first).await.contains("200"));
    let refused = client().get(server.url("/livez")).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(problem(refused).await.code, Code::Busy);
    drop(first);
    // Room comes back when the first is gone.
    tokio::time::timeout(DEADLINE, async {
        while !client().get(server.url("/livez")).send().await.unwrap().status().is_success() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    server.stop().await;
}

#[tokio::test]
async fn requests_over_the_bound_are_told_and_waits_leave_room_for_others() {
    let entered = Arc::new(Notify::new());
    let for_ever = |State(entered): State<Arc<Notify>>| async move {
        entered.notify_one();
        std::future::pending::<StatusCode>().await
    };
    let router = Router::new().route("/b/etl/map/wait", get(for_ever)).route("/slow", get(for_ever));
    let router = routes_for_tests().merge(router.with_state(Arc::clone(&entered)));
    let options = Options { waits_max: 1, requests_max: 1, ..Options::default() };
    let server = Server::start(router, options, CancellationToken::new()).await;
    let get = |path: &str| client().get(server.url(path)).send();
    let waiting = tokio::spawn(get("/b/etl/map/wait"));
    entered.notified().await;
    for path in ["/b/etl/map/wait", "/note?a=b&wait=5s"] {
        let refused = get(path).await.unwrap();
        assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
        assert_eq!(problem(refused).await.code, Code::Busy, "{path}");
    }
    assert!(get("/livez").await.unwrap().status().is_success(), "a wait takes no room from others");
    let served = tokio::spawn(get("/slow"));
    entered.notified().await;
    assert_eq!(problem(get("/livez").await.unwrap()).await.code, Code::Busy);
    // Room comes back when the caller is gone.
    served.abort();
    waiting.abort();
    tokio::time::timeout(DEADLINE, async {
        while !get("/wait?wait=5s").await.unwrap().status().is_success()
            || !get("/livez").await.unwrap().status().is_success()
        {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    server.stop().await;
}

#[tokio::test]
async fn long_bodies_over_the_bound_are_told_and_short_ones_go_on() {
    const LONG: usize = 256 * 1024;
    let long = put(|Json(note): Json<Note>| async move { note.note.map_or(0, |note| note.len()).to_string() });
    let router = routes_for_tests().route("/long", long.layer(crate::extract::body_limit(2 * LONG)));
    let options = Options { long_bodies_bytes_max: LONG, ..Options::default() };
    let server = Server::start(router, options, CancellationToken::new()).await;
    let body = format!("{{\"note\":\"{}\"}}", "x".repeat(LONG));
    let send = || client().put(server.url("/long")).body(body.clone()).send();
    assert_eq!(send().await.unwrap().text().await.unwrap(), LONG.to_string());
    // Most of it was read, and the rest never comes.
    let mut half = server.connect().await;
    let head = format!("PUT /long HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    half.write_all(head.as_bytes()).await.unwrap();
    half.write_all(&body.as_bytes()[..LONG]).await.unwrap();
    let refused = tokio::time::timeout(DEADLINE, async {
        loop {
            let answer = send().await.unwrap();
            if !answer.status().is_success() {
                break answer;
            }
        }
    });
    assert_eq!(problem(refused.await.unwrap()).await.code, Code::Busy);
    let short = client().put(server.url("/note")).body("{}").send().await.unwrap();
    assert!(short.status().is_success());
    // Room comes back when its caller is gone.
    drop(half);
    tokio::time::timeout(DEADLINE, async { while !send().await.unwrap().status().is_success() {} }).await.unwrap();
    server.stop().await;
}

/// More than the system takes for a caller who does not read.
const MUCH: usize = 64 * 1024 * 1024;

/// A route whose answer never ends, and what is cancelled when it is given up.
fn endless() -> (Router, CancellationToken) {
    let over = CancellationToken::new();
    let given = over.clone();
    let answer = move || {
        let over = given.clone().drop_guard();
        let chunks = futures::stream::repeat_with(move || {
            let _ = &over;
            Ok::<_, std::io::Error>(vec![b'x'; 64 * 1024])
        });
        std::future::ready(axum::body::Body::from_stream(chunks))
    };
    (Router::new().route("/endless", get(answer)), over)
}

#[tokio::test]
async fn a_caller_that_takes_nothing_of_its_answer_is_cut_off_and_a_slow_one_is_not() {
    let (router, over) = endless();
    let options = Options { take_timeout: HEAD_TIMEOUT, ..Options::default() };
    let server = Server::start(router, options, CancellationToken::new()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /endless HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    // As long as it takes something now and then.
    let mut some = vec![0; MUCH / 32];
    for _ in 0..32 {
        stream.read_exact(&mut some).await.unwrap();
        tokio::time::sleep(HEAD_TIMEOUT / 4).await;
    }
    assert!(!over.is_cancelled());
    tokio::time::timeout(DEADLINE, over.cancelled()).await.unwrap();
    drop(stream);
    server.stop().await;
}

/// Short, so that nobody waits long for it; what is asked below takes longer.
const HEAD_TIMEOUT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_caller_that_asks_nothing_is_closed() {
    let options = Options { head_timeout: HEAD_TIMEOUT, ..Options::default() };
    let server = Server::start(routes_for_tests(), options, CancellationToken::new()).await;
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for said in ["", "P", "PRI * HTTP/2.0\r\n\r\nS", preface, "GET /livez", "GET /livez HTTP/1.1\r\nhost: a\r\n"] {
        let mut stream = server.connect().await;
        stream.write_all(said.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await;
        closed.unwrap_or_else(|_| panic!("{said:?} holds its connection")).unwrap();
    }
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_waits_for_its_answer_is_not_closed() {
    let wait = get(|| async { tokio::time::sleep(HEAD_TIMEOUT * 4).await });
    let options = Options { head_timeout: HEAD_TIMEOUT, ..Options::default() };
    let server = Server::start(Router::new().route("/wait", wait), options, CancellationToken::new()).await;
    assert!(client().get(server.url("/wait")).send().await.unwrap().status().is_success());
    server.stop().await;
}

#[tokio::test]
async fn a_stop_ends_waits_and_then_the_server() {
    let shutdown = CancellationToken::new();
    let entered = CancellationToken::new();
    let wait = |State((shutdown, entered)): State<(CancellationToken, CancellationToken)>| async move {
        entered.cancel();
        shutdown.cancelled().await;
        Failure::new(Code::Draining, "the service is stopping")
    };
    let router = Router::new().route("/wait", get(wait)).with_state((shutdown.clone(), entered.clone()));
    let server = Server::start(router, Options::default(), shutdown).await;
    let waiting = tokio::spawn(client().get(server.url("/wait")).send());
    entered.cancelled().await;
    let idle = server.connect().await;
    server.stop().await;
    assert_eq!(problem(waiting.await.unwrap().unwrap()).await.code, Code::Draining);
    drop(idle);
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut() {
    let entered = CancellationToken::new();
    let inside = entered.clone();
    let router = Router::new().route(
        "/for-ever",
        get(|| async move {
            inside.cancel();
            std::future::pending::<StatusCode>().await
        }),
    );
    let options = Options { shutdown_deadline: Duration::from_millis(50), ..Options::default() };
    let server = Server::start(router, options, CancellationToken::new()).await;
    let request = tokio::spawn(client().get(server.url("/for-ever")).send());
    entered.cancelled().await;
    server.stop().await;
    assert!(request.await.unwrap().is_err());
}

#[derive(Clone)]
struct Relay(Forwarder, Vec<String>);

async fn relay(State(Relay(forwarder, bases)): State<Relay>, call: Call) -> Answer<Response> {
    forwarder.forward(&bases, "region us-east", &call).await
}

async fn relaying(bases: Vec<String>) -> Server {
    let relay = Router::new().route("/{*rest}", get(relay).put(relay).post(relay));
    Server::of(relay.with_state(Relay(Forwarder::new().unwrap(), bases))).await
}

/// An address where nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

async fn echo(call: Call) -> (StatusCode, [(&'static str, &'static str); 1], String) {
    let header = |name: &str| call.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let said = format!(
        "{} {} {:?} {:?} {:?} {}",
        call.method,
        call.uri,
        header("if-match"),
        header("cookie"),
        header("muster-forwarded"),
        String::from_utf8_lossy(&call.body)
    );
    (StatusCode::CREATED, [("etag", "\"7\"")], said)
}

#[tokio::test]
async fn a_call_is_handed_on_unchanged_to_whoever_takes_it() {
    let target = Server::of(Router::new().route("/v1/{*rest}", put(echo).get(echo))).await;
    let server = relaying(vec![nobody().await, target.base.clone()]).await;
    let request = client().put(server.url("/v1/a%20b?wait=5s")).header("if-match", "\"1\"").header("cookie", "secret");
    let answer = request.body("{}").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["etag"]), (201, &"\"7\"".parse().unwrap()));
    let said = answer.text().await.unwrap();
    assert_eq!(said, r#"PUT /v1/a%20b?wait=5s Some("\"1\"") None Some("1") {}"#);
    let read = client().get(server.url("/v1/x")).send().await.unwrap().text().await.unwrap();
    assert!(read.starts_with("GET /v1/x"), "{read}");
    target.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn nobody_reached_means_nothing_was_done() {
    let server = relaying(vec![nobody().await]).await;
    let refused = problem(client().post(server.url("/v1/x")).send().await.unwrap()).await;
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.detail.contains("region us-east"), "{}", refused.detail);
    let again = client().post(server.url("/v1/x")).header("muster-forwarded", "1").send().await.unwrap();
    let again = problem(again).await;
    assert_eq!(again.code, Code::Unavailable);
    assert!(again.detail.contains("not handed on twice"), "{}", again.detail);
    server.stop().await;
}

#[tokio::test]
async fn an_answer_lost_after_a_mutation_is_told_as_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let hangs_up = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 64];
            let _ = stream.read(&mut some).await.unwrap();
        }
    });
    let server = relaying(vec![base]).await;
    let lost = problem(client().post(server.url("/v1/x")).body("{}").send().await.unwrap()).await;
    assert_eq!(lost.code, Code::OutcomeUnknown, "{}", lost.detail);
    let read = problem(client().get(server.url("/v1/x")).send().await.unwrap()).await;
    assert_eq!(read.code, Code::Unavailable, "a read that failed did nothing");
    hangs_up.abort();
    server.stop().await;
}

#[tokio::test]
async fn routes_of_every_service_answer() {
    let server = Server::of(routes_for_tests().route("/post", post(|| async {}))).await;
    let client = client();
    let limits: serde_json::Value = client.get(server.url("/v1/limits")).send().await.unwrap().json().await.unwrap();
    assert_eq!(limits["bodyBytesMax"], 65_536);
    let version: Version = client.get(server.url("/version")).send().await.unwrap().json().await.unwrap();
    assert_eq!(version.service, "test");
    assert!(client.get(server.url("/livez")).send().await.unwrap().status().is_success());
    server.stop().await;
}
