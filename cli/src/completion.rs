//! Completion scripts.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::connect::print;
use crate::failure::Failure;

/// `muster completion`.
#[derive(Debug, Args)]
pub(crate) struct CompletionArguments {
    /// Such as bash: source <(muster completion bash)
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn completion(arguments: CompletionArguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "muster", &mut script);
    print(&String::from_utf8_lossy(&script))
}
