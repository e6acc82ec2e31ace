//! Waiting for a state, with a generous deadline: a test that depends on how
//! fast the machine is fails on a slow one.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long a state may take to come. Nothing should take a tenth of it.
pub const DEADLINE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again until `look` is satisfied.
///
/// # Errors
/// It was not within [`DEADLINE`]; the error says what was seen last.
pub async fn until<T, E: Display, F>(what: &str, look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, E>>,
{
    within(DEADLINE, what, look).await
}

/// The same with another deadline.
///
/// # Errors
/// It was not within `deadline`.
pub async fn within<T, E: Display, F>(deadline: Duration, what: &str, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = Result<T, E>>,
{
    let started = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok(found),
            Err(not_yet) if started.elapsed() > deadline => {
                anyhow::bail!("{what}: not within {} s; last: {not_yet}", deadline.as_secs())
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
