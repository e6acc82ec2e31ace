//! Regions, histories and signs of life.

use muster_protocol::fact::Standing;

use super::super::RegionRow;
use super::*;

async fn region_row(store: &Arc<dyn Store>, name: &str) -> RegionRow {
    store.regions().await.unwrap().into_iter().find(|row| row.name.as_str() == name).unwrap()
}

pub(in crate::store) async fn greetings_are_answered_by_what_is_known(stores: Stores) {
    assert!(!stores.other.declare(&named("us-east")).await.unwrap(), "it was declared before");
    let undeclared = stores.one.hello(&hello("atlantis", 1, 1)).await.unwrap();
    assert_eq!((undeclared.standing, undeclared.index), (Standing::Undeclared, 0));

    stores.one.declare(&named("new")).await.unwrap();
    let silent = region_row(&stores.other, "new").await;
    assert_eq!((silent.history, silent.index, silent.silence, silent.heard_at), (None, 0, None, None));

    let first = stores.one.hello(&hello("new", 1, 40)).await.unwrap();
    assert_eq!((first.standing, first.index, first.agent), (Standing::Current, 40, agent("new")));
    let lower = stores.other.hello(&hello("new", 1, 30)).await.unwrap();
    assert_eq!((lower.standing, lower.index), (Standing::Current, 40), "its head fell, and it is told so");
    let another = stores.one.hello(&hello("new", 2, 7)).await.unwrap();
    assert_eq!((another.standing, another.index, another.history), (Standing::Unknown, 7, history(2)));
    let again = stores.one.hello(&hello("new", 2, 5)).await.unwrap();
    assert_eq!((again.standing, again.index), (Standing::Unknown, 7));

    let known = region_row(&stores.other, "new").await;
    assert_eq!((known.history, known.index), (Some(history(1)), 40));
    assert_eq!(known.agents.len(), 1);
    assert_eq!(known.agents[0].address, "http://new.test:7171");
    let names: Vec<String> = stores.one.regions().await.unwrap().iter().map(|row| row.name.to_string()).collect();
    assert_eq!(names, ["ap-south", "eu-west", "new", "us-east"]);

    let sql = "update histories set standing = 'superseded' where region = 'new' and standing = 'unknown'";
    stores.behind.alter(sql).await;
    let superseded = stores.one.hello(&hello("new", 2, 8)).await.unwrap();
    assert_eq!((superseded.standing, superseded.index), (Standing::Superseded, 8));
}

pub(in crate::store) async fn signs_of_life_count_for_the_current_history(stores: Stores) {
    stores.one.declare(&named("quiet")).await.unwrap();
    let mut second = heartbeat("us-east", 1, 9);
    second.agent.instance = "beef".into();
    let mut moved = heartbeat("us-east", 1, 8);
    moved.address = "http://elsewhere.test".into();
    let beats = [
        second,
        heartbeat("us-east", 1, 7),
        moved,
        heartbeat("us-east", 2, 1_000),
        heartbeat("atlantis", 1, 5),
        heartbeat("quiet", 1, 5),
    ];
    stores.one.heartbeats(&beats).await.unwrap();
    stores.one.heartbeats(&[]).await.unwrap();

    let heard = region_row(&stores.other, "us-east").await;
    assert_eq!((heard.history, heard.index), (Some(history(1)), 9), "the highest, of the current history");
    assert!(heard.silence.is_some() && heard.heard_at.is_some());
    let addresses: Vec<(&str, &str)> =
        heard.agents.iter().map(|agent| (agent.instance.as_str(), agent.address.as_str())).collect();
    assert_eq!(addresses, [("beef", "http://us-east.test:7171"), ("f00d", "http://elsewhere.test")]);
    let quiet = region_row(&stores.other, "quiet").await;
    assert_eq!((quiet.history, quiet.heard_at), (None, None), "a sign of life is no greeting");
    assert!(quiet.agents.is_empty());
    assert_eq!(stores.behind.number("select count(*) from regions where name = 'atlantis'").await, 0);
}

pub(in crate::store) async fn indices_only_rise(stores: Stores) {
    let id = stores.define(&spec("etl/map", Generations::Single)).await.remove(0);
    let batch = [50, 60, 55].map(|index| says(report(&id, "us-east", index))).to_vec();
    stores.one.transact(batch, Mode::Commit).await.unwrap();
    assert_eq!(stores.other.hello(&hello("us-east", 1, 3)).await.unwrap().index, 60, "reports raise it");
    stores.one.heartbeats(&[heartbeat("us-east", 1, 20)]).await.unwrap();
    assert_eq!(region_row(&stores.other, "us-east").await.index, 60);
    let foreign = Stamp { history: history(2), shard: 0, index: 900 };
    let foreign = RegionReport { stamp: foreign, ..report(&id, "us-east", 0) };
    stores.one.transact(vec![says(foreign)], Mode::Commit).await.unwrap();
    assert_eq!(region_row(&stores.other, "us-east").await.index, 60);
    assert_eq!(region_row(&stores.other, "eu-west").await.index, 1);
}
