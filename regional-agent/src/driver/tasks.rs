//! The driver's input and output: each task does one thing on the log and puts
//! what came of it in the driver's inbox.

use std::sync::Arc;
use std::time::Duration;

use muster_protocol::identity::Writer;
use muster_protocol::name::RegionName;
use muster_protocol::replica::{Appended, Input};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, debug, warn};

use super::{Event, Settings, machine_version, new_instance};
use crate::log::{self, NewRegistration, RegionLog, Registered};

/// Waits between tries, doubling.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The pause before a try, none before the first.
fn backoff(attempt: u32) -> Duration {
    match attempt {
        0 => Duration::ZERO,
        attempt => BACKOFF_MAX.min(BACKOFF_MIN * 2_u32.saturating_pow(attempt - 1)),
    }
}

/// One append to carry out.
pub(super) struct Append {
    pub(super) writer: Writer,
    pub(super) seq: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) attempt: u32,
    /// Part of the traces of those whose commands it carries.
    pub(super) span: Span,
}

pub(super) fn append(
    region: &RegionName,
    log: &Arc<dyn RegionLog>,
    events: &UnboundedSender<Event>,
    tracker: &TaskTracker,
    append: Append,
) {
    let (log, events, region) = (log.clone(), events.clone(), region.clone());
    let Append { writer, seq, bytes, attempt, span } = append;
    let append = async move {
        tokio::time::sleep(backoff(attempt)).await;
        let result = match log.append(writer, seq, &bytes).await {
            log::Appended::Landed { index } => Appended::Landed { index },
            log::Appended::AlreadyThere => Appended::AlreadyThere,
            log::Appended::WriterGone => Appended::WriterGone,
            log::Appended::HeadGone => Appended::HeadGone,
            log::Appended::Full => Appended::Full,
            log::Appended::Refused(error) => {
                warn!(%region, error = %muster_telemetry::chain(&error), "append to the region's log");
                Appended::Refused
            }
            log::Appended::Unknown(error) => {
                // Said once: the repeats of one append are one trouble.
                if attempt == 0 {
                    warn!(%region, error = %muster_telemetry::chain(&error), "append to the region's log; trying again");
                }
                Appended::Unknown
            }
        };
        let _ = events.send(Event::Input(Input::Appended { writer, seq, result }));
    };
    tracker.spawn(append.instrument(span));
}

pub(super) fn read_head(log: &Arc<dyn RegionLog>, events: &UnboundedSender<Event>, tracker: &TaskTracker) {
    let (log, events) = (log.clone(), events.clone());
    tracker.spawn(async move {
        let head = log.head().await.inspect_err(|error| debug!(%error, "read the log's head")).ok();
        let _ = events.send(Event::Input(Input::HeadRead(head)));
    });
}

pub(super) fn register(
    settings: &Settings,
    log: &Arc<dyn RegionLog>,
    events: &UnboundedSender<Event>,
    tracker: &TaskTracker,
) {
    let (settings, log, events) = (settings.clone(), log.clone(), events.clone());
    tracker.spawn(async move {
        for attempt in 0.. {
            tokio::time::sleep(backoff(attempt)).await;
            let registration = NewRegistration {
                agent: new_instance(&settings.agent_name),
                address: settings.address.clone(),
                machine_version: machine_version(),
                lease_ttl: settings.lease_ttl,
            };
            match log.register(registration).await {
                Ok(registered) => {
                    let _ = events.send(Event::Registered(Arc::from(registered)));
                    return;
                }
                Err(error) => said_once(attempt, &settings.region, &error, "register on the region's log"),
            }
            if events.is_closed() {
                return;
            }
        }
    });
}

/// One trouble is one line, then one a minute or so.
fn said_once(attempt: u32, region: &RegionName, error: &log::LogError, what: &'static str) {
    if attempt.is_multiple_of(60) {
        warn!(%region, error = %muster_telemetry::chain(error), "{what}; trying again");
    }
}

pub(super) fn watch_registration(
    registered: Arc<dyn Registered>,
    events: UnboundedSender<Event>,
    tracker: &TaskTracker,
) {
    tracker.spawn(async move {
        registered.lost().await;
        let _ = events.send(Event::Input(Input::RegistrationLost(registered.writer())));
    });
}

/// Catches up, then follows until the follower ends. The driver aborts it when
/// another takes its place.
pub(super) fn follow(
    region: &RegionName,
    log: &Arc<dyn RegionLog>,
    events: &UnboundedSender<Event>,
    follower: u64,
    after: u64,
) -> AbortHandle {
    let (log, events, region) = (log.clone(), events.clone(), region.clone());
    let task = tokio::spawn(async move {
        let mut attempt = 0;
        let (caught_up, mut following) = loop {
            tokio::time::sleep(backoff(attempt)).await;
            let caught_up = match log.catch_up(after).await {
                Ok(caught_up) => log.follow(caught_up.position).await.map(|following| (caught_up, following)),
                Err(error) => Err(error),
            };
            match caught_up {
                Ok(both) => break both,
                Err(error) => said_once(attempt, &region, &error, "read the region's log"),
            }
            attempt += 1;
        };
        let entries = caught_up.entries.into_iter().map(Into::into).collect();
        let input = Input::CaughtUp { snapshot: caught_up.snapshot, entries, head: caught_up.head };
        let _ = events.send(Event::Follower(follower, input));
        loop {
            let input = match following.next().await {
                Ok(entries) => Input::Followed(entries.into_iter().map(Into::into).collect()),
                Err(error) => {
                    debug!(%region, %error, "the follower of the region's log is over; catching up");
                    Input::FollowEnded
                }
            };
            let ended = input == Input::FollowEnded;
            if events.send(Event::Follower(follower, input)).is_err() || ended {
                return;
            }
        }
    });
    task.abort_handle()
}
