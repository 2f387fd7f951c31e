//! A workflow: tasks with an order among them, run until the world is as they say, and taken down backwards.
//!
//! A step at a provider is often several calls: two groups, one nested in the other, a role, an assignment.
//! Each may fail alone, and none may come too early. A workflow calls *every* task in every run; a task looks
//! at its own object and mends what is missing. So there is no book of what was done: a run after a crash, a
//! failure or a clumsy hand goes on from what is really there.
//!
//! What is deliberately not here: a runtime, a clock, and any knowledge of what tasks do. Time comes in as
//! [`Timing`](crate::timing::Timing), and whoever polls a run drives its tasks.
//!
//! **Invariants**
//!
//! - A task is called only after all that it is after have succeeded in the same run.
//! - After an error or a cancel nothing new is called; what was called is awaited.
//! - A run ends in exactly one verdict, and a cancelled one never in [`Verdict::Done`].
//! - Nothing recurses over the graph.

mod backoff;
mod builder;
mod picture;
mod report;
mod run;
mod task;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

pub use self::backoff::Backoff;
pub use self::builder::{InvalidWorkflow, TaskBuilder, WorkflowBuilder};
pub use self::report::{Because, Change, Report, TaskOutcome, Verdict};
pub use self::task::{Done, TaskContext, TaskError, TaskErrorKind};

use self::report::Changed;
use self::task::{Task, TaskFn, Tasks};
use crate::graph::Graph;

/// Tasks with an order among them, and the state that they share.
///
/// ```
/// use std::collections::BTreeSet;
/// use std::sync::Mutex;
/// # use std::time::Duration;
/// # use jiff::Timestamp;
/// # use nodewright_core::timing::Timing;
///
/// use nodewright_core::effect::Cancel;
/// use nodewright_core::workflow::{Backoff, Done, TaskContext, TaskError, Verdict, Workflow};
///
/// /// What the tasks work on: here a directory service that lives in memory.
/// #[derive(Default)]
/// struct Directory(Mutex<BTreeSet<&'static str>>);
///
/// impl Directory {
///     fn ensure(&self, entry: &'static str) -> Done {
///         let added = self.0.lock().unwrap().insert(entry);
///         if added { Done::Changed } else { Done::Unchanged }
///     }
///
///     fn remove(&self, entry: &'static str) -> Done {
///         let removed = self.0.lock().unwrap().remove(entry);
///         if removed { Done::Changed } else { Done::Unchanged }
///     }
/// }
///
/// async fn create_staff(context: TaskContext<Directory>) -> Result<Done, TaskError> {
///     Ok(context.shared().ensure("staff"))
/// }
///
/// # struct Stopped;
/// # impl Timing for Stopped {
/// #     fn now(&self) -> Timestamp { Timestamp::UNIX_EPOCH }
/// #     async fn sleep(&self, _: Duration) {}
/// # }
/// # fn main() {
/// #     let timing = Stopped;
/// #     futures_util::FutureExt::now_or_never(run(&timing)).expect("nothing waits").unwrap();
/// # }
/// # async fn run(timing: &impl Timing) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tasks = Workflow::builder(Directory::default());
/// tasks
///     .task("staff in admins", |context| async move { Ok(context.shared().ensure("staff in admins")) })
///     .after(["staff", "admins"])
///     .undo(|context| async move { Ok(context.shared().remove("staff in admins")) });
/// tasks
///     .task("admins", |context| async move { Ok(context.shared().ensure("admins")) })
///     .undo(|context| async move { Ok(context.shared().remove("admins")) });
/// tasks
///     .task("staff", create_staff)
///     .undo(|context| async move { Ok(context.shared().remove("staff")) });
/// let mut workflow = tasks.build()?;
/// assert_eq!(workflow.order().collect::<Vec<_>>(), ["admins", "staff", "staff in admins"]);
///
/// let report = workflow.run_until_done(timing, &Cancel::new(), &Backoff::default()).await;
/// assert_eq!(report.verdict(), Verdict::Done);
///
/// let report = workflow.reversed().run(timing, &Cancel::new()).await;
/// assert_eq!(report.verdict(), Verdict::Done);
/// assert!(workflow.shared().0.lock().unwrap().is_empty());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Workflow<S> {
    /// Ordered the way it is run.
    graph: Arc<Graph>,
    tasks: Arc<Tasks<S>>,
    shared: Arc<S>,
    way: Way,
    max_parallel: NonZeroUsize,
    report: Report,
    /// The task that failed for good.
    failed: Option<usize>,
    listeners: Vec<Listener>,
}

type Listener = Box<dyn Fn(&Change, &Report) + Send + Sync>;

/// Which of a task's functions is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

impl Way {
    fn of<S>(self, task: &Task<S>) -> Option<&TaskFn<S>> {
        match self {
            Self::Up => Some(&task.run),
            Self::Down => task.undo.as_ref(),
        }
    }
}

impl<S: Send + Sync + 'static> Workflow<S> {
    /// Collects the tasks of a workflow that share this.
    pub fn builder(shared: S) -> WorkflowBuilder<S> {
        WorkflowBuilder::new(Arc::new(shared))
    }

    fn new(graph: Arc<Graph>, tasks: Arc<Tasks<S>>, shared: Arc<S>) -> Self {
        Self {
            report: Report::new(graph.clone()),
            graph,
            tasks,
            shared,
            way: Way::Up,
            max_parallel: NonZeroUsize::MIN,
            failed: None,
            listeners: Vec::new(),
        }
    }

    /// Runs up to this many tasks together that need not wait for each other. Without it they are run one at
    /// a time, which is polite to a shaky service. A run of none would never end, so 0 counts as 1.
    pub fn max_parallel(mut self, tasks: usize) -> Self {
        self.max_parallel = NonZeroUsize::new(tasks).unwrap_or(NonZeroUsize::MIN);
        self
    }

    /// Runs all tasks together that need not wait for each other.
    pub fn unlimited(self) -> Self {
        self.max_parallel(usize::MAX)
    }

    /// Has everything that happens in a run told to this function, too, with the report as it is after it. It
    /// is called in the run and holds it up meanwhile; if it panics, so does the run.
    pub fn on_change(mut self, listener: impl Fn(&Change, &Report) + Send + Sync + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// The names of the tasks in the order in which they are run one at a time: each after all that it is
    /// after; among those that could come next, the one with the least name.
    pub fn order(&self) -> impl Iterator<Item = &str> {
        self.graph.order().iter().map(|&node| self.graph.name(node))
    }

    /// The teardown: the tasks' undo functions, over the same shared state and in exactly the opposite order.
    /// A task that has none is skipped.
    ///
    /// It is a workflow of its own: it has not failed, even where this one has, and nobody listens to it yet.
    pub fn reversed(&self) -> Self {
        let graph = Arc::new(self.graph.turned());
        Self {
            way: match self.way {
                Way::Up => Way::Down,
                Way::Down => Way::Up,
            },
            max_parallel: self.max_parallel,
            ..Self::new(graph, self.tasks.clone(), self.shared.clone())
        }
    }

    /// What the tasks share.
    pub fn shared(&self) -> &Arc<S> {
        &self.shared
    }

    /// What the last run came to; while one goes on, or if it was dropped, how far it came.
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn tell(&mut self, change: Changed) {
        self.report.take(&change);
        let change = Change(change);
        for listener in &self.listeners {
            listener(&change, &self.report);
        }
    }
}

impl<S> fmt::Debug for Workflow<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow")
            .field("report", &self.report)
            .field("way", &self.way)
            .field("max_parallel", &self.max_parallel)
            .finish_non_exhaustive()
    }
}
