//! `iam`: a step that is many calls. Two groups, one nested in the other, a role, and both assigned to it, in a
//! legacy identity system that is often down and often fails; then a clumsy hand, and in the end a teardown.
//!
//! One learns how to write such a step as a [`Workflow`]: what comes after what, what undoes it, and that every
//! run checks everything again. The service runs in here, on loopback; the seed says when it is in what mood.
//!
//! ```text
//! cargo run --package nodewright-examples --bin iam -- --seed 7
//! ```

mod client;
mod directory;
mod service;
mod tasks;

use std::io::{self, Write as _};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nodewright::Clock;
use nodewright::effect::Cancel;
use nodewright::workflow::{Backoff, Verdict, Workflow};

use self::client::Client;
use self::service::Service;

/// Builds groups and a role in a shaky identity system, mends them, and takes them down.
#[derive(Debug, Parser)]
struct Options {
    /// When the service is in what mood.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Show the last picture of the graph in the language of Graphviz, too.
    #[arg(long)]
    dot: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let (service, address) = Service::start(options.seed).await?;
    let told = |workflow: Workflow<Client>| {
        workflow.on_change(|_, report| {
            if report.verdict() != Verdict::Open {
                say(&report.to_string());
            }
        })
    };
    let mut workflow = told(tasks::workflow(Client::new(address))?);

    say("== create");
    let mut done = until_done(&mut workflow).await;
    say("== somebody deletes the group staff by hand");
    service.lose("groups/staff");
    done &= until_done(&mut workflow).await;
    if options.dot {
        say(workflow.to_dot().trim_end());
    }
    say("== take down");
    done &= until_done(&mut told(workflow.reversed())).await;

    let left = service.entries();
    say(&format!(
        "left: {}",
        if left.is_empty() { "nothing" } else { &left }
    ));
    let good = done && left.is_empty();
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs it until it is done; whether it is. A real service is left alone for seconds, this one for an instant.
async fn until_done(workflow: &mut Workflow<Client>) -> bool {
    let backoff = Backoff {
        initial_delay: Duration::from_millis(1),
        max_delay: Duration::from_millis(20),
        attempts: NonZeroU32::new(100).expect("it is not zero"),
    };
    let (clock, cancel) = (Clock::system(), Cancel::new());
    let report = workflow.run_until_done(&clock, &cancel, &backoff).await;
    report.verdict() == Verdict::Done
}

/// Writes a line to standard output. Whoever reads it may have gone.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
