//! Reads a shape from a file's bytes, and says of every mistake where it stands.
//!
//! The file itself is opened elsewhere: nothing here touches the world.

use std::collections::BTreeSet;
use std::path::{Path as FilePath, PathBuf};

use crate::id::{NAME_LIMIT, ProviderKind, RunId};
use crate::shape::check;
use crate::shape::path::Path;
use crate::shape::raw::{self, RawFile};
use crate::shape::{ClusterShape, Generation, Position, ShapeErrors, ShapeLimits, ShapeProblem};

mod fields;
mod walk;

/// How a shape is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShapeFormat {
    /// TOML 1.1.
    Toml,
    /// JSON, without comments or trailing commas.
    Json,
}

/// A file whose name does not say how it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shape file {path:?} ends neither in .toml nor in .json")]
pub struct ShapeFormatError {
    path: PathBuf,
}

impl ShapeFormat {
    /// The format that a file's name ends in, in letters of either case. # Errors: any other ending.
    pub fn from_path(path: &FilePath) -> Result<Self, ShapeFormatError> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("toml") => Ok(Self::Toml),
            Some("json") => Ok(Self::Json),
            _ => Err(ShapeFormatError {
                path: path.to_owned(),
            }),
        }
    }
}

/// What holds for a file that does not say so itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShapeDefaults {
    /// The run: named after the file, for which there is [`run_id_from_stem`].
    pub run_id: RunId,
    /// The revision: the caller counts.
    pub generation: Generation,
}

/// The run that a file of this name, without its ending, is for unless it says so: lower-cased, with a dash
/// for whatever a name cannot have, and `run` if nothing is left of it.
pub fn run_id_from_stem(stem: &str) -> RunId {
    let plain: String = stem
        .chars()
        .flat_map(char::to_lowercase)
        .map(|letter| match letter {
            'a'..='z' | '0'..='9' => letter,
            _ => '-',
        })
        .collect();
    let name = plain.trim_matches('-');
    let name = name[..name.len().min(NAME_LIMIT)].trim_end_matches('-');
    let name = if name.is_empty() { "run" } else { name };
    RunId::new(name).expect("only what a name may have was kept")
}

/// Reads shapes that were written down.
///
/// ```
/// use nodewright_core::shape::{Generation, ShapeDefaults, ShapeFile, ShapeFormat, ShapeLimits, run_id_from_stem};
///
/// let text = r#"
/// [groups.workers]
/// count = 3
/// role = "worker"
/// provider = "process"
/// shape.image = "local"
/// boot.start = "agent"
/// "#;
/// let defaults = ShapeDefaults { run_id: run_id_from_stem("demo"), generation: Generation(1) };
/// let providers = ["process".parse().unwrap()].into();
/// let shape = ShapeFile::parse(
///     text.as_bytes(),
///     ShapeFormat::Toml,
///     &defaults,
///     &ShapeLimits::default(),
///     &providers,
/// )
/// .unwrap();
/// assert_eq!(shape.groups[0].count, 3);
/// ```
#[derive(Debug)]
pub struct ShapeFile;

