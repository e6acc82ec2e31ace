//! Links between documents point at files that exist.

use std::path::Path;

use crate::tidy::Files;

/// The findings, one line each.
pub(crate) fn check(files: &Files) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (number, target) in targets(text) {
            let exists = resolve(path, &target).is_some_and(|found| exists(files, &found));
            if !exists {
                findings.push(format!("{path}:{number}: {target} does not exist"));
            }
        }
    }
    findings
}

/// Targets inside the repository, with their lines; code and the web left out.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(line_targets(line).into_iter().map(|target| (number, target)));
        }
    }
    found
}

/// `[text](target "title")` and `[label]: target`, in what is not `code`.
fn line_targets(line: &str) -> Vec<String> {
    let prose: String = line.split('`').step_by(2).collect();
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let reference = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
    inline
        .chain(reference)
        .filter_map(|target| target.split_whitespace().next())
        .filter(|target| !target.contains(':'))
        .filter_map(|target| target.split('#').next())
        .filter(|path| !path.is_empty())
        .map(|path| path.trim_matches(['<', '>']).to_owned())
        .collect()
}

/// From the root of the repository; `None` when it leads out of it.
fn resolve(from: &str, target: &str) -> Option<String> {
    let (folder, target) = match target.strip_prefix('/') {
        Some(from_root) => ("", from_root),
        None => (from.rsplit_once('/').map_or("", |(folder, _)| folder), target),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn exists(files: &Files, path: &str) -> bool {
    path.is_empty() || files.keys().any(|file| Path::new(file).starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        check(&Files::from([file("README.md", ""), file("docs/adr/0001.md", ""), file(path, text)]))
    }

    #[test]
    fn links_to_files_folders_and_the_web_pass() {
        let text = "[a](adr/0001.md#why) [b](../README.md \"title\") [c](adr/)\n[d](https://example.org/x) [e](#here) [f](/docs)\n[g]: ../README.md\n";
        assert_eq!(findings("docs/page.md", text), Vec::<String>::new());
    }

    #[test]
    fn link_to_nothing_is_refused_with_its_line() {
        assert_eq!(findings("docs/page.md", "\nsee [a](gone.md)\n"), ["docs/page.md:2: gone.md does not exist"]);
        assert_eq!(findings("docs/page.md", "[a]: gone.md").len(), 1);
        assert_eq!(findings("docs/page.md", "[a](../../outside.md)").len(), 1);
        assert_eq!(findings("docs/page.md", "[a](adr/00)").len(), 1);
    }

    #[test]
    fn code_is_not_read_as_links() {
        let text = "`v[0](x.md)` and\n```\n[a](gone.md)\n```\n";
        assert_eq!(findings("docs/page.md", text), Vec::<String>::new());
    }
}
