//! A workflow under supervision: shown while it runs, cancelled when it is stopped, never lost without a word.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nodewright::workflow::{Backoff, Done, Report, TaskContext, TaskError, TaskOutcome, Verdict, Workflow};
use nodewright::{Lost, WorkflowRun};
use tokio::sync::{Semaphore, mpsc};

use crate::support::Parent;

/// What the tasks share: the second one takes a permit, and fails as often as this says.
struct Shared {
    permits: Semaphore,
    failures: AtomicU32,
    _token: Arc<()>,
}

impl Shared {
    fn failing(times: u32, token: &Arc<()>) -> Self {
        Self {
            permits: Semaphore::new(0),
            failures: AtomicU32::new(times),
            _token: token.clone(),
        }
    }
}

async fn shaky(context: TaskContext<Shared>) -> Result<Done, TaskError> {
    let shared = context.shared();
    shared.permits.acquire().await.expect("it is open").forget();
    let left = shared.failures.load(Ordering::SeqCst);
    if left == 0 {
        return Ok(Done::Changed);
    }
    shared.failures.store(left - 1, Ordering::SeqCst);
    Err(TaskError::retryable("not yet"))
}

fn workflow(shared: Shared) -> Workflow<Shared> {
    let mut tasks = Workflow::builder(shared);
    tasks.task("first", |_| async { Ok(Done::Unchanged) });
    tasks.task("second", shaky).after(["first"]);
    tasks
        .task("third", |_| async { Ok(Done::Unchanged) })
        .after(["second"]);
    tasks.build().unwrap()
}

/// What comes soon; an hour of paused time that passes without it is a failure.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(3600);
    tokio::time::timeout(limit, future).await.expect("it comes")
}

/// Waits for progress that is as wanted.
async fn seen(run: &WorkflowRun, wanted: impl FnMut(&Report) -> bool) {
    soon(run.progress().wait_for(wanted)).await.expect("it lives");
}

fn begun(report: &Report) -> bool {
    matches!(report.outcome("second"), Some(TaskOutcome::Begun))
}

#[tokio::test(start_paused = true)]
async fn a_workflow_is_run_until_done_and_everybody_sees_how_far_it_is() {
    let token = Arc::new(());
    let (parent, mut heard) = Parent::spawn().await;
    let workflow = workflow(Shared::failing(2, &token));
    let shared = workflow.shared().clone();
    let run = WorkflowRun::spawn_linked(workflow, Backoff::default(), parent)
        .await
        .unwrap();
    for number in 1..=3 {
        seen(&run, |report| report.run() == number && begun(report)).await;
        let report = run.progress().borrow().clone();
        assert_eq!(report.verdict(), Verdict::Open);
        assert!(matches!(report.outcome("first"), Some(TaskOutcome::Done { .. })));
        assert!(matches!(report.outcome("third"), Some(TaskOutcome::Waiting)));
        shared.permits.add_permits(1);
    }
    let report = soon(run.ended()).await.unwrap();
    assert_eq!((report.verdict(), report.run()), (Verdict::Done, 3));
    assert_eq!(run.progress().borrow().to_string(), report.to_string());
    assert_eq!(soon(heard.0.recv()).await.unwrap(), "terminated: done");
    drop(shared);
    assert_eq!(Arc::strong_count(&token), 1, "nobody holds the tasks any more");
}

#[tokio::test(start_paused = true)]
async fn a_workflow_that_failed_for_good_is_no_actor_that_failed() {
    let (parent, mut heard) = Parent::spawn().await;
    let mut tasks = Workflow::builder(());
    tasks.task("only", |_| async { Err(TaskError::fatal("no such tenant")) });
    let run = WorkflowRun::spawn_linked(tasks.build().unwrap(), Backoff::default(), parent);
    let report = soon(run.await.unwrap().ended()).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Failed);
    assert_eq!(soon(heard.0.recv()).await.unwrap(), "terminated: failed for good");
}

