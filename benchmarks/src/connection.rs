//! One kept HTTP/1.1 connection, as a participant has it, with the instants
//! between which a call was under way.
//!
//! Bare on purpose: ten thousand of these fit into the measuring process, and
//! no pool decides when a request really leaves.

use std::time::Instant;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Enough for the head of an answer and most bodies.
const BUFFER_BYTES: usize = 1_024;

/// A connection that is kept between calls.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: String,
}

/// What came back, and when its last byte did.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Connection {
    /// Connects to a base URL, such as `http://127.0.0.1:7171`.
    pub(crate) async fn open(base: &str) -> anyhow::Result<Self> {
        let host = base.strip_prefix("http://").context("only http is spoken here")?.trim_end_matches('/').to_owned();
        let stream = TcpStream::connect(&host).await.with_context(|| format!("connect to {host}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(BUFFER_BYTES, stream), host })
    }

    /// Sends a request without a body; gives the instant before its first byte.
    pub(crate) async fn send(&mut self, method: &str, path: &str) -> anyhow::Result<Instant> {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: 0\r\n\r\n", self.host);
        let at = Instant::now();
        self.stream.write_all(request.as_bytes()).await.with_context(|| format!("send {method} {path}"))?;
        Ok(at)
    }

    /// Reads the answer to what was sent.
    pub(crate) async fn receive(&mut self) -> anyhow::Result<Answered> {
        let mut line = String::new();
        self.line(&mut line).await?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("not the first line of an answer: {line:?}"))?;
        let mut length = None;
        loop {
            self.line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse().context("read content-length")?);
            }
        }
        let mut body = vec![0; length.context("an answer without content-length")?];
        self.stream.read_exact(&mut body).await.context("read an answer's body")?;
        let at = Instant::now();
        Ok(Answered { status, body: String::from_utf8(body).context("read an answer's body")?, at })
    }

    /// Sends a request and reads its answer; gives the instant before it, too.
    pub(crate) async fn call(&mut self, method: &str, path: &str) -> anyhow::Result<(Instant, Answered)> {
        let sent = self.send(method, path).await?;
        Ok((sent, self.receive().await?))
    }

    async fn line(&mut self, line: &mut String) -> anyhow::Result<()> {
        line.clear();
        let read = self.stream.read_line(line).await.context("read an answer")?;
        ensure!(read > 0, "{} closed the connection without an answer", self.host);
        Ok(())
    }
}

impl Answered {
    /// The answer must have this status.
    pub(crate) fn must_be(self, status: u16) -> anyhow::Result<Self> {
        if self.status != status {
            bail!("answered {} instead of {status}: {}", self.status, self.body);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn answered(text: &'static str) -> anyhow::Result<Answered> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 512];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let mut connection = Connection::open(&base).await.unwrap();
        let sent = connection.send("PUT", "/x?wait=1s").await.unwrap();
        let answered = connection.receive().await;
        let request = server.await.unwrap();
        assert!(request.starts_with("PUT /x?wait=1s HTTP/1.1\r\nhost: 127.0.0.1:"), "{request}");
        answered.inspect(|answered| assert!(answered.at >= sent))
    }

    #[tokio::test]
    async fn an_answer_is_read_to_its_end() {
        let answer = answered("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nx: y\r\n\r\n{1}\n").await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "{1}\n"));
        let refused = answer.must_be(201).unwrap_err().to_string();
        assert!(refused.contains("200 instead of 201"), "{refused}");
    }

    #[tokio::test]
    async fn half_an_answer_is_none() {
        for text in
            ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{1}", "HTTP/1.1 200 OK\r\n\r\n"]
        {
            assert!(answered(text).await.is_err(), "{text:?}");
        }
    }
}
