//! A database of a test's own, dropped with it.

use anyhow::Context;
use sqlx::{Connection, Executor, PgConnection};

/// A database that exists until this is dropped.
#[derive(Debug)]
pub struct Database {
    /// Its URL.
    pub url: String,
    name: String,
    server: String,
}

impl Database {
    /// Makes an empty database at the server that `server` names.
    ///
    /// # Errors
    /// Postgres refuses or does not answer.
    pub async fn create(server: &str, name: &str) -> anyhow::Result<Self> {
        let mut connection = PgConnection::connect(server).await.with_context(|| format!("connect to {server}"))?;
        let statement = sqlx::AssertSqlSafe(format!("create database {name}"));
        connection.execute(statement).await.with_context(|| format!("create the database {name}"))?;
        connection.close().await.context("disconnect")?;
        let mut url = reqwest::Url::parse(server).context("read the URL of Postgres")?;
        url.set_path(name);
        Ok(Self { url: url.into(), name: name.to_owned(), server: server.to_owned() })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (name, server) = (self.name.clone(), self.server.clone());
        let drop = async move {
            let mut connection = PgConnection::connect(&server).await?;
            connection.execute(sqlx::AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
            connection.close().await
        };
        // On a thread of its own: this may be running inside a runtime.
        let dropped = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            let limited = async { tokio::time::timeout(std::time::Duration::from_secs(5), drop).await };
            runtime.block_on(limited).ok()?.ok()
        });
        if !matches!(dropped.join(), Ok(Some(()))) {
            eprintln!("the database {} is left behind", self.name);
        }
    }
}
