//! One record, until whoever it is for has it.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use muster_bus::kafka::{Kafka, KafkaOptions};
use muster_bus::{Bus, Headers};
use muster_protocol::fact::{Decided, Fact};
use muster_protocol::name::RegionName;
use muster_protocol::report::RegionReport;
use muster_wire::record::{Downward, Upward};
use tokio::sync::mpsc;

/// As the coordinator does.
const BATCH_MAX: usize = 500;
/// How long a record may take; the first waits for the group to form.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);

type Seen = mpsc::UnboundedReceiver<(u64, Instant)>;

/// A sender, and a reader of each direction with connections of their own.
pub(super) struct Wire {
    bus: Kafka,
    up: Seen,
    down: Seen,
}

impl Wire {
    pub(super) async fn lay(bootstrap: &str, name: &str, regions: &[RegionName]) -> anyhow::Result<Self> {
        let options =
            KafkaOptions { bootstrap: bootstrap.to_owned(), prefix: name.to_owned(), ..KafkaOptions::default() };
        let bus = Kafka::new(options.clone())?;
        bus.prepare(regions).await?;
        let (up, down) = (listen_up(&options, regions).await?, listen_down(&options).await?);
        let mut wire = Self { bus, up, down };
        // What was sent before the group has formed is read once it has.
        wire.up(super::records::report(&regions[0], 0, 1)).await?;
        Ok(wire)
    }

    pub(super) async fn up(&mut self, report: RegionReport) -> anyhow::Result<Duration> {
        let n = report.generation.n;
        let message = Upward::Report(report);
        let started = Instant::now();
        let (sent, at) = tokio::join!(self.bus.send_up(&message, Headers::new()), until_seen(&mut self.up, n));
        sent?;
        Ok(at? - started)
    }

    pub(super) async fn down(&mut self, decided: Decided) -> anyhow::Result<Duration> {
        let n = decided.outcome.generation.n;
        let messages = vec![(Downward::Fact(Fact::Decided(decided)), Headers::new())];
        let started = Instant::now();
        let (sent, at) = tokio::join!(self.bus.send_down(messages), until_seen(&mut self.down, n));
        sent?;
        Ok(at? - started)
    }
}

async fn until_seen(seen: &mut Seen, n: u64) -> anyhow::Result<Instant> {
    loop {
        let received = tokio::time::timeout(RECORD_TIMEOUT, seen.recv()).await;
        let (seen, at) = received.context("a record did not come")?.context("the reader of the bus is over")?;
        ensure!(seen <= n, "record {seen} came, and {n} was sent");
        if seen == n {
            return Ok(at);
        }
    }
}

async fn listen_up(options: &KafkaOptions, regions: &[RegionName]) -> anyhow::Result<Seen> {
    let bus = Kafka::new(options.clone())?;
    let mut up = bus.join_up(regions).await?;
    let (told, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(batch) = up.next_batch(BATCH_MAX).await {
            let at = Instant::now();
            for received in batch {
                let Ok(Upward::Report(report)) = received.content else { continue };
                if told.send((report.generation.n, at)).is_err() {
                    return;
                }
            }
            up.commit();
        }
    });
    Ok(seen)
}

async fn listen_down(options: &KafkaOptions) -> anyhow::Result<Seen> {
    let bus = Kafka::new(options.clone())?;
    let mut down = bus.follow_down().await?;
    let (told, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok(received) = down.next().await {
            let at = Instant::now();
            let Ok(Downward::Fact(fact)) = received.content else { continue };
            if told.send((fact.generation().n, at)).is_err() {
                return;
            }
        }
    });
    Ok(seen)
}
