//! How runs end: errors, panics, cancels, attempts, and what a backend says of it.

use std::error::Error as _;
use std::io;
use std::num::NonZeroU32;

use super::*;
use crate::effect::FailureKind;

#[test]
fn a_fatal_error_marks_it_failed_for_good_and_no_task_is_called_again() {
    let mut workflow = workflow(World::failing([("5", 1, TaskErrorKind::Fatal)]));
    let report = run(&mut workflow);
    assert_eq!(report.verdict(), Verdict::Failed);
    assert_eq!(
        story(&report)[..3],
        ["2 Changed", "5 Fatal hopeless", "3 because of 5"]
    );
    workflow.shared().calls();
    // Task 5 would succeed now.
    let report = run(&mut workflow);
    assert_eq!((report.verdict(), report.run()), (Verdict::Failed, 2));
    assert_eq!(workflow.shared().calls(), [""; 0]);
    assert!(story(&report).iter().all(|told| told.ends_with("because of 5")));
    // What was made can still be taken down.
    assert_eq!(run(&mut workflow.reversed()).verdict(), Verdict::Done);
}

#[test]
fn a_panic_is_the_tasks_own_error_and_the_next_run_looks_again() {
    let mut tasks = Workflow::builder(World::failing([]));
    tasks.task("a", |context| async move { context.shared().set("a", true) });
    tasks
        .task("panics when called", |context| {
            let first = context.shared().set("b", true).unwrap() == Done::Changed;
            assert!(!first, "out of {}", "b");
            async { Ok(Done::Unchanged) }
        })
        .after(["a"]);
    tasks
        .task("panics while it runs", |context| async move {
            let first = context.shared().set("c", true)? == Done::Changed;
            if first {
                panic!("out of c");
            }
            Ok(Done::Unchanged)
        })
        .after(["panics when called"]);
    let mut workflow = tasks.build().unwrap();
    for (task, text) in [
        ("panics when called", "out of b"),
        ("panics while it runs", "out of c"),
    ] {
        let report = run(&mut workflow);
        assert_eq!(report.verdict(), Verdict::Again);
        let (failed, error) = report.failures().next().unwrap();
        assert_eq!((failed, error.kind()), (task, TaskErrorKind::Retryable));
        assert_eq!(
            error.reason(),
            format!("panicked, nobody knows how far it got: {text}")
        );
    }
    assert_eq!(run(&mut workflow).verdict(), Verdict::Done);
}

#[test]
fn a_cancel_is_seen_between_tasks_and_by_them_and_is_never_success() {
    // Task 2, 4 or 1, the last one, sees to it that the run is cancelled.
    for (by, reached) in [("2", 1), ("4", 4), ("1", 5)] {
        let mut tasks = Workflow::builder(World::default());
        for (name, after) in classic() {
            tasks
                .task(name, move |context| async move {
                    if context.name() == by {
                        context.cancel().cancel();
                    }
                    assert_eq!(context.cancel().is_cancelled(), context.name() == by);
                    context.shared().set(context.name(), true)
                })
                .after(after);
        }
        let mut workflow = tasks.build().unwrap();
        let report = run(&mut workflow);
        assert_eq!(report.verdict(), Verdict::Cancelled, "by {by}");
        assert_eq!(workflow.shared().calls().len(), reached);
        let unreached =
            |outcome: &TaskOutcome| matches!(outcome, TaskOutcome::NotReached(Because::Cancelled));
        assert_eq!(
            report.tasks().filter(|(_, outcome)| unreached(outcome)).count(),
            5 - reached
        );
    }
}

#[test]
fn a_fatal_error_counts_more_than_a_cancel_and_a_cancel_more_than_another_run() {
    use TaskErrorKind::{Fatal, Retryable};
    for (kind, verdict) in [(Fatal, Verdict::Failed), (Retryable, Verdict::Cancelled)] {
        let mut tasks = Workflow::builder(World::failing([("a", 1, kind)]));
        tasks.task("a", |context| async move {
            context.cancel().cancel();
            context.shared().set("a", true)
        });
        assert_eq!(run(&mut tasks.build().unwrap()).verdict(), verdict);
    }
}

#[test]
fn it_is_run_until_done_with_a_wait_that_doubles() {
    let mut workflow = workflow(World::failing([("3", 3, TaskErrorKind::Retryable)]));
    let timing = Virtual::new();
    let report = at_once(workflow.run_until_done(&timing, &Cancel::new(), &Backoff::default()));
    assert_eq!((report.verdict(), report.run()), (Verdict::Done, 4));
    assert_eq!(*timing.slept.lock().unwrap(), [1, 2, 4].map(Duration::from_secs));
}

#[test]
fn out_of_attempts_it_asks_for_another_run_and_a_fatal_error_gets_none() {
    let backoff = Backoff {
        attempts: NonZeroU32::new(3).unwrap(),
        ..Backoff::default()
    };
    for (kind, verdict, runs) in [
        (TaskErrorKind::Retryable, Verdict::Again, 3),
        (TaskErrorKind::Fatal, Verdict::Failed, 1),
    ] {
        let mut workflow = workflow(World::failing([("3", 9, kind)]));
        let timing = Virtual::new();
        let report = at_once(workflow.run_until_done(&timing, &Cancel::new(), &backoff));
        assert_eq!((report.verdict(), report.run()), (verdict, runs));
        assert_eq!(timing.slept.lock().unwrap().len() + 1, runs as usize);
    }
}

