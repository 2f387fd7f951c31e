//! How all that runs of a machine is ended.

use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use nodewright_core::effect::Destroyed;
use rustix::process::Signal;
use tokio::time::{Instant, timeout_at};

use super::handle::{Process, ProcessKey};
use super::table::Scans;

/// How long processes may take to go after they were killed, before the machine is said to be still going:
/// one that waits for a broken disk goes only when the disk answers.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Ends all that runs of the machine in this directory: asks it to, and kills what is left after the grace.
///
/// The holder is stopped first and goes last. Stopped, it starts nothing more; and as long as it is there,
/// all that is in its session is provably the machine's. Every process is signalled through a pidfd, which
/// was compared with what was found: never a number alone.
///
/// # Cancel safety
///
/// What was not ended yet is ended when it is called again.
pub(super) async fn end_all(
    scans: &Scans,
    machine: &Path,
    holder: Option<ProcessKey>,
    grace: Duration,
) -> io::Result<Destroyed> {
    let holding = holder.map(Process::open).transpose()?.flatten();
    if let Some(holding) = &holding {
        holding.signal(Signal::STOP)?;
    }
    let grace = Instant::now() + grace;
    let limit = grace + KILL_LIMIT;
    let mut signal = Signal::TERM;
    loop {
        let table = scans.fresh().await?;
        let mut members = Vec::new();
        let mut holder_runs = false;
        for entry in table.members(machine, holder) {
            if Some(entry.key) == holder {
                holder_runs = !entry.stopped;
            } else {
                members.extend(Process::open(entry.key)?);
            }
        }
        if members.is_empty() {
            // A holder that was not stopped yet may have started something behind the reader's back.
            match &holding {
                Some(holding) if !holding.has_ended() => {
                    holding.signal(Signal::KILL)?;
                    if timeout_at(limit, holding.ended()).await.is_err() {
                        return Ok(Destroyed::Going);
                    }
                    holding.reap();
                    if holder_runs {
                        continue;
                    }
                }
                _ => {}
            }
            return Ok(Destroyed::Gone);
        }
        if Instant::now() >= limit {
            return Ok(Destroyed::Going);
        }
        if Instant::now() >= grace {
            signal = Signal::KILL;
        }
        for member in &members {
            member.signal(signal)?;
        }
        let until = if signal == Signal::KILL { limit } else { grace };
        // Where time runs out, the next turn looks again and kills, or gives up.
        let _ = timeout_at(until, join_all(members.iter().map(Process::ended))).await;
    }
}
