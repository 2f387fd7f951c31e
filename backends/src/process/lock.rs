//! One program per state directory.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::stat::ProcessStat;

/// The right to be the one program that works on a state directory.
///
/// The kernel holds it: it is free once this is dropped or the process has ended, however that came. The
/// machines that the process spawned do not inherit it.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

/// Why a state directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another program has it.
    #[error("{} is in use by {}", directory.display(), pid.map_or("another process".to_owned(), |pid| format!("process {pid}")))]
    Held {
        /// The directory.
        directory: PathBuf,
        /// The other program; none in the moment before it has written that down.
        pid: Option<u32>,
    },
    /// The lock could not be asked for.
    #[error("lock in {}", directory.display())]
    Io {
        /// The directory.
        directory: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

impl RunLock {
    /// Locks a state directory; makes it where it is missing. Waits only, and not for long, where the process
    /// that had it was killed just now: what that one was about to spawn shares the lock until it executes a
    /// program of its own.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] where another program, or another lock of this one, has it.
    pub fn acquire(directory: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io {
            directory: directory.to_owned(),
            source,
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("lock"))
            .map_err(failed)?;
        let mut patience = HANDOVERS;
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            let pid = named(&mut file);
            if patience == 0 || !pid.is_some_and(has_ended) {
                return Err(LockError::Held {
                    directory: directory.to_owned(),
                    pid,
                });
            }
            patience -= 1;
            std::thread::sleep(HANDOVER);
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// How long it is waited at a time for what a dead process was about to spawn, and how often: half a second
/// together, of which a loaded machine needs some milliseconds.
const HANDOVER: Duration = Duration::from_millis(5);
const HANDOVERS: u32 = 100;

/// The process that says it has the lock.
fn named(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn has_ended(pid: u32) -> bool {
    ProcessStat::read(pid).is_ok_and(|stat| stat.is_none_or(ProcessStat::is_zombie))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_naming_the_first_and_granted_once_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let first = RunLock::acquire(directory.path()).unwrap();
        let error = RunLock::acquire(directory.path()).unwrap_err();
        assert!(matches!(error, LockError::Held { pid: Some(pid), .. } if pid == std::process::id()));
        assert!(
            error
                .to_string()
                .contains(&format!("process {}", std::process::id()))
        );
        drop(first);
        RunLock::acquire(directory.path()).unwrap();
    }
    #[test]
    fn a_lock_that_only_the_unborn_child_of_a_dead_process_shares_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let first = RunLock::acquire(directory.path()).unwrap();
        fs::write(directory.path().join("lock"), dead.to_string()).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| RunLock::acquire(directory.path()));
            // However soon or late the second asks: it gets the lock.
            drop(first);
            second.join().unwrap().unwrap();
        });
        let first = RunLock::acquire(directory.path()).unwrap();
        fs::write(directory.path().join("lock"), dead.to_string()).unwrap();
        assert!(RunLock::acquire(directory.path()).is_err());
        drop(first);
    }
}
