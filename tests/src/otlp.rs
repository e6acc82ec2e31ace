//! A receiver of traces: OTLP over HTTP, as little of it as exporters need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use prost::Message;

/// One span that was received.
#[derive(Clone, Debug)]
pub struct Span {
    /// The trace, in hexadecimal.
    pub trace: String,
    /// Its id, in hexadecimal.
    pub id: String,
    /// Its parent's id; empty for a root.
    pub parent: String,
    /// What it is called.
    pub name: String,
    /// Which service sent it.
    pub service: String,
    /// Which instance of the service.
    pub instance: String,
}

impl Span {
    /// Whether it is this step of this service.
    #[must_use]
    pub fn is(&self, name: &str, service: &str) -> bool {
        self.name.ends_with(name) && self.service == service
    }
}

/// Listens until the end of the program.
#[derive(Debug)]
pub struct Receiver {
    /// What exporters are told.
    pub endpoint: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Receiver {
    /// Starts to listen.
    ///
    /// # Errors
    /// No port is free.
    pub fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen for traces")?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let all = Arc::clone(&spans);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                std::thread::spawn(move || serve(&stream, &all));
            }
        });
        Ok(Self { endpoint, spans })
    }

    /// What was received of one trace.
    #[must_use]
    pub fn trace(&self, trace: &str) -> Vec<Span> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.iter().filter(|span| span.trace == trace).cloned().collect()
    }
}

/// Answers the requests of one connection.
fn serve(stream: &TcpStream, all: &Mutex<Vec<Span>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let body = request(&mut reader)?;
        let received = ExportTraceServiceRequest::decode(body.as_slice()).ok()?;
        all.lock().unwrap_or_else(PoisonError::into_inner).extend(read(received));
        let mut writer = stream;
        writer
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
            .ok()?;
    }
}

/// The body of the next request.
fn request(reader: &mut BufReader<&TcpStream>) -> Option<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

fn read(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for group in request.resource_spans {
        let attributes = group.resource.map(|resource| resource.attributes).unwrap_or_default();
        let (service, instance) = (text(&attributes, "service.name"), text(&attributes, "service.instance.id"));
        for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                name: span.name,
                service: service.clone(),
                instance: instance.clone(),
            });
        }
    }
    spans
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
