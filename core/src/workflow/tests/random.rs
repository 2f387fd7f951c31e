//! Any graph, any failures, any cancel, any limit: no task is ever called too early, or after the end.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;

use super::*;

/// What a task does when it is called.
#[derive(Debug, Clone, Copy)]
struct Script {
    /// How often it lets others go first.
    yields: u8,
    end: End,
    /// Whether it cancels the run before it answers.
    cancels: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Succeeds,
    Fails,
    Dies,
    Panics,
}

/// What happened, as the tasks saw it.
#[derive(Debug, Default)]
struct Seen {
    running: BTreeSet<usize>,
    at_most: usize,
    called: BTreeSet<usize>,
    succeeded: BTreeSet<usize>,
    /// An error or a cancel came before one of these calls.
    too_late: Vec<usize>,
    too_early: Vec<usize>,
    failed: bool,
    cancelled: bool,
}

/// Pending once, and ready when it is polled again.
async fn let_others_go_first() {
    let mut first = true;
    std::future::poll_fn(|context| {
        if !std::mem::take(&mut first) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn name(task: usize) -> String {
    format!("t{task}")
}

fn workflow(edges: &[Vec<usize>], scripts: &[Script], together: bool) -> Workflow<Mutex<Seen>> {
    let mut builder = Workflow::builder(Mutex::new(Seen::default()));
    for (task, after) in edges.iter().enumerate() {
        let (script, own) = (scripts[task], after.clone());
        builder
            .task(name(task), move |context| {
                let own = own.clone();
                async move {
                    {
                        let mut seen = context.shared().lock().unwrap();
                        if !own.iter().all(|other| seen.succeeded.contains(other)) {
                            seen.too_early.push(task);
                        }
                        // Of those that are called together, one may end before another was polled.
                        if !together && (seen.failed || seen.cancelled) {
                            seen.too_late.push(task);
                        }
                        seen.called.insert(task);
                        seen.running.insert(task);
                        seen.at_most = seen.at_most.max(seen.running.len());
                    }
                    for _ in 0..script.yields {
                        let_others_go_first().await;
                    }
                    let mut seen = context.shared().lock().unwrap();
                    seen.running.remove(&task);
                    if script.cancels {
                        context.cancel().cancel();
                        seen.cancelled = true;
                    }
                    if script.end == End::Succeeds {
                        seen.succeeded.insert(task);
                        return Ok(Done::Changed);
                    }
                    seen.failed = true;
                    drop(seen);
                    match script.end {
                        End::Dies => Err(TaskError::fatal("dies")),
                        End::Panics => std::panic::resume_unwind(Box::new("panics")),
                        _ => Err(TaskError::retryable("fails")),
                    }
                }
            })
            .after(after.iter().map(|&other| name(other)));
    }
    builder.build().unwrap()
}

fn scripts() -> impl Strategy<Value = Script> {
    let end = prop_oneof![
        12 => Just(End::Succeeds),
        2 => Just(End::Fails),
        1 => Just(End::Dies),
        1 => Just(End::Panics),
    ];
    let cancels = prop_oneof![15 => Just(false), 1 => Just(true)];
    (0_u8..4, end, cancels).prop_map(|(yields, end, cancels)| Script { yields, end, cancels })
}

proptest! {
    #[test]
    fn no_task_is_called_before_what_it_is_after_has_succeeded_in_this_run(
        (edges, scripts) in (1_usize..12).prop_flat_map(|count| {
            // Edges go from a later task to an earlier one by a hidden order, so that there is no cycle.
            let edges = proptest::collection::vec((0..count, 0..count), 0..20);
            let order = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
            let edges = (edges, order).prop_map(move |(pairs, order)| {
                let mut edges = vec![Vec::new(); count];
                for (one, other) in pairs {
                    let (low, high) = (one.min(other), one.max(other));
                    if low != high {
                        edges[order[high]].push(order[low]);
                    }
                }
                edges
            });
            (edges, proptest::collection::vec(scripts(), count))
        }),
        limit in 1_usize..6,
        runs in 1_usize..3,
        cancel_after in proptest::option::of(0_usize..12),
    ) {
        let mut workflow = workflow(&edges, &scripts, limit > 1).max_parallel(limit);
        let mut dead = false;
        for _ in 0..runs {
            *workflow.shared().lock().unwrap() = Seen::default();
            let (timing, cancel) = (Virtual::new(), Cancel::new());
            let report = {
                let mut run = pin!(workflow.run(&timing, &cancel));
                let mut polls = 0;
                loop {
                    if cancel_after == Some(polls) {
                        cancel.cancel();
                    }
                    polls += 1;
                    if let Poll::Ready(report) = run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                        break report;
                    }
                    prop_assert!(polls < 1000, "the run hangs");
                }
            };
            let seen = std::mem::take(&mut *workflow.shared().lock().unwrap());
            prop_assert!(seen.too_early.is_empty(), "{:?}", seen);
            prop_assert!(seen.too_late.is_empty(), "{:?}", seen);
            prop_assert!(seen.running.is_empty(), "what was called is awaited");
            prop_assert!(seen.at_most <= limit);
            prop_assert!(!dead || seen.called.is_empty());

            for (task, script) in scripts.iter().enumerate() {
                let outcome = report.outcome(&name(task)).unwrap();
                let agrees = match outcome {
                    TaskOutcome::Done { .. } => script.end == End::Succeeds && seen.succeeded.contains(&task),
                    TaskOutcome::Failed { error, .. } => {
                        let fatal = error.kind() == TaskErrorKind::Fatal;
                        script.end != End::Succeeds && fatal == (script.end == End::Dies)
                    }
                    TaskOutcome::NotReached(_) => !seen.called.contains(&task),
                    _ => false,
                };
                prop_assert!(agrees, "{} {:?}", task, outcome);
            }
            dead |= seen.called.iter().any(|&task| scripts[task].end == End::Dies);
            let expected = if dead {
                Verdict::Failed
            } else if cancel.is_cancelled() {
                Verdict::Cancelled
            } else if seen.failed {
                Verdict::Again
            } else {
                Verdict::Done
            };
            prop_assert_eq!(report.verdict(), expected);
            prop_assert!(expected != Verdict::Done || seen.succeeded.len() == scripts.len());
        }
    }
}
