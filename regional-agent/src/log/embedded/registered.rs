//! Registrations of a log in this process: they last until somebody ends them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use muster_protocol::identity::Writer;
use muster_protocol::mutant;
use tokio::sync::watch;

use super::Core;
use super::tables::{self, failed};
use crate::log::{LogError, NewRegistration, Registered, Registration};

/// One registered agent.
pub(super) struct Agent {
    pub(super) registration: Registration,
    lost: watch::Sender<bool>,
}

impl Agent {
    pub(super) fn lose(self) {
        self.lost.send_replace(true);
    }
}

/// The agent's own end of its registration.
pub(super) struct EmbeddedRegistration {
    core: Arc<Core>,
    writer: Writer,
    lease_ttl: Duration,
    lost: watch::Receiver<bool>,
}

impl EmbeddedRegistration {
    pub(super) async fn enter(core: Arc<Core>, new: NewRegistration) -> Result<Self, LogError> {
        let mut store = core.store.lock().await;
        if store.agents.values().any(|agent| agent.registration.agent == new.agent) && !mutant!(RegistersOver) {
            let (name, instance) = (new.agent.name, new.agent.instance);
            let what = format!("{name}-{instance} is registered already; take another instance");
            return Err(LogError::Damaged { what });
        }
        let writer = Writer(tables::next_number(&mut store.db).await.map_err(failed("register the agent"))?);
        let lost = watch::Sender::new(false);
        let registered = Self { core: Arc::clone(&core), writer, lease_ttl: new.lease_ttl, lost: lost.subscribe() };
        let registration =
            Registration { writer, agent: new.agent, address: new.address, machine_version: new.machine_version };
        store.agents.insert(writer, Agent { registration, lost });
        Ok(registered)
    }
}

#[async_trait]
impl Registered for EmbeddedRegistration {
    fn writer(&self) -> Writer {
        self.writer
    }

    fn proven_for(&self) -> Duration {
        // Nobody else can end it, so it always has its whole time to live.
        if *self.lost.borrow() { Duration::ZERO } else { self.lease_ttl }
    }

    async fn lost(&self) {
        // A sender that is gone means the same.
        let _ = self.lost.clone().wait_for(|lost| *lost).await;
    }

    async fn release(&self) {
        self.core.store.lock().await.remove(self.writer);
    }
}

impl Drop for EmbeddedRegistration {
    fn drop(&mut self) {
        if let Ok(mut store) = self.core.store.try_lock() {
            store.remove(self.writer);
            return;
        }
        // Somebody is using the log, so there is a runtime; it ends right after.
        let (core, writer) = (Arc::clone(&self.core), self.writer);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { core.store.lock().await.remove(writer) });
        }
    }
}
