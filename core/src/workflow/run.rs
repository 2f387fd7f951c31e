//! Runs the tasks of a workflow, without a runtime: whoever polls the run drives them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::report::{Changed, Stop};
use super::task::{Done, TaskContext, TaskError, TaskErrorKind, TaskFn};
use super::{Backoff, Report, TaskOutcome, Verdict, Workflow};
use crate::effect::Cancel;
use crate::graph::Graph;
use crate::timing::Timing;

impl<S: Send + Sync + 'static> Workflow<S> {
    /// Calls every task once, each after all that it is after have succeeded in this run. Stops at the first
    /// error: then nothing new is called, and what runs is awaited.
    ///
    /// `cancel` is looked at before each call; the tasks see it, too. A panic of a task is its error, and
    /// [retryable](TaskErrorKind::Retryable). Where a fatal error was met once, no task is called any more.
    ///
    /// Tasks that never wait are all called in the run's first poll, without a moment at which it could be
    /// dropped; a long run of such tasks keeps its thread meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the tasks that run, wherever they are. The next run looks at everything again.
    pub async fn run<T: Timing>(&mut self, timing: &T, cancel: &Cancel) -> Report {
        let began = timing.now();
        self.tell(Changed::RunBegan);
        let stop = match self.failed {
            Some(task) => Some(Stop::Failed(task)),
            None => self.visit(timing, cancel).await,
        };
        let verdict = if self.failed.is_some() {
            Verdict::Failed
        } else if cancel.is_cancelled() {
            Verdict::Cancelled
        } else if stop.is_some() {
            Verdict::Again
        } else {
            Verdict::Done
        };
        self.tell(Changed::RunEnded {
            verdict,
            stop,
            took: timing.since(began),
        });
        self.report.clone()
    }

    /// Runs it again, with a wait in between, until it is done, has failed for good, is cancelled, or was run
    /// as often as `backoff` allows: then the report still says [`Verdict::Again`].
    ///
    /// A cancel ends a wait at once; the report is then that of the last run, and says
    /// [`Verdict::Cancelled`].
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    pub async fn run_until_done<T: Timing>(
        &mut self,
        timing: &T,
        cancel: &Cancel,
        backoff: &Backoff,
    ) -> Report {
        let mut runs = 0;
        loop {
            let report = self.run(timing, cancel).await;
            runs += 1;
            if report.verdict() != Verdict::Again || runs >= backoff.attempts.get() {
                return report;
            }
            if wait(timing, cancel, backoff.delay(runs)).await == Wait::Cancelled {
                let took = report.took();
                self.tell(Changed::RunEnded {
                    verdict: Verdict::Cancelled,
                    stop: None,
                    took,
                });
                return self.report.clone();
            }
        }
    }

    /// Visits the tasks; what kept it from reaching all of them, if anything did.
    async fn visit<T: Timing>(&mut self, timing: &T, cancel: &Cancel) -> Option<Stop> {
        let (graph, tasks) = (self.graph.clone(), self.tasks.clone());
        let mut front = Front::new(&graph);
        let mut running = FuturesUnordered::new();
        let mut stop = None;
        loop {
            while stop.is_none() && running.len() < self.max_parallel.get() && !front.is_empty() {
                if cancel.is_cancelled() {
                    stop = Some(Stop::Cancelled);
                    break;
                }
                let Some(node) = front.pop() else { break };
                let Some(function) = self.way.of(tasks.of(node)) else {
                    front.succeeded(node);
                    self.tell(Changed::Task {
                        node,
                        outcome: TaskOutcome::Skipped,
                    });
                    continue;
                };
                let context = TaskContext {
                    shared: self.shared.clone(),
                    cancel: cancel.clone(),
                    graph: graph.clone(),
                    node,
                };
                self.tell(Changed::Task {
                    node,
                    outcome: TaskOutcome::Begun,
                });
                running.push(called(timing, function, context));
            }
            let Some((node, took, answer)) = running.next().await else {
                return stop;
            };
            let outcome = match answer {
                Ok(done) => {
                    front.succeeded(node);
                    TaskOutcome::Done { done, took }
                }
                Err(error) => {
                    stop.get_or_insert(Stop::Failed(node));
                    if error.kind() == TaskErrorKind::Fatal {
                        self.failed.get_or_insert(node);
                    }
                    TaskOutcome::Failed { error, took }
                }
            };
            self.tell(Changed::Task { node, outcome });
        }
    }
}

/// The tasks that could be called next.
struct Front<'a> {
    graph: &'a Arc<Graph>,
    /// By node, how many tasks that it is after have not succeeded yet.
    missing: Vec<usize>,
    /// By their place in the order: with one at a time that is the order exactly.
    ready: BinaryHeap<Reverse<usize>>,
}

impl<'a> Front<'a> {
    fn new(graph: &'a Arc<Graph>) -> Self {
        let missing: Vec<usize> = (0..graph.len()).map(|node| graph.requires(node).len()).collect();
        let ready = (0..graph.len())
            .filter(|&node| missing[node] == 0)
            .map(|node| Reverse(graph.rank(node)))
            .collect();
        Self {
            graph,
            missing,
            ready,
        }
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    fn pop(&mut self) -> Option<usize> {
        self.ready.pop().map(|Reverse(rank)| self.graph.order()[rank])
    }

    fn succeeded(&mut self, node: usize) {
        for &above in self.graph.required_by(node) {
            self.missing[above] -= 1;
            if self.missing[above] == 0 {
                self.ready.push(Reverse(self.graph.rank(above)));
            }
        }
    }
}

/// Calls a task and waits for its answer, whatever it does.
async fn called<S, T: Timing>(
    timing: &T,
    function: &TaskFn<S>,
    context: TaskContext<S>,
) -> (usize, Duration, Result<Done, TaskError>) {
    let (node, began) = (context.node, timing.now());
    // The call itself may panic, too, not only what it returns. What a panic leaves half-done in the shared
    // state is for the tasks to see: they look at their objects in every run.
    let answer = AssertUnwindSafe(async { function(context).await })
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| Err(TaskError::panicked(&*panic)));
    (node, timing.since(began), answer)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Over,
    Cancelled,
}

/// Waits for this long, or until the cancel is raised; when both are there, the cancel counts.
async fn wait<T: Timing>(timing: &T, cancel: &Cancel, delay: Duration) -> Wait {
    let mut cancelled = pin!(cancel.cancelled());
    let mut sleep = pin!(timing.sleep(delay));
    poll_fn(|context| {
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Wait::Cancelled);
        }
        sleep.as_mut().poll(context).map(|()| Wait::Over)
    })
    .await
}
