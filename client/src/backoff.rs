//! Pauses between repeats: doubling, jittered, never longer than asked for.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);
/// A server's Retry-After is honoured up to here.
const ASKED_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Backoff {
    doublings: u32,
}

impl Backoff {
    /// The pause before the next try. `asked` is what the server asked for.
    pub(crate) fn pause(&mut self, asked: Option<Duration>) -> Duration {
        let ours = FIRST.saturating_mul(1 << self.doublings.min(10)).min(LONGEST);
        self.doublings += 1;
        match asked {
            // Those who were told the same second should not come in the same one.
            Some(asked) => asked.min(ASKED_MAX).mul_f64(rand::random_range(1.0..1.25)),
            // Half to all of it: many clients of one agent spread out.
            None => ours.mul_f64(rand::random_range(0.5..1.0)),
        }
    }

    pub(crate) fn reset(&mut self) {
        self.doublings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_honour_the_server() {
        let mut backoff = Backoff::default();
        for n in 0..40 {
            let pause = backoff.pause(None);
            assert!(pause <= LONGEST, "{n}: {pause:?}");
            assert!(n < 6 || pause >= LONGEST / 2, "{n}: {pause:?}");
        }
        assert!(backoff.pause(Some(Duration::from_secs(1))) >= Duration::from_secs(1));
        assert!(backoff.pause(Some(Duration::from_secs(86_400))) <= ASKED_MAX * 2);
        assert_eq!(backoff.pause(Some(Duration::ZERO)), Duration::ZERO);
    }
}
