//! What a task is given, and what it answers.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::effect::Cancel;
use crate::graph::Graph;

/// What a task works with. A clone is cheap and speaks of the same.
pub struct TaskContext<S> {
    pub(super) shared: Arc<S>,
    pub(super) cancel: Cancel,
    pub(super) graph: Arc<Graph>,
    pub(super) node: usize,
}

impl<S> TaskContext<S> {
    /// What all tasks of the workflow share: how the result of one reaches the next.
    pub fn shared(&self) -> &Arc<S> {
        &self.shared
    }

    /// Raised when the run is to end. A task that waits for long should end early then, with an error that
    /// says so; the run waits for it.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The task's own name.
    pub fn name(&self) -> &str {
        self.graph.name(self.node)
    }
}

impl<S> Clone for TaskContext<S> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            cancel: self.cancel.clone(),
            graph: self.graph.clone(),
            node: self.node,
        }
    }
}

impl<S> fmt::Debug for TaskContext<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("name", &self.name())
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

/// How a task succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Done {
    /// Its object was not as it should be, and is now.
    Changed,
    /// Its object was as it should be.
    Unchanged,
}

/// Whether another run may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskErrorKind {
    /// It may: the task looks at its object again then, and goes on from what is there.
    Retryable,
    /// It cannot: the workflow has failed for good.
    Fatal,
}

/// Why a task did not succeed. A clone is cheap.
#[derive(Debug, Clone)]
pub struct TaskError(Arc<Told>);

/// Behind one pointer: a report holds an outcome per task, and few of them are errors.
#[derive(Debug, Clone)]
struct Told {
    reason: Arc<str>,
    kind: TaskErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl TaskError {
    /// Another run may help.
    pub fn retryable(reason: impl Into<Arc<str>>) -> Self {
        Self::new(TaskErrorKind::Retryable, reason)
    }

    /// No other run can help.
    pub fn fatal(reason: impl Into<Arc<str>>) -> Self {
        Self::new(TaskErrorKind::Fatal, reason)
    }

    fn new(kind: TaskErrorKind, reason: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Told {
            reason: reason.into(),
            kind,
            source: None,
        }))
    }

    /// The same, with what caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::from(source.into()));
        self
    }

    /// A panic is retryable: nobody knows how far the task got, and the next run's look at its object is how
    /// to find out.
    pub(super) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("without a message");
        Self::retryable(format!("panicked, nobody knows how far it got: {text}"))
    }

    /// What failed, as a lowercase fragment, without its cause.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Whether another run may help.
    pub fn kind(&self) -> TaskErrorKind {
        self.0.kind
    }

    /// The reason and all its causes on one line, for people.
    pub fn chain(&self) -> String {
        let mut text = self.0.reason.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.reason)
    }
}

impl Error for TaskError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// A task's function, its type forgotten.
pub(super) type TaskFn<S> =
    Box<dyn Fn(TaskContext<S>) -> BoxFuture<'static, Result<Done, TaskError>> + Send + Sync>;

/// What is done for a task, and what undoes it.
pub(super) struct Task<S> {
    pub(super) run: TaskFn<S>,
    pub(super) undo: Option<TaskFn<S>>,
}

/// The tasks of a workflow. They lie as they were declared; nodes only point at them.
pub(super) struct Tasks<S> {
    /// By node, the declaration.
    pub(super) declared: Vec<usize>,
    pub(super) tasks: Vec<Task<S>>,
}

impl<S> Tasks<S> {
    pub(super) fn of(&self, node: usize) -> &Task<S> {
        &self.tasks[self.declared[node]]
    }
}
