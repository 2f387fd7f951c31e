//! Why something that was given is not used: every mistake, at its place.

use std::fmt;

use nodewright::shape::{ShapeErrors, ShapeProblem};
use serde::Serialize;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Mistake {
    /// The line of the file, from 1, where it has a place there; so the column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<usize>,
    /// Which part of the shape is meant; empty for the whole.
    pub(crate) path: String,
    pub(crate) message: String,
}

/// All mistakes of what was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What was given, such as the name of the file.
    subject: String,
    pub(crate) mistakes: Vec<Mistake>,
}

impl Refusal {
    /// One mistake that concerns the whole.
    pub(crate) fn whole(subject: impl fmt::Display, message: impl fmt::Display) -> Self {
        Self {
            subject: subject.to_string(),
            mistakes: vec![Mistake {
                line: None,
                column: None,
                path: String::new(),
                message: message.to_string(),
            }],
        }
    }

    /// The mistakes of a shape.
    pub(crate) fn of_shape(subject: impl fmt::Display, errors: &ShapeErrors) -> Self {
        let mistake = |problem: &ShapeProblem| Mistake {
            line: problem.at.map(|at| at.line),
            column: problem.at.map(|at| at.column),
            path: problem.path.clone(),
            message: problem.message.clone(),
        };
        Self {
            subject: subject.to_string(),
            mistakes: errors.problems().iter().map(mistake).collect(),
        }
    }
}

impl fmt::Display for Refusal {
    /// One mistake a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, mistake) in self.mistakes.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: ", self.subject)?;
            if let (Some(line), Some(column)) = (mistake.line, mistake.column) {
                write!(f, "line {line}, column {column}: ")?;
            }
            if !mistake.path.is_empty() {
                write!(f, "{}: ", mistake.path)?;
            }
            f.write_str(&mistake.message)?;
        }
        Ok(())
    }
}

/// An error and all that caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
