//! Repository rules as a program: `cargo xtask verify-deps` and `cargo xtask tidy`.
//!
//! Both only read. Every finding is one line on standard error that names the
//! place and the rule; with any finding the exit code is 1.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod dependencies;
mod links;
mod manifest;
mod promises;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    match run(std::env::args().nth(1).as_deref()) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("{} findings", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(task: Option<&str>) -> Result<Vec<String>> {
    match task {
        Some("verify-deps") => {
            let workspace = workspace::read()?;
            let mut findings = dependencies::check(&workspace);
            findings.extend(manifest::check(&workspace));
            println!("verify-deps: {} crates read", workspace.crates.len());
            Ok(findings)
        }
        Some("tidy") => {
            let files = tidy::read_files()?;
            let mut findings = tidy::check(&files);
            findings.extend(links::check(&files));
            findings.extend(promises::check(&files));
            println!("tidy: {} files read", files.len());
            Ok(findings)
        }
        _ => bail!("usage: cargo xtask verify-deps | tidy"),
    }
}
