//! What Kafka held is gone: topics are deleted under everybody, and the group
//! that reads them forgets its places. It costs time, and nothing else.

use anyhow::Context;
use futures::future::try_join_all;
use serde_json::json;

use super::special_processes;
use crate::cluster::processes::Extras;
use crate::cluster::{Cluster, Part, Shape, regions};
use crate::kafka::Kafka;
use crate::services::Services;
use crate::until::until;

#[test]
fn topics_that_are_deleted_and_places_that_are_forgotten_cost_time_only() {
    let regions = regions(["us-east", "eu-west"]);
    let shape = Shape { regions, agents_per_region: 2, coordinators: 2, ..Shape::default() };
    special_processes(shape, Extras::default(), async |world, cluster| {
        let kafka = Kafka::new(&Services::given()?.kafka)?;
        let global = format!("{}.global", cluster.name());
        let up: Vec<String> =
            world.regions().iter().map(|region| format!("{}.region.{region}", cluster.name())).collect();
        let all = [up.clone(), vec![global.clone()]].concat();
        world.define("step", json!({"generations": "cyclic", "participants": ["1", "2"]})).await?;
        let (first, both) = (world.workers(&["1"]), world.workers(&["1", "2"]));
        // In the middle of a generation each.
        for (n, topics) in (1..).zip([vec![global], up, all]) {
            let target = world.target("step", n);
            try_join_all(first.iter().map(|worker| worker.arrive(&target))).await?;
            kafka.delete_topics(&topics).await?;
            world.cross(&target, &both).await.with_context(|| format!("without {topics:?}"))?;
        }
        let target = world.target("step", 4);
        try_join_all(first.iter().map(|worker| worker.arrive(&target))).await?;
        let coordinators = [0, 1].map(Part::Coordinator);
        for coordinator in &coordinators {
            cluster.stop(coordinator).await?;
        }
        let group = format!("{}.coordinator", cluster.name());
        until("the group forgets", || kafka.forget_group(&group)).await?;
        for coordinator in &coordinators {
            cluster.start(coordinator).await?;
        }
        world.cross(&target, &both).await.context("from the first record on").map(drop)
    });
}
