//! The shape file: what it says, and whether that is something new.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use nodewright::id::{ProviderKind, RunId};
use nodewright::shape::{
    ClusterShape, Generation, ShapeDefaults, ShapeFile, ShapeFormat, ShapeLimits, run_id_from_stem,
};

use crate::refusal::Refusal;

/// A shape of a million nodes is far smaller; what is larger is no shape.
const LARGEST: u64 = 64 * 1024 * 1024;

/// The provider that shapes name.
pub(crate) fn provider() -> ProviderKind {
    ProviderKind::new("process").expect("it is a name")
}

/// A shape file that is read again and again.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    format: ShapeFormat,
    /// The run that the file is named after.
    run: RunId,
    /// What it said when it was read last, used or refused.
    bytes: Vec<u8>,
}

impl Source {
    /// Reads a file for the first time. # Errors: that it cannot be read, or is not named as a shape.
    pub(crate) fn open(path: &Path) -> Result<Self, Refusal> {
        let shown = &path.display();
        let format = ShapeFormat::from_path(path).map_err(|error| Refusal::whole(shown, error))?;
        let bytes = read(path).map_err(|error| Refusal::whole(shown, error))?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy());
        Ok(Self {
            path: path.to_owned(),
            format,
            run: run_id_from_stem(&stem.unwrap_or_default()),
            bytes,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again; whether it says anything else than before. A file that is not there, or cannot
    /// be read, says nothing new: many editors take it away for a moment.
    pub(crate) fn reread(&mut self) -> bool {
        match read(&self.path) {
            Ok(bytes) if bytes != self.bytes => {
                self.bytes = bytes;
                true
            }
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(file = %self.path.display(), %error, "shape file cannot be read");
                false
            }
        }
    }

    /// The shape that was read, of this generation if it does not say its own.
    ///
    /// # Errors
    ///
    /// Every mistake in it.
    pub(crate) fn shape(&self, generation: Generation) -> Result<ClusterShape, Refusal> {
        let defaults = ShapeDefaults {
            run_id: self.run.clone(),
            generation,
        };
        let limits = ShapeLimits::default();
        ShapeFile::parse(&self.bytes, self.format, &defaults, &limits, &[provider()].into())
            .map_err(|errors| Refusal::of_shape(self.path.display(), &errors))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!(
            "has more than {LARGEST} bytes, which no shape has"
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_something_new_only_when_its_bytes_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("My Shape.toml");
        std::fs::write(&path, "groups = {}").unwrap();
        let mut source = Source::open(&path).unwrap();
        assert_eq!(source.shape(Generation(4)).unwrap().generation, Generation(4));
        assert_eq!(source.shape(Generation(4)).unwrap().run_id.as_str(), "my-shape");
        std::fs::write(&path, "groups = {}").unwrap();
        assert!(!source.reread());
        std::fs::remove_file(&path).unwrap();
        assert!(!source.reread());
        std::fs::write(&path, "generation = 9\ngroups = {}").unwrap();
        assert!(source.reread());
        assert_eq!(source.shape(Generation(4)).unwrap().generation, Generation(9));
    }

    #[test]
    fn a_file_that_is_absent_a_folder_or_not_named_as_a_shape_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["absent.toml", "folder.toml", "shape.yaml"] {
            let path = directory.path().join(name);
            if name == "folder.toml" {
                std::fs::create_dir(&path).unwrap();
            }
            let refusal = Source::open(&path).unwrap_err().to_string();
            assert!(refusal.contains(name), "{refusal}");
        }
    }
}
