//! A store that is away, a report that spoils its batch, a bus that drops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use muster_bus::embedded::{Embedded as EmbeddedBus, Faults};
use muster_bus::{Place, Poison};
use muster_protocol::fact::{Heartbeat, Hello, Welcome};
use muster_protocol::global::{Barrier, Command, Step};
use muster_protocol::identity::{Era, History};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Override;
use muster_wire::reference::Reference;

use super::world::{World, soon};
use crate::store::embedded::Embedded as EmbeddedStore;
use crate::store::{
    AuditFilter, AuditRow, Cursor, Due, GenerationFilter, GenerationRow, Mode, Overruled, Page, RegionRow, Store,
    StoreError, Until,
};

/// A store that is away for some transactions, and that has a defect for
/// reports on one barrier.
struct Troubled {
    inner: EmbeddedStore,
    away: AtomicU32,
    spoiled: Option<BarrierName>,
    set_aside: AtomicU32,
}

impl Troubled {
    async fn new(away: u32, spoiled: Option<&str>) -> Arc<Self> {
        let inner = EmbeddedStore::in_memory().await.unwrap();
        let spoiled = spoiled.map(|name| name.parse().unwrap());
        Arc::new(Self { inner, away: AtomicU32::new(away), spoiled, set_aside: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Store for Troubled {
    fn for_calls(&self) -> Arc<dyn Store> {
        self.inner.for_calls()
    }

    async fn transact(&self, batch: Vec<(BarrierName, Command)>, mode: Mode) -> Result<Vec<Step>, StoreError> {
        let reports = batch.iter().any(|(_, command)| matches!(command, Command::Report(_)));
        let spoiled = batch.iter().any(|(name, _)| Some(name) == self.spoiled.as_ref());
        if reports && spoiled {
            return Err(StoreError::Defect("a value out of range".into()));
        }
        if reports && self.away.load(Ordering::Relaxed) > 0 {
            let left = self.away.fetch_sub(1, Ordering::Relaxed);
            return Err(match left % 3 {
                0 => StoreError::Contended("serialization".into()),
                1 => StoreError::Unavailable("connection refused".into()),
                _ => StoreError::Full("no space left".into()),
            });
        }
        self.inner.transact(batch, mode).await
    }

    async fn set_aside(&self, poison: &[(Place, Poison)]) -> Result<(), StoreError> {
        self.set_aside.fetch_add(u32::try_from(poison.len()).unwrap(), Ordering::Relaxed);
        self.inner.set_aside(poison).await
    }

    async fn declare(&self, region: &RegionName) -> Result<bool, StoreError> {
        self.inner.declare(region).await
    }

    async fn hello(&self, hello: &Hello) -> Result<Welcome, StoreError> {
        self.inner.hello(hello).await
    }

    async fn heartbeats(&self, heartbeats: &[Heartbeat]) -> Result<Vec<Welcome>, StoreError> {
        self.inner.heartbeats(heartbeats).await
    }

    async fn drain(&self, region: &RegionName, until: Option<Until>, by: &Override) -> Result<Overruled, StoreError> {
        self.inner.drain(region, until, by).await
    }

    async fn adopt(&self, region: &RegionName, history: History, by: &Override) -> Result<Overruled, StoreError> {
        self.inner.adopt(region, history, by).await
    }

    async fn audit(&self, filter: &AuditFilter, cursor: Cursor, limit: u32) -> Result<Page<AuditRow>, StoreError> {
        self.inner.audit(filter, cursor, limit).await
    }

    async fn collectable(&self, limit: u32) -> Result<Vec<BarrierName>, StoreError> {
        self.inner.collectable(limit).await
    }

    async fn regions(&self) -> Result<Vec<RegionRow>, StoreError> {
        self.inner.regions().await
    }

    async fn barrier(&self, name: &BarrierName) -> Result<Option<Barrier>, StoreError> {
        self.inner.barrier(name).await
    }

    async fn barriers(&self, prefix: Option<&str>, cursor: Cursor, limit: u32) -> Result<Page<Barrier>, StoreError> {
        self.inner.barriers(prefix, cursor, limit).await
    }

    async fn generation(&self, barrier: &BarrierName, id: &Reference) -> Result<Option<GenerationRow>, StoreError> {
        self.inner.generation(barrier, id).await
    }

    async fn generations(
        &self,
        filter: &GenerationFilter,
        cursor: Cursor,
        limit: u32,
    ) -> Result<Page<GenerationRow>, StoreError> {
        self.inner.generations(filter, cursor, limit).await
    }

    async fn unanswered(
        &self,
        region: Option<&RegionName>,
        cursor: Cursor,
        limit: u32,
    ) -> Result<Page<(RegionName, muster_protocol::fact::Fact)>, StoreError> {
        self.inner.unanswered(region, cursor, limit).await
    }

    async fn due(&self, limit: u32) -> Result<Due, StoreError> {
        self.inner.due(limit).await
    }

    async fn check(&self) -> Result<Era, StoreError> {
        self.inner.check().await
    }
}

#[tokio::test]
async fn a_batch_outlives_a_store_that_is_away() {
    let store = Troubled::new(4, None).await;
    let world = World::on(Arc::new(EmbeddedBus::new(64)), store.clone(), &["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    // Said once: nobody repeats it but the coordinator to its store.
    us.reports(&opened, 2).await;
    us.decided("etl/map").await;
    assert_eq!(store.away.load(Ordering::Relaxed), 0);
    world.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_store_that_is_away() {
    let store = Troubled::new(u32::MAX, None).await;
    let world = World::on(Arc::new(EmbeddedBus::new(64)), store.clone(), &["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    let opened = us.opened("etl/map").await;
    us.reports(&opened, 2).await;
    soon("the report to be tried", async {
        while store.away.load(Ordering::Relaxed) == u32::MAX {
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.stop().await;
}

#[tokio::test]
async fn a_report_that_spoils_its_batch_is_set_aside_alone() {
    let store = Troubled::new(0, Some("etl/b")).await;
    let world = World::on(Arc::new(EmbeddedBus::new(64)), store.clone(), &["us-east"]).await;
    let mut us = world.region("us-east").await;
    let mut opened = Vec::new();
    for name in ["etl/a", "etl/b", "etl/c", "etl/d"] {
        world.define(name, &["us-east"], r#", "deadline": "1h""#).await;
        opened.push(us.opened(name).await);
    }
    for generation in &opened {
        us.reports(generation, 2).await;
    }
    for name in ["etl/a", "etl/c", "etl/d"] {
        let path = format!("/v1/barriers/{name}/generations/1/wait?wait=20s");
        let (status, released) = world.get(&path).await;
        assert_eq!(status, 200, "{released}");
    }
    soon("the spoiled report to be set aside", async {
        while store.set_aside.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(store.set_aside.load(Ordering::Relaxed), 1);
    let early = world.refused("GET", "/v1/barriers/etl/b/generations/1/wait?wait=0s", "").await;
    assert_eq!(early.code.as_str(), "still-gathering");
    world.stop().await;
}

#[tokio::test]
async fn a_fact_that_the_bus_dropped_is_said_again() {
    let world = World::start(&["us-east"]).await;
    let mut us = world.region("us-east").await;
    world.bus.set_faults(Faults { drop_every: 1, ..Faults::default() });
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    // A moment for the first sending to be dropped; if it comes later, it is
    // not dropped, and what follows must hold all the same.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    world.bus.set_faults(Faults::default());
    let opened = us.opened("etl/map").await;
    us.reports(&opened, 2).await;
    us.decided("etl/map").await;
    world.stop().await;
}
