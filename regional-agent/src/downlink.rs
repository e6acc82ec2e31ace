//! Listens to the coordinator: greets, and puts what it says on the region's
//! log, as [`muster_protocol::listening`] says.

use std::sync::Arc;
use std::time::Duration;

use muster_bus::{Bus, BusError, Down, Headers, Received};
use muster_protocol::fact::{AgentId, Fact, Heartbeat, Welcome};
use muster_protocol::identity::Era;
use muster_protocol::listening::{GREET_MIN, Hear, LEAVE_TO_OTHERS, Listening, Welcomed, still_new};
use muster_protocol::region::Command;
use muster_telemetry::{TraceContext, metrics};
use muster_wire::record::{Downward, Upward};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, warn};

use crate::driver::Handle;
use crate::leadership::Leading;
use crate::reporter::Ask;

/// Time between signs of life.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);

/// How it stands with the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The bus does not answer.
    BusAway(String),
    /// Nobody answered the greeting yet.
    Greeting,
    /// The coordinator does not take this region's log, and why.
    Refused(String),
    /// Facts are heard and acted on.
    Up,
}

/// The agent's ear.
pub(crate) struct Downlink {
    handle: Handle,
    bus: Arc<dyn Bus>,
    leading: Leading,
    agent: AgentId,
    address: String,
    asks: mpsc::Sender<Ask>,
    /// The life of the coordinator's database that lacks nothing of ours.
    told: watch::Receiver<Option<Era>>,
    link: watch::Sender<Link>,
    /// The zero of the machine's instants.
    started: Instant,
}

impl Downlink {
    /// An ear for one agent.
    #[must_use]
    pub(crate) fn new(
        handle: Handle,
        bus: Arc<dyn Bus>,
        leading: Leading,
        agent: AgentId,
        address: String,
        asks: mpsc::Sender<Ask>,
        told: watch::Receiver<Option<Era>>,
    ) -> Self {
        let link = watch::Sender::new(Link::BusAway("not tried yet".to_owned()));
        Self { handle, bus, leading, agent, address, asks, told, link, started: Instant::now() }
    }

