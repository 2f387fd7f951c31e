//! Tasks that run together. Each waits at a gate of its own, which the test opens.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;

/// How a task goes on once its gate is open.
type Gates = BTreeMap<&'static str, (Cancel, Result<Done, TaskError>)>;

/// Tasks at gates, and what was called and answered so far.
struct Gated {
    gates: Gates,
    log: Mutex<Vec<String>>,
}

impl Gated {
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }

    fn open(&self, task: &str) {
        self.gates[task].0.cancel();
    }
}

fn gated(tasks: &[(&'static str, &[&str])], failing: &[(&str, TaskErrorKind)]) -> Workflow<Gated> {
    let answer = |name: &str| match failing.iter().find(|(failing, _)| *failing == name) {
        None => Ok(Done::Changed),
        Some((_, TaskErrorKind::Retryable)) => Err(TaskError::retryable("shaky")),
        Some((_, TaskErrorKind::Fatal)) => Err(TaskError::fatal("hopeless")),
    };
    let gates = tasks
        .iter()
        .map(|(name, _)| (*name, (Cancel::new(), answer(name))));
    let mut builder = Workflow::builder(Gated {
        gates: gates.collect(),
        log: Mutex::default(),
    });
    for (name, after) in tasks {
        builder
            .task(name, |context| async move {
                let log = |what: &str| {
                    let line = format!("{what}{}", context.name());
                    context.shared().log.lock().unwrap().push(line);
                };
                log("+");
                let (gate, answer) = &context.shared().gates[context.name()];
                gate.cancelled().await;
                log("-");
                answer.clone()
            })
            .after(*after);
    }
    builder.build().unwrap()
}

fn poll<F: Future<Output = Report>>(run: &mut Pin<&mut F>) -> Option<Report> {
    match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(report) => Some(report),
        Poll::Pending => None,
    }
}

/// Two chains and one that is after both.
const TASKS: &[(&str, &[&str])] = &[
    ("a1", &[]),
    ("a2", &["a1"]),
    ("b1", &[]),
    ("b2", &["b1"]),
    ("b3", &["b2"]),
    ("both", &["a2", "b3"]),
];

#[test]
fn one_at_a_time_nothing_is_called_before_the_one_before_it_has_answered() {
    let mut workflow = gated(TASKS, &[]);
    let shared = workflow.shared().clone();
    let (timing, cancel) = (Virtual::new(), Cancel::new());
    let mut run = pin!(workflow.run(&timing, &cancel));
    for name in ["a1", "a2", "b1", "b2", "b3", "both"] {
        assert!(poll(&mut run).is_none());
        assert_eq!(shared.log(), [format!("+{name}")]);
        shared.open(name);
        if name == "both" {
            assert_eq!(poll(&mut run).unwrap().verdict(), Verdict::Done);
        } else {
            assert!(poll(&mut run).is_none());
            shared.log.lock().unwrap().remove(0);
        }
    }
}

#[test]
fn independent_tasks_run_together_and_each_is_called_as_soon_as_it_may() {
    let mut workflow = gated(TASKS, &[]).unlimited();
    let shared = workflow.shared().clone();
    let (timing, cancel) = (Virtual::new(), Cancel::new());
    let mut run = pin!(workflow.run(&timing, &cancel));
    assert!(poll(&mut run).is_none());
    assert_eq!(shared.log(), ["+a1", "+b1"]);
    for (open, then) in [("b1", "+b2"), ("b2", "+b3"), ("a1", "+a2")] {
        shared.open(open);
        assert!(poll(&mut run).is_none());
        assert_eq!(shared.log(), [format!("-{open}"), then.to_owned()]);
    }
    shared.open("a2");
    assert!(poll(&mut run).is_none());
    assert_eq!(shared.log(), ["-a2"]);
    shared.open("b3");
    shared.open("both");
    assert_eq!(poll(&mut run).unwrap().verdict(), Verdict::Done);
}

#[test]
fn of_those_that_may_be_called_the_first_in_order_get_the_places() {
    let tasks: &[(&str, &[&str])] = &[("d", &[]), ("b", &[]), ("c", &[]), ("a", &["d"])];
    let mut workflow = gated(tasks, &[]).max_parallel(2);
    let shared = workflow.shared().clone();
    let (timing, cancel) = (Virtual::new(), Cancel::new());
    let mut run = pin!(workflow.run(&timing, &cancel));
    assert!(poll(&mut run).is_none());
    assert_eq!(shared.log(), ["+b", "+c"]);
    shared.open("c");
    assert!(poll(&mut run).is_none());
    assert_eq!(shared.log(), ["-c", "+d"]);
}

#[test]
fn after_an_error_nothing_new_is_called_and_what_runs_is_awaited() {
    let mut workflow = gated(TASKS, &[("a1", TaskErrorKind::Retryable)]).unlimited();
    let shared = workflow.shared().clone();
    let (timing, cancel) = (Virtual::new(), Cancel::new());
    let report = {
        let mut run = pin!(workflow.run(&timing, &cancel));
        assert!(poll(&mut run).is_none());
        shared.open("a1");
        assert!(poll(&mut run).is_none(), "b1 still runs");
        shared.log();
        shared.open("b1");
        poll(&mut run).unwrap()
    };
    assert_eq!(shared.log(), ["-b1"]);
    assert_eq!(report.verdict(), Verdict::Again);
    assert_eq!(
        story(&report),
        [
            "a1 Retryable shaky",
            "a2 because of a1",
            "b1 Changed",
            "b2 because of a1",
            "b3 because of a1",
            "both because of a1"
        ]
    );
}

#[test]
fn what_is_not_reached_is_laid_at_the_door_of_what_it_is_after() {
    let failing = [("a1", TaskErrorKind::Retryable), ("b2", TaskErrorKind::Fatal)];
    let mut workflow = gated(TASKS, &failing).unlimited();
    let shared = workflow.shared().clone();
    let (timing, cancel) = (Virtual::new(), Cancel::new());
    let report = {
        let mut run = pin!(workflow.run(&timing, &cancel));
        shared.open("b1");
        assert!(poll(&mut run).is_none());
        shared.open("a1");
        assert!(poll(&mut run).is_none());
        shared.open("b2");
        poll(&mut run).unwrap()
    };
    // The later error is fatal, and counts for the whole.
    assert_eq!(report.verdict(), Verdict::Failed);
    assert_eq!(
        story(&report),
        [
            "a1 Retryable shaky",
            "a2 because of a1",
            "b1 Changed",
            "b2 Fatal hopeless",
            "b3 because of b2",
            "both because of a1"
        ]
    );
}

#[test]
fn a_cancel_lets_what_runs_come_to_its_end() {
    let mut workflow = gated(TASKS, &[]).unlimited();
    let shared = workflow.shared().clone();
    let (timing, cancel) = (Virtual::new(), Cancel::new());
    let mut run = pin!(workflow.run(&timing, &cancel));
    assert!(poll(&mut run).is_none());
    cancel.cancel();
    shared.open("a1");
    assert!(poll(&mut run).is_none(), "b1 still runs");
    shared.open("b1");
    let report = poll(&mut run).unwrap();
    assert_eq!(report.verdict(), Verdict::Cancelled);
    assert_eq!(story(&report)[..2], ["a1 Changed", "a2 NotReached(Cancelled)"]);
}

#[test]
fn a_run_that_is_dropped_shows_how_far_it_came_and_the_next_begins_anew() {
    let mut workflow = gated(TASKS, &[]);
    let shared = workflow.shared().clone();
    shared.open("a1");
    assert!(
        workflow
            .run(&Virtual::new(), &Cancel::new())
            .now_or_never()
            .is_none()
    );
    let report = workflow.report();
    assert_eq!(report.verdict(), Verdict::Open);
    assert_eq!(story(report)[..3], ["a1 Changed", "a2 Begun", "b1 Waiting"]);
    TASKS.iter().for_each(|(name, _)| shared.open(name));
    let report = at_once(workflow.run(&Virtual::new(), &Cancel::new()));
    assert_eq!((report.verdict(), report.run()), (Verdict::Done, 2));
}
