//! `fleet`: brings the machines of a shape file up as processes of this host, keeps them up while the file
//! changes and machines die, and takes them all down at the end.
//!
//! ```text
//! cargo fleet examples/shapes/small.toml --once
//! cargo fleet examples/shapes/two-hundred.toml --once --kill 20
//! ```

mod agent;
mod board;
mod clock;
mod commands;
mod condition;
mod detached;
mod edits;
mod goal;
mod ground;
mod kill;
mod note;
mod options;
mod printer;
mod refusal;
mod reporter;
mod screen;
mod sight;
mod signals;
mod source;
mod summary;
mod table;
mod tally;
mod up;
mod waits;
mod wording;

use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::EnvFilter;

use self::options::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match (cli.command, cli.up) {
        (Some(Command::Agent(agent)), _) => agent::run(&agent),
        (None, Some(options)) => {
            trace();
            up::run(&options)
        }
        // Without a subcommand the shape is required, and the parser has said so.
        (None, None) => ExitCode::from(2),
    }
}

/// Writes what the libraries trace to standard error, if the environment asks for it.
fn trace() {
    if std::env::var_os(EnvFilter::DEFAULT_ENV).is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .init();
    }
}
