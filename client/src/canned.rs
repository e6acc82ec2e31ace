//! A server of canned answers for tests: HTTP/1.1 by hand, one connection a
//! call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use muster_wire::code::Code;
use muster_wire::problem::Problem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one call.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers.
    Http(u16, String),
    /// Takes the call and hangs up.
    HangUp,
    /// Takes the call and says nothing.
    Silence,
}

impl Reply {
    pub(crate) fn problem(code: Code) -> Self {
        let problem = Problem::new(code, format!("this is {code}"));
        Self::Http(code.status(), serde_json::to_string(&problem).unwrap())
    }

    pub(crate) fn released(state: &str) -> Self {
        let body = format!(
            r#"{{"barrier":"etl/map","generation":"7","n":7,"round":0,"state":"{state}","whole":true,
            "decidedAt":"2026-10-07T00:00:00.000Z","outputs":{{}},"digest":"00"}}"#
        );
        Self::Http(200, body)
    }

    pub(crate) fn arrived() -> Self {
        let body = r#"{"barrier":"etl/map","generation":"7","n":7,"participant":"a/1","attempt":1,"outcome":"ok",
            "first":true,"late":false,"state":"gathering","arrived":1,"expected":2,"index":"a:1","links":{}}"#;
        Self::Http(201, body.to_owned())
    }
}

/// A server that follows a script; after its end it repeats the last reply.
pub(crate) struct Canned {
    pub(crate) address: String,
    calls: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Canned {
    pub(crate) async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let mut script: VecDeque<Reply> = script.into_iter().collect();
        let seen = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let reply = match script.len() {
                    1 => script[0].clone(),
                    _ => script.pop_front().unwrap(),
                };
                let seen = Arc::clone(&seen);
                tokio::spawn(async move { serve(stream, reply, &seen).await });
            }
        });
        Self { address, calls, task }
    }

    /// An address where nobody listens.
    pub(crate) async fn nobody() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    /// The calls so far: method, path with query, a space, body.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl Drop for Canned {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, reply: Reply, seen: &Mutex<Vec<String>>) {
    let Some(call) = read(&mut stream).await else { return };
    seen.lock().unwrap().push(call);
    match reply {
        Reply::HangUp => {}
        Reply::Silence => std::future::pending().await,
        Reply::Http(status, body) => {
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nretry-after: 0\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() >= length.unwrap_or(0) {
            let line = head.lines().next()?.trim_end_matches(" HTTP/1.1");
            return Some(format!("{line} {body}"));
        }
    }
}
