//! All that has to hold before anything is started.

use std::path::{Path, PathBuf};

use nodewright::id::RunId;
use nodewright::shape::{ClusterShape, Generation};
use nodewright::state::ClusterState;
use nodewright_backends::process::{ProcessBackend, RunLock, raise_open_files_limit};

use crate::detached::Detached;
use crate::options::UpOptions;
use crate::refusal::{Refusal, chain};
use crate::source::Source;

/// What a fleet stands on.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) source: Source,
    /// The shape to begin with.
    pub(crate) shape: ClusterShape,
    /// The run's own directory below the state directory.
    pub(crate) directory: PathBuf,
    pub(crate) capacity: Capacity,
    pub(crate) detached: Detached,
    /// What an earlier fleet left on purpose.
    pub(crate) left: Option<ClusterState>,
}

impl Ground {
    /// Looks at everything that was given. Starts nothing, and makes nothing but the state directory, and
    /// that only for a shape that can be used. The lock is to be held until nothing of this fleet works on the
    /// run any more, the counting at its end included.
    ///
    /// # Errors
    ///
    /// All that is wrong with it.
    pub(crate) fn prepare(options: &UpOptions) -> Result<(Self, RunLock), Refusal> {
        let source = Source::open(&options.shape)?;
        let shape = source.shape(Generation(1))?;
        let capacity = Capacity::raise()?;
        capacity.check(&shape)?;
        let asked = u64::from(options.kill);
        if asked > node_count(&shape) {
            let message = format!("--kill {asked} is more than its {} machines", node_count(&shape));
            return Err(Refusal::whole(source.path().display(), message));
        }
        let directory = run_directory(options, &shape.run_id);
        let run = &shape.run_id;
        let lock = RunLock::acquire(&directory)
            .map_err(|error| Refusal::whole(format_args!("run {run}"), chain(&error)))?;
        let detached = Detached::of(&directory);
        let left = detached.read()?;
        // Generations go on from where the other fleet was, unless the file counts them.
        let seen = left.as_ref().map(|state| state.observed_generation);
        let shape = match seen.filter(|seen| *seen > shape.generation) {
            Some(seen) => source.shape(seen)?,
            None => shape,
        };
        let ground = Self {
            source,
            shape,
            directory,
            capacity,
            detached,
            left,
        };
        Ok((ground, lock))
    }
}

fn run_directory(options: &UpOptions, run: &RunId) -> PathBuf {
    let beside = || {
        let folder = options.shape.parent().unwrap_or(Path::new(""));
        folder.join(".nodewright")
    };
    let state_dir = options.state_dir.clone().unwrap_or_else(beside);
    state_dir.join(run.as_str())
}

/// How many nodes a shape wants.
pub(crate) fn node_count(shape: &ClusterShape) -> u64 {
    shape.groups.iter().map(|group| u64::from(group.count)).sum()
}

/// How many machines this process can have: each takes open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    files: u64,
}

impl Capacity {
    /// What the process has open besides: its own outputs, the runtime's, the watched folders, `/proc`.
    const BESIDES: u64 = 64;

    /// As many as the system grants. # Errors: that it would not say, or not grant it.
    fn raise() -> Result<Self, Refusal> {
        let files = raise_open_files_limit().map_err(|error| Refusal::whole("limit of open files", error))?;
        Ok(Self { files })
    }

    /// Whether a shape fits. # Errors: by how much it does not.
    pub(crate) fn check(self, shape: &ClusterShape) -> Result<(), Refusal> {
        let (nodes, each) = (node_count(shape), ProcessBackend::FILES_PER_MACHINE);
        let needed = nodes.saturating_mul(each).saturating_add(Self::BESIDES);
        if needed <= self.files {
            return Ok(());
        }
        let most = self.files.saturating_sub(Self::BESIDES) / each;
        let message = format!(
            "{nodes} machines need {needed} open files, and this process may have {}: that is enough for \
             {most}; raise the hard limit (ulimit -Hn) or lower the counts",
            self.files
        );
        Err(Refusal::whole(format_args!("run {}", shape.run_id), message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_needs_more_open_files_than_there_are_is_refused_with_the_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.toml");
        let group = r#"groups.w = { count = 20, role = "w", provider = "process", shape.image = "local", boot.start = "a" }"#;
        std::fs::write(&path, group).unwrap();
        let shape = Source::open(&path).unwrap().shape(Generation(1)).unwrap();
        let needed = 20 * ProcessBackend::FILES_PER_MACHINE + Capacity::BESIDES;
        assert_eq!(Capacity { files: needed }.check(&shape), Ok(()));
        let refusal = Capacity { files: needed - 1 }
            .check(&shape)
            .unwrap_err()
            .to_string();
        for number in [20, needed, needed - 1, 19] {
            assert!(refusal.contains(&number.to_string()), "{refusal}");
        }
    }
}
