//! A count at the operating system, not in anybody's books.

use std::io;
use std::path::Path;

use nodewright_core::id::{AttemptIdentity, RunId};

use super::table::Table;

/// A process that still runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    /// Its number.
    pub pid: u32,
    /// Whose it is, by the environment that it carries or that the leader of its session does.
    pub identity: AttemptIdentity,
}

/// Counts the processes that carry the identity of this run and state directory, and those in sessions that
/// such a process leads; zombies do not count. Nothing of a backend is asked.
///
/// Blocks for some microseconds per process of the machine.
///
/// # Errors
///
/// What the system says where `/proc` cannot be read.
pub fn census(state_dir: &Path, run: &RunId) -> io::Result<Vec<Survivor>> {
    // Processes may outlive the directory that they were started in.
    let root = state_dir
        .canonicalize()
        .or_else(|_| std::path::absolute(state_dir))?;
    let table = Table::read(&root.join("machines"))?;
    let of_run = table.machines().filter(|stamp| stamp.identity.run == *run);
    Ok(of_run
        .flat_map(|stamp| {
            let members = table.members(&stamp.machine, None).into_iter();
            members.map(|entry| Survivor {
                pid: entry.key.pid,
                identity: stamp.identity.clone(),
            })
        })
        .collect())
}

/// Raises the soft limit of open files of this process to the hard one, and says what it is now.
///
/// # Errors
///
/// What the system says where it refuses.
pub fn raise_open_files_limit() -> io::Result<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(limit.current.unwrap_or(u64::MAX))
}
