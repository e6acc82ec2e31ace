//! Waiting for a state, with a generous deadline: a test that depends on how
//! fast the machine is fails on a slow one.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    let last = Mutex::new("nothing".to_owned());
    let looks = async {
        loop {
            match look().await {
                Ok(found) => return found,
                Err(not_yet) => *last.lock().unwrap_or_else(PoisonError::into_inner) = not_yet.to_string(),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    // A look may hang, too.
    match tokio::time::timeout(deadline, looks).await {
        Ok(found) => Ok(found),
        Err(_) => {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner);
            anyhow::bail!("{what}: not within {} s; last: {last}", deadline.as_secs())
        }
    }
}
