//! Without a runtime: most tasks here never wait, so a whole run is one poll.

mod endings;
mod parallel;
mod random;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;

use super::*;
use crate::effect::Cancel;
use crate::timing::Timing;

/// Time that passes only while somebody sleeps, and remembers how long that was.
#[derive(Debug)]
struct Virtual {
    now: Mutex<Timestamp>,
    slept: Mutex<Vec<Duration>>,
}

impl Virtual {
    fn new() -> Self {
        Self {
            now: Mutex::new(Timestamp::UNIX_EPOCH),
            slept: Mutex::default(),
        }
    }

    fn pass(&self, duration: Duration) {
        *self.now.lock().unwrap() += duration;
    }
}

impl Timing for Virtual {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap()
    }

    async fn sleep(&self, duration: Duration) {
        self.pass(duration);
        self.slept.lock().unwrap().push(duration);
    }
}

/// The answer of what is ready in its first poll.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing in it waits")
}

/// What tasks are called, and how often each of them still fails.
#[derive(Debug, Default)]
struct World {
    calls: Mutex<Vec<String>>,
    failing: Mutex<BTreeMap<String, (u32, TaskErrorKind)>>,
    there: Mutex<BTreeMap<String, bool>>,
}

impl World {
    fn failing<const N: usize>(tasks: [(&str, u32, TaskErrorKind); N]) -> Self {
        let failing = tasks.map(|(name, times, kind)| (name.to_owned(), (times, kind)));
        Self {
            failing: Mutex::new(failing.into()),
            ..Self::default()
        }
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// Sees to it that the task's object is there, or is not.
    fn set(&self, name: &str, there: bool) -> Result<Done, TaskError> {
        self.calls.lock().unwrap().push(name.to_owned());
        if let Some((times, kind)) = self.failing.lock().unwrap().get_mut(name)
            && *times > 0
        {
            *times -= 1;
            return Err(match kind {
                TaskErrorKind::Retryable => TaskError::retryable("shaky"),
                TaskErrorKind::Fatal => TaskError::fatal("hopeless"),
            });
        }
        let before = self.there.lock().unwrap().insert(name.to_owned(), there);
        let changed = before.unwrap_or_default() != there;
        Ok(if changed { Done::Changed } else { Done::Unchanged })
    }
}

/// Five tasks with a well-known order, each the keeper of one object.
fn classic() -> [(&'static str, &'static [&'static str]); 5] {
    [
        ("1", &["2", "3", "4", "5"]),
        ("2", &[]),
        ("3", &["2", "5"]),
        ("4", &["5"]),
        ("5", &["2"]),
    ]
}

fn builder(world: World, tasks: &[(&str, &[&str])]) -> WorkflowBuilder<World> {
    let mut builder = Workflow::builder(world);
    for (name, after) in tasks {
        builder
            .task(name, |context| async move {
                context.shared().set(context.name(), true)
            })
            .after(*after)
            .undo(|context| async move { context.shared().set(context.name(), false) });
    }
    builder
}

fn workflow(world: World) -> Workflow<World> {
    builder(world, &classic()).build().unwrap()
}

fn run(workflow: &mut Workflow<World>) -> Report {
    at_once(workflow.run(&Virtual::new(), &Cancel::new()))
}

/// What became of each task, in order, without durations.
fn story(report: &Report) -> Vec<String> {
    let told = |(name, outcome): (&str, &TaskOutcome)| {
        let outcome = match outcome {
            TaskOutcome::Done { done, .. } => format!("{done:?}"),
            TaskOutcome::Failed { error, .. } => format!("{:?} {error}", error.kind()),
            TaskOutcome::NotReached(Because::Failed(task)) => format!("because of {task}"),
            other => format!("{other:?}"),
        };
        format!("{name} {outcome}")
    };
    report.tasks().map(told).collect()
}

#[test]
fn tasks_are_called_in_the_stable_order_and_undone_in_exactly_the_opposite_one() {
    let mut workflow = workflow(World::default());
    assert!(workflow.order().eq(["2", "5", "3", "4", "1"]));
    assert_eq!(run(&mut workflow).verdict(), Verdict::Done);
    assert_eq!(workflow.shared().calls(), ["2", "5", "3", "4", "1"]);

    let mut teardown = workflow.reversed();
    assert!(teardown.order().eq(["1", "4", "3", "5", "2"]));
    assert_eq!(run(&mut teardown).verdict(), Verdict::Done);
    assert_eq!(workflow.shared().calls(), ["1", "4", "3", "5", "2"]);
    assert!(teardown.reversed().order().eq(workflow.order()));
}

#[test]
fn a_cycle_is_refused_with_its_shortest_circle_and_all_that_are_tied_up() {
    let mut tasks = classic();
    tasks[4].1 = &["2", "1"];
    let refused = builder(World::default(), &tasks).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "tasks cannot be ordered: 1 → 5 → 1 is a cycle; tied up in cycles: 1, 3, 4, 5"
    );
}

#[test]
fn everything_that_is_wrong_with_names_is_said_at_once() {
    let tasks: &[(&str, &[&str])] = &[("a", &["a", "gone"]), ("b", &["c"]), ("c", &["b"]), ("b", &[])];
    let refused = builder(World::default(), tasks).build().unwrap_err();
    let problems: Vec<String> = refused.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "b is declared twice",
            "a depends on itself",
            "a depends on gone, which does not exist",
            "b → c → b is a cycle; tied up in cycles: b, c",
        ]
    );
}

