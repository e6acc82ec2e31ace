//! `docs/correctness.md` is held to the code: every promise has a row, every
//! file it names is there, and every test it names is one.

use std::collections::BTreeSet;

use crate::tidy::Files;

const PAGE: &str = "docs/correctness.md";
const INVARIANTS: &str = "shared/protocol/src/invariant.rs";
const CAUGHT: &str = "benchmarks/results/mutants.json";
/// Promised for what is not built yet, and said so on the page.
const LATER: &[&str] = &["I13"];

/// The findings, one line each.
pub(crate) fn check(files: &Files) -> Vec<String> {
    let (Some(page), Some(invariants)) = (files.get(PAGE), files.get(INVARIANTS)) else { return Vec::new() };
    let tests = tests(files);
    let mut findings = missing_rows(page, invariants);
    if let Some(caught) = files.get(CAUGHT) {
        findings.extend(stale_bugs(page, caught));
    }
    for name in quoted(page) {
        let is_path = name.contains('/') && name.contains('.') && !name.contains(' ');
        let is_test = name.contains('_')
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit());
        if is_path && !files.contains_key(name) {
            findings.push(format!("{PAGE}: there is no file {name}"));
        } else if is_test && !tests.contains(name) {
            findings.push(format!("{PAGE}: there is no test {name}"));
        }
    }
    findings
}

fn missing_rows(page: &str, invariants: &str) -> Vec<String> {
    let numbers = invariants.lines().filter_map(|line| line.trim().strip_suffix(',')?.split_once(" = "));
    let numbers = numbers.filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
    let rows = numbers.map(|(_, number)| format!("I{number}")).filter(|number| !LATER.contains(&number.as_str()));
    rows.filter(|number| !page.contains(&format!("| {number} |")))
        .map(|number| format!("{PAGE}: no row for {number}"))
        .collect()
}

/// The known bugs as the page shows them: one row for each of the last run.
fn stale_bugs(page: &str, caught: &str) -> Vec<String> {
    let rows: Vec<String> = caught.lines().filter_map(row).collect();
    let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("| *")).collect();
    let missing = rows.iter().filter(|row| !shown.contains(&row.as_str()));
    let gone = shown.iter().filter(|line| !rows.iter().any(|row| row == *line));
    let missing = missing.map(|row| format!("{PAGE}: lacks what {CAUGHT} says: {row}"));
    missing.chain(gone.map(|line| format!("{PAGE}: {CAUGHT} says nothing of: {line}"))).collect()
}

/// One bug of the results as a row: what it does, what it breaks, the seeds it
/// took.
fn row(line: &str) -> Option<String> {
    let field = |name: &str| {
        let rest = line.split_once(&format!("\"{name}\": "))?.1;
        Some(rest.trim_start_matches('"').split(['"', '}']).next()?.to_owned())
    };
    Some(format!("| *{}* | {} | {} | {} |", field("name")?, field("what")?, field("breaks")?, field("seedsMedian")?))
}

/// What stands between backticks.
fn quoted(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

/// The names of all functions, which is where tests are among.
fn tests(files: &Files) -> BTreeSet<&str> {
    let sources = files.iter().filter(|(path, _)| path.ends_with(".rs"));
    let functions = sources.flat_map(|(_, text)| text.split("fn ").skip(1));
    functions.filter_map(|rest| rest.split(['(', '<']).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str) -> Vec<String> {
        check(&Files::from([
            (PAGE.to_owned(), page.to_owned()),
            (
                INVARIANTS.to_owned(),
                "pub enum Invariant {\n    One = 1,\n    Permits = 13,\n}\nfn a_test() {}".to_owned(),
            ),
        ]))
    }

    #[test]
    fn the_known_bugs_are_those_of_the_last_run() {
        let caught = "[\n  {\"name\": \"A\", \"what\": \"does\", \"breaks\": \"I1\", \"caughtBy\": \"I1\", \"seedsMedian\": 5}\n]\n";
        assert_eq!(stale_bugs("| *A* | does | I1 | 5 |", caught), [""; 0]);
        assert_eq!(stale_bugs("| *A* | does | I1 | 6 |", caught).len(), 2);
        assert_eq!(
            stale_bugs("", caught),
            ["docs/correctness.md: lacks what benchmarks/results/mutants.json says: | *A* | does | I1 | 5 |"]
        );
    }

    #[test]
    fn what_the_page_names_is_there() {
        let row = "| I1 | kept in `shared/protocol/src/invariant.rs` | `a_test` |";
        assert_eq!(findings(row), [""; 0]);
        assert_eq!(findings("| I2 |"), ["docs/correctness.md: no row for I1"]);
        assert_eq!(findings(&format!("{row} `a/b.rs`")), ["docs/correctness.md: there is no file a/b.rs"]);
        assert_eq!(findings(&format!("{row} `another_test`")), ["docs/correctness.md: there is no test another_test"]);
    }
}
