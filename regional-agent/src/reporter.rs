//! Tells the coordinator what the region knows, when
//! [`muster_protocol::reporting`] says so.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use muster_bus::{Bus, Headers};
use muster_protocol::identity::Era;
use muster_protocol::region::Region;
use muster_protocol::report::RegionReport;
use muster_protocol::reporting::{Reporting, Subject};
use muster_telemetry::TraceContext;
use muster_wire::record::Upward;
use tokio::sync::{Semaphore, mpsc, watch};
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
    Everything {
        /// The life of its database.
        era: Option<Era>,
        /// Whether it lacks ends, too.
        ends: bool,
    },
    /// The coordinator repeated a fact that was applied here.
    Again {
        /// Which generation it is about.
        subject: Subject,
        /// It says that the generation is open: should it have ended here, the
        /// coordinator does not know how.
        opening: bool,
    },
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
    /// The life of the coordinator's database that this agent was last
    /// welcomed by.
    era: Option<Era>,
    /// The same, once all is told that this life may lack.
    told: watch::Sender<Option<Era>>,
    /// Ends that are on their way, and the era they are stamped with.
    ends: HashSet<Subject>,
    delivered: mpsc::UnboundedSender<Delivered>,
    deliveries: mpsc::UnboundedReceiver<Delivered>,
}

/// A report with an end has left, or found no way.
struct Delivered {
    subject: Subject,
    era: Option<Era>,
    ok: bool,
}

impl Reporter {
    /// A reporter of what this replica knows.
    #[must_use]
    pub(crate) fn new(handle: Handle, bus: Arc<dyn Bus>, leading: Leading) -> Self {
        let (machine, started) = (Reporting::default(), Instant::now());
        let (room, told) = (Arc::new(Semaphore::new(IN_FLIGHT_MAX)), watch::Sender::new(None));
        let (delivered, deliveries) = mpsc::unbounded_channel();
        let (era, ends) = (None, HashSet::new());
        Self { handle, bus, leading, machine, started, room, era, told, ends, delivered, deliveries }
    }

    /// The life of the coordinator's database that was told all that it may
    /// lack.
    #[must_use]
    pub(crate) fn told(&self) -> watch::Receiver<Option<Era>> {
        self.told.subscribe()
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
                Some(delivered) = self.deliveries.recv() => self.delivered(&delivered),
                _ = tick.tick() => self.send_due(),
            }
        }
    }

    fn news(&mut self, news: News) {
        let now = self.started.elapsed();
        match news {
            News::Applied { effect, own, cause } => {
                let due = self.handle.read(|region| self.machine.heed(&effect, own, region, now));
                if let Some(subject) = due {
                    self.send(&subject, cause);
                }
            }
            News::Restored => self.handle.read(|region| self.machine.everything(region, false)),
        }
    }

    fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::Everything { era, ends } => {
                self.handle.read(|region| self.machine.everything(region, ends));
                self.era = era;
                self.ends.clear();
                self.note_told();
            }
            Ask::Again { subject, opening } => {
                if opening {
                    self.handle.read(|region| self.machine.lacks_end(&subject, region));
                    self.note_told();
                }
                self.send(&subject, None);
            }
        }
    }

    fn send_due(&mut self) {
        for subject in self.machine.due(self.started.elapsed(), self.leading.is_leading()) {
            self.send(&subject, None);
        }
    }

    /// An end is told once the bus has it: from then on the coordinator may be
    /// told that it lacks nothing, and one that is lost would be decided anew.
    fn delivered(&mut self, delivered: &Delivered) {
        if delivered.era != self.era || !self.ends.remove(&delivered.subject) || !delivered.ok {
            return;
        }
        self.machine.sent(&delivered.subject, self.started.elapsed());
        self.note_told();
    }

    /// From here on signs of life say that this era lacks nothing of ours.
    fn note_told(&self) {
        let told = if self.machine.has_told_ends() { self.era.clone() } else { None };
        self.told.send_if_modified(|known| {
            let changed = *known != told;
            *known = told;
            changed
        });
    }

    fn send(&mut self, subject: &Subject, cause: Option<TraceContext>) {
        if self.ends.contains(subject) {
            return;
        }
        let Ok(room) = self.room.clone().try_acquire_owned() else { return };
        let with_end = self.machine.brings_end(subject);
        let report = self.handle.read(|region| report(region, subject, with_end));
        let Some(mut report) = report else {
            self.machine.sent(subject, self.started.elapsed());
            return self.note_told();
        };
        report.era = self.era.clone();
        let delivered = with_end.then(|| (self.delivered.clone(), subject.clone(), self.era.clone()));
        match with_end {
            true => drop(self.ends.insert(subject.clone())),
            false => self.machine.sent(subject, self.started.elapsed()),
        }
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
            let sent = bus.send_up(&Upward::Report(report), headers).await;
            if let Err(error) = &sent {
                debug!(%error, "report to the coordinator; it is repeated");
            }
            if let Some((delivered, subject, era)) = delivered {
                // The reporter ends only with the process.
                let _ = delivered.send(Delivered { subject, era, ok: sent.is_ok() });
            }
            fail::fail_point!("agent.report.after");
            drop(room);
        };
        tokio::spawn(send.instrument(span));
    }
}

/// What the coordinator is told of one generation, with its end if it may have
/// lost that.
fn report(region: &Region, (barrier, n): &Subject, with_end: bool) -> Option<RegionReport> {
    let mut report = region.report_up(barrier, *n)?;
    let ended = region.generation(barrier, *n).and_then(|generation| generation.ended());
    report.outcome = ended.filter(|_| with_end && !report.name_taken).map(|ended| Box::new(ended.outcome.clone()));
    Some(report)
}