impl ShapeFile {
    /// Reads a file's bytes as a shape that [`Desired::new`](crate::desired::Desired::new) accepts under
    /// the same limits and providers.
    ///
    /// A file has `run_id` and `generation`, which may be left out, and `groups`, a table by name. A group has
    /// `count`, `role`, `provider`, `shape` and `boot`, and may have `depends_on`, `run_id` and `join`; these
    /// have the fields of their types, but reliability is a fraction, `min_reliability = 0.95`. An empty
    /// `groups` asks for nothing to be there; a file without `groups` is a mistake.
    ///
    /// # Errors
    ///
    /// Every mistake with line, column and path: those of [`Desired::new`](crate::desired::Desired::new),
    /// unknown and missing fields, wrong types, bad names, repeated keys, broken syntax, text that is not
    /// UTF-8. What stands on a line whose syntax is broken, or seems to be missing from a file that has such a
    /// line, is not counted as a mistake of its own.
    pub fn parse(
        bytes: &[u8],
        format: ShapeFormat,
        defaults: &ShapeDefaults,
        limits: &ShapeLimits,
        providers: &BTreeSet<ProviderKind>,
    ) -> Result<ClusterShape, ShapeErrors> {
        let text = match str::from_utf8(bytes) {
            Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
            Err(error) => {
                let good = &bytes[..error.valid_up_to()];
                let text = str::from_utf8(good).unwrap_or_default();
                let bad = bytes.get(good.len()).copied().unwrap_or_default();
                let problem = Mistake {
                    at: text.len(),
                    path: String::new(),
                    message: format!("byte {bad:#04x} is not UTF-8; a shape is UTF-8 text"),
                    absence: false,
                };
                return Err(located(text, vec![problem], &[]));
            }
        };
        let RawFile { root, broken } = match format {
            ShapeFormat::Toml => raw::parse_toml(text),
            ShapeFormat::Json => raw::parse_json(text),
        };
        let example = match format {
            ShapeFormat::Toml => least_toml(providers),
            ShapeFormat::Json => least_json(providers),
        };
        let (shape, mut notes) = walk::walk(&root, defaults, limits, providers, &example);
        let mut found = notes.take();
        let told: BTreeSet<Path> = found.iter().map(|found| found.path.clone()).collect();
        if let Err(more) = check::shape(&shape.run_id, &shape.groups, limits, providers) {
            // Where something could not be used, another value stands for it, of which there is nothing to say;
            // and a group that could not be used is there all the same for those that depend on it.
            found.extend(
                more.into_iter()
                    .filter(|found| !told.contains(&found.path) && !notes.has_missing(found)),
            );
        }
        if found.is_empty() && broken.is_empty() {
            return Ok(shape);
        }
        let mistakes = found.into_iter().map(|found| {
            let (path, at) = notes.locate(&found);
            Mistake {
                at,
                path: path.to_string(),
                message: found.message,
                absence: found.absence,
            }
        });
        Err(located(text, mistakes.collect(), &broken))
    }
}

/// A mistake whose place is a byte of the text.
struct Mistake {
    at: usize,
    path: String,
    message: String,
    absence: bool,
}

/// Turns places into lines and columns, and drops what only follows from broken syntax.
fn located(text: &str, mut mistakes: Vec<Mistake>, broken: &[(usize, String)]) -> ShapeErrors {
    mistakes.retain(|mistake| broken.is_empty() || !mistake.absence);
    let own = mistakes.len();
    mistakes.extend(broken.iter().map(|(at, message)| Mistake {
        at: *at,
        path: String::new(),
        message: message.clone(),
        absence: false,
    }));
    let mut order: Vec<usize> = (0..mistakes.len()).collect();
    order.sort_by_key(|&index| mistakes[index].at);
    // One sweep through the text for all of them: a text may well be a single line of megabytes.
    let mut positions = vec![Position { line: 1, column: 1 }; mistakes.len()];
    let mut here = Position { line: 1, column: 1 };
    let mut letters = text.char_indices().peekable();
    for index in order {
        while let Some((_, letter)) = letters.next_if(|(at, _)| *at < mistakes[index].at) {
            if letter == '\n' {
                here = Position {
                    line: here.line + 1,
                    column: 1,
                };
            } else {
                here.column += 1;
            }
        }
        positions[index] = here;
    }
    let broken_lines: BTreeSet<usize> = positions[own..].iter().map(|at| at.line).collect();
    let problems = mistakes.into_iter().zip(positions).enumerate();
    let kept = problems.filter(|(index, (_, at))| *index >= own || !broken_lines.contains(&at.line));
    ShapeErrors::new(
        kept.map(|(_, (mistake, at))| ShapeProblem {
            path: mistake.path,
            message: mistake.message,
            at: Some(at),
        })
        .collect(),
    )
}

/// The name of a provider that an example can be given with.
fn some_provider(providers: &BTreeSet<ProviderKind>) -> &str {
    providers.first().map_or("process", ProviderKind::as_str)
}

fn least_toml(providers: &BTreeSet<ProviderKind>) -> String {
    format!(
        r#"groups.workers = {{ count = 1, role = "worker", provider = "{}", shape.image = "local", boot.start = "agent" }}"#,
        some_provider(providers)
    )
}

fn least_json(providers: &BTreeSet<ProviderKind>) -> String {
    format!(
        r#"{{"groups": {{"workers": {{"count": 1, "role": "worker", "provider": "{}", "shape": {{"image": "local"}}, "boot": {{"start": "agent"}}}}}}}}"#,
        some_provider(providers)
    )
}

#[cfg(test)]
mod tests;
