//! Drained regions, and logs that take the place of others.

use muster_protocol::fact::Standing;
use muster_protocol::generation::State;

use super::super::{AuditFilter, GenerationFilter, Overruled, RegionRow, Until};
use super::owing::owed;
use super::*;

const CHANGED: Overruled = Overruled::Done { changed: true };
const UNCHANGED: Overruled = Overruled::Done { changed: false };

async fn region_row(stores: &Stores, name: &str) -> RegionRow {
    stores.other.regions().await.unwrap().into_iter().find(|row| row.name.as_str() == name).unwrap()
}

async fn drain(stores: &Stores, name: &str, until: Option<Until>) -> Overruled {
    stores.one.drain(&region(name), until, &by("maintenance")).await.unwrap()
}

pub(in crate::store) async fn a_drained_region_is_waived_in_what_opens(stores: Stores) {
    let spec = spec("etl/keys", keyed(9));
    stores.define(&spec).await;
    let before = stores.open(&spec.name, "before").await;
    let hour = Until::In(Duration::from_secs(3_600));
    assert_eq!(drain(&stores, "atlantis", Some(hour)).await, Overruled::Undeclared);
    assert_eq!(drain(&stores, "us-east", Some(Until::At(Timestamp(1)))).await, Overruled::Past);
    assert_eq!(drain(&stores, "us-east", None).await, UNCHANGED);
    assert_eq!(drain(&stores, "us-east", Some(hour)).await, CHANGED);
    let drained = region_row(&stores, "us-east").await.drained.unwrap();
    assert_eq!(drained.by, by("maintenance"));
    assert_eq!(drain(&stores, "us-east", Some(Until::At(drained.until))).await, UNCHANGED);

    let during = stores.open(&spec.name, "during").await;
    assert!(stores.row(&before).await.generation.waived.is_empty(), "what was open keeps its regions");
    let waived = row(&stores.other, &during).await.generation.waived;
    assert_eq!(waived.keys().collect::<Vec<_>>(), [&region("us-east")]);
    assert!(waived[&region("us-east")].is_whole() && waived[&region("us-east")].by == by("maintenance"));
    let rest = ["ap-south", "eu-west"].map(|region| says(complete(&during, region, 5))).to_vec();
    stores.one.transact(rest, Mode::Commit).await.unwrap();
    assert_eq!(stores.row(&during).await.generation.state(), State::Releasing);

    assert_eq!(drain(&stores, "us-east", None).await, CHANGED);
    assert_eq!(region_row(&stores, "us-east").await.drained, None);
    let after = stores.open(&spec.name, "after").await;
    assert!(stores.row(&after).await.generation.waived.is_empty());
    assert_eq!(drain(&stores, "us-east", Some(Until::In(Duration::from_millis(30)))).await, CHANGED);
    soon("the drain to end by itself", async { while region_row(&stores, "us-east").await.drained.is_some() {} }).await;
    let later = stores.open(&spec.name, "later").await;
    assert!(stores.row(&later).await.generation.waived.is_empty());
    let audit = stores.one.audit(&AuditFilter::default(), None, 10).await.unwrap().items;
    let actions: Vec<&str> = audit.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(actions, ["drain", "resume", "drain"]);
    assert!(audit[1].barrier.is_none() && audit[1].object == "us-east");
}

/// Whatever opens after a drain has returned knows of it; so what opened
/// without can be listed, and waived.
pub(in crate::store) async fn who_opens_while_a_region_is_drained_knows_it_or_is_found(stores: Stores) {
    let spec = spec("etl/keys", keyed(1_000));
    stores.define(&spec).await;
    for round in 0..8 {
        let opening = {
            let (store, name) = (Arc::clone(&stores.other), spec.name.clone());
            tokio::spawn(async move {
                for at in 0..20 {
                    act(&store, &name, Command::Open { key: Some(key(&format!("r{round}-{at}"))) }).await;
                }
            })
        };
        drain(&stores, "us-east", Some(Until::In(Duration::from_secs(3_600)))).await;
        let filter = GenerationFilter { barrier: Some(spec.name.clone()), ..GenerationFilter::default() };
        let found = stores.one.generations(&filter, None, 1_000).await.unwrap().items;
        let found: std::collections::BTreeSet<u64> = found.iter().map(|row| row.generation.id.n).collect();
        soon("the openings", opening).await.unwrap();
        for row in stores.one.generations(&filter, None, 1_000).await.unwrap().items {
            let id = &row.generation.id;
            let knows = row.generation.waived.contains_key(&region("us-east"));
            assert!(knows || found.contains(&id.n), "{id} opened after the drain and does not know of it");
        }
        drain(&stores, "us-east", None).await;
    }
}

