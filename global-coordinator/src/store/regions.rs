//! Regions, the lives of their logs, and signs of life.
//!
//! Lock order, after barriers: of each region in the order of their names its
//! row, its histories, its agents.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_protocol::fact::{AgentId, Heartbeat, Hello, Standing, Welcome};
use muster_protocol::global::Declared;
use muster_protocol::identity::{Era, History, Timestamp};
use muster_protocol::mutant;
use muster_protocol::name::RegionName;
use muster_protocol::outcome::Override;

use super::backend::{Clock, End, Transaction};
use super::error::defect;
use super::query::{Query, guarded, row};
use super::record::{parsed, timestamp, unsigned};
use super::{AgentRow, Drained, RegionRow, StoreError};

/// Agents not heard for so long are left out of answers.
const AGENT_SHOWN_MS: u64 = 60_000;

/// Agents not heard for so long are forgotten: each start of a process is one.
const AGENT_KEPT_MS: u64 = 24 * 3_600_000;

const CURRENT: &str = "select r.name, r.era, r.drained_until, r.drained_actor, r.drained_reason, h.history
    from regions as r left join histories as h on h.region = r.name and h.standing = 'current'";

const RAISE: &str = "update histories set highest_index = $3
    where region = $1 and history = $2 and standing = 'current' and highest_index < $3";

const SEEN: &str = "insert into histories (region, history, standing, highest_index, first_seen_at)
    select $1, $2, case when exists (select 1 from histories where region = $1 and standing = 'current')
        then 'unknown' else 'current' end, $3, $4
    where true
    on conflict (region, history) do update set highest_index = excluded.highest_index
        where histories.highest_index < excluded.highest_index";

/// Only of the current history, and never backwards.
/// Only by a sign of life of the current history that carries the present era:
/// the agent has told all that it had to tell.
const ERA: &str = "update regions set era = $3 where name = $1 and (era is null or era <> $3)
    and exists (select 1 from histories where region = $1 and history = $2 and standing = 'current')";

const HEARD: &str = "update regions set heard_at = $3 where name = $1 and (heard_at is null or heard_at < $3)
    and exists (select 1 from histories where region = $1 and history = $2 and standing = 'current')";

const AGENT: &str = "insert into agents (region, name, instance, address, heard_at)
    select $1, $3, $4, $5, $6 from histories where region = $1 and history = $2 and standing = 'current'
    on conflict (region, name, instance) do update set address = excluded.address, heard_at = excluded.heard_at";

const LIVES: &str = "select region, history from histories where standing = 'unknown' order by region, history";

const REGIONS: &str = "select r.name, r.heard_at, r.era, r.drained_until, r.drained_actor, r.drained_reason,
    h.history, h.highest_index from regions as r left join histories as h on h.region = r.name and h.standing = 'current' order by r.name";

#[derive(sqlx::FromRow)]
struct RegionRecord {
    name: String,
    heard_at: Option<i64>,
    era: Option<String>,
    drained_until: Option<i64>,
    drained_actor: Option<String>,
    drained_reason: Option<String>,
    history: Option<String>,
    highest_index: Option<i64>,
}

#[derive(sqlx::FromRow)]
struct CurrentRecord {
    name: String,
    era: Option<String>,
    drained_until: Option<i64>,
    drained_actor: Option<String>,
    drained_reason: Option<String>,
    history: Option<String>,
}

#[derive(sqlx::FromRow)]
struct AgentRecord {
    region: String,
    name: String,
    instance: String,
    address: String,
    heard_at: i64,
}

/// The declared regions as decisions see them.
pub(super) async fn current<T: Transaction>(
    tx: &mut T,
    now: Timestamp,
) -> Result<BTreeMap<RegionName, Declared>, StoreError> {
    let rows: Vec<CurrentRecord> = tx.fetch(Query::new(CURRENT)).await?;
    let read = |row: CurrentRecord| {
        let drained = drained(row.drained_until, row.drained_actor, row.drained_reason, now)?;
        let declared = Declared {
            history: row.history.map(|history| parsed("history", &history)).transpose()?,
            era: row.era.map(Era),
            drained: drained.map(|drained| drained.by),
        };
        Ok((parsed("region", &row.name)?, declared))
    };
    rows.into_iter().map(read).collect()
}

/// A planned absence, while it lasts.
pub(super) fn drained(
    until: Option<i64>,
    actor: Option<String>,
    reason: Option<String>,
    now: Timestamp,
) -> Result<Option<Drained>, StoreError> {
    let Some((until, reason)) = until.zip(reason) else { return Ok(None) };
    let until = timestamp(until)?;
    Ok((now < until).then_some(Drained { until, by: Override { actor, reason } }))
}

/// Raises the highest index that was seen of each current history. Last in
/// its transaction: all batches with reports of one region meet in this row.
pub(super) async fn raise<T: Transaction>(
    tx: &mut T,
    indices: BTreeMap<(RegionName, History), u64>,
) -> Result<(), StoreError> {
    for ((region, history), index) in indices {
        let raise = guarded(RAISE, " and highest_index", mutant!(IndexFalls));
        let query = Query::new(raise).with_all(row![region.as_str(), history.to_string(), index]);
        tx.execute(query).await?;
    }
    Ok(())
}

