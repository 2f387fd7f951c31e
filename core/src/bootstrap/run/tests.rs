use std::cell::RefCell;
use std::task::{Context, Waker};

use super::*;
use crate::bootstrap::script::{Answer, Script, spec};
use crate::bootstrap::{SessionLimits, StreamEvent};
use crate::facts::{AgentId, BootstrapStage};
use crate::template::{BootSpec, SwarmJoinSpec};

fn bootstrap() -> Bootstrap {
    let mut boot = BootSpec::new("agent");
    boot.verify = vec!["true".into()];
    let spec = spec(boot, SwarmJoinSpec::default());
    Bootstrap::new("17.3".parse().unwrap(), &spec, SessionLimits::default())
}

/// Whether the future is done after one more poll.
fn poll(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_whole_session_runs_without_a_runtime() {
    let script = Script::new([
        Answer::Done(0),
        Answer::Done(0),
        Answer::Done(0),
        Answer::Lines(&["NODEWRIGHT JOINED a"]),
    ]);
    let may_end = Cancel::new();
    let seen = RefCell::new(Vec::new());
    let mut run = pin!(run_session(
        bootstrap(),
        script.clone(),
        Cancel::new(),
        may_end.clone(),
        |observation| seen.borrow_mut().push(observation.event),
    ));
    assert!(!poll(run.as_mut()));
    let joined = StreamEvent::Joined(AgentId::new("a"));
    assert!(seen.borrow().contains(&joined), "{seen:?}");
    may_end.cancel();
    assert!(poll(run));
    assert_eq!(seen.borrow().last(), Some(&StreamEvent::Converged));
    assert_eq!(
        script.calls(),
        ["open", "run verify-0", "start start", "next", "next", "close"]
    );
}

#[test]
fn a_cancel_wins_over_an_answer_that_is_there_too() {
    let script = Script::new([Answer::Done(0)]);
    let cancel = Cancel::new();
    cancel.cancel();
    let seen = RefCell::new(Vec::new());
    let run = pin!(run_session(
        bootstrap(),
        script.clone(),
        cancel,
        Cancel::new(),
        |observation| seen.borrow_mut().push(observation.event),
    ));
    assert!(poll(run));
    assert_eq!(
        *seen.borrow(),
        [
            StreamEvent::Stage(BootstrapStage::Connecting),
            StreamEvent::Cancelled
        ]
    );
    assert_eq!(script.calls(), ["close"]);
}

#[test]
fn a_word_that_it_may_end_drops_no_call_that_was_begun() {
    // Opening hangs until it is polled again: the call that was begun must be the one that is waited for.
    let script = Script::new([Answer::Hangs]);
    let may_end = Cancel::new();
    let mut run = pin!(run_session(
        bootstrap(),
        script.clone(),
        Cancel::new(),
        may_end.clone(),
        drop,
    ));
    assert!(!poll(run.as_mut()));
    may_end.cancel();
    assert!(!poll(run.as_mut()));
    assert!(!poll(run));
    assert_eq!(script.calls(), ["open"]);
}
