//! The services as processes: `muster agent` and `muster coordinator`.

use clap::Args;

use crate::config::ConfigArguments;

/// `muster agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArguments {
    #[command(flatten)]
    config: ConfigArguments,
}

/// `muster coordinator`.
#[derive(Debug, Args)]
pub(crate) struct CoordinatorArguments {
    #[command(flatten)]
    config: ConfigArguments,
}

#[cfg(not(all(feature = "etcd", feature = "kafka")))]
pub(crate) use self::absent::{agent, coordinator, recover};
#[cfg(all(feature = "etcd", feature = "kafka"))]
pub(crate) use self::real::{agent, coordinator, recover};

#[cfg(all(feature = "etcd", feature = "kafka"))]
mod real {
    use std::sync::Arc;

    use anyhow::Context as _;
    use muster_global_coordinator as global;
    use muster_global_coordinator::store::Store;
    use muster_regional_agent as regional;
    use tokio_util::sync::CancellationToken;

    use super::{AgentArguments, CoordinatorArguments};
    use crate::config::{self, ConfigArguments};
    use crate::connect::Context;
    use crate::failure::Failure;
    use crate::signals::Signals;

    pub(crate) async fn agent(arguments: AgentArguments) -> Result<(), Failure> {
        let options: regional::Options = config::load(&arguments.config, "MUSTER_AGENT__")?;
        if arguments.config.print_config {
            return config::print(&options);
        }
        let mut telemetry = muster_telemetry::Options::new("muster-regional-agent", options.name.clone());
        telemetry.otlp_endpoint = options.otlp_endpoint.clone();
        let guard = muster_telemetry::init(&telemetry).context("start telemetry")?;
        let shutdown = CancellationToken::new();
        let mut signals = Signals::listen()?;
        let service = tokio::select! {
            started = regional::Service::connect(&options, shutdown.clone()) => started.context("start the agent")?,
            code = signals.next() => return Err(Failure::Code(code)),
        };
        until_stopped(signals, shutdown, service.stopped()).await?;
        drop(guard);
        Ok(())
    }

    pub(crate) async fn coordinator(arguments: CoordinatorArguments) -> Result<(), Failure> {
        let options: global::Options = config::load(&arguments.config, "MUSTER_COORDINATOR__")?;
        if arguments.config.print_config {
            return config::print(&options);
        }
        let mut telemetry = muster_telemetry::Options::new("muster-global-coordinator", options.listen.to_string());
        telemetry.otlp_endpoint = options.telemetry.otlp_endpoint.clone();
        telemetry.sample_ratio = options.telemetry.sample_ratio;
        let guard = muster_telemetry::init(&telemetry).context("start telemetry")?;
        let shutdown = CancellationToken::new();
        let mut signals = Signals::listen()?;
        let store = store(&options.store).await?;
        let bus = muster_bus::kafka::Kafka::new(options.kafka.clone()).context("set up the bus")?;
        let service = tokio::select! {
            started = global::Service::start(options, Arc::new(bus), store, shutdown.clone()) => {
                started.context("start the coordinator")?
            }
            code = signals.next() => return Err(Failure::Code(code)),
        };
        until_stopped(signals, shutdown, service.join()).await?;
        drop(guard);
        Ok(())
    }

    /// Recovers the region of an agent's configuration.
    pub(crate) async fn recover(
        config: &ConfigArguments,
        seen: u64,
        reason: &str,
        context: &Context,
    ) -> Result<(), Failure> {
        let options: regional::Options = config::load(config, "MUSTER_AGENT__")?;
        let recovered = regional::recover::recover(&options, seen, reason).await.context("recover the region")?;
        let region = options.region.as_ref().map(ToString::to_string).unwrap_or_default();
        let regional::recover::Recovered { before, history, base, read_to } = recovered;
        let shown = serde_json::json!({
            "region": region,
            "before": before.map(|before| before.to_string()),
            "history": history.to_string(),
            "base": base,
            "readTo": read_to,
        });
        context.show_done(&shown, || history.to_string(), || {
            format!(
                "{region} begins anew at index {base}; its former log could be read up to {read_to}.\nStart its agents, then: \
                 muster region adopt {region} --history {history} --reason …"
            )
        })
    }

    async fn store(options: &global::options::StoreOptions) -> Result<Arc<dyn Store>, Failure> {
        use global::store::{embedded, postgres};
        match (&options.postgres, &options.path) {
            (Some(_), Some(_)) => {
                Err(Failure::usage("store.postgres and store.path are both set; the truth is in one place"))
            }
            (Some(url), None) => {
                let options =
                    postgres::PostgresOptions { url: url.reveal().to_owned(), ..postgres::PostgresOptions::default() };
                Ok(Arc::new(postgres::Postgres::new(&options).context("read store.postgres")?))
            }
            (None, Some(path)) => {
                let context = || format!("open the store {}", path.display());
                Ok(Arc::new(embedded::Embedded::open(path).await.with_context(context)?))
            }
            (None, None) => Err(Failure::usage(
                "no store is set: name store.postgres (postgres://user@host/database), or store.path for a file",
            )),
        }
    }

    /// The first signal asks it to stop, the second does not wait.
    async fn until_stopped(
        mut signals: Signals,
        shutdown: CancellationToken,
        stopped: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        tokio::pin!(stopped);
        tokio::select! {
            // Only a defect ends a service that nobody told to.
            () = &mut stopped => return Err(anyhow::anyhow!("the service ended by itself; its log says why").into()),
            _ = signals.next() => shutdown.cancel(),
        }
        tokio::select! {
            () = stopped => Ok(()),
            code = signals.next() => Err(Failure::Code(code)),
        }
    }
}

#[cfg(not(all(feature = "etcd", feature = "kafka")))]
mod absent {
    use super::{AgentArguments, CoordinatorArguments};
    use crate::config::ConfigArguments;
    use crate::connect::Context;
    use crate::failure::Failure;

    const SENTENCE: &str =
        "this build has neither etcd nor Kafka in it; build with the default features, or use `muster dev`";

    pub(crate) async fn agent(_: AgentArguments) -> Result<(), Failure> {
        Err(Failure::usage(SENTENCE))
    }

    pub(crate) async fn coordinator(_: CoordinatorArguments) -> Result<(), Failure> {
        Err(Failure::usage(SENTENCE))
    }

    pub(crate) async fn recover(_: &ConfigArguments, _: u64, _: &str, _: &Context) -> Result<(), Failure> {
        Err(Failure::usage(SENTENCE))
    }
}
