//! Planned absences of regions.

use muster_protocol::global::Action;
use muster_protocol::identity::Timestamp;
use muster_protocol::name::RegionName;
use muster_protocol::outcome::Override;
use muster_wire::time::rfc3339;

use super::audit::{self, Entry};
use super::backend::{End, Transaction};
use super::query::{Query, row};
use super::regions::drained;
use super::{Overruled, StoreError, Until};

const DRAIN: &str = "update regions set drained_until = $2, drained_actor = $3, drained_reason = $4 where name = $1";

const FIND: &str = "select name, drained_until, drained_actor, drained_reason from regions where name = $1";

type Found = (String, Option<i64>, Option<String>, Option<String>);

/// Drains a region, or ends its drain.
pub(super) async fn drain<T: Transaction>(
    tx: &mut T,
    region: RegionName,
    until: Option<Until>,
    by: Override,
) -> Result<(Overruled, End), StoreError> {
    // Whoever opened something without knowing of the drain has ended before
    // this goes on, and can be found.
    tx.lock_out_deciders().await?;
    let find = Query::new(FIND).with(region.as_str()).push(T::LOCKING);
    let Some((_, was_until, actor, reason)) = tx.fetch::<Found>(find).await?.into_iter().next() else {
        return Ok((Overruled::Undeclared, End::Rollback));
    };
    let now = tx.clock().await?.now;
    let before = drained(was_until, actor, reason, now)?;
    let until = until.map(|until| match until {
        Until::At(at) => at,
        Until::In(time) => now.plus_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    });
    let same = match (&before, until) {
        (None, None) => true,
        (Some(before), Some(until)) => before.until == until && before.by == by,
        _ => false,
    };
    match until {
        Some(until) if until <= now => Ok((Overruled::Past, End::Rollback)),
        _ if same => Ok((Overruled::Done { changed: false }, End::Rollback)),
        until => {
            write(tx, &region, until, &by).await?;
            let (action, object) = match until {
                Some(until) => (Action::Drain, format!("{region} until {}", rfc3339(until))),
                None => (Action::Resume, region.to_string()),
            };
            audit::write(tx, Entry { at: now, action, by: &by, object: &object }).await?;
            Ok((Overruled::Done { changed: true }, End::Commit))
        }
    }
}

async fn write<T: Transaction>(
    tx: &mut T,
    region: &RegionName,
    until: Option<Timestamp>,
    by: &Override,
) -> Result<(), StoreError> {
    let at = until.map(|until| i64::try_from(until.0).unwrap_or(i64::MAX));
    let actor = by.actor.clone().filter(|_| at.is_some());
    let reason = at.map(|_| by.reason.clone());
    tx.execute(Query::new(DRAIN).with_all(row![region.as_str(), at, actor, reason])).await.map(drop)
}
