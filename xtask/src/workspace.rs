//! The workspace as the rules see it: what cargo resolved, and the manifests as written.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// All that the rules look at, as plain values that a test can make up.
#[derive(Default)]
pub(crate) struct Workspace {
    /// The members of this workspace.
    pub(crate) crates: Vec<Crate>,
    /// Names of all packages in the resolved graph, with those of others.
    pub(crate) resolved: Vec<String>,
}

/// One member.
#[derive(Clone, Default)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
    /// The manifest as its author wrote it.
    pub(crate) manifest: toml::Table,
    /// The text of `src/lib.rs`; empty for a program.
    pub(crate) lib: String,
}

/// One entry in a member's manifest, of any kind and target.
#[derive(Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Only tests of the crate use it.
    pub(crate) dev: bool,
}

/// Reads the workspace around the current folder.
pub(crate) fn read() -> Result<Workspace> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1"])
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "run cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read the answer of cargo metadata")?;
    let packages = metadata["packages"].as_array().context("find the packages")?;
    let members = metadata["workspace_members"].as_array().context("find the members")?;
    Ok(Workspace {
        crates: packages
            .iter()
            .filter(|package| members.contains(&package["id"]))
            .map(member)
            .collect::<Result<_>>()?,
        resolved: packages.iter().map(|package| text(&package["name"])).collect(),
    })
}

fn member(package: &Value) -> Result<Crate> {
    let path = text(&package["manifest_path"]);
    let manifest = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let lib = Path::new(&path).with_file_name("src/lib.rs");
    Ok(Crate {
        name: text(&package["name"]),
        license: package["license"].as_str().map(str::to_owned),
        dependencies: package["dependencies"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|dependency| Dependency { name: text(&dependency["name"]), dev: dependency["kind"] == "dev" })
            .collect(),
        manifest: manifest.parse().with_context(|| format!("parse {path}"))?,
        lib: std::fs::read_to_string(lib).unwrap_or_default(),
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
