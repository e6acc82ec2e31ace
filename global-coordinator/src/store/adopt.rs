//! Taking another life of a region's log for the one that counts: an etcd that
//! was recreated, or a backup that was restored under a new history.

use muster_protocol::global::Action;
use muster_protocol::identity::History;
use muster_protocol::name::RegionName;
use muster_protocol::outcome::Override;

use super::audit::{self, Entry};
use super::backend::{End, Transaction};
use super::query::{Query, row};
use super::record::parsed;
use super::{Overruled, StoreError};

const FIND: &str = "select name from regions where name = $1";

const LIVES: &str = "select history, standing from histories where region = $1 order by history";

const STANDING: &str = "update histories set standing = $3 where region = $1 and history = $2";

/// What was reported by the former life of what is undecided is said again by
/// this one.
const UNSAY: &str = "delete from reports where region = $1 and exists (select 1 from generations as g
    where g.namespace = reports.namespace and g.name = reports.name and g.n = reports.n and g.decided is null)";

/// Of what is decided, the reports stay: an end was made of them. But this life
/// may not know the end.
const UNAPPLY: &str = "update reports set applied = null where region = $1 and applied is not null";

const TOUCH: &str = "update generations set version = version + 1, settled = false where not closed and exists
    (select 1 from spec_regions as s where s.namespace = generations.namespace and s.name = generations.name
        and s.revision = generations.revision and s.region = $1)";

/// Takes another history for a region's.
pub(super) async fn adopt<T: Transaction>(
    tx: &mut T,
    region: RegionName,
    history: History,
    by: Override,
) -> Result<(Overruled, End), StoreError> {
    // Nobody may write a report of the former life once its reports are gone.
    tx.lock_out_deciders().await?;
    let found: Vec<(String,)> = tx.fetch(Query::new(FIND).with(region.as_str()).push(T::LOCKING)).await?;
    if found.is_empty() {
        return Ok((Overruled::Undeclared, End::Rollback));
    }
    let lives: Vec<(String, String)> = tx.fetch(Query::new(LIVES).with(region.as_str())).await?;
    let text = history.to_string();
    let (name, current) = (region.as_str(), lives.iter().find(|(_, standing)| standing == "current"));
    match lives.iter().find(|(life, _)| *life == text) {
        None => {
            let greeted = lives.iter().map(|(life, _)| parsed("history", life)).collect::<Result<_, _>>()?;
            return Ok((Overruled::NeverGreeted(greeted), End::Rollback));
        }
        Some((_, standing)) if standing == "current" => {
            return Ok((Overruled::Done { changed: false }, End::Rollback));
        }
        Some(_) => {}
    }
    // One after the other: there is never more than one current life.
    if let Some((former, _)) = current {
        tx.execute(Query::new(STANDING).with_all(row![name, former.as_str(), "superseded"])).await?;
    }
    tx.execute(Query::new(STANDING).with_all(row![name, text.as_str(), "current"])).await?;
    tx.execute(Query::new("delete from agents where region = $1").with(name)).await?;
    tx.execute(Query::new(UNSAY).with(name)).await?;
    tx.execute(Query::new(UNAPPLY).with(name)).await?;
    tx.execute(Query::new(TOUCH).with(name)).await?;
    let now = tx.clock().await?.now;
    let object = format!("{region} {text}");
    audit::write(tx, Entry { at: now, action: Action::Adopt, by: &by, object: &object }).await?;
    Ok((Overruled::Done { changed: true }, End::Commit))
}
