//! What is wrong with a shape, and where.

use std::fmt;

/// A place in a file, for people: both count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// One mistake in a shape.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShapeProblem {
    /// What it concerns, such as `groups.workers.count`; empty for the shape as a whole.
    pub path: String,
    /// What is wrong, with the value, and what would be right.
    pub message: String,
    /// Where it stands, if the shape was read from a file.
    pub at: Option<Position>,
}

impl fmt::Display for ShapeProblem {
    /// `line 7, column 9: groups.workers.count: …`, without the parts that there are none of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{at}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// All mistakes of a shape that was refused, at least one, in the order of their places.
///
/// Shows one a line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShapeErrors {
    problems: Vec<ShapeProblem>,
}

impl ShapeErrors {
    /// Sorts by position; what has none keeps its order, ahead of the rest.
    pub(crate) fn new(mut problems: Vec<ShapeProblem>) -> Self {
        problems.sort_by_key(|problem| problem.at);
        Self { problems }
    }

    /// The mistakes.
    pub fn problems(&self) -> &[ShapeProblem] {
        &self.problems
    }
}

impl fmt::Display for ShapeErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ShapeErrors {}
