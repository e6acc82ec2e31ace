//! Which version runs where.

use clap::Args;
use serde::Serialize;

use crate::connect::Context;
use crate::failure::Failure;
use crate::render;

/// `muster version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArguments {
    /// Ask every address of MUSTER_ADDR, too
    #[arg(long)]
    all: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    address: String,
    service: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    machine_version: Option<u16>,
}

pub(crate) async fn version(arguments: VersionArguments, context: &Context) -> Result<(), Failure> {
    let mut rows = vec![Row {
        address: String::new(),
        service: "muster".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine_version: None,
    }];
    let mut failure = None;
    if arguments.all {
        for client in context.client()?.each() {
            match client.version().await {
                Ok(version) => rows.push(Row {
                    address: client.addresses().join(","),
                    service: version.service,
                    version: version.version,
                    machine_version: Some(version.machine_version),
                }),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
    }
    let names = || rows.iter().map(|row| row.version.clone()).collect();
    context.show(&rows, names, || match rows.as_slice() {
        [own] => format!("muster {}\n", own.version),
        many => {
            let cells = |row: &Row| {
                let machine = row.machine_version.map(|version| version.to_string()).unwrap_or_default();
                [row.service.clone(), row.version.clone(), machine, row.address.clone()]
            };
            render::table(["PROGRAM", "VERSION", "MACHINE", "ADDRESS"], many.iter().map(cells))
        }
    })?;
    failure.map_or(Ok(()), |error| Err(error.into()))
}