    /// How it stands with the coordinator, and every change of that.
    #[must_use]
    pub(crate) fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    /// Listens until the shutdown.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = self.listen() => {}
            () = self.show_life() => {}
        }
    }

    async fn listen(&self) {
        // Nothing can be said before the log's own end has been read.
        let mut status = self.handle.status();
        let _ = status.wait_for(|status| status.following).await;
        let mut machine = self.ear();
        loop {
            // A greeting names the era that has been told everything: where
            // ends are still on their way, it is asked for them again.
            if machine.era() != self.told.borrow().as_ref() {
                machine = self.ear();
            }
            let error = match self.bus.follow_down().await {
                Ok(down) => self.hear(&mut machine, down).await,
                Err(error) => error,
            };
            self.bus_away(&error);
            tokio::time::sleep(GREET_MIN).await;
        }
    }

    fn ear(&self) -> Listening {
        Listening::new(self.agent.clone(), self.address.clone())
    }

    fn bus_away(&self, error: &BusError) {
        let trouble = Link::BusAway(error.to_string());
        if *self.link.borrow() != trouble {
            warn!(%error, "listen to the coordinator; trying again");
        }
        self.link.send_replace(trouble);
    }

    async fn hear(&self, machine: &mut Listening, mut down: Box<dyn Down>) -> BusError {
        self.link.send_if_modified(|link| {
            let away = matches!(link, Link::BusAway(_));
            if away {
                *link = Link::Greeting;
            }
            away
        });
        machine.followed(self.started.elapsed());
        loop {
            // While nothing is due this instant is not waited for.
            let next = self.started + machine.next_greeting().unwrap_or_default();
            tokio::select! {
                received = down.next() => match received {
                    Ok(received) => self.received(machine, received).await,
                    Err(error) => return error,
                },
                () = tokio::time::sleep_until(next), if !machine.is_greeted() => {
                    let now = self.started.elapsed();
                    let hello = self.handle.read(|region| machine.greet(region, now));
                    if let Some(hello) = hello
                        && let Err(error) = self.bus.send_up(&Upward::Hello(hello), Headers::new()).await
                    {
                        return error;
                    }
                }
            }
        }
    }

    async fn received(&self, machine: &mut Listening, received: Received<Downward>) {
        let Received { place, headers, content } = received;
        match content {
            Ok(Downward::Welcome(welcome)) => self.welcomed(machine, &welcome).await,
            Ok(Downward::Fact(fact)) => self.fact(machine, fact, &headers),
            Err(poison) => {
                metrics::poison_messages().increment(1);
                error!(
                    topic = place.topic,
                    partition = place.partition,
                    offset = place.offset,
                    error = poison.error,
                    "a record from the coordinator can't be read; it is passed over, and what it said is repeated"
                );
            }
        }
    }

    /// Whether the coordinator takes this region's log for what it is.
    async fn welcomed(&self, machine: &mut Listening, welcome: &Welcome) {
        let refusal = match self.handle.read(|region| machine.welcomed(welcome, region)) {
            Welcomed::NotForUs | Welcomed::OtherHistory => return,
            Welcomed::Refused(refused) => Some(refused.to_string()),
            Welcomed::Compare { seen } => match self.handle.fresh().await {
                Ok(()) => self.handle.read(|region| machine.compared(seen, region)).err().map(|why| why.to_string()),
                Err(error) => Some(format!("the region's log does not say where it ends ({error:?})")),
            },
        };
        match refusal {
            None => {
                if self.link.send_replace(Link::Up) != Link::Up {
                    info!(region = %welcome.region, "the coordinator answers");
                }
                let (era, ends) = (welcome.era.clone(), welcome.tell_ends);
                let _ = self.asks.send(Ask::Everything { era, ends }).await;
            }
            Some(why) => {
                let refused = Link::Refused(why.clone());
                if self.link.send_replace(refused.clone()) != refused {
                    error!("{why}");
                }
            }
        }
    }

    fn fact(&self, machine: &Listening, fact: Fact, headers: &Headers) {
        let id = fact.generation().clone();
        let (leading, waits) = (self.leading.is_leading(), self.handle.waiters().concerned(&id.barrier, id.n));
        match self.handle.read(|region| machine.fact(&fact, region, leading, waits)) {
            Hear::Nothing => {}
            // A full queue means the reporter is busy telling anyway.
            Hear::TellAgain => {
                let opening = matches!(fact, Fact::Opened(_));
                drop(self.asks.try_send(Ask::Again { subject: (id.barrier, id.n), opening }));
            }
            Hear::Alarm => {
                metrics::invariant_violations("I2").increment(1);
                error!(generation = %id, "the coordinator says another outcome than the one that was applied here; the applied one stays");
            }
            hear @ (Hear::Append | Hear::AppendLater) => {
                let pause = if hear == Hear::Append { Duration::ZERO } else { LEAVE_TO_OTHERS };
                tokio::spawn(append(self.handle.clone(), fact, TraceContext::from_map(headers), pause));
            }
        }
    }

    async fn show_life(&self) {
        let mut interval = tokio::time::interval(HEARTBEAT_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if *self.link.borrow() != Link::Up {
                continue;
            }
            let stamp = self.handle.read(muster_protocol::region::Region::stamp);
            let heartbeat = Heartbeat {
                region: self.handle.read(|region| region.name().clone()),
                agent: self.agent.clone(),
                history: stamp.history,
                shard: stamp.shard,
                index: stamp.index,
                address: self.address.clone(),
                era: self.told.borrow().clone(),
            };
            if let Err(error) = self.bus.send_up(&Upward::Heartbeat(heartbeat), Headers::new()).await {
                debug!(%error, "show a sign of life");
            }
        }
    }
}

/// Puts a fact on the region's log, unless somebody else has done it.
async fn append(handle: Handle, fact: Fact, cause: Option<TraceContext>, pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
        if !handle.read(|region| still_new(&fact, region)) {
            return;
        }
    }
    let span = tracing::info_span!("apply", generation = %fact.generation());
    if let Some(cause) = &cause {
        cause.set_parent(&span);
    }
    let submit = async {
        fail::fail_point!("agent.fact.before");
        let reply = handle.submit(Command::Fact(fact), TraceContext::current()).await;
        fail::fail_point!("agent.fact.after");
        // Whatever is not applied stays unanswered, and is repeated.
        debug!(?reply, "a fact from the coordinator");
    };
    submit.instrument(span).await;
}
