//! Collects the tasks of a workflow by name, and refuses what cannot be ordered.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::Workflow;
use super::task::{Done, Task, TaskContext, TaskError, TaskFn, Tasks};
use crate::graph::{GraphBuilder, GraphProblem};

/// Collects tasks, in any order: what they are after may be added later.
#[must_use]
pub struct WorkflowBuilder<S> {
    shared: Arc<S>,
    graph: GraphBuilder,
    /// By declaration.
    tasks: Vec<Task<S>>,
}

impl<S: Send + Sync + 'static> WorkflowBuilder<S> {
    pub(super) fn new(shared: Arc<S>) -> Self {
        Self {
            shared,
            graph: GraphBuilder::new(),
            tasks: Vec::new(),
        }
    }

    /// Adds a task. It is called in *every* run: it looks at its own object, mends what is not as it should
    /// be, and says whether there was anything to do.
    pub fn task<R>(
        &mut self,
        name: impl AsRef<str>,
        run: impl Fn(TaskContext<S>) -> R + Send + Sync + 'static,
    ) -> TaskBuilder<'_, S>
    where
        R: Future<Output = Result<Done, TaskError>> + Send + 'static,
    {
        let declaration = self.graph.node(name.as_ref());
        self.tasks.push(Task {
            run: erased(run),
            undo: None,
        });
        TaskBuilder {
            builder: self,
            declaration,
        }
    }

    /// Orders the tasks.
    ///
    /// # Errors
    ///
    /// All problems at once: names that are used twice, tasks that are after an unknown one or themselves,
    /// and cycles.
    pub fn build(self) -> Result<Workflow<S>, InvalidWorkflow> {
        let (graph, nodes) = self
            .graph
            .build()
            .map_err(|problems| InvalidWorkflow { problems })?;
        // No name was used twice, so that each declaration became a node of its own.
        let mut declared = vec![0; nodes.len()];
        for (declaration, node) in nodes.into_iter().enumerate() {
            declared[node] = declaration;
        }
        let tasks = Tasks {
            declared,
            tasks: self.tasks,
        };
        Ok(Workflow::new(Arc::new(graph), Arc::new(tasks), self.shared))
    }
}

impl<S> fmt::Debug for WorkflowBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowBuilder")
            .field("graph", &self.graph)
            .finish_non_exhaustive()
    }
}

/// The task that was added last, to say more about it.
pub struct TaskBuilder<'a, S> {
    builder: &'a mut WorkflowBuilder<S>,
    declaration: usize,
}

impl<S: Send + Sync + 'static> TaskBuilder<'_, S> {
    /// The task is run after these. Saying it again adds to what was said.
    pub fn after<N: AsRef<str>>(self, names: impl IntoIterator<Item = N>) -> Self {
        for name in names {
            self.builder.graph.depends_on(self.declaration, name.as_ref());
        }
        self
    }

    /// What takes the task's object down again. Like the task it looks first: undoing what was never done, or
    /// was undone before, is success.
    pub fn undo<R>(self, undo: impl Fn(TaskContext<S>) -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = Result<Done, TaskError>> + Send + 'static,
    {
        self.builder.tasks[self.declaration].undo = Some(erased(undo));
        self
    }
}

impl<S> fmt::Debug for TaskBuilder<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskBuilder")
            .field("declaration", &self.declaration)
            .finish_non_exhaustive()
    }
}

fn erased<S, R>(run: impl Fn(TaskContext<S>) -> R + Send + Sync + 'static) -> TaskFn<S>
where
    R: Future<Output = Result<Done, TaskError>> + Send + 'static,
{
    Box::new(move |context| Box::pin(run(context)))
}

/// Why tasks are no workflow: everything that is wrong with their names and edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidWorkflow {
    problems: Vec<GraphProblem>,
}

impl InvalidWorkflow {
    /// All problems: duplicates, then unknown and self names by task, then the cycle.
    pub fn problems(&self) -> &[GraphProblem] {
        &self.problems
    }
}

impl fmt::Display for InvalidWorkflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tasks cannot be ordered: ")?;
        for (place, problem) in self.problems.iter().enumerate() {
            let separator = if place == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidWorkflow {}
