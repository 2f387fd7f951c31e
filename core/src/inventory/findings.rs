//! What an answer showed, in numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an answer showed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Findings {
    /// Resources that were listed.
    pub listed: usize,
    /// Machines of slots that nobody knew of; they became nodes that are taken down. Only a first look takes
    /// anything in.
    pub found: usize,
    /// Resources that no node owns and that are recorded as such, now or before.
    pub orphans: usize,
    /// Resources that no node owns, seen for the first time: the next answer will tell.
    pub suspects: usize,
    /// Nodes that were lost by what the answer showed.
    pub lost: usize,
    /// Nodes whose lease was not listed and that are not lost: the next answer will tell.
    pub missing: usize,
    /// Nodes whose machine is reached another way than before.
    pub moved: usize,
    /// Nodes that hold no lease and had a resource listed: it is looked for.
    pub unrecorded: usize,
    /// Entries that were not judged: of another run, or older than what is known.
    pub passed_over: usize,
    /// Whether so much is missing at once that it is not believed yet.
    pub held: bool,
}

impl Findings {
    /// Whether the answer showed what is known, and nothing that is still to be settled.
    pub fn is_as_known(&self) -> bool {
        let Self {
            found,
            suspects,
            lost,
            missing,
            moved,
            unrecorded,
            ..
        } = self;
        [found, suspects, lost, missing, moved, unrecorded]
            .into_iter()
            .all(|count| *count == 0)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} listed", self.listed)?;
        for (count, what) in [
            (self.found, "taken in"),
            (self.orphans, "orphaned"),
            (self.suspects, "owned by no node so far"),
            (self.lost, "lost"),
            (self.missing, "missing"),
            (self.moved, "moved"),
            (self.unrecorded, "looked for"),
            (self.passed_over, "passed over"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if self.held {
            f.write_str("; too much is missing at once to be believed yet")?;
        }
        Ok(())
    }
}
