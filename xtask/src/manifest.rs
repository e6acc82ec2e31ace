//! What every own manifest must say: versions and lints come from the workspace,
//! the license is Apache-2.0.

use toml::{Table, Value};

use crate::workspace::{Crate, Workspace};

const LICENSE: &str = "Apache-2.0";
const KINDS: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

/// The findings, one line each.
pub(crate) fn check(workspace: &Workspace) -> Vec<String> {
    workspace.crates.iter().flat_map(check_one).collect()
}

fn check_one(one: &Crate) -> Vec<String> {
    let mut findings = Vec::new();
    if one.license.as_deref() != Some(LICENSE) {
        findings.push(format!("{}: its license must be {LICENSE}", one.name));
    }
    let lints = one.manifest.get("lints").and_then(|lints| lints.get("workspace"));
    if lints != Some(&Value::Boolean(true)) {
        findings.push(format!("{}: must have [lints] workspace = true", one.name));
    }
    for (section, table) in sections(&one.manifest) {
        for (dependency, entry) in table {
            if has_own_version(entry) {
                findings
                    .push(format!("{}: [{section}] {dependency} must take its version from the workspace", one.name));
            }
        }
    }
    findings
}

/// The tables whose versions the workspace gives. A build dependency of one
/// target is left out: it stands for a tool of that platform, used in one place.
fn sections(manifest: &Table) -> Vec<(String, &Table)> {
    let mut found = Vec::new();
    for kind in KINDS {
        if let Some(Value::Table(table)) = manifest.get(*kind) {
            found.push(((*kind).to_owned(), table));
        }
    }
    let targets = manifest.get("target").and_then(Value::as_table);
    for (target, kinds) in targets.into_iter().flatten() {
        for kind in KINDS.iter().filter(|kind| **kind != "build-dependencies") {
            if let Some(Value::Table(table)) = kinds.get(*kind) {
                found.push((format!("target.{target}.{kind}"), table));
            }
        }
    }
    found
}

/// A path without a version points into this repository.
fn has_own_version(entry: &Value) -> bool {
    match entry {
        Value::Table(table) => table.contains_key("version") || table.contains_key("git"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(manifest: &str) -> Vec<String> {
        let one = Crate {
            name: "made-up".to_owned(),
            license: Some(LICENSE.to_owned()),
            manifest: format!("lints.workspace = true\n{manifest}").parse().unwrap(),
            ..Crate::default()
        };
        check_one(&one)
    }

    #[test]
    fn versions_from_the_workspace_pass() {
        let manifest = r#"
            [dependencies]
            serde.workspace = true
            fail = { workspace = true, optional = true }
            muster-tests = { path = "../tests" }
            [target.'cfg(unix)'.build-dependencies]
            protoc = "3"
        "#;
        assert_eq!(findings(manifest), Vec::<String>::new());
    }

    #[test]
    fn own_versions_are_refused_in_every_section() {
        for section in ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
            for entry in
                ["serde = \"1\"", "serde = { version = \"1\" }", "serde = { git = \"https://example.org/serde\" }"]
            {
                let found = findings(&format!("[{section}]\n{entry}"));
                assert_eq!(found.len(), 1, "{section} {entry}");
                assert!(found[0].contains("serde must take its version"), "{found:?}");
            }
        }
    }

    #[test]
    fn other_license_is_refused() {
        for license in [None, Some("MIT".to_owned())] {
            let manifest = "lints.workspace = true".parse().unwrap();
            let found = check_one(&Crate { license, manifest, ..Crate::default() });
            assert!(found[0].contains("license"), "{found:?}");
        }
    }

    #[test]
    fn own_lints_are_refused() {
        for manifest in ["", "[lints.rust]\nunsafe_code = \"allow\""] {
            let manifest = manifest.parse().unwrap();
            let found = check_one(&Crate { license: Some(LICENSE.to_owned()), manifest, ..Crate::default() });
            assert!(found[0].contains("lints"), "{found:?}");
        }
    }
}
