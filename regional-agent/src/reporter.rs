//! Tells the coordinator what the region knows: at once when somebody waits
//! for it, at most once a second per generation otherwise, and again with
//! growing pauses while nothing came of it.
//!
//! Reports are states: a lost one costs the time until the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use muster_bus::{Bus, Headers};
use muster_protocol::name::BarrierName;
use muster_protocol::region::Effect;
use muster_telemetry::TraceContext;
use muster_wire::record::Upward;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug};

use crate::driver::{Handle, News};
use crate::leadership::Leading;

/// The shortest time between two reports of progress of one generation.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Pauses between repeats of what is unanswered.
const REPEAT_MIN: Duration = Duration::from_secs(1);
const REPEAT_MAX: Duration = Duration::from_secs(30);
/// How often the due ones are looked for.
const TICK: Duration = Duration::from_millis(250);
/// Reports on their way at once. What finds no room is due again later.
const IN_FLIGHT_MAX: usize = 256;

type Generation = (BarrierName, u64);

/// What is asked of the reporter from outside.
#[derive(Debug)]
pub(crate) enum Ask {
    /// The coordinator greeted back: it may lack anything.
    Everything,
    /// The coordinator repeated a fact that was applied here.
    Again(BarrierName, u64),
}

/// When one generation is due.
struct Schedule {
    sent_at: Option<Instant>,
    /// Progress that waits for its second to pass.
    changed: bool,
    repeat_after: Duration,
}

impl Schedule {
    fn new() -> Self {
        Self { sent_at: None, changed: false, repeat_after: REPEAT_MIN }
    }

    fn due(&self, now: Instant, leading: bool) -> bool {
        let since = self.sent_at.map_or(Duration::MAX, |at| now.saturating_duration_since(at));
        self.changed && since >= PROGRESS_INTERVAL || leading && since >= self.repeat_after
    }
}

/// Reports for one agent.
pub(crate) struct Reporter {
    handle: Handle,
    bus: Arc<dyn Bus>,
    leading: Leading,
    open: HashMap<Generation, Schedule>,
    room: Arc<Semaphore>,
}

impl Reporter {
    /// A reporter of what this replica knows.
    #[must_use]
    pub(crate) fn new(handle: Handle, bus: Arc<dyn Bus>, leading: Leading) -> Self {
        Self { handle, bus, leading, open: HashMap::new(), room: Arc::new(Semaphore::new(IN_FLIGHT_MAX)) }
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
        let Effect::Changed { barrier, n, urgent } = news.effect else { return };
        let generation = (barrier, n);
        let ended = self.handle.read(|region| region.generation(&generation.0, n).is_none_or(|g| g.ended().is_some()));
        let schedule = self.open.entry(generation.clone()).or_insert_with(Schedule::new);
        schedule.repeat_after = REPEAT_MIN;
        let first = schedule.sent_at.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL);
        // What another agent appended is that agent's to tell; should it die
        // first, the leader's repeats do.
        if news.own && (urgent || first) {
            self.send(&generation, news.cause);
        } else if news.own {
            schedule.changed = true;
        }
        if ended {
            self.open.remove(&generation);
        }
    }

    fn ask(&mut self, ask: Ask) {
        match ask {
            Ask::Everything => {
                let open: Vec<Generation> = self.handle.read(|region| {
                    let generations = region.barriers().flat_map(|(name, b)| b.generations().map(move |g| (name, g)));
                    generations
                        .filter(|(_, generation)| generation.ended().is_none())
                        .map(|(name, generation)| (name.clone(), generation.id().n))
                        .collect()
                });
                // Due at the next tick, as if never sent.
                self.open = open.into_iter().map(|generation| (generation, Schedule::new())).collect();
            }
            Ask::Again(barrier, n) => self.send(&(barrier, n), None),
        }
    }

    fn send_due(&mut self) {
        let (now, leading) = (Instant::now(), self.leading.is_leading());
        let due: Vec<(Generation, bool)> = self
            .open
            .iter()
            .filter(|(_, schedule)| schedule.due(now, leading))
            .map(|(generation, schedule)| (generation.clone(), schedule.changed))
            .collect();
        for (generation, changed) in due {
            self.send(&generation, None);
            if let Some(schedule) = self.open.get_mut(&generation).filter(|_| !changed) {
                schedule.repeat_after = REPEAT_MAX.min(schedule.repeat_after * 2);
            }
        }
    }

    fn send(&mut self, generation: &Generation, cause: Option<TraceContext>) {
        let Ok(room) = self.room.clone().try_acquire_owned() else { return };
        let Some(report) = self.handle.read(|region| region.report(&generation.0, generation.1)) else { return };
        if let Some(schedule) = self.open.get_mut(generation) {
            schedule.sent_at = Some(Instant::now());
            schedule.changed = false;
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
            if let Err(error) = bus.send_up(&Upward::Report(report), headers).await {
                debug!(%error, "report to the coordinator; it is repeated");
            }
            fail::fail_point!("agent.report.after");
            drop(room);
        };
        tokio::spawn(send.instrument(span));
    }
}
