//! Configuration of a service: its defaults, under a file, under the
//! environment, under the command line. Unknown keys are refused by name and
//! source.
// A build without the services has nobody to read it for.
#![cfg_attr(not(all(feature = "etcd", feature = "kafka")), allow(dead_code))]

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use figment::error::Kind;
use figment::providers::{Env, Format as _, Serialized, Toml};
use figment::value::Value;
use figment::{Error, Figment, Source};
use muster_wire::nearest::nearest;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// What every service takes.
#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    /// A file in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, over file and environment; nested ones as a.b
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Print the configuration in force, without secrets, and end
    #[arg(long)]
    pub(crate) print_config: bool,
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, such as listen=127.0.0.1:7171".to_owned()),
    }
}

/// Reads the configuration; `prefix` is that of the environment, such as
/// `MUSTER_AGENT__`.
pub(crate) fn load<T: DeserializeOwned>(arguments: &ConfigArguments, prefix: &str) -> Result<T, Failure> {
    let mut figment = Figment::new();
    if let Some(file) = &arguments.config {
        // A file that was named must be there.
        std::fs::metadata(file).with_context(|| format!("read the configuration {}", file.display()))?;
        figment = figment.merge(Toml::file_exact(file));
    }
    figment = figment.merge(Env::prefixed(prefix).split("__"));
    for (key, value) in &arguments.set {
        // Read as the environment is: a number, a list, or else text.
        let value: Value = value.parse().unwrap_or_else(|_| Value::from(value.clone()));
        figment = figment.merge(Serialized::global(key, value));
    }
    figment.extract::<T>().map_err(|error| Failure::usage(explain(error, &figment, prefix)))
}

/// The configuration in force. Options hide their secrets when they are
/// written.
pub(crate) fn print<T: Serialize>(options: &T) -> Result<(), Failure> {
    crate::connect::print(&toml::to_string(options).context("write the configuration as TOML")?)
}

/// Every error, one a line, each with the key and where it was set.
fn explain(errors: Error, figment: &Figment, prefix: &str) -> String {
    let mut text = String::from("the configuration can't be used");
    for error in errors {
        let mut key = error.path.join(".");
        let what = match &error.kind {
            Kind::UnknownField(field, known) => {
                if error.path.last().is_none_or(|last| last != field) {
                    key = error.path.iter().map(String::as_str).chain([field.as_str()]).collect::<Vec<_>>().join(".");
                }
                match nearest(field, known.iter().copied()) {
                    Some(near) => format!("there is no such setting; {near} is one"),
                    None => format!("there is no such setting; there are {}", known.join(", ")),
                }
            }
            kind => without_excerpt(&kind.to_string()),
        };
        let metadata = error.metadata.as_ref().or_else(|| figment.find_metadata(&key));
        let source = metadata.map(|metadata| match &metadata.source {
            Some(Source::File(path)) => format!(" in {}", path.display()),
            _ if metadata.name.contains("environment") => {
                format!(" ({prefix}{})", key.to_uppercase().replace('.', "__"))
            }
            _ => " (--set)".to_owned(),
        });
        let _ = write!(text, "\n  {key}{}: {what}", source.unwrap_or_default());
    }
    text
}

/// Without the lines of the file that a parser quotes: they may hold a secret.
fn without_excerpt(text: &str) -> String {
    let quoted = |line: &str| line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).starts_with('|');
    text.lines().filter(|line| !quoted(line)).collect::<Vec<_>>().join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Options {
        listen: String,
        lease_seconds: u64,
        etcd: Etcd,
        after: Option<String>,
    }

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Etcd {
        endpoints: Vec<String>,
        request_timeout_ms: u64,
    }

    impl Default for Options {
        fn default() -> Self {
            Self { listen: "127.0.0.1:1".to_owned(), lease_seconds: 10, etcd: Etcd::default(), after: None }
        }
    }

    /// A file of its own for each test; the environment is faked by nobody else
    /// using its prefix.
    fn read(name: &str, file: &str, set: &[&str]) -> Result<Options, String> {
        let path = std::env::temp_dir().join(format!("muster-config-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, file).unwrap();
        let set = set.iter().map(|text| setting(text).unwrap()).collect();
        let arguments = ConfigArguments { config: Some(path.clone()), set, print_config: false };
        let options = load(&arguments, "MUSTER_NOBODY__").map_err(|failure| {
            assert_eq!(failure.exit_code(), 2);
            failure.sentence().unwrap()
        });
        std::fs::remove_file(&path).unwrap();
        options
    }

    #[test]
    fn the_command_line_goes_over_the_file_over_the_defaults() {
        let file = "listen = \"127.0.0.1:2\"\n[etcd]\nendpoints = [\"http://a:1\"]\nrequest_timeout_ms = 5\n";
        let options = read("order", file, &["etcd.endpoints=[\"http://b:1\"]", "after=x"]).unwrap();
        let etcd = Etcd { endpoints: vec!["http://b:1".to_owned()], request_timeout_ms: 5 };
        let expected =
            Options { listen: "127.0.0.1:2".to_owned(), lease_seconds: 10, etcd, after: Some("x".to_owned()) };
        assert_eq!(options, expected);
    }

    #[test]
    fn unknown_keys_are_refused_with_their_source() {
        let error = read("unknown", "listne = \"x\"\n", &[]).unwrap_err();
        assert!(error.contains("listne in ") && error.contains("listen is one"), "{error}");
        assert!(error.contains("muster-config-"), "{error}");
        let error = read("nested", "[etcd]\nendpoint = []\n", &[]).unwrap_err();
        assert!(error.contains("etcd.endpoint in ") && error.contains("endpoints is one"), "{error}");
        let error = read("flag", "", &["colour=red"]).unwrap_err();
        assert!(error.contains("colour (--set): there is no such setting; there are listen"), "{error}");
    }

    #[test]
    fn values_of_the_wrong_kind_are_refused_with_their_key() {
        let error = read("kind", "lease_seconds = \"soon\"\n", &[]).unwrap_err();
        assert!(error.contains("lease_seconds in ") && error.contains("soon"), "{error}");
        assert!(read("syntax", "listen = \n", &[]).unwrap_err().contains("can't be used"));
        let error = read("quote", "after = \"postgres://u:secret@h/d\n", &[]).unwrap_err();
        assert!(error.contains("line 1") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let arguments =
            ConfigArguments { config: Some("/no/such/muster.toml".into()), set: Vec::new(), print_config: false };
        let failure = load::<Options>(&arguments, "MUSTER_NOBODY__").unwrap_err();
        assert!(failure.sentence().unwrap().contains("/no/such/muster.toml"));
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let options = Options { etcd: Etcd { request_timeout_ms: 7, ..Etcd::default() }, ..Options::default() };
        let text = toml::to_string(&options).unwrap();
        assert_eq!(read("again", &text, &[]).unwrap(), options);
    }
}