#[test]
fn every_run_checks_all_again_stops_at_the_first_error_and_goes_on_next_time() {
    use TaskErrorKind::Retryable;
    let mut workflow = workflow(World::failing([("5", 1, Retryable), ("4", 2, Retryable)]));
    let expected: [(&[&str], Verdict, &[&str]); 4] = [
        (
            &["2", "5"],
            Verdict::Again,
            &[
                "2 Changed",
                "5 Retryable shaky",
                "3 because of 5",
                "4 because of 5",
                "1 because of 5",
            ],
        ),
        (
            &["2", "5", "3", "4"],
            Verdict::Again,
            &[
                "2 Unchanged",
                "5 Changed",
                "3 Changed",
                "4 Retryable shaky",
                "1 because of 4",
            ],
        ),
        (
            &["2", "5", "3", "4"],
            Verdict::Again,
            &[
                "2 Unchanged",
                "5 Unchanged",
                "3 Unchanged",
                "4 Retryable shaky",
                "1 because of 4",
            ],
        ),
        (
            &["2", "5", "3", "4", "1"],
            Verdict::Done,
            &[
                "2 Unchanged",
                "5 Unchanged",
                "3 Unchanged",
                "4 Changed",
                "1 Changed",
            ],
        ),
    ];
    for (number, (calls, verdict, told)) in (1..).zip(expected) {
        let report = run(&mut workflow);
        assert_eq!(workflow.shared().calls(), calls, "run {number}");
        assert_eq!((report.run(), report.verdict()), (number, verdict));
        assert_eq!(story(&report), told, "run {number}");
    }
}

#[test]
fn what_drifted_is_mended_by_the_next_run_and_nothing_else_is_touched() {
    let mut workflow = workflow(World::default());
    assert_eq!(run(&mut workflow).verdict(), Verdict::Done);
    workflow
        .shared()
        .there
        .lock()
        .unwrap()
        .insert("3".to_owned(), false);
    let report = run(&mut workflow);
    assert_eq!(
        story(&report),
        [
            "2 Unchanged",
            "5 Unchanged",
            "3 Changed",
            "4 Unchanged",
            "1 Unchanged"
        ]
    );
}

#[test]
fn a_teardown_skips_what_has_no_undo_and_undoes_what_was_never_done() {
    let mut tasks = builder(World::default(), &[("first", &[]), ("last", &["middle"])]);
    tasks
        .task(
            "middle",
            |context| async move { context.shared().set("middle", true) },
        )
        .after(["first"]);
    let mut teardown = tasks.build().unwrap().reversed();
    let report = run(&mut teardown);
    assert_eq!(report.verdict(), Verdict::Done);
    assert_eq!(
        story(&report),
        ["last Unchanged", "middle Skipped", "first Unchanged"]
    );
}

