//! Files of definitions: apply, diff, delete.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use muster_client::{Apply, Client, Error};
use muster_protocol::name::BarrierName;
use muster_wire::answer::Applied;
use muster_wire::code::Code;
use muster_wire::definition::{Change, Document, changes, documents};
use serde::Serialize;

use crate::connect::Context;
use crate::failure::Failure;
use crate::render;

/// `muster apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArguments {
    /// JSON, or YAML with --- between definitions; - reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Replace definitions that differ; it holds from the next generation
    #[arg(long)]
    replace: bool,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
}

/// `muster diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArguments {
    /// JSON, or YAML with --- between definitions; - reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// `muster delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    /// Files of definitions, - for standard input, or names of barriers
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Break what is open, too; asks for a reason
    #[arg(long, requires = "reason")]
    force: bool,
    /// Why; kept with what is broken
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) async fn apply(arguments: ApplyArguments, context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let how = Apply { dry_run: arguments.dry_run, replace: arguments.replace, if_match: None };
    // All is read before anything is applied: a slip in the last line of a
    // file changes nothing.
    let mut first_failure = None;
    for document in read_all(&arguments.files)? {
        let outcome = client.apply(&document.name, document.body.to_string(), how).await;
        match outcome {
            Ok(applied) => context.show_done(&applied, || document.name.to_string(), || sentence(&applied))?,
            Err(error) => tell(&document.name, advise(error), &mut first_failure),
        }
    }
    first_failure.map_or(Ok(()), Err)
}

fn sentence(applied: &Applied) -> String {
    let verb = match (applied.created, applied.changed, applied.dry_run) {
        (true, _, false) => "defined",
        (true, _, true) => "would be defined",
        (_, true, false) => "changed, from the next generation on",
        (_, true, true) => "would be changed",
        (_, false, _) => "unchanged",
    };
    format!("{} {verb} (revision {})", applied.barrier.name, applied.barrier.revision)
}

fn advise(error: Error) -> Error {
    match error {
        Error::Refused(problem) if problem.code == Code::Conflict && problem.hint.is_none() => {
            Error::Refused(Box::new(problem.hint("apply it with --replace to change the definition in force")))
        }
        other => other,
    }
}

/// Tells a failure at once, and keeps the first for the exit code.
fn tell(name: &BarrierName, error: Error, first: &mut Option<Failure>) {
    let failure = Failure::from(error);
    eprintln!("muster: {name}: {}", failure.sentence().unwrap_or_default());
    first.get_or_insert(Failure::Code(failure.exit_code()));
}

#[derive(Serialize)]
struct Difference {
    barrier: BarrierName,
    defined: bool,
    changes: Vec<Change>,
}

pub(crate) async fn diff(arguments: DiffArguments, context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let mut differences = Vec::new();
    for document in read_all(&arguments.files)? {
        differences.push(difference(&client, document).await?);
    }
    let names =
        || differences.iter().filter(|one| !one.changes.is_empty()).map(|one| one.barrier.to_string()).collect();
    context.show(&differences, names, || differences.iter().map(lines).collect())
}

/// What the service itself would make of the document, against what it has.
async fn difference(client: &Client, document: Document) -> Result<Difference, Failure> {
    let before = match client.barrier(&document.name).await {
        Ok(barrier) => Some(barrier.effective),
        Err(error) if error.is(Code::NotDefined) => None,
        Err(error) => return Err(error.into()),
    };
    let how = Apply { dry_run: true, replace: true, if_match: None };
    let after = client.apply(&document.name, document.body.to_string(), how).await?;
    let empty = serde_json::Value::Object(serde_json::Map::new());
    let list = changes(before.as_ref().unwrap_or(&empty), &after.barrier.effective);
    Ok(Difference { barrier: document.name, defined: before.is_some(), changes: list })
}

fn lines(difference: &Difference) -> String {
    let state = match (difference.defined, difference.changes.len()) {
        (false, _) => "not defined yet".to_owned(),
        (true, 0) => "unchanged".to_owned(),
        (true, fields) => render::count(fields as u64, "change"),
    };
    let mut text = format!("{}: {state}\n", difference.barrier);
    render::changes(&difference.changes).iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text
}

pub(crate) async fn delete(arguments: DeleteArguments, context: &Context) -> Result<(), Failure> {
    let client = context.client()?;
    let force = arguments.reason.as_deref().filter(|_| arguments.force);
    let mut first_failure = None;
    for name in names(&arguments.files)? {
        match client.delete(&name, force).await {
            Ok(deleted) => context.show_done(
                &deleted,
                || name.to_string(),
                || match (deleted.changed, deleted.broken.len()) {
                    (false, _) => format!("{name} was not defined"),
                    (true, 0) => format!("{name} deleted"),
                    (true, broken) => {
                        format!("{name} deleted, and {} broken", render::count(broken as u64, "generation"))
                    }
                },
            )?,
            Err(error) => tell(&name, error, &mut first_failure),
        }
    }
    first_failure.map_or(Ok(()), Err)
}

/// Barriers that files define, or that are named themselves.
fn names(arguments: &[PathBuf]) -> Result<Vec<BarrierName>, Failure> {
    let mut names = Vec::new();
    for argument in arguments {
        let name = argument.to_str().filter(|_| !argument.exists()).and_then(|text| text.parse::<BarrierName>().ok());
        match name {
            Some(name) => names.push(name),
            None => names.extend(read_all(std::slice::from_ref(argument))?.into_iter().map(|document| document.name)),
        }
    }
    Ok(names)
}

fn read_all(files: &[PathBuf]) -> Result<Vec<Document>, Failure> {
    let mut all = Vec::new();
    for file in files {
        let text = read(file)?;
        let read = documents(&text).map_err(|mut problem| {
            problem.detail = format!("{}: {}", file.display(), problem.detail);
            Error::Refused(Box::new(problem))
        })?;
        all.extend(read);
    }
    Ok(all)
}

fn read(file: &Path) -> Result<String, Failure> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("read standard input")?;
        return Ok(text);
    }
    Ok(std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_to_delete_are_files_or_names() {
        let names = names(&["etl/map".into(), "etl/reduce".into()]).unwrap();
        assert_eq!(names.iter().map(BarrierName::as_str).collect::<Vec<_>>(), ["etl/map", "etl/reduce"]);
        assert_eq!(super::names(&["no/such/file.yaml".into()]).unwrap_err().exit_code(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let file = std::env::temp_dir().join(format!("muster-apply-{}.yaml", std::process::id()));
        std::fs::write(&file, "kind: Lock\nname: a/b\n").unwrap();
        let failure = read_all(std::slice::from_ref(&file)).unwrap_err();
        std::fs::remove_file(&file).unwrap();
        let sentence = failure.sentence().unwrap();
        assert!(sentence.contains("muster-apply-") && sentence.contains("kind: Barrier"), "{sentence}");
        assert_eq!(failure.exit_code(), 4);
    }

    #[test]
    fn what_applying_did_is_one_sentence() {
        let applied = |created, changed, dry_run| {
            let barrier = serde_json::from_str(r#"{"name":"a/b","revision":2,"spec":{},"effective":{},"gathering":0}"#);
            sentence(&Applied { barrier: barrier.unwrap(), created, changed, dry_run })
        };
        assert_eq!(applied(true, true, false), "a/b defined (revision 2)");
        assert_eq!(applied(false, false, false), "a/b unchanged (revision 2)");
        assert_eq!(applied(false, true, true), "a/b would be changed (revision 2)");
    }
}
