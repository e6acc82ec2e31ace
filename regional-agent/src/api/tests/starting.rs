//! An agent whose region's log does not answer yet.

use super::*;
use crate::log::etcd::{Etcd, EtcdOptions};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_starts_is_called_by_its_own_name_and_says_so() {
    let options = EtcdOptions { endpoints: vec![AWAY.to_owned()], ..EtcdOptions::default() };
    let log = Arc::new(Etcd::open(options, &region()).await.unwrap());
    let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let advertise = Some("http://agent-1.example:7171".to_owned());
    let options = Options { region: Some(region()), listen, advertise, ..Options::default() };
    let stop = CancellationToken::new();
    let starting = tokio::spawn({
        let stop = stop.clone();
        async move { Service::start(&options, log, Arc::new(Bus::new(64)), stop).await.map(drop) }
    });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let call = || client.put(format!("http://{listen}/v1/barriers/a/b/generations/1/arrivals/1"));
    let answered = async {
        loop {
            if let Ok(response) = call().header("host", "agent-1.example:7171").send().await {
                return (response.status().as_u16(), response.json().await.unwrap());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let answer: Answer = tokio::time::timeout(DEADLINE, answered).await.unwrap();
    assert_eq!(code(&answer), (503, "unavailable"), "{}", answer.1);
    assert!(answer.1.to_string().contains("this agent is starting; nothing was done"), "{}", answer.1);
    stop.cancel();
    assert!(starting.await.unwrap().is_err());
}