#[tokio::test(start_paused = true)]
async fn a_stop_cancels_it_and_what_runs_comes_to_its_end() {
    let token = Arc::new(());
    let (parent, mut heard) = Parent::spawn().await;
    let workflow = workflow(Shared::failing(0, &token));
    let shared = workflow.shared().clone();
    let run = WorkflowRun::spawn_linked(workflow, Backoff::default(), parent.clone())
        .await
        .unwrap();
    seen(&run, begun).await;
    let actor = parent.get_children()[0].clone();
    actor.stop(Some("enough".to_owned()));
    // The task that runs is not cut off.
    tokio::time::sleep(WorkflowRun::GRACE / 2).await;
    assert!(begun(&run.progress().borrow()));
    shared.permits.add_permits(1);
    let report = soon(run.ended()).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Cancelled);
    assert!(matches!(report.outcome("second"), Some(TaskOutcome::Done { .. })));
    assert!(matches!(
        report.outcome("third"),
        Some(TaskOutcome::NotReached(_))
    ));
    assert_eq!(soon(heard.0.recv()).await.unwrap(), "terminated: enough");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_heed_a_stop_is_dropped_after_the_grace() {
    let token = Arc::new(());
    let (parent, mut heard) = Parent::spawn().await;
    let workflow = workflow(Shared::failing(0, &token));
    let run = WorkflowRun::spawn_linked(workflow, Backoff::default(), parent.clone())
        .await
        .unwrap();
    seen(&run, begun).await;
    parent.get_children()[0].stop(None);
    assert_eq!(soon(run.ended()).await.unwrap_err(), Lost);
    assert_eq!(soon(heard.0.recv()).await.unwrap(), "terminated: ");
    assert_eq!(Arc::strong_count(&token), 1, "nobody holds the tasks any more");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_it_also_in_the_wait_between_runs() {
    let token = Arc::new(());
    let workflow = workflow(Shared::failing(9, &token));
    workflow.shared().permits.add_permits(9);
    let patient = Backoff {
        initial_delay: Duration::from_secs(36_000),
        max_delay: Duration::from_secs(36_000),
        ..Backoff::default()
    };
    let run = WorkflowRun::spawn(workflow, patient).await.unwrap();
    seen(&run, |report| report.verdict() == Verdict::Again).await;
    run.cancel();
    let report = soon(run.ended()).await.unwrap();
    assert_eq!((report.verdict(), report.run()), (Verdict::Cancelled, 1));
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_is_killed_is_reported_and_leaves_nothing_running() {
    let token = Arc::new(());
    let (parent, mut heard) = Parent::spawn().await;
    let workflow = workflow(Shared::failing(0, &token));
    let run = WorkflowRun::spawn_linked(workflow, Backoff::default(), parent.clone())
        .await
        .unwrap();
    seen(&run, begun).await;
    parent.get_children()[0].kill();
    assert_eq!(soon(run.ended()).await.unwrap_err(), Lost);
    assert!(soon(heard.0.recv()).await.unwrap().starts_with("terminated"));
    assert_eq!(Arc::strong_count(&token), 1, "nobody holds the tasks any more");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_dies_without_a_report_is_heard_by_the_supervisor() {
    let (parent, mut heard) = Parent::spawn().await;
    let mut tasks = Workflow::builder(());
    tasks.task("only", |_| async { Ok(Done::Unchanged) });
    // A panic of a task would be that task's error; one of a listener is nobody's.
    let workflow = tasks.build().unwrap().on_change(|_, _| panic!("nobody listens"));
    let run = WorkflowRun::spawn_linked(workflow, Backoff::default(), parent)
        .await
        .unwrap();
    assert_eq!(soon(run.ended()).await.unwrap_err(), Lost);
    let heard = soon(heard.0.recv()).await.unwrap();
    assert!(
        heard.starts_with("failed: ") && heard.contains("without a report"),
        "{heard}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_stops_takes_its_workflow_along() {
    let token = Arc::new(());
    let (parent, _heard) = Parent::spawn().await;
    let (hands_out, mut handed) = mpsc::unbounded_channel();
    let mut tasks = Workflow::builder(token.clone());
    tasks.task("hangs", move |context| {
        // What a task leaves running elsewhere hears of the end, too.
        hands_out.send(context.cancel().clone()).unwrap();
        pending()
    });
    let run = WorkflowRun::spawn_linked(tasks.build().unwrap(), Backoff::default(), parent.clone())
        .await
        .unwrap();
    let cancel = soon(handed.recv()).await.unwrap();
    assert!(!cancel.is_cancelled());
    parent.stop(None);
    assert_eq!(soon(run.ended()).await.unwrap_err(), Lost);
    soon(cancel.cancelled()).await;
    assert_eq!(Arc::strong_count(&token), 1, "nobody holds the tasks any more");
}

#[tokio::test(start_paused = true)]
async fn no_workflow_is_run_under_a_supervisor_that_is_gone() {
    let (parent, _heard) = Parent::spawn().await;
    parent.stop_and_wait(None, None).await.unwrap();
    let token = Arc::new(());
    let workflow = workflow(Shared::failing(0, &token));
    let spawned = WorkflowRun::spawn_linked(workflow, Backoff::default(), parent).await;
    assert!(spawned.is_err());
    assert_eq!(Arc::strong_count(&token), 1, "nobody holds the tasks any more");
}
