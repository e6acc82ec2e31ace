//! Bringing a coordinator's Postgres to this build's schema.

use anyhow::Context as _;
use clap::Args;
use muster_global_coordinator::options::PostgresUrl;
use muster_global_coordinator::store::postgres;

use crate::connect::Context;
use crate::failure::Failure;

/// `muster migrate`.
#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    /// postgres://user@host/database, as in the coordinator's store.postgres
    #[arg(long, env = "MUSTER_COORDINATOR__STORE__POSTGRES", hide_env_values = true, value_name = "URL")]
    postgres: String,
}

pub(crate) async fn migrate(arguments: MigrateArguments, context: &Context) -> Result<(), Failure> {
    let url = PostgresUrl::new(arguments.postgres);
    let version = postgres::migrate(url.reveal()).await.with_context(|| format!("migrate {url}"))?;
    context.tell(&format!("{url} has schema version {version}"));
    Ok(())
}
