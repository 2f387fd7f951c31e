//! Mutants of core: deliberately wrong deciders, folds and ledgers, each kept as a patch.
//!
//! A patch lies in `tests/mutants/`, is named by the guarantee that it breaks, and says in its first line what
//! it breaks. `cargo run -p nodewright-conformance --bin mutants` applies each to a copy of the sources and has
//! the kit judge it; a plain test sees to it that every patch still applies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A patch of one file of the sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// Its name: the guarantee that it breaks, in small letters, and what it does.
    pub name: String,
    /// What it breaks, in words.
    pub breaks: String,
    /// The file that it changes, from the root of the workspace.
    pub file: PathBuf,
    patch: String,
}

/// Where the workspace is that the kit was built in.
pub fn workspace() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the kit lies in a workspace")
}

impl Mutant {
    /// All that are kept, by name.
    ///
    /// # Errors
    ///
    /// A folder or a file that cannot be read, and a patch that lacks its first line or its file.
    pub fn all() -> io::Result<Vec<Self>> {
        let folder = workspace().join("tests/mutants");
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "patch") {
                found.push(Self::read(&path)?);
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn read(path: &Path) -> io::Result<Self> {
        let lacks = |what: &str| io::Error::other(format!("{}: has no {what}", path.display()));
        let patch = fs::read_to_string(path)?;
        let line = |prefix: &str| patch.lines().find_map(|line| line.strip_prefix(prefix));
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let breaks = line("# Breaks ").ok_or_else(|| lacks("line that says what it breaks"))?;
        let file = line("+++ b/").ok_or_else(|| lacks("file that it changes"))?;
        Ok(Self {
            name: name.into_owned(),
            breaks: breaks.to_owned(),
            file: file.into(),
            patch,
        })
    }

    /// The guarantee that it breaks: `G10`, say.
    pub fn guarantee(&self) -> &str {
        self.breaks.split(':').next().unwrap_or_default()
    }

    /// Its file as it is, and as the mutant has it.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, and a patch that is none or does not apply.
    pub fn change(&self) -> io::Result<(String, String)> {
        let says = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", self.name));
        let source = fs::read_to_string(workspace().join(&self.file)).map_err(|error| says(&error))?;
        let patch = diffy::Patch::from_str(&self.patch).map_err(|error| says(&error))?;
        let changed = diffy::apply(&source, &patch).map_err(|error| says(&error))?;
        Ok((source, changed))
    }
}
