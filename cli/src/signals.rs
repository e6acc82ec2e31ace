//! The signals that ask a program to end.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM, which from now on do nothing by themselves.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listen for signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next one; the exit code that shells give it.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}