/// A clock by which nobody ever wakes.
struct Frozen;

impl Timing for Frozen {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    async fn sleep(&self, _duration: Duration) {
        std::future::pending().await
    }
}

#[test]
fn a_cancel_ends_the_wait_between_runs_and_keeps_what_the_last_run_said() {
    let mut workflow = workflow(World::failing([("3", 9, TaskErrorKind::Retryable)]));
    let cancel = Cancel::new();
    let report = {
        let backoff = Backoff::default();
        let mut running = std::pin::pin!(workflow.run_until_done(&Frozen, &cancel, &backoff));
        assert!(running.as_mut().now_or_never().is_none());
        cancel.cancel();
        at_once(running)
    };
    assert_eq!((report.verdict(), report.run()), (Verdict::Cancelled, 1));
    assert_eq!(story(&report)[2..4], ["3 Retryable shaky", "4 because of 3"]);
    assert_eq!(workflow.report().verdict(), Verdict::Cancelled);
}

#[test]
fn durations_come_from_the_clock_that_was_handed_in() {
    let timing = Arc::new(Virtual::new());
    let mut tasks = Workflow::builder(timing.clone());
    for (name, seconds) in [("a", 2), ("b", 3)] {
        tasks.task(name, move |context| async move {
            context.shared().pass(Duration::from_secs(seconds));
            Ok(Done::Changed)
        });
    }
    let report = at_once(tasks.build().unwrap().run(&*timing, &Cancel::new()));
    assert_eq!(report.took(), Duration::from_secs(5));
    assert_eq!(report.outcome("b").unwrap().to_string(), "changed, 3s");
    assert!(report.outcome("c").is_none());
}

#[test]
fn a_backend_says_ambiguous_of_whatever_called_a_task_and_did_not_end_well() {
    use TaskErrorKind::{Fatal, Retryable};
    // Even the first task of all, with an error that cannot be mended: it may have got half-way.
    for (kind, word) in [(Retryable, "shaky"), (Fatal, "hopeless")] {
        let mut workflow = workflow(World::failing([("2", 1, kind)]));
        for _ in 0..2 {
            let report = run(&mut workflow);
            let Err(error) = report.effect() else {
                assert_eq!((report.verdict(), kind), (Verdict::Done, Retryable));
                continue;
            };
            assert_eq!(error.kind, FailureKind::Ambiguous);
            assert!(
                report.run() == 2 || *error.reason == *format!("task 2: {word}"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_backend_says_definite_only_if_no_task_was_ever_called() {
    let cancelled = Cancel::new();
    cancelled.cancel();
    let mut workflow = workflow(World::default());
    let report = at_once(workflow.run(&Virtual::new(), &cancelled));
    assert_eq!(report.verdict(), Verdict::Cancelled);
    assert_eq!(report.effect().unwrap_err().kind, FailureKind::Definite);
    assert_eq!(run(&mut workflow).effect(), Ok(()));
    // A run that is cancelled before its first task follows on one that called them all.
    let report = at_once(workflow.run(&Virtual::new(), &cancelled));
    assert_eq!(report.effect().unwrap_err().kind, FailureKind::Ambiguous);
    assert_eq!(
        workflow.reversed().report().effect().unwrap_err().kind,
        FailureKind::Definite
    );
}

#[test]
fn an_error_keeps_its_cause_apart_and_shows_the_whole_chain() {
    let disk = TaskError::retryable("writing the record").caused_by(io::Error::other("disk full"));
    assert_eq!(disk.to_string(), "writing the record");
    assert_eq!(disk.source().unwrap().to_string(), "disk full");
    assert_eq!(disk.clone().chain(), "writing the record: disk full");
    let outer = TaskError::fatal("giving up").caused_by(disk);
    assert_eq!(outer.chain(), "giving up: writing the record: disk full");
}

#[test]
fn a_listener_can_keep_a_copy_that_is_always_the_report() {
    let world = World::failing([("4", 2, TaskErrorKind::Retryable)]);
    let first = workflow(world);
    let copy = Arc::new(Mutex::new(first.report().clone()));
    let told = copy.clone();
    let mut workflow = first.on_change(move |change, report| {
        let mut copy = told.lock().unwrap();
        change.apply(&mut copy);
        assert_eq!(copy.to_string(), report.to_string());
    });
    for verdict in [Verdict::Again, Verdict::Again, Verdict::Done] {
        assert_eq!(run(&mut workflow).verdict(), verdict);
        assert_eq!(copy.lock().unwrap().verdict(), verdict);
    }
    assert_eq!(copy.lock().unwrap().run(), 3);
}

#[test]
fn a_workflow_without_tasks_is_done() {
    let mut workflow = Workflow::builder(()).build().unwrap();
    let report = at_once(workflow.run(&Virtual::new(), &Cancel::new()));
    assert_eq!(report.verdict(), Verdict::Done);
    assert_eq!(report.effect(), Ok(()));
}
