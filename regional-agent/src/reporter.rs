//! Tells the coordinator what the region knows, when
//! [`muster_protocol::reporting`] says so.

use std::sync::Arc;
use std::time::Duration;

use muster_bus::{Bus, Headers};
use muster_protocol::name::BarrierName;
use muster_protocol::reporting::{Reporting, Subject};
use muster_telemetry::TraceContext;
use muster_wire::record::Upward;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug};

use crate::driver::{Handle, News};
use crate::leadership::Leading;

/// How often the due ones are looked for.
const TICK: Duration = Duration::from_millis(250);
/// Reports on their way at once. What finds no room is due again later.
const IN_FLIGHT_MAX: usize = 256;

/// What is asked of the reporter from outside.
#[derive(Debug)]
pub(crate) enum Ask {
    /// The coordinator greeted back: it may lack anything.
    Everything,
    /// The coordinator repeated a fact that was applied here.
    Again(BarrierName, u64),
}

/// Reports for one agent.
pub(crate) struct Reporter {
    handle: Handle,
    bus: Arc<dyn Bus>,
    leading: Leading,
    machine: Reporting,
    /// The zero of the machine's instants.
    started: Instant,
    room: Arc<Semaphore>,
}

impl Reporter {
    /// A reporter of what this replica knows.
    #[must_use]
    pub(crate) fn new(handle: Handle, bus: Arc<dyn Bus>, leading: Leading) -> Self {
        let (machine, started) = (Reporting::default(), Instant::now());
        Self { handle, bus, leading, machine, started, room: Arc::new(Semaphore::new(IN_FLIGHT_MAX)) }
    }

    /// Reports until the shutdown.
    pub(crate) async fn run(
        mut self,
        mut news: mpsc::UnboundedReceiver<News>,
        mut asks: mpsc::Receiver<Ask>,
        shutdown: CancellationToken,
    ) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(news) = news.recv() => self.news(news),
                Some(ask) = asks.recv() => self.ask(ask),
                _ = tick.tick() => self.send_due(),
            }
        }
    }

    fn news(&mut self, news: News) {
        let now = self.started.elapsed();
        let due = self.handle.read(|region| self.machine.heed(&news.effect, news.own, region, now));
        if let Some(subject) = due {
            self.send(&subject, news.cause);
        }
    }

    fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::Everything => self.handle.read(|region| self.machine.everything(region)),
            Ask::Again(barrier, n) => self.send(&(barrier, n), None),
        }
    }

    fn send_due(&mut self) {
        for subject in self.machine.due(self.started.elapsed(), self.leading.is_leading()) {
            self.send(&subject, None);
        }
    }

    fn send(&mut self, subject: &Subject, cause: Option<TraceContext>) {
        let Ok(room) = self.room.clone().try_acquire_owned() else { return };
        let Some(report) = self.handle.read(|region| region.report(&subject.0, subject.1)) else { return };
        self.machine.sent(subject, self.started.elapsed());
        let span = tracing::info_span!("report", generation = %report.generation, complete = report.complete);
        if let Some(cause) = &cause {
            cause.set_parent(&span);
        }
        let bus = self.bus.clone();
        let send = async move {
            let mut headers = Headers::new();
            if let Some(context) = TraceContext::current() {
                context.to_map(&mut headers);
            }
            fail::fail_point!("agent.report.before");
            // The bus says for itself when it does not answer.
            if let Err(error) = bus.send_up(&Upward::Report(report), headers).await {
                debug!(%error, "report to the coordinator; it is repeated");
            }
            fail::fail_point!("agent.report.after");
            drop(room);
        };
        tokio::spawn(send.instrument(span));
    }
}