/// Declares a region; false if it was.
pub(super) async fn declare<T: Transaction>(tx: &mut T, region: RegionName) -> Result<(bool, End), StoreError> {
    let now = tx.clock().await?.now;
    let query = Query::new("insert into regions (name, declared_at) values ($1, $2) on conflict (name) do nothing");
    let written = tx.execute(query.with(region.as_str()).with(now.0)).await?;
    Ok((written == 1, End::Commit))
}

/// Takes a greeting.
pub(super) async fn hello<T: Transaction>(tx: &mut T, hello: Hello) -> Result<(Welcome, End), StoreError> {
    let Hello { region, agent, history, head, address, era: welcomed_by, .. } = hello;
    let (name, greeting) = (region.clone(), agent.clone());
    let welcome = |standing, index, era: &Era, tell_ends| {
        let (region, agent, era) = (name.clone(), greeting.clone(), Some(era.clone()));
        Welcome { region, agent, history, standing, index, era, tell_ends }
    };
    // Two first greetings of one region must not both find it without history.
    let locked = Query::new("select name, era from regions where name = $1").with(region.as_str()).push(T::LOCKING);
    let known: Vec<(String, Option<String>)> = tx.fetch(locked).await?;
    let clock = tx.clock().await?;
    let Some((_, era)) = known.into_iter().next() else {
        return Ok((welcome(Standing::Undeclared, 0, &clock.era, false), End::Rollback));
    };
    let first = "select count(*) from histories where region = $1";
    let first: Vec<(i64,)> = tx.fetch(Query::new(first).with(region.as_str())).await?;
    let first = first.first().is_some_and(|(lives,)| *lives == 0);
    let text = history.to_string();
    tx.execute(Query::new(SEEN).with_all(row![region.as_str(), text.as_str(), head, clock.now.0])).await?;
    let known = Query::new("select standing, highest_index from histories where region = $1 and history = $2");
    let known: Vec<(String, i64)> = tx.fetch(known.with(region.as_str()).with(text)).await?;
    let (standing, index) = known.first().ok_or_else(|| defect("a history just written is not there"))?;
    let standing = read_standing(standing)?;
    // Nobody waits for what the first life of a region's log may tell, unless an
    // agent of it was welcome before: it was the lost commits that knew of it.
    if first && welcomed_by.is_none() || mutant!(GreetingTellsAll) {
        tx.execute(Query::new(ERA).with_all(row![region.as_str(), history.to_string(), clock.era.0.as_str()])).await?;
    }
    let tell_ends = standing == Standing::Current && era.as_deref() != Some(clock.era.0.as_str());
    let answer = welcome(standing, unsigned(*index)?, &clock.era, tell_ends);
    heard(tx, &region, history, &clock).await?;
    agent_heard(tx, &region, history, &agent, &address, &clock).await?;
    let forgotten = Query::new("delete from agents where region = $1 and heard_at < $2");
    let before = clock.now.0.saturating_sub(AGENT_KEPT_MS);
    tx.execute(forgotten.with(region.as_str()).with(before)).await?;
    Ok((answer, End::Commit))
}

fn read_standing(text: &str) -> Result<Standing, StoreError> {
    match text {
        "current" => Ok(Standing::Current),
        "superseded" => Ok(Standing::Superseded),
        "unknown" => Ok(Standing::Unknown),
        other => Err(defect(format!("the stored standing {other:?} can't be read"))),
    }
}

/// Takes signs of life, the last of each agent. Those of a history that is not
/// current change nothing.
pub(super) async fn heartbeats<T: Transaction>(
    tx: &mut T,
    heartbeats: &[Heartbeat],
) -> Result<(Vec<Welcome>, End), StoreError> {
    let mut lives: BTreeMap<(&RegionName, History), BTreeMap<&AgentId, &Heartbeat>> = BTreeMap::new();
    for beat in heartbeats {
        lives.entry((&beat.region, beat.history)).or_default().insert(&beat.agent, beat);
    }
    let clock = tx.clock().await?;
    let mut welcomes = Vec::new();
    for ((region, history), agents) in lives {
        let highest = heartbeats.iter().filter(|beat| &beat.region == region && beat.history == history);
        let highest = highest.map(|beat| beat.index).max().unwrap_or(0);
        heard(tx, region, history, &clock).await?;
        raise(tx, BTreeMap::from([((region.clone(), history), highest)])).await?;
        for (agent, beat) in &agents {
            agent_heard(tx, region, history, agent, &beat.address, &clock).await?;
        }
        if agents.values().any(|beat| beat.era.as_ref() == Some(&clock.era)) {
            let era = row![region.as_str(), history.to_string(), clock.era.0.as_str()];
            tx.execute(Query::new(ERA).with_all(era)).await?;
        }
        welcomes.extend(welcome_anew(tx, region, history, agents.values().copied(), &clock).await?);
    }
    Ok((welcomes, End::Commit))
}

