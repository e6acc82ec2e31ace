//! What can befall a cluster, how it begins and how it is over.

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use muster_protocol::name::RegionName;
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::super::restarting::TERMINATED;
use crate::cluster::processes::Processes;
use crate::cluster::{Cluster, Part};
use crate::links::{End, Links, Trouble};
use crate::services::OwnServices;

/// What is hurt.
pub(super) struct Place<'a> {
    /// The service's own processes.
    pub(super) cluster: &'a Processes,
    /// What is between them.
    pub(super) links: &'a Links,
    /// What they stand on.
    pub(super) own: &'a OwnServices,
}

/// What befalls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL.
    Kill(Part),
    /// SIGTERM.
    Stop(Part),
    /// SIGSTOP, and SIGCONT when it is over.
    Pause(Part),
    /// Killed, and again at this point of its next life.
    DieAt(Part, &'static str),
    /// Trouble of a link.
    Link(Part, End, Trouble),
    /// A service: `etcd-REGION`, `kafka`, `postgres`.
    Service(String, Blow),
    /// A region's etcd forgets its past revisions.
    Compact(RegionName),
    /// Postgres ends all connections.
    Disconnect,
}

/// How a service is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// With SIGKILL.
    Kill,
    /// In good order.
    Stop,
    /// Where it stands.
    Pause,
}

impl Fault {
    /// What is counted: the kind, without what it hits.
    #[must_use]
    pub(super) fn kind(&self) -> String {
        match self {
            Self::Kill(_) => "kill".to_owned(),
            Self::Stop(_) => "stop".to_owned(),
            Self::Pause(_) => "pause".to_owned(),
            Self::DieAt(..) => "die at a point".to_owned(),
            Self::Link(_, _, Trouble::Cut(_) | Trouble::HalfOpen(_) | Trouble::Refused) => "cut".to_owned(),
            Self::Link(_, _, Trouble::Reset) => "reset".to_owned(),
            Self::Link(_, _, Trouble::Slow(_) | Trouble::Throttled(_)) => "slow link".to_owned(),
            Self::Service(name, blow) => format!("{name} {}", format!("{blow:?}").to_lowercase()),
            Self::Compact(_) => "compaction".to_owned(),
            Self::Disconnect => "connections ended".to_owned(),
        }
    }

    /// It happens.
    pub(super) async fn strike(&self, place: &Place<'_>) -> anyhow::Result<()> {
        match self {
            Self::Kill(part) => place.cluster.kill(part).await,
            Self::Stop(part) => stop(place, part).await,
            Self::Pause(part) => place.cluster.pause(part),
            Self::DieAt(part, point) => {
                place.cluster.kill(part).await?;
                place.cluster.arm(part, point);
                place.cluster.start(part).await
            }
            Self::Link(part, end, trouble) => {
                place.links.trouble(part, *end, *trouble);
                Ok(())
            }
            Self::Service(name, Blow::Kill) => place.own.kill(name).await,
            Self::Service(name, Blow::Stop) => place.own.stop(name).await,
            Self::Service(name, Blow::Pause) => place.own.pause(name).await,
            Self::Compact(region) => compact(place, region).await,
            Self::Disconnect => disconnect(place).await,
        }
    }

    /// It is over.
    pub(super) async fn heal(&self, place: &Place<'_>) -> anyhow::Result<()> {
        match self {
            Self::Kill(part) | Self::Stop(part) => place.cluster.start(part).await,
            Self::Pause(part) => place.cluster.resume(part),
            Self::DieAt(part, _) => {
                place.cluster.disarm(part);
                match place.cluster.is_dead(part) {
                    true => drop(place.cluster.until_dead(part).await?),
                    // It has not come to that point.
                    false => place.cluster.kill(part).await?,
                }
                place.cluster.start(part).await
            }
            Self::Link(part, end, _) => {
                place.links.heal(part, *end);
                Ok(())
            }
            Self::Service(name, Blow::Pause) => place.own.resume(name).await,
            Self::Service(name, _) => place.own.start_again(name).await,
            Self::Compact(_) | Self::Disconnect => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(part) => write!(f, "kill {part}"),
            Self::Stop(part) => write!(f, "stop {part}"),
            Self::Pause(part) => write!(f, "pause {part}"),
            Self::DieAt(part, point) => write!(f, "{part} dies at {point}"),
            Self::Link(part, end, trouble) => write!(f, "{trouble:?} between {part} and its {end:?}"),
            Self::Service(name, blow) => write!(f, "{blow:?} {name}"),
            Self::Compact(region) => write!(f, "compact the etcd of {region}"),
            Self::Disconnect => write!(f, "end all connections of Postgres"),
        }
    }
}

/// A part that is still starting, as it does while its database is away, ends at
/// once and says so.
async fn stop(place: &Place<'_>, part: &Part) -> anyhow::Result<()> {
    place.cluster.terminate(part)?;
    let status = place.cluster.until_dead(part).await?;
    ensure!(status.success() || status.code() == Some(TERMINATED), "it ended with {status}");
    Ok(())
}

/// How long a service is asked for something.
const REQUEST_MAX: Duration = Duration::from_secs(3);

async fn compact(place: &Place<'_>, region: &RegionName) -> anyhow::Result<()> {
    let url = place.own.services.database(&Part::Agent(region.clone(), 0), place.cluster.shape());
    let compacted = async {
        let mut etcd = etcd_client::Client::connect([url], None).await?;
        let revision = etcd.get("revision", None).await?.header().map_or(0, etcd_client::ResponseHeader::revision);
        etcd.compact(revision, None).await
    };
    // Another hand may have it.
    let _ = tokio::time::timeout(REQUEST_MAX, compacted).await;
    Ok(())
}

async fn disconnect(place: &Place<'_>) -> anyhow::Result<()> {
    // Another hand may have all of Postgres.
    let connection = PgConnection::connect(&place.own.services.postgres);
    let Ok(Ok(mut connection)) = tokio::time::timeout(REQUEST_MAX, connection).await else { return Ok(()) };
    let others = "select pg_terminate_backend(pid) from pg_stat_activity \
                  where pid <> pg_backend_pid() and backend_type = 'client backend'";
    let _ = tokio::time::timeout(REQUEST_MAX, connection.execute(others)).await;
    Ok(())
}
