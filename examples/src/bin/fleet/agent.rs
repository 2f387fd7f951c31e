//! The agent: what runs on a machine, says that it joined, and lives. Can misbehave, for demonstrations.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use nodewright::bootstrap::JOIN_MARKER;
use tokio::signal::unix::{SignalKind, signal};

use crate::options::AgentOptions;

/// Behaves as asked. Returns only where it was asked to end, or could not do as asked.
pub(crate) fn run(options: &AgentOptions) -> ExitCode {
    match live(options) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let _ = writeln!(io::stderr(), "fleet agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn live(options: &AgentOptions) -> anyhow::Result<u8> {
    if options.leave_session {
        rustix::process::setsid().context("leaving the session")?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _entered = runtime.enter();
    // Whoever listens for a signal is not ended by it.
    let _ignored = options
        .ignore_term
        .then(|| signal(SignalKind::terminate()))
        .transpose()
        .context("ignoring SIGTERM")?;
    flood(options.flood).context("flooding standard output")?;
    if let Some(status) = options.exit {
        return Ok(status);
    }
    if !options.never_join {
        let node = std::env::var("NODEWRIGHT_NODE").context("this is no machine: NODEWRIGHT_NODE")?;
        let mut out = io::stdout().lock();
        writeln!(out, "{JOIN_MARKER}{node}").and_then(|()| out.flush())?;
    }
    loop {
        // May wake for no reason, says its documentation.
        std::thread::park();
    }
}

/// Writes lines of this many bytes together.
fn flood(bytes: u64) -> io::Result<()> {
    const LINE: [u8; 80] = {
        let mut line = [b'x'; 80];
        line[79] = b'\n';
        line
    };
    let block = LINE.repeat(1000);
    let mut out = io::stdout().lock();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(block.len() as u64);
        out.write_all(&block[..usize::try_from(part).unwrap_or(block.len())])?;
        left -= part;
    }
    if !bytes.is_multiple_of(LINE.len() as u64) {
        out.write_all(b"\n")?;
    }
    out.flush()
}
