//! The graph with each task's last outcome: as lines for a log, and as a drawing.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::Workflow;
use super::report::{Because, Report, TaskOutcome, Verdict};
use super::task::{Done, TaskErrorKind};

impl<S> fmt::Display for Workflow<S> {
    /// As its [`Report`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

impl fmt::Display for Report {
    /// The verdict, then a line for each task in order: its name, its outcome, and what it is after.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run() {
            0 => f.write_str("not run yet")?,
            run => write!(f, "run {run}: {}", self.verdict())?,
        }
        if self.verdict() != Verdict::Open {
            write!(f, ", {:?}", rounded(self.took()))?;
        }
        let graph = &self.graph;
        let width = graph.names().iter().map(|name| name.chars().count()).max();
        let width = width.unwrap_or_default();
        for (name, outcome) in self.tasks() {
            write!(f, "\n  {name:width$}  {outcome}")?;
            let after = graph.find(name).map(|node| graph.requires(node));
            for (place, &other) in after.unwrap_or_default().iter().enumerate() {
                let separator = if place == 0 { "  (after " } else { ", " };
                write!(f, "{separator}{}", graph.name(other))?;
            }
            if after.is_some_and(|after| !after.is_empty()) {
                f.write_str(")")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "not ended",
            Self::Done => "done",
            Self::Again => "to be run again",
            Self::Failed => "failed for good",
            Self::Cancelled => "cancelled",
        })
    }
}

impl fmt::Display for TaskOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting"),
            Self::Begun => f.write_str("begun"),
            Self::Done { done, took } => {
                let done = match done {
                    Done::Changed => "changed",
                    Done::Unchanged => "unchanged",
                };
                write!(f, "{done}, {:?}", rounded(*took))
            }
            Self::Failed { error, took } => {
                let kind = match error.kind() {
                    TaskErrorKind::Retryable => "failed",
                    TaskErrorKind::Fatal => "failed for good",
                };
                write!(f, "{kind}, {:?}: {}", rounded(*took), error.chain())
            }
            Self::Skipped => f.write_str("nothing to undo"),
            Self::NotReached(Because::Failed(task)) => write!(f, "not reached because of {task}"),
            Self::NotReached(Because::Cancelled) => f.write_str("not reached: cancelled"),
        }
    }
}

/// Microseconds are as fine as a reader wants it.
fn rounded(duration: Duration) -> Duration {
    Duration::new(duration.as_secs(), duration.subsec_micros() * 1000)
}

impl<S> Workflow<S> {
    /// As [`Report::to_dot`].
    pub fn to_dot(&self) -> String {
        self.report.to_dot()
    }
}

impl Report {
    /// The graph in the language of Graphviz, each task with its outcome. Arrows point at what a task is
    /// after, as in the messages about cycles.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph workflow {\n  rankdir=BT;\n  node [shape=box, style=filled];\n");
        for (name, outcome) in self.tasks() {
            let colour = match outcome {
                TaskOutcome::Waiting | TaskOutcome::Skipped => "white",
                TaskOutcome::Begun => "lightblue",
                TaskOutcome::Done { .. } => "palegreen",
                TaskOutcome::Failed { .. } => "salmon",
                TaskOutcome::NotReached(_) => "lightgrey",
            };
            let label = quoted(&format!("{name}\n{outcome}"));
            // Writing to a string cannot fail.
            let _ = writeln!(dot, "  {} [label={label}, fillcolor={colour}];", quoted(name));
        }
        let graph = &self.graph;
        for &node in graph.order() {
            for &other in graph.requires(node) {
                let (from, to) = (quoted(graph.name(node)), quoted(graph.name(other)));
                let _ = writeln!(dot, "  {from} -> {to};");
            }
        }
        dot.push_str("}\n");
        dot
    }
}

/// A string as the language of Graphviz writes it.
fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}
