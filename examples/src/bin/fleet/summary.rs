//! The last line: what came of it all.

use std::fmt;

use serde::Serialize;

use crate::tally::Tally;

/// What came of it all.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// Whether the latest shape was reached, and all that was killed replaced.
    pub(crate) converged: bool,
    /// Nodes that were ready when the end began.
    pub(crate) nodes: u64,
    /// Slots that got another machine.
    pub(crate) replaced: u64,
    /// Machines that were made.
    pub(crate) created: u64,
    /// Machines that were taken down.
    pub(crate) destroyed: u64,
    /// Machines that were lost after they had been ready: told by the watch, or found dead or gone by a sweep.
    pub(crate) lost: u64,
    /// Machines that were found and that no slot owned.
    pub(crate) orphans: u64,
    /// Processes of the run that are still there, counted at the operating system; none if it would not say.
    pub(crate) left: Option<u64>,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Events that came too fast to be counted: the counts above are at least so high.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) missed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Summary {
    /// Of a call that was refused: nothing was started, so nothing of it is left.
    pub(crate) fn of_nothing() -> Self {
        Self {
            left: Some(0),
            ..Self::default()
        }
    }

    /// Takes the counts.
    pub(crate) fn counted(self, tally: &Tally) -> Self {
        Self {
            replaced: tally.replaced,
            created: tally.created,
            destroyed: tally.destroyed,
            lost: tally.lost,
            orphans: tally.orphans,
            missed: tally.missed,
            ..self
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left.map_or("unknown".to_owned(), |left| left.to_string());
        write!(
            f,
            "{}: {} nodes, {} replaced, {} machines created, {} destroyed, ",
            if self.converged {
                "converged"
            } else {
                "not converged"
            },
            self.nodes,
            self.replaced,
            self.created,
            self.destroyed,
        )?;
        for (count, what) in [(self.lost, "lost"), (self.orphans, "orphaned")] {
            if count > 0 {
                write!(f, "{count} {what}, ")?;
            }
        }
        write!(f, "{left} processes left, {:.1} s", self.seconds)?;
        if self.missed > 0 {
            write!(f, " (at least: {} events were missed)", self.missed)?;
        }
        Ok(())
    }
}