pub(in crate::store) async fn another_log_takes_the_place_of_a_regions(stores: Stores) {
    let spec = spec("etl/keys", keyed(9));
    stores.define(&spec).await;
    let [done, open] = [stores.open(&spec.name, "done").await, stores.open(&spec.name, "open").await];
    let digest = complete_all(&stores.one, &done, 2).await;
    let settle = REGIONS.map(|region| says(applied(&done, region, 3, digest))).to_vec();
    stores.one.transact(settle, Mode::Commit).await.unwrap();
    stores.one.transact(vec![says(complete(&open, "us-east", 4))], Mode::Commit).await.unwrap();
    let version = stores.row(&open).await.version;

    let adopt =
        async |name: &str, life| stores.one.adopt(&region(name), history(life), &by("new disks")).await.unwrap();
    assert_eq!(adopt("atlantis", 1).await, Overruled::Undeclared);
    assert_eq!(adopt("us-east", 2).await, Overruled::NeverGreeted(vec![history(1)]));
    assert_eq!(adopt("us-east", 1).await, UNCHANGED);
    stores.other.hello(&hello("us-east", 2, 9)).await.unwrap();
    assert_eq!(region_row(&stores, "us-east").await.unknown_histories, [history(2)]);
    assert_eq!(adopt("us-east", 2).await, CHANGED);
    let row = region_row(&stores, "us-east").await;
    assert_eq!((row.history, row.index, row.unknown_histories.len()), (Some(history(2)), 9, 0));
    assert!(row.agents.is_empty(), "agents of the former log can't be asked");
    assert_eq!(stores.one.hello(&hello("us-east", 1, 9)).await.unwrap().standing, Standing::Superseded);
    assert_eq!(stores.one.hello(&hello("us-east", 2, 9)).await.unwrap().standing, Standing::Current);

    let left = stores.row(&open).await;
    assert!(!left.generation.reports.contains_key(&region("us-east")) && left.version > version);
    let told = stores.row(&done).await.generation;
    assert_eq!((told.reports.len(), told.state()), (3, State::Releasing), "it may not know how that ended");
    let said_again = ["us-east decided@1", "us-east opened@2"];
    assert_eq!(owed(&stores, Some("us-east"), 10).await, said_again, "everything is said again");
    let former = says(complete(&open, "us-east", 99));
    let former = stores.one.transact(vec![former], Mode::Commit).await.unwrap().remove(0);
    assert_eq!(refusal(former), Refusal::ForeignReport);
    let stamp = Stamp { history: history(2), shard: 0, index: 1 };
    let present = says(RegionReport { stamp, ..complete(&open, "us-east", 0) });
    let present = stores.one.transact(vec![present], Mode::Commit).await.unwrap().remove(0);
    assert_eq!(present.reply, Ok(Reply::Reported { newer: true }));
    let end = RegionReport { stamp, arrived: 0, ..applied(&done, "us-east", 0, digest) };
    stores.one.transact(vec![says(end)], Mode::Commit).await.unwrap();
    let settled = stores.row(&done).await.generation;
    assert_eq!(settled.state(), State::Released);
    assert!(settled.reports[&region("us-east")].arrived > 0, "who had arrived then is not taken back");
    assert_eq!(adopt("us-east", 1).await, CHANGED, "a mistake can be taken back");
    let audit = stores.one.audit(&AuditFilter::default(), None, 10).await.unwrap().items;
    assert_eq!((audit.len(), audit[1].action.as_str()), (2, "adopt"));
    assert_eq!(audit[1].object, format!("us-east {}", history(2)));
}
