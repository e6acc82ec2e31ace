//! What Postgres and the regions' etcds hold once all is calm, read without the
//! service's help and held against what its clients were told.

use std::collections::BTreeMap;

use anyhow::{Context, bail, ensure};
use muster_protocol::name::RegionName;
use muster_protocol::region::Region;
use muster_protocol::replica::{Input, Logged, Output, Replica};
use muster_regional_agent::log::RegionLog as _;
use muster_regional_agent::log::etcd::{Etcd, EtcdOptions};
use sqlx::{Connection as _, PgConnection};

use super::fault::Place;
use crate::cluster::{Cluster as _, Part};
use crate::history::{Answer, Call, What};
use crate::services::members;
use crate::until::until;
use crate::world::World;

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compared {
    /// Ends that clients were told, with Postgres.
    pub(super) told: u64,
    /// Ends in Postgres, with each region's.
    pub(super) applied: u64,
    /// Acknowledged arrivals, with their region's.
    pub(super) arrivals: u64,
}

/// Its barrier may be gone, and everything of it.
const GONE: [&str; 2] = ["deleted-", "nametaken-"];

/// Compares; an error is something that differs.
pub(super) async fn scan(place: &Place<'_>, world: &World<'_>) -> anyhow::Result<Compared> {
    let ends = until("every end is applied everywhere", || async {
        let ends = ends(place, world.namespace()).await?;
        let open: Vec<&String> = ends.iter().filter(|(_, end)| !end.settled).map(|(id, _)| id).collect();
        ensure!(open.is_empty(), "these are not settled: {open:?}");
        Ok(ends)
    })
    .await?;
    let mut regions = BTreeMap::new();
    for region in world.regions() {
        let state = state(place, region).await.with_context(|| format!("read the log of {region}"))?;
        regions.insert(region.to_string(), state);
    }
    let mut compared = Compared::default();
    for (id, end) in &ends {
        for (name, region) in &regions {
            compared.applied += u64::from(applied(end, region).with_context(|| format!("{id} in {name}"))?);
        }
    }
    let mut arrived: BTreeMap<(&str, &str), Option<u32>> = BTreeMap::new();
    let calls = world.history.calls();
    for call in &calls {
        compared.told += u64::from(told(call, &ends).with_context(|| format!("{call:?}"))?);
        let stands = arrived.entry((&call.generation, &call.participant)).or_insert(Some(0));
        match (&call.what, &call.answer) {
            // What it took back may or may not stand.
            (What::Withdraw { .. } | What::FallSilent, _) => *stands = None,
            (_, Answer::Arrived { attempt, .. }) => *stands = stands.map(|highest| highest.max(*attempt)),
            _ => {}
        }
    }
    for ((generation, participant), attempt) in arrived {
        let (Some(attempt @ 1..), Some(end)) = (attempt, ends.get(generation)) else { continue };
        let (region, id) = participant.split_once('/').context("a participant without a region")?;
        let region = regions.get(region).with_context(|| format!("there is no region {region}"))?;
        let kept =
            region.generation(&end.barrier.parse()?, end.n.unsigned_abs()).context("it is not in the region's log")?;
        let kept = kept.arrival(&id.parse()?).map(|arrival| arrival.attempt);
        ensure!(
            kept >= Some(attempt),
            "{participant} of {generation}: attempt {attempt} was acknowledged, kept is {kept:?}"
        );
        compared.arrivals += 1;
    }
    ensure!(compared.told > 0 && compared.applied > 0 && compared.arrivals > 0, "nothing was compared: {compared:?}");
    Ok(compared)
}

/// A generation's row.
#[derive(sqlx::FromRow)]
struct End {
    barrier: String,
    n: i64,
    key: Option<String>,
    digest: Option<String>,
    verdict: Option<String>,
    settled: bool,
}

/// By the name that callers have for it.
async fn ends(place: &Place<'_>, namespace: &str) -> anyhow::Result<BTreeMap<String, End>> {
    let mut postgres = PgConnection::connect(place.cluster.postgres()).await.context("connect to Postgres")?;
    let all = "select namespace || '/' || name as barrier, n, key, digest, verdict, settled
        from generations where namespace = $1";
    let rows: Vec<End> = sqlx::query_as(all).bind(namespace).fetch_all(&mut postgres).await?;
    let named = |row: End| {
        let id = row.key.clone().unwrap_or_else(|| row.n.to_string());
        (format!("{}@{id}", row.barrier), row)
    };
    Ok(rows.into_iter().map(named).collect())
}

/// Whether a region holds the generation, and not with another end.
fn applied(end: &End, region: &Region) -> anyhow::Result<bool> {
    let Some(generation) = region.generation(&end.barrier.parse()?, end.n.unsigned_abs()) else { return Ok(false) };
    // What breaks there by its name alone has no end of the coordinator's.
    let own = region.regional_barrier(&end.barrier.parse()?).is_some();
    let (here, there) = (generation.ended().map(|ended| ended.digest.to_string()), end.digest.clone());
    ensure!(own || here == there, "it has applied {here:?}, Postgres holds {there:?}");
    Ok(!own)
}

/// Whether a call was told an end, and that end is the one that is kept.
fn told(call: &Call, ends: &BTreeMap<String, End>) -> anyhow::Result<bool> {
    let (verdict, digest) = match &call.answer {
        Answer::Released { digest, .. } => ("released", Some(digest)),
        Answer::Broken => ("broken", None),
        _ => return Ok(false),
    };
    let Some(end) = ends.get(&call.generation) else {
        let gone = GONE.iter().any(|kind| call.generation.split('/').nth(1).is_some_and(|name| name.starts_with(kind)));
        ensure!(gone, "Postgres holds nothing of it");
        return Ok(false);
    };
    ensure!(end.verdict.as_deref() == Some(verdict), "Postgres holds {:?}", end.verdict);
    ensure!(digest.is_none() || digest == end.digest.as_ref(), "Postgres holds {:?}", end.digest);
    Ok(true)
}

/// A region's state, replayed from its log.
async fn state(place: &Place<'_>, region: &RegionName) -> anyhow::Result<Region> {
    let urls = place.own.services.database(&Part::Agent(region.clone(), 0), place.cluster.shape());
    let endpoints = members(urls).into_iter().map(ToOwned::to_owned).collect();
    let options = EtcdOptions { endpoints, prefix: place.cluster.etcd_prefix(), ..EtcdOptions::default() };
    let log = Etcd::open(options, region).await?;
    let identity = log.identity().await?;
    let caught_up = log.catch_up(0).await?;
    let mut replica = Replica::new(Region::new(region.clone(), identity.history, identity.shard));
    let entries: Vec<Logged> = caught_up.entries.into_iter().map(Into::into).collect();
    let input = Input::CaughtUp { snapshot: caught_up.snapshot, entries, head: caught_up.head };
    for output in replica.step(input) {
        match output {
            Output::Stop(stop) => bail!("{stop}"),
            Output::CatchUp { after } => bail!("the replica doubts what follows {after}"),
            _ => {}
        }
    }
    ensure!(replica.region().index() == caught_up.head, "it ends before its head");
    Ok(replica.region().clone())
}
