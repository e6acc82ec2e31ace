//! The store's port, on any database.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use muster_bus::{Place, Poison};
use muster_protocol::fact::{Fact, Heartbeat, Hello, Welcome};
use muster_protocol::global::{Barrier, Command, Step};
use muster_protocol::identity::{Era, History};
use muster_protocol::name::{BarrierName, RegionName};
use muster_protocol::outcome::Override;
use muster_telemetry::metrics;
use muster_wire::reference::Reference;

use super::backend::{Backend, End, Purpose, Transaction, run};
use super::query::{Query, Row, batches, row};
use super::transact::transact;
use super::{
    AuditFilter, AuditRow, Cursor, Due, GenerationFilter, GenerationRow, Mode, Overruled, Page, RegionRow, Store,
    StoreError, Until, adopt, audit, drain, read, regions, retention, unanswered,
};

const SCHEMA_FOUND: &str = "select coalesce(max(version), 0) from _sqlx_migrations where success";

#[async_trait]
impl<B: Backend> Store for B {
    fn for_calls(&self) -> Arc<dyn Store> {
        Arc::new(Backend::for_calls(self))
    }

    async fn transact(&self, batch: Vec<(BarrierName, Command)>, mode: Mode) -> Result<Vec<Step>, StoreError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        let reports = batch.iter().filter(|(_, command)| matches!(command, Command::Report(_))).count();
        let batch = Arc::new(batch);
        let steps = run(self, Purpose::Write, move |tx| {
            let batch = Arc::clone(&batch);
            Box::pin(async move { transact(tx, &batch, mode).await })
        })
        .await?;
        metrics::coordinator_transaction().record(begun.elapsed().as_secs_f64());
        if reports > 0 {
            metrics::coordinator_batch_reports().record(reports as f64);
        }
        Ok(steps)
    }

    async fn declare(&self, region: &RegionName) -> Result<bool, StoreError> {
        let region = region.clone();
        run(self, Purpose::Write, move |tx| Box::pin(regions::declare(tx, region.clone()))).await
    }

    async fn hello(&self, hello: &Hello) -> Result<Welcome, StoreError> {
        let hello = hello.clone();
        run(self, Purpose::Write, move |tx| Box::pin(regions::hello(tx, hello.clone()))).await
    }

    async fn heartbeats(&self, heartbeats: &[Heartbeat]) -> Result<Vec<Welcome>, StoreError> {
        if heartbeats.is_empty() {
            return Ok(Vec::new());
        }
        let heartbeats: Arc<[Heartbeat]> = heartbeats.into();
        run(self, Purpose::Write, move |tx| {
            let heartbeats = Arc::clone(&heartbeats);
            Box::pin(async move { regions::heartbeats(tx, &heartbeats).await })
        })
        .await
    }

    async fn drain(&self, region: &RegionName, until: Option<Until>, by: &Override) -> Result<Overruled, StoreError> {
        let (region, by) = (region.clone(), by.clone());
        run(self, Purpose::Write, move |tx| Box::pin(drain::drain(tx, region.clone(), until, by.clone()))).await
    }

    async fn adopt(&self, region: &RegionName, history: History, by: &Override) -> Result<Overruled, StoreError> {
        let (region, by) = (region.clone(), by.clone());
        run(self, Purpose::Write, move |tx| Box::pin(adopt::adopt(tx, region.clone(), history, by.clone()))).await
    }

    async fn audit(&self, filter: &AuditFilter, cursor: Cursor, limit: u32) -> Result<Page<AuditRow>, StoreError> {
        let filter = filter.clone();
        run(self, Purpose::Read, move |tx| Box::pin(audit::audit(tx, filter.clone(), cursor.clone(), limit))).await
    }

    async fn collectable(&self, limit: u32) -> Result<Vec<BarrierName>, StoreError> {
        run(self, Purpose::Read, move |tx| Box::pin(retention::collectable(tx, limit))).await
    }

    async fn set_aside(&self, poison: &[(Place, Poison)]) -> Result<(), StoreError> {
        let poison: Arc<[(Place, Poison)]> = poison.into();
        run(self, Purpose::Write, move |tx| {
            let poison = Arc::clone(&poison);
            Box::pin(async move { set_aside(tx, &poison).await })
        })
        .await
    }

    async fn regions(&self) -> Result<Vec<RegionRow>, StoreError> {
        run(self, Purpose::Read, |tx| Box::pin(regions::regions(tx))).await
    }

    async fn barrier(&self, name: &BarrierName) -> Result<Option<Barrier>, StoreError> {
        let name = name.clone();
        run(self, Purpose::Read, move |tx| Box::pin(read::barrier(tx, name.clone()))).await
    }

    async fn barriers(&self, prefix: Option<&str>, cursor: Cursor, limit: u32) -> Result<Page<Barrier>, StoreError> {
        let prefix = prefix.map(str::to_owned);
        run(self, Purpose::Read, move |tx| Box::pin(read::barriers(tx, prefix.clone(), cursor.clone(), limit))).await
    }

    async fn generation(&self, barrier: &BarrierName, id: &Reference) -> Result<Option<GenerationRow>, StoreError> {
        let (barrier, id) = (barrier.clone(), id.clone());
        run(self, Purpose::Read, move |tx| Box::pin(read::generation(tx, barrier.clone(), id.clone()))).await
    }

    async fn generations(
        &self,
        filter: &GenerationFilter,
        cursor: Cursor,
        limit: u32,
    ) -> Result<Page<GenerationRow>, StoreError> {
        let filter = filter.clone();
        run(self, Purpose::Read, move |tx| Box::pin(read::generations(tx, filter.clone(), cursor.clone(), limit))).await
    }

    async fn unanswered(
        &self,
        region: Option<&RegionName>,
        cursor: Cursor,
        limit: u32,
    ) -> Result<Page<(RegionName, Fact)>, StoreError> {
        let region = region.cloned();
        run(self, Purpose::Read, move |tx| Box::pin(unanswered::unanswered(tx, region.clone(), cursor.clone(), limit)))
            .await
    }

    async fn due(&self, limit: u32) -> Result<Due, StoreError> {
        run(self, Purpose::Read, move |tx| Box::pin(read::due(tx, limit))).await
    }

    async fn check(&self) -> Result<Era, StoreError> {
        let needed = self.schema_needed();
        run(self, Purpose::Read, move |tx| Box::pin(check(tx, needed))).await
    }
}

async fn check<T: Transaction>(tx: &mut T, needed: i64) -> Result<(Era, End), StoreError> {
    let found: Vec<(i64,)> = tx.fetch(Query::new(SCHEMA_FOUND)).await?;
    let found = found.first().map_or(0, |(version,)| *version);
    if found != needed {
        return Err(StoreError::Schema { found, needed });
    }
    Ok((tx.clock().await?.era, End::Rollback))
}

async fn set_aside<T: Transaction>(tx: &mut T, poison: &[(Place, Poison)]) -> Result<((), End), StoreError> {
    let now = tx.clock().await?.now.0;
    let row = |(place, poison): &(Place, Poison)| {
        let Place { topic, partition, offset } = place;
        let partition = i64::from(*partition);
        row![topic.as_str(), partition, *offset, poison.bytes.clone(), poison.error.as_str(), now]
    };
    let rows: Vec<Row> = poison.iter().map(row).collect();
    for rows in batches(rows) {
        let insert = Query::new("insert into poison (topic, partition, position, bytes, error, received_at) ");
        tx.execute(insert.rows(rows).push(" on conflict (topic, partition, position) do nothing")).await?;
    }
    Ok(((), End::Commit))
}
