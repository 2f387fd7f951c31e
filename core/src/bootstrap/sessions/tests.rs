use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use super::*;
use crate::bootstrap::script::{Answer, Script, spec};
use crate::template::{BootSpec, SwarmJoinSpec};

/// A registry, and what its sessions reported.
#[derive(Default)]
struct Bench {
    sessions: Sessions,
    seen: Arc<Mutex<Vec<StreamReport>>>,
}

impl Bench {
    fn start(&self, operation: &str, script: Script) -> Session {
        let seen = self.seen.clone();
        let sink = ObservationSink::new(move |report| seen.lock().unwrap().push(report));
        let spec = spec(BootSpec::new("agent"), SwarmJoinSpec::default());
        self.sessions.start(&call(operation), &spec, || script, sink)
    }

    /// Of each session what it saw, in order.
    fn seen(&self) -> Vec<(String, StreamEvent)> {
        let seen = self.seen.lock().unwrap();
        let seen = seen.iter().map(|report| &report.observation);
        seen.map(|observation| (observation.session.to_string(), observation.event.clone()))
            .collect()
    }
}

fn call(operation: &str) -> Call {
    let operation: crate::id::OperationId = operation.parse().unwrap();
    Call {
        identity: AttemptIdentity {
            run: "r".parse().unwrap(),
            node: "w-0".parse().unwrap(),
            attempt: operation.attempt,
        },
        operation,
        cancel: Cancel::new(),
    }
}

fn identity(operation: &str) -> AttemptIdentity {
    call(operation).identity
}

/// Whether the future is done after one more poll.
fn poll(future: std::pin::Pin<&mut (impl Future<Output = ()> + ?Sized)>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

fn joining() -> Script {
    Script::new([
        Answer::Done(0),
        Answer::Done(0),
        Answer::Lines(&["NODEWRIGHT JOINED a"]),
    ])
}

#[test]
fn a_session_that_may_end_converges_and_leaves_the_registry() {
    let bench = Bench::default();
    let mut session = bench.start("17.3", joining());
    assert_eq!(session.id.to_string(), "17.3");
    assert!(!poll(session.run.as_mut()));
    bench.sessions.may_end(&identity("17.3"), "17.2".parse().unwrap());
    assert!(!poll(session.run.as_mut()), "another session may end");
    bench.sessions.may_end(&identity("17.3"), session.id);
    assert!(poll(session.run.as_mut()));
    assert_eq!(bench.seen().last().unwrap().1, StreamEvent::Converged);
    assert!(bench.sessions.is_empty());
    bench.sessions.may_end(&identity("17.3"), session.id);
}

#[test]
fn a_second_start_adopts_the_session_that_lives_whether_it_was_polled_or_not() {
    for polled in [false, true] {
        let bench = Bench::default();
        let mut first = bench.start("17.3", joining());
        if polled {
            assert!(!poll(first.run.as_mut()));
        }
        let unused = joining();
        let mut second = bench.start("17.4", unused.clone());
        assert_eq!(second.id.to_string(), "17.3");
        assert!(poll(second.run.as_mut()), "whoever has the first runs it");
        drop(second);
        assert!(!poll(first.run.as_mut()));
        assert_eq!(bench.sessions.len(), 1);
        assert!(unused.calls().is_empty());
    }
}

#[test]
fn attempts_do_not_share_sessions() {
    let bench = Bench::default();
    let first = bench.start("17.3", joining());
    let second = bench.start("18.1", joining());
    assert_eq!(bench.sessions.len(), 2);
    assert_eq!(bench.sessions.of(&identity("17.9")), Some(first.id));
    assert_eq!(bench.sessions.of(&identity("18.9")), Some(second.id));
}

#[test]
fn a_dropped_session_is_over_and_the_next_start_makes_a_new_one() {
    for polled in [false, true] {
        let bench = Bench::default();
        let mut first = bench.start("17.3", joining());
        if polled {
            assert!(!poll(first.run.as_mut()));
        }
        drop(first);
        assert!(bench.sessions.is_empty());
        let second = bench.start("17.4", joining());
        assert_eq!(second.id.to_string(), "17.4");
    }
}

#[test]
fn a_cancel_waits_for_the_end_also_of_a_session_whose_opening_hangs() {
    let bench = Bench::default();
    let script = Script::new([Answer::Hangs]);
    let mut session = bench.start("17.3", script.clone());
    assert!(!poll(session.run.as_mut()));
    let identity = identity("17.3");
    let mut cancel = pin!(bench.sessions.cancel(&identity));
    assert!(!poll(cancel.as_mut()), "the session is not over yet");
    assert!(poll(session.run.as_mut()));
    assert!(poll(cancel));
    assert_eq!(bench.seen().last().unwrap().1, StreamEvent::Cancelled);
    assert_eq!(script.calls(), ["open", "close"]);
}

#[test]
fn a_cancel_does_not_hang_when_whoever_runs_the_session_drops_it() {
    let bench = Bench::default();
    let mut session = bench.start("17.3", joining());
    assert!(!poll(session.run.as_mut()));
    let identity = identity("17.3");
    let mut cancel = pin!(bench.sessions.cancel(&identity));
    assert!(!poll(cancel.as_mut()));
    drop(session);
    assert!(poll(cancel));
}

#[test]
fn a_session_that_nobody_has_begun_to_run_is_cancelled_on_the_spot() {
    let bench = Bench::default();
    let script = joining();
    let mut session = bench.start("17.3", script.clone());
    assert!(poll(pin!(bench.sessions.cancel(&identity("17.3")))));
    let cancelled = [("17.3".to_owned(), StreamEvent::Cancelled)];
    assert_eq!(bench.seen(), cancelled);

    let mut later = bench.start("17.5", joining());
    assert_eq!(later.id.to_string(), "17.5");
    assert!(poll(session.run.as_mut()));
    drop(session);
    assert_eq!(
        bench.seen(),
        cancelled,
        "nothing follows the terminal observation"
    );
    assert!(script.calls().is_empty());
    assert!(!poll(later.run.as_mut()));
    assert_eq!(
        bench.sessions.len(),
        1,
        "the end of the first leaves the later alone"
    );
}

#[test]
fn cancelling_an_unknown_session_is_a_success() {
    let bench = Bench::default();
    assert!(poll(pin!(bench.sessions.cancel(&identity("17.3")))));
}

#[test]
fn a_session_that_breaks_reports_it_and_leaves_the_registry() {
    let bench = Bench::default();
    let script = Script::new([Answer::Breaks]);
    let mut session = bench.start("17.3", script.clone());
    assert!(poll(session.run.as_mut()));
    assert!(matches!(
        bench.seen().last(),
        Some((_, StreamEvent::Failed { .. }))
    ));
    assert!(bench.sessions.is_empty());
    assert_eq!(script.calls(), ["open", "close"]);
}

#[test]
fn a_cancel_can_be_awaited_from_any_thread() {
    fn sent(_: impl Send) {}
    sent(Sessions::default().cancel(&identity("17.3")));
}