/// Welcomes for agents that have not heard of the present life of the
/// database. One that says no life at all is of a build without them, or was
/// welcomed by one: it is told as long as its region has not caught up. An agent
/// whose log does not count believes that it does, or it would show no life: the
/// lost commits knew its log, or another took its place. It is told so, and
/// greets.
async fn welcome_anew<'a, T: Transaction>(
    tx: &mut T,
    region: &RegionName,
    history: History,
    beats: impl Iterator<Item = &'a Heartbeat>,
    clock: &Clock,
) -> Result<Vec<Welcome>, StoreError> {
    let known = "select r.era, h.standing, h.highest_index from regions as r
        left join histories as h on h.region = r.name and h.history = $2 where r.name = $1";
    let known = Query::new(known).with(region.as_str()).with(history.to_string());
    let known: Vec<(Option<String>, Option<String>, Option<i64>)> = tx.fetch(known).await?;
    let (standing, index, told) = match known.into_iter().next() {
        None => (Standing::Undeclared, None, false),
        Some((_, None, _)) => (Standing::Unknown, None, false),
        Some((era, Some(standing), index)) => {
            (read_standing(&standing)?, index, era.as_deref() == Some(clock.era.0.as_str()))
        }
    };
    let (index, tell_ends) = (index.map_or(Ok(0), unsigned)?, standing == Standing::Current && !told);
    let stale = beats.filter(|beat| match standing {
        Standing::Current => beat.era.as_ref() != Some(&clock.era) && (beat.era.is_some() || tell_ends),
        Standing::Unknown | Standing::Superseded | Standing::Undeclared => true,
    });
    let welcome = |beat: &Heartbeat| Welcome {
        region: region.clone(),
        agent: beat.agent.clone(),
        history,
        standing,
        index,
        era: Some(clock.era.clone()),
        tell_ends,
    };
    Ok(stale.map(welcome).collect())
}

async fn heard<T: Transaction>(
    tx: &mut T,
    region: &RegionName,
    history: History,
    clock: &Clock,
) -> Result<(), StoreError> {
    let sign = row![region.as_str(), history.to_string(), clock.now.0];
    let heard = guarded(HEARD, " and exists", mutant!(AnyLifeCounts));
    tx.execute(Query::new(heard).with_all(sign)).await.map(drop)
}

async fn agent_heard<T: Transaction>(
    tx: &mut T,
    region: &RegionName,
    history: History,
    agent: &AgentId,
    address: &str,
    clock: &Clock,
) -> Result<(), StoreError> {
    let (name, instance) = (agent.name.as_str(), agent.instance.as_str());
    let sign = row![region.as_str(), history.to_string(), name, instance, address, clock.now.0];
    tx.execute(Query::new(AGENT).with_all(sign)).await.map(drop)
}

/// The declared regions, by name.
pub(super) async fn regions<T: Transaction>(tx: &mut T) -> Result<(Vec<RegionRow>, End), StoreError> {
    let now = tx.clock().await?.now;
    let mut agents: BTreeMap<String, Vec<AgentRow>> = BTreeMap::new();
    let query = Query::new("select region, name, instance, address, heard_at from agents where heard_at >= $1")
        .push(" order by region, name, instance");
    for record in tx.fetch::<AgentRecord>(query.with(now.0.saturating_sub(AGENT_SHOWN_MS))).await? {
        let heard_at = timestamp(record.heard_at)?;
        let AgentRecord { region, name, instance, address, .. } = record;
        let silence = since(now, heard_at);
        agents.entry(region).or_default().push(AgentRow { name, instance, address, heard_at, silence });
    }
    let mut unknown: BTreeMap<String, Vec<History>> = BTreeMap::new();
    for (region, history) in tx.fetch::<(String, String)>(Query::new(LIVES)).await? {
        unknown.entry(region).or_default().push(parsed("history", &history)?);
    }
    let mut rows = Vec::new();
    for record in tx.fetch::<RegionRecord>(Query::new(REGIONS)).await? {
        let heard_at = record.heard_at.map(timestamp).transpose()?;
        rows.push(RegionRow {
            agents: agents.remove(&record.name).unwrap_or_default(),
            unknown_histories: unknown.remove(&record.name).unwrap_or_default(),
            drained: drained(record.drained_until, record.drained_actor, record.drained_reason, now)?,
            era: record.era.map(Era),
            name: parsed("region", &record.name)?,
            history: record.history.map(|history| parsed("history", &history)).transpose()?,
            index: record.highest_index.map_or(Ok(0), unsigned)?,
            silence: heard_at.map(|at| since(now, at)),
            heard_at,
        });
    }
    Ok((rows, End::Rollback))
}

/// How long ago an instant was.
pub(super) fn since(now: Timestamp, earlier: Timestamp) -> Duration {
    Duration::from_millis(now.since_ms(earlier))
}
