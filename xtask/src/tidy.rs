//! Rules for every file of the repository: its size, its name, nothing unfinished.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Path from the root of the repository to text; empty for what is not UTF-8.
pub(crate) type Files = BTreeMap<String, String>;

/// Past it there are two things in the file.
const LINES_MAX: usize = 500;

const SOURCE: &[&str] = &["rs", "py", "ts", "js", "go", "sh", "sql", "html", "css"];

/// A name that fits anything names nothing.
const VAGUE: &[&str] = &["utils", "util", "common", "helpers", "misc", "types", "manager"];

/// Spelled in two parts, so that this file does not find itself.
const UNFINISHED: &[&str] = &[concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("#[ign", "ore")];

/// All files that git tracks or would track.
pub(crate) fn read_files() -> Result<Files> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("run git ls-files")?;
    ensure!(output.status.success(), "run git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let paths = String::from_utf8(output.stdout).context("read the paths from git")?;
    // A file that git tracks and somebody just deleted is no longer there.
    Ok(paths
        .split_terminator('\0')
        .filter(|path| Path::new(path).is_file())
        .map(|path| (path.to_owned(), std::fs::read_to_string(path).unwrap_or_default()))
        .collect())
}

/// The findings, one line each.
pub(crate) fn check(files: &Files) -> Vec<String> {
    files
        .iter()
        .filter(|(path, _)| is_source(path))
        .flat_map(|(path, text)| size(path, text).into_iter().chain(name(path)).chain(unfinished(path, text)))
        .collect()
}

fn is_source(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|one| one.to_str());
    extension.is_some_and(|one| SOURCE.contains(&one))
}

fn size(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LINES_MAX).then(|| format!("{path}: {lines} lines, at most {LINES_MAX}: look for the second thing in it"))
}

fn name(path: &str) -> Option<String> {
    let parts = path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    let vague = parts.into_iter().find(|part| VAGUE.contains(part))?;
    Some(format!("{path}: nothing is called {vague:?}: name the thing"))
}

fn unfinished(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for sign in UNFINISHED.iter().filter(|sign| line.contains(**sign)) {
            findings.push(format!("{path}:{number}: unfinished or switched off ({sign})"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&Files::from([(path.to_owned(), text.to_owned())]))
    }

    #[test]
    fn plain_file_passes() {
        assert_eq!(findings("shared/wire/src/record.rs", &"//\n".repeat(LINES_MAX)), Vec::<String>::new());
    }

    #[test]
    fn long_source_is_refused_and_long_text_is_not() {
        let long = "x\n".repeat(LINES_MAX + 1);
        assert!(findings("cli/src/demo.rs", &long)[0].contains("501 lines"));
        assert_eq!(findings("Cargo.lock", &long), Vec::<String>::new());
    }

    #[test]
    fn vague_names_are_refused_for_files_and_folders() {
        for path in ["cli/src/utils.rs", "cli/src/common/mod.rs", "client/src/types.rs", "sdk/helpers.py"] {
            let found = findings(path, "");
            assert_eq!(found.len(), 1, "{path}");
            assert!(found[0].contains("name the thing"), "{found:?}");
        }
        assert_eq!(findings("shared/http/src/content_types.rs", ""), Vec::<String>::new());
    }

    #[test]
    fn unfinished_and_switched_off_are_refused_with_their_line() {
        for sign in UNFINISHED {
            let found = findings("cli/src/main.rs", &format!("fn main() {{\n    {sign}\n}}\n"));
            assert_eq!(found.len(), 1, "{sign}");
            assert!(found[0].starts_with("cli/src/main.rs:2:"), "{found:?}");
        }
    }
}
