//! When providers are asked, and what an answer that fails or comes late means.

use std::time::Duration;

use nodewright_conformance::{ByHand, policy};
use nodewright_core::effect::{EffectError, PlannedEffect};
use nodewright_core::id::NodeAttemptId;
use nodewright_core::inventory::Findings;
use nodewright_core::pace::PaceConfig;

use super::{INTERVAL, after, all_but, answer, of, on_demand, ready};

/// The safety net under all events.
#[test]
fn every_answered_sweep_has_all_slots_looked_at_again() {
    let mut run = ready(3);
    assert!(run.pass(1).is_empty());
    assert_eq!(run.report.considered, 0);
    let entries = all_but(&run, &[]);
    answer(&mut run, entries);
    assert_eq!(run.report.considered, 3);
    assert!(
        run.report.touched.is_empty(),
        "and nobody is told of what is as it was"
    );
}

/// Chapter 5: nothing is sent to a provider that said to slow down, sweeps neither.
#[test]
fn a_provider_that_said_to_slow_down_is_not_swept_before_its_time() {
    let mut run = ByHand::fresh(of(1), policy(), PaceConfig::default());
    let sent = run.drive();
    run.driver.due_looks(run.now);
    let slow_down = EffectError::throttled("slow down", Some(Duration::from_secs(50)));
    let _ = run.fail(&sent[0], slow_down);
    run.drive();
    let until = after(run.now, 50);
    run.driver.sweep(run.now);
    assert!(run.driver.due_looks(run.now).is_empty());
    assert_eq!(run.driver.sweep_at(), Some(until));
}

/// Row 8.
#[test]
fn from_a_failed_answer_nothing_is_concluded_and_it_is_asked_again() {
    let mut run = ready(2);
    on_demand(&mut run, 5, &[0]);
    let nodes = run.driver.state().nodes.clone();
    for error in [
        EffectError::ambiguous("no answer"),
        EffectError::definite("no"),
        EffectError::fatal("never"),
    ] {
        let look = run.due_sweep();
        let findings = run.answer_look(&look, run.now, Err(error));
        assert_eq!(findings, Findings::default());
        assert!(run.drive().is_empty());
        let wait = run
            .driver
            .sweep_at()
            .unwrap()
            .duration_since(run.now)
            .as_secs_f64();
        assert!((1.0..=4.4).contains(&wait), "{wait}");
        assert!(run.driver.summary().providers[0].look_error.is_some());
    }
    assert_eq!(run.driver.state().nodes, nodes);
    let look = run.due_sweep();
    let findings = run.answer_look(
        &look,
        run.now,
        Err(EffectError::throttled("slow down", Some(Duration::from_secs(50)))),
    );
    assert_eq!(findings, Findings::default());
    assert_eq!(
        run.driver.sweep_at(),
        Some(after(run.now, 50)),
        "it says how long to wait"
    );
    let status = run.driver.summary().providers[0].clone();
    assert_eq!(
        (status.places, status.most, status.not_before),
        (32, 64, Some(after(run.now, 50)))
    );
    // The row goes on with the next answer.
    let (findings, _) = answer(&mut run, vec![]);
    assert_eq!((findings.lost, findings.missing), (1, 1));
    assert!(run.driver.summary().providers[0].look_error.is_none());
}

#[test]
fn an_answer_that_nobody_waits_for_any_more_is_not_judged() {
    let mut run = ready(2);
    let look = run.due_sweep();
    run.driver.look_lost(
        &look.provider,
        &EffectError::ambiguous("the executor died"),
        run.now,
    );
    let asked_at = run.now;
    run.drive();
    run.now = after(run.now, 90);
    let findings = run.answer_look(&look, asked_at, Ok(vec![]));
    assert_eq!(findings.missing, 0);
    assert!(run.node("w-0").missing_since.is_none());
}

/// Whoever asks is answered with a question that was asked after that.
#[test]
fn a_sweep_that_is_asked_for_during_another_one_follows_it() {
    let mut run = ready(1);
    let look = run.due_sweep();
    assert_eq!(run.driver.sweep(run.now).len(), 1);
    assert!(run.driver.due_looks(run.now).is_empty(), "one question at a time");
    run.list(&look, &[("w-0", 1, "m-1")]);
    run.drive();
    assert_eq!(run.driver.due_looks(run.now).len(), 1);
}

/// G3: sweeps are no moment that a converged run waits for.
#[test]
fn a_sweep_is_no_moment_that_a_plan_waits_for() {
    let run = ready(1);
    assert_eq!(run.driver.requeue_at(), None);
    assert_eq!(run.driver.sweep_at(), Some(after(run.now, INTERVAL)));
}

/// G30: a day of nothing costs a sweep a minute, and leaves nothing behind.
#[test]
fn ten_thousand_idle_nodes_cost_a_sweep_a_minute_and_nothing_else() {
    let mut run = ByHand::fresh(of(10_000), policy(), PaceConfig::default());
    run.succeed_all();
    run.driver.due_looks(run.now);
    let sent = run.sent.len();
    let entries = all_but(&run, &[]);
    let begun = run.now;
    let size = |run: &ByHand| serde_json::to_string(run.driver.state()).unwrap().len();
    let (mut sweeps, mut first) = (0, None);
    while let Some(at) = run.driver.sweep_at().filter(|at| *at <= after(begun, 24 * 3600)) {
        assert_eq!(run.driver.requeue_at(), None, "nothing but a sweep wakes anybody");
        run.now = at;
        let look = run.driver.due_looks(run.now).remove(0);
        let findings = run.answer_look(&look, run.now, Ok(entries.clone()));
        assert!(findings.is_as_known());
        let report = run.driver.drive(run.now, &mut Nobody);
        assert_eq!((report.passes, report.effects), (0, 0));
        sweeps += 1;
        first.get_or_insert_with(|| size(&run));
    }
    assert_eq!(sweeps, 24 * 60);
    assert_eq!((run.sent.len(), Some(size(&run))), (sent, first));
}

/// Takes no effect, for there is none.
struct Nobody;

impl nodewright_core::driver::EffectSink for Nobody {
    fn submit(&mut self, effects: Vec<PlannedEffect>) -> Vec<nodewright_core::driver::Refused> {
        panic!("{:?}", ByHand::text(&effects))
    }

    fn retire(&mut self, attempt: NodeAttemptId) {
        panic!("{attempt}")
    }
}
