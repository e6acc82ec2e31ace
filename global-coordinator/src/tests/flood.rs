//! More calls than the store can answer, on a real Postgres.

use std::sync::Arc;

use muster_bus::embedded::Embedded as EmbeddedBus;
use muster_wire::code::Code;
use muster_wire::problem::Problem;

use super::world::{World, soon};
use crate::store::postgres::migrate;
use crate::store::postgres::tests::Database;

/// Two of them are for calls.
const CONNECTIONS: u32 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_leave_room_for_decisions() {
    let database = Database::new().await;
    migrate(&database.url).await.unwrap();
    let store = database.store(CONNECTIONS);
    let world = World::on(Arc::new(EmbeddedBus::new(1_024)), Arc::new(store.clone()), &["us-east"]).await;
    let mut region = world.region("us-east").await;
    world.define("etl/map", &["us-east"], r#", "deadline": "1h""#).await;
    let generation = region.opened("etl/map").await;

    let held = (store.held_by_a_call().await, store.held_by_a_call().await);
    let refused = soon("a refusal", world.request("GET", "/v1/barriers/etl/map").send()).await.unwrap();
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    let problem: Problem = refused.json().await.unwrap();
    assert_eq!(problem.code, Code::Busy, "{problem:?}");

    region.reports(&generation, 2).await;
    let digest = region.decided("etl/map").await;
    drop(held);
    let (status, barrier) = world.get("/v1/barriers/etl/map/generations/1").await;
    assert_eq!((status, &barrier["release"]["digest"]), (200, &digest.to_string().into()), "{barrier}");
    world.stop().await;
    store.close().await;
    database.drop().await;
}
