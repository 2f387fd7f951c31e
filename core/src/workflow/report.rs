//! What a run came to, task by task.

use std::sync::Arc;
use std::time::Duration;

use super::task::{Done, TaskError};
use crate::effect::EffectError;
use crate::graph::Graph;

/// What a run came to as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// No run has ended yet, or one goes on. Never in what a run returns.
    Open,
    /// Every task succeeded in this run.
    Done,
    /// A task failed, and another run may help.
    Again,
    /// A task failed for good, in this run or an earlier one. No task is called any more.
    Failed,
    /// The run was cancelled before it had ended, whatever its tasks came to, unless one failed for good.
    Cancelled,
}

/// Why a task was not reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Because {
    /// This task failed: the task is after it, directly or not, or it ended the run.
    Failed(Arc<str>),
    /// The run was cancelled first.
    Cancelled,
}

/// What became of one task in a run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TaskOutcome {
    /// Its turn has not come yet. Never in what a run returns.
    Waiting,
    /// It was called, and has not answered yet. Never in what a run returns.
    Begun,
    /// It succeeded.
    Done {
        /// Whether there was anything to do.
        done: Done,
        /// From its call to its answer.
        took: Duration,
    },
    /// It failed.
    Failed {
        /// Why.
        error: TaskError,
        /// From its call to its answer.
        took: Duration,
    },
    /// There is nothing to call: a teardown meets a task that has no undo.
    Skipped,
    /// It was not called.
    NotReached(Because),
}

/// Something that happened in a run, as a listener is told it.
#[derive(Debug, Clone)]
pub struct Change(pub(super) Changed);

#[derive(Debug, Clone)]
pub(super) enum Changed {
    RunBegan,
    Task {
        node: usize,
        outcome: TaskOutcome,
    },
    RunEnded {
        verdict: Verdict,
        stop: Option<Stop>,
        took: Duration,
    },
}

/// What kept a run from reaching its end.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    Failed(usize),
    Cancelled,
}

impl Change {
    /// Brings a copy of the workflow's report up to date, in constant time but for a run's begin and end. The
    /// copy has to be of the same workflow, and to be told every change.
    pub fn apply(&self, report: &mut Report) {
        report.take(&self.0);
    }
}

/// What a run of a workflow came to. Also how far one is, where it is seen while it goes on.
#[derive(Debug, Clone)]
#[must_use]
pub struct Report {
    pub(super) graph: Arc<Graph>,
    run: u32,
    verdict: Verdict,
    took: Duration,
    called: bool,
    /// By node.
    outcomes: Vec<TaskOutcome>,
}

impl Report {
    pub(super) fn new(graph: Arc<Graph>) -> Self {
        Self {
            outcomes: vec![TaskOutcome::Waiting; graph.len()],
            graph,
            run: 0,
            verdict: Verdict::Open,
            took: Duration::ZERO,
            called: false,
        }
    }

    /// Which run of the workflow it speaks of, from 1 on; 0 before the first.
    pub fn run(&self) -> u32 {
        self.run
    }

    /// What the run came to.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// From the run's begin to its end.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Whether any task was called, in this run or an earlier one of the workflow.
    pub fn called(&self) -> bool {
        self.called
    }

    /// What became of the task of this name.
    pub fn outcome(&self, name: &str) -> Option<&TaskOutcome> {
        self.graph.find(name).map(|node| &self.outcomes[node])
    }

    /// All tasks with what became of them, in the workflow's order.
    pub fn tasks(&self) -> impl Iterator<Item = (&str, &TaskOutcome)> {
        let order = self.graph.order().iter();
        order.map(|&node| (self.graph.name(node), &self.outcomes[node]))
    }

    /// The tasks that failed, in the workflow's order.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &TaskError)> {
        self.tasks().filter_map(|(name, outcome)| match outcome {
            TaskOutcome::Failed { error, .. } => Some((name, error)),
            _ => None,
        })
    }

    /// The run as the answer of a provider call: what a backend whose step is a workflow says.
    ///
    /// | verdict | a task was called, now or earlier | none ever was |
    /// |---|---|---|
    /// | `Done` | `Ok` | `Ok`: there are no tasks |
    /// | any other | *ambiguous* | *definite* |
    ///
    /// # Errors
    ///
    /// Never fatal, and never definite once a task was called: a workflow that stopped half-way has left
    /// something behind, even where its last task knows that nothing came of *it*. So the attempt is looked
    /// for before anything is made anew.
    pub fn effect(&self) -> Result<(), EffectError> {
        if self.verdict == Verdict::Done {
            return Ok(());
        }
        let failures = self
            .failures()
            .map(|(name, error)| format!("task {name}: {}", error.chain()));
        let mut reason: Vec<String> = failures.collect();
        match self.verdict {
            Verdict::Cancelled => reason.push("the workflow was cancelled".to_owned()),
            Verdict::Failed if reason.is_empty() => reason.push("the workflow had failed before".to_owned()),
            Verdict::Open => reason.push("the workflow has not ended".to_owned()),
            _ => {}
        }
        let reason = reason.join("; ");
        Err(if self.called {
            EffectError::ambiguous(reason)
        } else {
            EffectError::definite(reason)
        })
    }

    pub(super) fn take(&mut self, change: &Changed) {
        match change {
            Changed::RunBegan => {
                self.run = self.run.saturating_add(1);
                self.verdict = Verdict::Open;
                self.took = Duration::ZERO;
                self.outcomes.fill(TaskOutcome::Waiting);
            }
            Changed::Task { node, outcome } => {
                self.called |= matches!(outcome, TaskOutcome::Begun);
                self.outcomes[*node] = outcome.clone();
            }
            Changed::RunEnded { verdict, stop, took } => {
                self.verdict = *verdict;
                self.took = *took;
                if let Some(stop) = stop {
                    self.settle_unreached(*stop);
                }
            }
        }
    }

    /// Says of each task that is still waiting because of whom: a task that it is after, if one of those
    /// failed, and otherwise what ended the run.
    fn settle_unreached(&mut self, stop: Stop) {
        let graph = self.graph.clone();
        let failed = |node: usize| Because::Failed(graph.name(node).into());
        let stop = match stop {
            Stop::Failed(node) => failed(node),
            Stop::Cancelled => Because::Cancelled,
        };
        let mut held_by: Vec<Option<usize>> = vec![None; graph.len()];
        let mut reasons: Vec<Option<Because>> = vec![None; graph.len()];
        for &node in graph.order() {
            match &self.outcomes[node] {
                TaskOutcome::Failed { .. } => held_by[node] = Some(node),
                TaskOutcome::Waiting => {
                    held_by[node] = graph.requires(node).iter().find_map(|&other| held_by[other]);
                    let because = match held_by[node] {
                        Some(other) => reasons[other].get_or_insert_with(|| failed(other)).clone(),
                        None => stop.clone(),
                    };
                    self.outcomes[node] = TaskOutcome::NotReached(because);
                }
                _ => {}
            }
        }
    }
}
