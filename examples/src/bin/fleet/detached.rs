//! The state that an earlier fleet left when it went and its machines stayed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use nodewright::state::ClusterState;

use crate::refusal::Refusal;

/// The file of a run's state directory that such a state is kept in.
#[derive(Debug, Clone)]
pub(crate) struct Detached {
    path: PathBuf,
}

impl Detached {
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            path: directory.join("detached.json"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The state that was left; none where nobody left one.
    ///
    /// # Errors
    ///
    /// A file that cannot be used. It is not passed over in silence: without it the machines would be
    /// replaced, and somebody meant to keep them.
    pub(crate) fn read(&self) -> Result<Option<ClusterState>, Refusal> {
        let refused = |error: &dyn std::fmt::Display| {
            let advice = "remove it to have the machines of this run replaced";
            Refusal::whole(self.path.display(), format!("{error}; {advice}"))
        };
        match fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|error| refused(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(refused(&error)),
        }
    }

    /// Keeps a state: whoever reads finds the whole of it or nothing. # Errors: what the system says.
    pub(crate) fn write(&self, state: &ClusterState) -> io::Result<()> {
        let new = self.path.with_extension("json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        file.sync_all()?;
        fs::rename(new, &self.path)
    }

    /// Removes it: somebody else knows better by now. # Errors: what the system says.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_until_it_is_removed_and_a_broken_one_is_not_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let detached = Detached::of(directory.path());
        assert_eq!(detached.read(), Ok(None));
        let state = ClusterState::new("demo".parse().unwrap());
        detached.write(&state).unwrap();
        assert_eq!(detached.read(), Ok(Some(state)));
        detached.remove().unwrap();
        assert_eq!(detached.read(), Ok(None));
        fs::write(detached.path(), "{").unwrap();
        let refusal = detached.read().unwrap_err().to_string();
        assert!(
            refusal.contains("detached.json") && refusal.contains("remove it"),
            "{refusal}"
        );
    }
}
