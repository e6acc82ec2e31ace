//! Listens to the coordinator: greets, and puts what it says on the region's
//! log. Nothing from above is acted on before the greeting is answered.

use std::sync::Arc;
use std::time::Duration;

use muster_bus::{Bus, BusError, Down, Headers, Received};
use muster_protocol::fact::{AgentId, Fact, Heartbeat, Hello, Standing, Welcome};
use muster_protocol::region::{Command, Heard, MACHINE_VERSION};
use muster_telemetry::{TraceContext, metrics};
use muster_wire::record::{Downward, Upward};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, warn};

use crate::driver::Handle;
use crate::leadership::Leading;
use crate::reporter::Ask;

/// Pauses between greetings that nobody answered, doubling.
const GREET_MIN: Duration = Duration::from_millis(500);
const GREET_MAX: Duration = Duration::from_secs(30);
/// Time between signs of life.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How long an agent that neither leads nor has a waiter leaves a fact to
/// others.
const LEAVE_TO_OTHERS: Duration = Duration::from_millis(200);

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
    link: watch::Sender<Link>,
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
    ) -> Self {
        let link = watch::Sender::new(Link::BusAway("not tried yet".to_owned()));
        Self { handle, bus, leading, agent, address, asks, link }
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
        loop {
            let error = match self.bus.follow_down().await {
                Ok(down) => self.hear(down).await,
                Err(error) => error,
            };
            self.bus_away(&error);
            tokio::time::sleep(GREET_MIN).await;
        }
    }

    fn bus_away(&self, error: &BusError) {
        let trouble = Link::BusAway(error.to_string());
        if *self.link.borrow() != trouble {
            warn!(%error, "listen to the coordinator; trying again");
        }
        self.link.send_replace(trouble);
    }

    async fn hear(&self, mut down: Box<dyn Down>) -> BusError {
        let mut pause = GREET_MIN;
        let mut next_greeting = tokio::time::Instant::now();
        self.link.send_if_modified(|link| {
            let away = matches!(link, Link::BusAway(_));
            if away {
                *link = Link::Greeting;
            }
            away
        });
        let mut greeted = false;
        loop {
            tokio::select! {
                received = down.next() => match received {
                    Ok(received) => greeted = self.received(received, greeted).await,
                    Err(error) => return error,
                },
                () = tokio::time::sleep_until(next_greeting), if !greeted => {
                    if let Err(error) = self.greet().await {
                        return error;
                    }
                    next_greeting = tokio::time::Instant::now() + pause;
                    pause = GREET_MAX.min(pause * 2);
                }
            }
        }
    }

    async fn greet(&self) -> Result<(), BusError> {
        let stamp = self.handle.read(muster_protocol::region::Region::stamp);
        let hello = Hello {
            region: self.handle.read(|region| region.name().clone()),
            agent: self.agent.clone(),
            history: stamp.history,
            shard: stamp.shard,
            head: stamp.index,
            machine_version: MACHINE_VERSION,
            address: self.address.clone(),
        };
        self.bus.send_up(&Upward::Hello(hello), Headers::new()).await
    }

    async fn received(&self, received: Received<Downward>, greeted: bool) -> bool {
        let Received { place, headers, content } = received;
        match content {
            Ok(Downward::Welcome(welcome)) if welcome.agent == self.agent => self.welcomed(&welcome).await,
            Ok(Downward::Welcome(_)) => greeted,
            Ok(Downward::Fact(fact)) => {
                if greeted {
                    self.fact(fact, &headers);
                }
                greeted
            }
            Err(poison) => {
                metrics::poison_messages().increment(1);
                error!(
                    topic = place.topic,
                    partition = place.partition,
                    offset = place.offset,
                    error = poison.error,
                    "a record from the coordinator can't be read; it is passed over, and what it said is repeated"
                );
                greeted
            }
        }
    }

    /// Whether the coordinator takes this region's log for what it is.
    async fn welcomed(&self, welcome: &Welcome) -> bool {
        let (name, history) = self.handle.read(|region| (region.name().clone(), region.history()));
        if welcome.region != name || welcome.history != history {
            return false;
        }
        let refusal = match welcome.standing {
            Standing::Current => self.set_back(welcome.index).await,
            Standing::Unknown => Some(format!(
                "region {name} has another log than the one the coordinator knows; this version can't adopt it: bring back the etcd data the region had"
            )),
            Standing::Superseded => Some(format!("region {name} was given another log; this one is out of use")),
            Standing::Undeclared => Some(format!("region {name} is not declared: muster region declare {name}")),
        };
        match refusal {
            None => {
                if self.link.send_replace(Link::Up) != Link::Up {
                    info!(region = %name, "the coordinator answers");
                }
                let _ = self.asks.send(Ask::Everything).await;
                true
            }
            Some(why) => {
                let refused = Link::Refused(why.clone());
                if self.link.send_replace(refused.clone()) != refused {
                    error!("{why}");
                }
                false
            }
        }
    }

    /// A log that ends before what the coordinator has seen of it was restored
    /// from a backup: acting on it could take back what was promised.
    async fn set_back(&self, seen: u64) -> Option<String> {
        if let Err(error) = self.handle.fresh().await {
            return Some(format!("the region's log does not say where it ends ({error:?})"));
        }
        let index = self.handle.read(muster_protocol::region::Region::index);
        (index < seen).then(|| {
            format!("the region's log ends at {index}, but the coordinator has seen {seen}: it was set back; stop the region's agents and bring back the etcd data it had")
        })
    }

    fn fact(&self, fact: Fact, headers: &Headers) {
        let (concerned, heard, leading) =
            self.handle.read(|region| (fact.concerns(region.name()), region.heard(&fact), self.leading.is_leading()));
        if !concerned {
            return;
        }
        let id = fact.generation().clone();
        match heard {
            Heard::Known if leading => {
                // A full queue means the reporter is busy telling anyway.
                let _ = self.asks.try_send(Ask::Again(id.barrier, id.n));
            }
            Heard::Known => {}
            Heard::Different => {
                metrics::invariant_violations("I2").increment(1);
                error!(generation = %id, "the coordinator says another outcome than the one that was applied here; the applied one stays");
            }
            Heard::New => {
                let at_once = leading || self.handle.waiters().concerned(&id.barrier, id.n);
                tokio::spawn(append(self.handle.clone(), fact, TraceContext::from_map(headers), at_once));
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
            };
            if let Err(error) = self.bus.send_up(&Upward::Heartbeat(heartbeat), Headers::new()).await {
                debug!(%error, "show a sign of life");
            }
        }
    }
}

/// Puts a fact on the region's log, unless somebody else has done it.
async fn append(handle: Handle, fact: Fact, cause: Option<TraceContext>, at_once: bool) {
    if !at_once {
        tokio::time::sleep(LEAVE_TO_OTHERS).await;
        if handle.read(|region| region.heard(&fact)) != Heard::New {
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
