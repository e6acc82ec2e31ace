//! How long to leave somebody alone who does not answer.

use std::time::Duration;

/// Pauses that double up to a limit, each shortened by a random part so that
/// many who lost the same service don't come back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// From 50 ms to 5 s: for what people wait for.
    pub(crate) fn short() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(5))
    }

    pub(crate) async fn pause(&mut self) {
        let whole = self.next;
        self.next = (whole * 2).min(self.longest);
        tokio::time::sleep(whole.mul_f64(rand::random_range(0.5..=1.0))).await;
    }
}