#[test]
fn tasks_reach_each_other_through_what_they_share_and_know_their_names() {
    let mut tasks = Workflow::builder(Mutex::new(String::new()));
    tasks.task("reads", |context| async move {
        let text = context.shared().lock().unwrap().clone();
        if text == "writes" {
            Ok(Done::Unchanged)
        } else {
            Err(TaskError::fatal(text))
        }
    });
    tasks.task("writes", |context| async move {
        context.shared().lock().unwrap().push_str(context.clone().name());
        Ok(Done::Changed)
    });
    let mut workflow = tasks.build().unwrap();
    // By name alone the reader comes first.
    let report = at_once(workflow.run(&Virtual::new(), &Cancel::new()));
    assert_eq!(report.verdict(), Verdict::Failed);

    let mut tasks = Workflow::builder(Mutex::new(String::new()));
    tasks
        .task("reads", |context| async move {
            let text = context.shared().lock().unwrap().clone();
            if text == "writes" {
                Ok(Done::Unchanged)
            } else {
                Err(TaskError::fatal(text))
            }
        })
        .after(["writes"]);
    tasks.task("writes", |context| async move {
        context.shared().lock().unwrap().push_str(context.clone().name());
        Ok(Done::Changed)
    });
    let mut workflow = tasks.build().unwrap();
    let report = at_once(workflow.run(&Virtual::new(), &Cancel::new()));
    assert_eq!(report.verdict(), Verdict::Done);
}

#[test]
fn a_chain_of_ten_thousand_is_built_run_and_undone_without_a_stack() {
    const LENGTH: usize = 10_000;
    let run = || {
        let mut tasks = Workflow::builder(Mutex::new(Vec::new()));
        for number in 0..LENGTH {
            let log = move |context: TaskContext<Mutex<Vec<usize>>>| async move {
                context.shared().lock().unwrap().push(number);
                Ok(Done::Changed)
            };
            let after = (number + 1 < LENGTH).then(|| format!("t{:05}", number + 1));
            tasks.task(format!("t{number:05}"), log).after(after).undo(log);
        }
        let mut workflow = tasks.build().unwrap();
        let calls =
            |workflow: &Workflow<Mutex<Vec<usize>>>| std::mem::take(&mut *workflow.shared().lock().unwrap());
        let report = at_once(workflow.run(&Virtual::new(), &Cancel::new()));
        assert_eq!(report.verdict(), Verdict::Done);
        assert!(calls(&workflow).into_iter().eq((0..LENGTH).rev()));
        let report = at_once(
            workflow
                .reversed()
                .unlimited()
                .run(&Virtual::new(), &Cancel::new()),
        );
        assert_eq!(report.verdict(), Verdict::Done);
        assert!(calls(&workflow).into_iter().eq(0..LENGTH));
        assert_eq!(report.to_string().lines().count(), LENGTH + 1);
        drop(report.clone());
    };
    // A stack this small would not survive a frame per task.
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    small.spawn(run).unwrap().join().unwrap();
}

#[test]
fn it_is_shown_with_each_tasks_last_outcome() {
    let mut workflow = workflow(World::failing([("4", 1, TaskErrorKind::Retryable)]));
    assert!(workflow.to_string().starts_with("not run yet\n  2  waiting\n"));
    let _ = run(&mut workflow);
    assert_eq!(
        workflow.to_string(),
        "run 1: to be run again, 0ns\n  \
         2  changed, 0ns\n  \
         5  changed, 0ns  (after 2)\n  \
         3  changed, 0ns  (after 2, 5)\n  \
         4  failed, 0ns: shaky  (after 5)\n  \
         1  not reached because of 4  (after 2, 3, 4, 5)"
    );
    let dot = workflow.to_dot();
    assert!(
        dot.starts_with("digraph workflow {\n") && dot.ends_with("}\n"),
        "{dot}"
    );
    for line in [
        r#"  "4" [label="4\nfailed, 0ns: shaky", fillcolor=salmon];"#,
        r#"  "1" [label="1\nnot reached because of 4", fillcolor=lightgrey];"#,
        r#"  "3" -> "5";"#,
    ] {
        assert!(dot.lines().any(|found| found == line), "{line} is not in\n{dot}");
    }
    assert_eq!(dot.matches(" -> ").count(), 8);
}

#[test]
fn names_and_reasons_cannot_break_out_of_a_drawing() {
    let mut tasks = Workflow::builder(());
    tasks.task("say \"hi\" \\", |_| async { Err(TaskError::fatal("two\nlines")) });
    let mut workflow = tasks.build().unwrap();
    let report = at_once(workflow.run(&Virtual::new(), &Cancel::new()));
    let line =
        r#"  "say \"hi\" \\" [label="say \"hi\" \\\nfailed for good, 0ns: two\nlines", fillcolor=salmon];"#;
    assert!(
        report.to_dot().lines().any(|found| found == line),
        "{}",
        report.to_dot()
    );
}
