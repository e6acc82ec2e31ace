//! A span reaches an OTLP receiver, and the end of the program does not wait for
//! one that is away. `init` succeeds once in a process, so one test covers both.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use muster_telemetry::{Error, Options, TraceContext};

/// Reads one HTTP request: its first line and its body.
fn request(stream: &TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (first, body)
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[test]
fn span_reaches_a_receiver_and_shutdown_is_bounded() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = Options::new("muster-test-service", "instance-7");
    options.otlp_endpoint = Some(format!("http://{}/", receiver.local_addr().unwrap()));
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = receiver.accept().unwrap();
        sender.send(request(&stream)).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        // From here on the receiver is silent: connections open, no answer comes.
        thread::sleep(Duration::from_secs(60));
    });

    let guard = muster_telemetry::init(&options).unwrap();
    assert!(guard.exports_traces());
    let span = tracing::info_span!(target: "muster_test", "crossing");
    let context = span.in_scope(TraceContext::current).unwrap();
    drop(span);

    let (first, body) = requests.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(first.starts_with("POST /v1/traces "), "{first}");
    for part in ["crossing", "muster-test-service", "service.instance.id", "instance-7"] {
        assert!(contains(&body, part), "{part}");
    }
    let trace_id: Vec<u8> =
        (0..16).map(|byte| u8::from_str_radix(&context.traceparent[3 + 2 * byte..][..2], 16).unwrap()).collect();
    assert!(body.windows(16).any(|window| window == trace_id));

    assert!(matches!(muster_telemetry::init(&options), Err(Error::Again(_))));

    tracing::info_span!(target: "muster_test", "unheard").in_scope(|| ());
    let start = Instant::now();
    guard.shutdown();
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

#[test]
fn endpoint_that_needs_tls_is_refused() {
    let mut options = Options::new("muster-test-service", "instance-8");
    options.otlp_endpoint = Some("https://collector.example:4318".to_owned());
    let refused = muster_telemetry::init(&options);
    assert!(matches!(refused, Err(Error::Endpoint { .. })));
}
