//! One program per state directory.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

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
    /// Locks a state directory; makes it where it is missing. Never waits.
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
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(LockError::Held {
                    directory: directory.to_owned(),
                    pid: text.trim().parse().ok(),
                });
            }
            Err(error) => return Err(failed(error.into())),
        }
        let written = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(failed)?;
        Ok(Self { _file: file })
    }
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
}
