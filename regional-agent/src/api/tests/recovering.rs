//! A region whose log lost its head, and begins another life.

use muster_protocol::identity::Epoch;
use muster_protocol::region::Region;
use serde_json::json;

use super::*;
use crate::log::conformance::Harness;
use crate::recover::{RecoverError, recover_log};

const G: &str = "/v1/barriers/etl/map/generations/1";
/// What the coordinator has seen of the region.
const SEEN: u64 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_goes_on_with_what_can_be_read_of_its_log() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    agent.open(1, watched("[1-3]")).await;
    assert_eq!(agent.call("PUT", &format!("{G}/arrivals/1"), Value::Null).await.0, 201);
    let work = json!([{ "barrier": "etl/map", "generation": "1", "id": "2" }]);
    let (status, opened) = agent.call("POST", "/v1/sessions", json!({ "participants": work })).await;
    assert_eq!(status, 201, "{opened}");
    let running = recover_log(&world.log, &region(), SEEN, "lost").await;
    assert!(matches!(&running, Err(RecoverError::AgentsRun(names)) if names.contains("a at http")), "{running:?}");

    world.log.lose_head().await;
    let refused = agent.call("PUT", &format!("{G}/arrivals/3"), Value::Null).await;
    assert_eq!(code(&refused).0, 503, "{}", refused.1);
    agent.service.handle.status().wait_for(|status| status.stopped.is_some()).await.unwrap();
    let ready = agent.get("/readyz?verbose").await;
    assert!(ready.1.to_string().contains("muster region recover"), "{}", ready.1);
    let (before, index) = agent.service.handle.read(|region| (region.history(), region.index()));
    agent.stopped().await;
    assert!(matches!(recover_log(&world.log, &region(), SEEN, " ").await, Err(RecoverError::NoReason)));
    let recovered = recover_log(&world.log, &region(), SEEN, "somebody deleted keys").await.unwrap();
    assert_eq!((recovered.before, recovered.base, recovered.read_to), (Some(before), SEEN, index));

    let agent = world.agent("a").await;
    let epoch = |region: &Region| region.epoch();
    agent.until(|region| epoch(region) > Epoch(0) && region.index() > SEEN).await;
    assert_eq!(agent.service.handle.read(Region::history), recovered.history);
    assert_eq!(agent.get(&format!("{G}/arrivals/1")).await.1["state"], "arrived");
    let session = opened["session"].as_str().unwrap();
    let heartbeat = agent.call("PUT", &format!("/v1/sessions/{session}/heartbeat"), Value::Null).await;
    assert_eq!(heartbeat.0, 200, "its sessions may attach again: {}", heartbeat.1);
    let ok = agent.call("PUT", &format!("{G}/arrivals/3"), Value::Null).await;
    assert_eq!((ok.0, &ok.1["arrived"]), (201, &json!(2)));
    agent.stopped().await;
}
