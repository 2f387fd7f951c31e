//! A workflow under supervision: an actor that has it run in one task, and shows how far it is.
//!
//! What is policy is core's: when a workflow is run again, and what a run comes to. The actor sees to it that
//! the task ends with it, and that a task which dies without a word is noticed.

use std::time::Duration;

use futures_util::future::BoxFuture;
use nodewright_core::effect::Cancel;
use nodewright_core::workflow::{Backoff, Report, Verdict, Workflow};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::clock::Clock;

/// The actor of a workflow could not be spawned. Nothing was run.
#[derive(Debug, thiserror::Error)]
#[error("workflow actor could not be spawned")]
pub struct NotSpawned(#[source] SpawnErr);

/// A workflow was ended before it came to a report: its actor died, or was stopped and the task that ran did
/// not end in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("workflow was ended without a report")]
pub struct Lost;

/// A workflow that is run until it is done, under supervision. A clone speaks of the same one; dropping all
/// handles leaves it running.
///
/// Its actor stops once the workflow is done, failed for good, cancelled, or out of attempts: a workflow that
/// failed is no actor that failed. If its actor is stopped, the workflow is cancelled.
///
/// ```
/// use nodewright::WorkflowRun;
/// use nodewright::workflow::{Backoff, Done, Verdict, Workflow};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut tasks = Workflow::builder(());
/// tasks.task("greet", |_| async { Ok(Done::Changed) });
/// let run = WorkflowRun::spawn(tasks.build()?, Backoff::default()).await?;
/// assert_eq!(run.ended().await?.verdict(), Verdict::Done);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct WorkflowRun {
    cancel: Cancel,
    progress: watch::Receiver<Report>,
    ended: watch::Receiver<Option<Report>>,
}

impl WorkflowRun {
    /// How long the tasks that run have to end once the actor is stopped, before they are dropped where they
    /// are. As long as a provider call has: most of them are one.
    pub const GRACE: Duration = Duration::from_secs(5);

    /// Runs a workflow that nobody supervises.
    ///
    /// # Errors
    ///
    /// Its actor could not be spawned; nothing was run.
    pub async fn spawn<S: Send + Sync + 'static>(
        workflow: Workflow<S>,
        backoff: Backoff,
    ) -> Result<Self, NotSpawned> {
        Self::start(workflow, backoff, None).await
    }

    /// Runs a workflow under a supervisor of the application's, which hears of its end: that it stopped, with
    /// the verdict as the reason, or that it failed, if its task died without a report.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub async fn spawn_linked<S: Send + Sync + 'static>(
        workflow: Workflow<S>,
        backoff: Backoff,
        supervisor: ActorCell,
    ) -> Result<Self, NotSpawned> {
        Self::start(workflow, backoff, Some(supervisor)).await
    }

    async fn start<S: Send + Sync + 'static>(
        workflow: Workflow<S>,
        backoff: Backoff,
        parent: Option<ActorCell>,
    ) -> Result<Self, NotSpawned> {
        let (shown, progress) = watch::channel(workflow.report().clone());
        let (end, ended) = watch::channel(None);
        let cancel = Cancel::new();
        let mut workflow = workflow.on_change(move |change, report| {
            shown.send_modify(|copy| change.apply(copy));
            if report.verdict() == Verdict::Again {
                tracing::warn!(run = report.run(), "workflow has to be run again");
            }
        });
        let cancelled = cancel.clone();
        let run = async move {
            let report = workflow
                .run_until_done(&Clock::system(), &cancelled, &backoff)
                .await;
            let (run, verdict) = (report.run(), report.verdict());
            match verdict {
                Verdict::Again | Verdict::Failed => tracing::error!(run, %verdict, "workflow ended"),
                _ => tracing::info!(run, %verdict, "workflow ended"),
            }
            end.send_replace(Some(report));
        };
        let start = Start {
            run: Box::pin(run),
            cancel: cancel.clone(),
            ended: ended.clone(),
        };
        let spawned = match parent {
            Some(parent) => Actor::spawn_linked(None, WorkflowActor, start, parent).await,
            None => Actor::spawn(None, WorkflowActor, start).await,
        };
        spawned.map_err(NotSpawned)?;
        Ok(Self {
            cancel,
            progress,
            ended,
        })
    }

    /// Cancels it: no task is called any more, and those that run are awaited.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// How far it is, after every call and every answer of a task. It stays readable after the end.
    pub fn progress(&self) -> watch::Receiver<Report> {
        self.progress.clone()
    }

    /// Resolves with the report of the last run, at once if it has ended. Cancel safe.
    ///
    /// # Errors
    ///
    /// It was ended without a report.
    pub async fn ended(&self) -> Result<Report, Lost> {
        let mut ended = self.ended.clone();
        let report = ended.wait_for(Option::is_some).await.map_err(|_| Lost)?;
        report.clone().ok_or(Lost)
    }
}

