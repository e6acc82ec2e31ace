//! Callers that go away.

use futures::FutureExt;

use super::*;

/// A caller may be dropped at any point of a transaction: it is done whole, or
/// not at all, and it blocks nobody after it.
pub(in crate::store) async fn dropped_callers_leave_nothing_half_done(stores: Stores) {
    // Polled at least once: what was never begun is not done.
    for polls in 1..=48 {
        let spec = spec(&format!("etl/gone{polls}"), Generations::Single);
        let mut call = stores.one.transact(vec![(spec.name.clone(), define(&spec, Expect::NewOrEqual))], Mode::Commit);
        for _ in 0..polls {
            if (&mut call).now_or_never().is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        drop(call);
        let mut read = stores.one.barriers(None, None, 10);
        for _ in 0..polls % 5 {
            if (&mut read).now_or_never().is_some() {
                break;
            }
        }
        drop(read);
    }
    let last = spec("etl/last", Generations::Single);
    soon("the store serves the next", stores.define(&last)).await;
    let torn = "select (select count(*) from barriers) * 3 - (select count(*) from specs)
        - (select count(*) from generations) - (select count(*) from spec_regions) / 3";
    assert_eq!(stores.behind.number(torn).await, 0, "every barrier has its spec and its generation");
    soon("those that were under way are done", async {
        while stores.behind.number("select count(*) from barriers").await < 49 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(stores.behind.number(torn).await, 0);
}
