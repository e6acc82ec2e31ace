//! The driver over the embedded log: what the replica's own tests can't show.

use muster_protocol::name::RegionName;
use muster_protocol::region::Reply;

use super::*;
use crate::log::conformance::replay::{Agent, arrive, open};
use crate::log::embedded::Embedded;

fn region() -> RegionName {
    "us-east".parse().unwrap()
}

async fn agent(log: &Embedded, name: &str) -> Agent {
    Agent::join(Arc::new(log.clone()), name).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_shares_few_appends() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let agent = agent(&log, "a").await;
    agent.handle.submit(open(1, 1_000), None).await.unwrap();
    let before = log.head().await.unwrap();
    let crowd = (0..1_000).map(|who| {
        let handle = agent.handle.clone();
        tokio::spawn(async move { handle.submit(arrive(1, who), None).await })
    });
    let firsts = futures::future::join_all(crowd)
        .await
        .into_iter()
        .filter(|reply| matches!(reply, Ok(Ok(Reply::Arrived(arrived))) if arrived.first));
    assert_eq!(firsts.count(), 1_000);
    let entries = log.head().await.unwrap() - before;
    assert!(entries <= 200, "1,000 arrivals took {entries} entries");
    assert!(agent.handle.read(|region| region.report(&"t/b".parse().unwrap(), 1).unwrap().complete));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_registration_is_taken_anew_and_nothing_is_lost() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let agent = agent(&log, "a").await;
    agent.handle.submit(open(1, 100), None).await.unwrap();
    let arrivals: Vec<_> = (0..100)
        .map(|who| {
            let handle = agent.handle.clone();
            tokio::spawn(async move { handle.submit(arrive(1, who), None).await })
        })
        .collect();
    let writer = agent.handle.replica(Replica::writer).unwrap();
    assert!(log.expel(writer).await);
    for arrival in arrivals {
        assert!(matches!(arrival.await.unwrap(), Ok(Reply::Arrived(_))));
    }
    assert_ne!(agent.handle.replica(Replica::writer), Some(writer));
    assert_eq!(agent.handle.read(|region| region.report(&"t/b".parse().unwrap(), 1).unwrap().arrived), 100);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_read_sees_what_another_agent_acknowledged() {
    let log = Embedded::in_memory(&region()).await.unwrap();
    let (writer, reader) = (agent(&log, "w").await, agent(&log, "r").await);
    writer.handle.submit(open(1, 50), None).await.unwrap();
    for who in 0..50 {
        writer.handle.submit(arrive(1, who), None).await.unwrap();
        reader.handle.fresh().await.unwrap();
        let arrived = reader.handle.read(|region| region.report(&"t/b".parse().unwrap(), 1).unwrap().arrived);
        assert_eq!(arrived, who + 1);
    }
    writer.stop().await;
    reader.stop().await;
}
