//! A region's etcd in the hands of whoever operates it.

use anyhow::{Context, bail};
use etcd_client::{
    AlarmAction, AlarmOptions, AlarmType, Client, CompactionOptions, DeleteOptions, Error, GetOptions, ResponseHeader,
};
use muster_protocol::name::RegionName;

use crate::services::members;
use crate::until::until;

/// What is put where nobody else looks, to fill it.
const FILLER: &str = "/filler/";
/// Of one filler: etcd takes requests of up to 1.5 MiB.
const FILLER_BYTES: usize = 1024 * 1024;
/// Fillers that a quota must not have room for.
const FILLERS_MAX: usize = 64;

/// One etcd, of one member or more.
#[derive(Debug)]
pub struct Etcd {
    region: RegionName,
    urls: Vec<String>,
}

impl Etcd {
    /// The etcd of a region, of which [`Services`](crate::services::Services)
    /// say this.
    #[must_use]
    pub fn new(region: &RegionName, urls: &str) -> Self {
        Self { region: region.clone(), urls: members(urls).into_iter().map(ToOwned::to_owned).collect() }
    }

    /// The members, as `services` names them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let later = (2..=self.urls.len()).map(|number| format!("etcd-{}@{number}", self.region));
        std::iter::once(format!("etcd-{}", self.region)).chain(later).collect()
    }

    /// Puts what nobody needs until there is no room for more.
    ///
    /// # Errors
    /// It fails otherwise, or has no quota.
    pub async fn fill(&self) -> anyhow::Result<()> {
        let mut client = self.member(0).await?;
        for number in 0..FILLERS_MAX {
            match client.put(format!("{FILLER}{number}"), vec![0; FILLER_BYTES], None).await {
                Ok(_) => {}
                Err(Error::GRpcStatus(status)) if status.message().contains("space exceeded") => return Ok(()),
                Err(error) => return Err(error).context("fill etcd"),
            }
        }
        bail!("{FILLERS_MAX} MiB do not fill etcd: it was started without a quota")
    }

    /// Makes room again, as etcd's own guide says: deletes, compacts,
    /// defragments, disarms the alarm.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn make_room(&self) -> anyhow::Result<()> {
        let mut client = self.member(0).await?;
        let deleted = client.delete(FILLER, Some(DeleteOptions::new().with_prefix())).await.context("delete")?;
        let revision = deleted.header().map_or(0, ResponseHeader::revision);
        client.compact(revision, Some(CompactionOptions::new().with_physical())).await.context("compact")?;
        client.defragment().await.context("defragment")?;
        let alarms = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await.context("list the alarms")?;
        for alarm in alarms.alarms() {
            let mut options = AlarmOptions::new();
            options.with_member(alarm.member_id());
            client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(options)).await.context("disarm")?;
        }
        Ok(())
    }

    /// The keys below a prefix that were there once and stayed: their names
    /// and the revisions they were created at.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn keys(&self, prefix: &str) -> anyhow::Result<Vec<(String, i64)>> {
        let options = GetOptions::new().with_prefix().with_keys_only();
        let mut found = self.member(0).await?.get(prefix, Some(options)).await.context("list keys")?;
        let keys = found.take_kvs().into_iter();
        Ok(keys.map(|key| (String::from_utf8_lossy(key.key()).into_owned(), key.create_revision())).collect())
    }

    /// Which member leads, once all of them agree, and everybody's id.
    ///
    /// # Errors
    /// They do not agree in time.
    pub async fn leader(&self) -> anyhow::Result<(usize, Vec<u64>)> {
        until("the members of etcd agree on a leader", || async {
            let (mut ids, mut leaders) = (Vec::new(), Vec::new());
            for number in 0..self.urls.len() {
                let mut client = self.member(number).await?;
                let status = client.status().await?;
                ids.push(status.header().map_or(0, ResponseHeader::member_id));
                leaders.push(status.leader());
            }
            let leader = ids.iter().position(|id| leaders.iter().all(|leader| leader == id));
            leader.map(|leader| (leader, ids)).with_context(|| format!("they name {leaders:?}"))
        })
        .await
    }

    /// Another member leads, by request.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn move_leader(&self) -> anyhow::Result<()> {
        let (leader, ids) = self.leader().await?;
        let next = ids[(leader + 1) % ids.len()];
        self.member(leader).await?.move_leader(next).await.context("move the leadership")?;
        Ok(())
    }

    async fn member(&self, number: usize) -> anyhow::Result<Client> {
        let url = &self.urls[number];
        Client::connect([url], None).await.with_context(|| format!("connect to {url}"))
    }
}