/// What the actor is told.
#[derive(Debug)]
pub(crate) enum WorkflowMessage {
    /// From the actor to itself, first of all: run the workflow.
    Begin,
    /// From the task, when it is dropped in whatever way: look whether there is a report.
    Over,
}

#[cfg(feature = "cluster")]
impl ractor::Message for WorkflowMessage {}

#[derive(Debug)]
pub(crate) struct WorkflowActor;

/// What the actor starts with. The type of what the tasks share is forgotten.
pub(crate) struct Start {
    run: BoxFuture<'static, ()>,
    cancel: Cancel,
    ended: watch::Receiver<Option<Report>>,
}

/// What the actor holds. Dropping it ends the run.
pub(crate) struct Held {
    run: Option<BoxFuture<'static, ()>>,
    task: JoinSet<()>,
    cancel: Cancel,
    ended: watch::Receiver<Option<Report>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// Tells the actor that its task is over, even if that panicked.
struct Farewell(ActorRef<WorkflowMessage>);

impl Drop for Farewell {
    fn drop(&mut self) {
        // An actor that is gone has nothing to look for.
        let _ = self.0.cast(WorkflowMessage::Over);
    }
}

#[ractor::actor(message = WorkflowMessage, state = Held, arguments = Start)]
impl WorkflowActor {
    async fn pre_start(
        &self,
        myself: ActorRef<WorkflowMessage>,
        start: Start,
    ) -> Result<Held, ActorProcessingErr> {
        myself.cast(WorkflowMessage::Begin)?;
        let Start { run, cancel, ended } = start;
        Ok(Held {
            run: Some(run),
            task: JoinSet::new(),
            cancel,
            ended,
        })
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<WorkflowMessage>,
        held: &mut Held,
    ) -> Result<(), ActorProcessingErr> {
        held.cancel.cancel();
        let _ = tokio::time::timeout(WorkflowRun::GRACE, held.task.join_next()).await;
        // Our own state may lie in our parent's mailbox for long; nothing of the run may live in it.
        held.run = None;
        held.task.shutdown().await;
        Ok(())
    }

    #[ractor::message(WorkflowMessage::Begin)]
    fn begin(&self, myself: ActorRef<WorkflowMessage>, held: &mut Held) {
        if let Some(run) = held.run.take() {
            let farewell = Farewell(myself);
            let span = tracing::info_span!(parent: None, "workflow");
            held.task.spawn(
                async move {
                    let _farewell = farewell;
                    run.await;
                }
                .instrument(span),
            );
        }
    }

    #[ractor::message(WorkflowMessage::Over)]
    fn over(&self, myself: ActorRef<WorkflowMessage>, held: &mut Held) -> Result<(), ActorProcessingErr> {
        let verdict = held.ended.borrow().as_ref().map(Report::verdict);
        let verdict = verdict.ok_or(Lost)?;
        myself.stop(Some(verdict.to_string()));
        Ok(())
    }
}
