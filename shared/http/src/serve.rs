//! The accept loop. It has what a plain one lacks: a timeout on request heads,
//! bounds on connections and requests, and a stop that ends.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use muster_telemetry::metrics;
use muster_wire::code::Code;
use muster_wire::problem::{PROBLEM_JSON, Problem};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::descriptors;
use crate::extract::LongBodies;
use crate::failure::Failure;
use crate::guard::{Hosts, guard};
use crate::observe::{contain, observe};
use crate::turns::{Turns, turn};

/// How often a silent HTTP/2 peer is asked whether it lives.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_000;
/// Pause after the system refused to accept, mostly for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Callers over the bound who are told so at the same time; more are cut off.
const TURNED_AWAY_MAX: usize = 64;

/// How a service is served.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names it answers to, beside those of the machine itself.
    pub hosts: Hosts,
    /// Connections at once. Callers over it get 503 `busy` and are closed.
    pub connections_max: usize,
    /// Calls that wait, at once. One over it gets `busy`.
    pub waits_max: usize,
    /// Other requests at once. One over it gets `busy`.
    pub requests_max: usize,
    /// Bytes of bodies over 64 KiB that are being sent at once. One for whose
    /// more there is no room gets `busy`.
    pub long_bodies_bytes_max: usize,
    /// How long a caller may take to send a request's head, the first one
    /// counted from its connection on; then it is closed.
    pub head_timeout: Duration,
    /// How long a caller may take nothing of its answer; then it is cut off.
    pub take_timeout: Duration,
    /// How long requests may go on after the stop began; then they are cut.
    pub shutdown_deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: Hosts::default(),
            connections_max: 20_000,
            waits_max: 100_000,
            requests_max: 10_000,
            long_bodies_bytes_max: 256 * 1024 * 1024,
            head_timeout: Duration::from_secs(10),
            take_timeout: Duration::from_secs(30),
            shutdown_deadline: Duration::from_secs(10),
        }
    }
}

/// A service's routes with everything around them: fallbacks, caught panics,
/// room for so many, the guard, spans and metrics.
fn app(router: Router, options: &Options) -> Router {
    router
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(Extension(LongBodies::new(options.long_bodies_bytes_max)))
        .layer(from_fn(contain))
        .layer(from_fn_with_state(Turns::new(options.waits_max, options.requests_max), turn))
        .layer(from_fn_with_state(options.hosts.clone(), guard))
        .layer(from_fn(observe))
}

async fn no_route(request: Request) -> Failure {
    let path: String = request.uri().path().chars().take(160).collect();
    Problem::new(Code::NotFound, format!("there is nothing at {path}"))
        .hint("paths begin with /v1/; docs/api.md lists them")
        .into()
}

async fn no_method(request: Request) -> Failure {
    let path: String = request.uri().path().chars().take(160).collect();
    Problem::new(Code::MethodNotAllowed, format!("{path} does not take {}", request.method()))
        .hint("the Allow header lists what it takes")
        .into()
}

/// Serves until `shutdown` is cancelled and every request has ended, or the
/// deadline after it. Handlers that wait must watch the same token.
///
/// # Errors
/// None while it serves: what the system refuses is logged and tried again.
pub async fn serve(listener: TcpListener, router: Router, options: Options, shutdown: CancellationToken) {
    let server = Server {
        app: app(router, &options),
        room: Arc::new(Semaphore::new(descriptors::room(options.connections_max))),
        turned_away: Arc::new(Semaphore::new(TURNED_AWAY_MAX)),
        connections: TaskTracker::new(),
        head_timeout: options.head_timeout,
        take_timeout: options.take_timeout,
        shutdown: shutdown.clone(),
        cut: CancellationToken::new(),
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => server.take(stream),
                Err(error) => pause(&error).await,
            },
        }
    }
    // Refuses new callers from here on, while the rest finishes.
    drop(listener);
    server.connections.close();
    if tokio::time::timeout(options.shutdown_deadline, server.connections.wait()).await.is_err() {
        tracing::warn!(connections = server.connections.len(), "cutting connections that did not end in time");
        server.cut.cancel();
        server.connections.wait().await;
    }
}

async fn pause(error: &io::Error) {
    // A caller that hung up before it was accepted is nobody's trouble.
    if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        tracing::warn!(%error, "accept a connection");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

struct Server {
    app: Router,
    room: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    connections: TaskTracker,
    head_timeout: Duration,
    take_timeout: Duration,
    shutdown: CancellationToken,
    cut: CancellationToken,
}

impl Server {
    fn take(&self, stream: TcpStream) {
        match Arc::clone(&self.room).try_acquire_owned() {
            Ok(permit) => {
                // Small answers must not wait for an acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "set TCP_NODELAY");
                }
                // Else the answers to a caller that asks and does not read would
                // be kept here for ever.
                let mut stream = TimeoutStream::new(stream);
                stream.set_write_timeout(Some(self.take_timeout));
                let stream = Box::pin(stream);
                let connection = connection(stream, self.app.clone(), self.head_timeout, self.shutdown.clone(), permit);
                let cut = self.cut.clone();
                self.connections.spawn(async move {
                    tokio::select! {
                        () = connection => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
            Err(_) => {
                if let Ok(permit) = Arc::clone(&self.turned_away).try_acquire_owned() {
                    tokio::spawn(turn_away(stream, permit));
                }
            }
        }
    }
}

/// Counts a connection for as long as it lives, however it ends.
struct Counted;

impl Counted {
    fn new() -> Self {
        metrics::http_connections().increment(1.0);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        metrics::http_connections().decrement(1.0);
    }
}

async fn connection(
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    app: Router,
    head_timeout: Duration,
    shutdown: CancellationToken,
    permit: OwnedSemaphorePermit,
) {
    let (_counted, _permit) = (Counted::new(), permit);
    let asked = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let asked = Arc::clone(&asked);
        move |request: hyper::Request<Incoming>| {
            asked.store(true, Ordering::Relaxed);
            let app = app.clone();
            async move {
                let response = app.oneshot(request.map(Body::new)).await;
                Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
            }
        }
    });
    let builder = builder(head_timeout);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = never_asked(head_timeout, &asked) => return,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        // Callers that hang up are the normal end of a wait.
        tracing::debug!(error, "a connection ended early");
    }
}

fn builder(head_timeout: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head_timeout);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL).max_concurrent_streams(STREAMS_MAX);
    builder
}

/// Ends when a connection has brought no request in time. The server itself
/// counts the time of a head only once it knows which HTTP the caller speaks,
/// so one that says nothing, or half of its first line, would stay for ever.
async fn never_asked(limit: Duration, asked: &AtomicBool) {
    tokio::time::sleep(limit).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

/// Says `busy` to a caller for whom there is no room, whatever it asks.
async fn turn_away(mut stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let problem = Problem::new(Code::Busy, "as many connections are open as this service takes");
    let body = serde_json::to_string(&Problem { status: 503, ..problem }).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {PROBLEM_JSON}\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let say = async {
        // Clients take an answer that comes before their request for a fault.
        let mut rest = [0; 1024];
        let _ = stream.read(&mut rest).await?;
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await?;
        // A close with unread bytes resets the connection and loses the answer.
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // A caller that hangs up or dawdles has lost nothing but the sentence.
    if !matches!(tokio::time::timeout(Duration::from_secs(1), say).await, Ok(Ok(()))) {
        tracing::debug!("a caller did not stay to hear that the service is busy");
    }
}
