//! Kafka in the hands of whoever operates it.

use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;

/// How long the broker is asked for something.
const ANSWER: Duration = Duration::from_secs(10);

/// The administrator of a broker.
pub struct Kafka(AdminClient<DefaultClientContext>);

impl Kafka {
    /// Prepares to ask the broker at this address.
    ///
    /// # Errors
    /// The address can't be one.
    pub fn new(broker: &str) -> anyhow::Result<Self> {
        Ok(Self(ClientConfig::new().set("bootstrap.servers", broker).create().context("make an administrator")?))
    }

    /// Deletes topics with all their records.
    ///
    /// # Errors
    /// One is not there, or the broker does not answer.
    pub async fn delete_topics(&self, names: &[String]) -> anyhow::Result<()> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let deleted = self.0.delete_topics(&names, &options()).await.context("delete topics")?;
        for topic in deleted {
            topic.map_err(|(topic, code)| anyhow!("delete the topic {topic}: {code}"))?;
        }
        Ok(())
    }

    /// The places of a group without members are forgotten.
    ///
    /// # Errors
    /// It has members or never was, or the broker does not answer.
    pub async fn forget_group(&self, name: &str) -> anyhow::Result<()> {
        let deleted = self.0.delete_groups(&[name], &options()).await.context("delete a group")?;
        ensure!(!deleted.is_empty(), "nothing was said of {name}");
        for group in deleted {
            group.map_err(|(group, code)| anyhow!("delete the group {group}: {code}"))?;
        }
        Ok(())
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(ANSWER)).request_timeout(Some(ANSWER))
}
