//! Desired state: what a caller declares, the rules for it, and how it is read from a file.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{GroupId, RunId};
use crate::template::Template;

pub(crate) mod check;
mod file;
mod nearest;
mod path;
mod problem;
mod raw;

pub use check::ShapeLimits;
pub use file::{ShapeDefaults, ShapeFile, ShapeFormat, ShapeFormatError, run_id_from_stem};
pub use problem::{Position, ShapeErrors, ShapeProblem};

/// Counts the revisions of a shape; a lower one never replaces a higher one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a run should look like.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterShape {
    /// The run; fixed for the life of a driver.
    pub run_id: RunId,
    /// The revision.
    pub generation: Generation,
    /// The groups, in any order.
    pub groups: Vec<NodeGroupSpec>,
}

/// `count` interchangeable nodes, made from one template.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeGroupSpec {
    /// The run that the group belongs to: the shape's.
    pub run_id: RunId,
    /// The group's name.
    pub group_id: GroupId,
    /// How many nodes.
    pub count: u32,
    /// The groups that this one depends on. Its nodes are leased once all nodes of these, and of all that these
    /// depend on, are ready; and as long as one of its nodes is going away, none of these is asked to go. What
    /// is leased already goes on whatever happens to them, and replacing one of their nodes restarts nobody.
    #[serde(default)]
    pub depends_on: BTreeSet<GroupId>,
    /// What each node is made from.
    pub template: Template,
}
