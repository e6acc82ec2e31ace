//! What every adapter of the bus must do, as one suite.
//!
//! A bus may drop, repeat and reorder, so the suite speaks as the services do:
//! what must arrive is repeated until it has, and nothing counts records. What
//! an adapter promises beyond the port, it tests itself.
//!
//! An adapter's tests implement [`Subject`] and call every function here once,
//! each on a subject of its own; `conformance_suite!` makes the tests.

mod down;
mod samples;
mod up;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use muster_protocol::name::RegionName;

pub use self::down::{
    downward_kinds_and_headers_arrive, downward_poison_is_set_aside, every_follower_sees_what_is_sent_from_then_on,
    following_again_starts_at_the_end,
};
pub use self::samples::{closed, downward_of_every_kind, region, report, upward_of_every_kind};
pub use self::up::{
    batches_are_bounded, members_share_by_barrier, progress_goes_on_after_joining_again,
    reports_arrive_however_early_they_are_sent, upward_kinds_and_headers_arrive, upward_poison_is_set_aside,
};
use crate::Bus;

/// What is expected to happen happens within this, on any machine.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// One installation of a bus that the suite may use alone.
#[async_trait]
pub trait Subject: Send + Sync {
    /// The bus, as one process holds it: each call another process.
    async fn bus(&self) -> Arc<dyn Bus>;

    /// Puts bytes that no build of ours wrote on a region's way up.
    async fn put_up(&self, region: &RegionName, bytes: &[u8]);

    /// Puts bytes that no build of ours wrote on the way down.
    async fn put_down(&self, bytes: &[u8]);

    /// Clears away what the installation leaves behind.
    async fn clear(&self) {}
}

/// Makes one test of each function of the suite. `$subject` makes a subject of
/// its own for each.
#[macro_export]
macro_rules! conformance_suite {
    ($subject:expr) => {
        $crate::conformance_suite! { @each $subject;
            preparing_twice_changes_nothing
            waiting_ends_when_it_is_given_up
            every_follower_sees_what_is_sent_from_then_on
            following_again_starts_at_the_end
            downward_kinds_and_headers_arrive
            downward_poison_is_set_aside
            reports_arrive_however_early_they_are_sent
            upward_kinds_and_headers_arrive
            upward_poison_is_set_aside
            members_share_by_barrier
            progress_goes_on_after_joining_again
            batches_are_bounded
        }
    };
    (@each $subject:expr; $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let subject = $subject;
                $crate::conformance::$name(&subject).await;
                $crate::conformance::Subject::clear(&subject).await;
            }
        )*
    };
}

/// Topics may be prepared by every process at every start, in any number.
pub async fn preparing_twice_changes_nothing(subject: &dyn Subject) {
    let regions = [region("us-east"), region("eu-west")];
    let (one, two) = (subject.bus().await, subject.bus().await);
    let (first, second) = tokio::join!(one.prepare(&regions), two.prepare(&regions));
    first.expect("the first of two that prepare at once");
    second.expect("the second of two that prepare at once");
    one.prepare(&regions).await.expect("prepared again");
    one.prepare(&[region("ap-south")]).await.expect("another region later");
    one.prepare(&[]).await.expect("no region yet");
    one.check().await.expect("the bus answers");
}

/// Nobody has to wait for a record to stop waiting for it.
pub async fn waiting_ends_when_it_is_given_up(subject: &dyn Subject) {
    let bus = subject.bus().await;
    let regions = [region("us-east")];
    bus.prepare(&regions).await.expect("prepare");
    let mut follower = bus.follow_down().await.expect("follow");
    let mut member = bus.join_up(&regions).await.expect("join");
    let mut idle = bus.join_up(&[]).await.expect("join for no region yet");
    let waiting = tokio::spawn(async move {
        tokio::select! {
            _ = follower.next() => panic!("nothing was sent down"),
            _ = member.next_batch(10) => panic!("nothing was sent up"),
            _ = idle.next_batch(10) => panic!("there is no region to send up"),
        }
    });
    // Let them begin to wait; were they not waiting yet, giving up is no harder.
    tokio::task::yield_now().await;
    waiting.abort();
    let ended = in_time("the end of what waited", waiting).await;
    assert!(ended.expect_err("it can't end by itself").is_cancelled());
    bus.check().await.expect("the bus answers those who stay");
}

/// The future's result, or a panic that says what did not happen.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(result) => result,
        Err(_) => panic!("{what} did not come within {} s", DEADLINE.as_secs()),
    }
}
