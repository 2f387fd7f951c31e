//! What goes wrong, and how long it takes to be tried again.

use super::*;

#[test]
fn g16_a_fatal_create_halts_the_slot_until_somebody_asks_or_the_spec_changes() {
    for way in ["retry", "replace", "spec"] {
        let mut rig = Rig::new(&[("v", 1, "plain"), ("w", 1, "plain")]);
        let sent = rig.sends(&[("v-0", CreateLease), ("w-0", CreateLease)]);
        rig.fail(&sent[1], EffectError::fatal("no such image"));
        rig.succeed(&sent[0]);
        rig.settle();
        assert_eq!(rig.driver.requeue_at(), None);
        assert_eq!(rig.driver.summary().halted, 1);
        rig.pass_time(86_400);
        rig.driver.trigger();
        rig.sends(&[]);
        let attempt = match way {
            "retry" => {
                assert!(rig.driver.retry(&id("w-0")));
                2
            }
            "replace" => {
                assert!(rig.driver.replace(&id("w-0")));
                3
            }
            _ => {
                rig.update(2, &[("v", 1, "plain"), ("w", 1, "other")]);
                3
            }
        };
        let create = rig.sends_one("w-0", CreateLease);
        assert_eq!(create.operation.attempt.number(), attempt, "{way}");
        rig.succeed(&create);
        rig.settle();
        assert!(rig.driver.is_converged());
    }
}

#[test]
fn g16_a_fatal_start_is_cleaned_up_and_then_halts_instead_of_restarting() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    for kind in [CreateLease, LookupEndpoint] {
        let effect = rig.sends_one("w-0", kind);
        rig.succeed(&effect);
    }
    let start = rig.sends_one("w-0", StartBootstrap);
    rig.fail(&start, EffectError::fatal("no such user"));
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.succeed(&destroy);
    rig.sends(&[]);
    assert_eq!(rig.node("w-0").stage, Stage::Destroyed);
    assert_eq!(rig.driver.requeue_at(), None);
    assert!(rig.driver.retry(&id("w-0")));
    rig.sends_one("w-0", CreateLease);
}

#[test]
fn g16_asking_for_what_is_going_already_lifts_its_halt_only() {
    let mut rig = Rig::converged(&[("w", 1, "plain")]);
    rig.update(2, &[("w", 1, "other")]);
    let destroy = rig.sends_one("w-0", DestroyLease);
    assert!(rig.driver.replace(&id("w-0")));
    rig.succeed(&destroy);
    rig.settle();
    assert_eq!(rig.attempts(), [2], "no further attempt");
    assert!(!rig.driver.replace(&id("w-1")) && !rig.driver.retry(&id("x-0")));
}

/// Lets the node of `w-0` break once it is ready, cleans up, and says how long its restart waits.
fn break_down(rig: &mut Rig) -> i64 {
    assert_eq!(rig.lose("w-0"), Folded::Applied);
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.succeed(&destroy);
    rig.sends(&[]);
    rig.requeue()
}

/// Leases a machine for `w-0`, whose start then fails; says how long the restart waits.
fn fail_to_boot(rig: &mut Rig) -> i64 {
    for kind in [CreateLease, LookupEndpoint] {
        let effect = rig.sends_one("w-0", kind);
        rig.succeed(&effect);
    }
    let start = rig.sends_one("w-0", StartBootstrap);
    rig.fail(&start, EffectError::definite("no shell"));
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.succeed(&destroy);
    rig.sends(&[]);
    rig.requeue()
}

#[test]
fn g17_backoff_is_exact_and_carried_into_the_replacement() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    let waits: Vec<i64> = (0..8).map(|_| fail_to_boot(&mut rig)).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    // Ready resets it.
    rig.settle();
    assert!(rig.driver.is_converged());
    assert_eq!(break_down(&mut rig), 1);
    assert_eq!(fail_to_boot(&mut rig), 2);
}

#[test]
fn g17_a_changed_spec_starts_clean_at_once_and_so_does_a_retry() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    for _ in 0..4 {
        fail_to_boot(&mut rig);
    }
    rig.now = at(rig.now.as_second() - 8);
    rig.sends(&[]);
    rig.update(2, &[("w", 1, "other")]);
    assert_eq!(fail_to_boot(&mut rig), 1);
    assert_eq!(fail_to_boot(&mut rig), 2);
    rig.now = at(rig.now.as_second() - 2);
    rig.sends(&[]);
    assert!(rig.driver.retry(&id("w-0")));
    assert_eq!(fail_to_boot(&mut rig), 1);
}

#[test]
fn g17_a_replacement_that_was_asked_for_waits_for_nothing() {
    let mut rig = Rig::converged(&[("w", 1, "plain")]);
    assert!(rig.driver.replace(&id("w-0")));
    let destroy = rig.sends_one("w-0", DestroyLease);
    rig.succeed(&destroy);
    let create = rig.sends_one("w-0", CreateLease);
    assert_eq!(create.operation.attempt.number(), 2);
    assert_eq!(rig.node("w-0").retry.failed_attempts, 0);
}

#[test]
fn g17_each_command_backs_off_by_its_own_failures() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    for wait in [1, 2, 4, 8] {
        let create = rig.sends_one("w-0", CreateLease);
        rig.fail(&create, EffectError::definite("no room"));
        rig.sends(&[]);
        assert_eq!(rig.requeue(), wait);
    }
    let create = rig.sends_one("w-0", CreateLease);
    rig.succeed(&create);
    // Look-ups repeat at the probe interval: the net lies above the first backoff.
    for wait in [2, 2, 4, 8] {
        let look = rig.sends_one("w-0", LookupEndpoint);
        rig.fail(&look, EffectError::definite("no answer"));
        rig.sends(&[]);
        assert_eq!(rig.requeue(), wait);
    }
}

#[test]
fn g24_an_operation_is_due_at_its_deadline_not_before_and_once() {
    let mut rig = Rig::new(&[("w", 2, "plain")]);
    let first = rig.drive();
    assert_eq!(rig.requeue(), 120);
    let mut due = Vec::new();
    let before = at(rig.now.as_second() - 1);
    rig.driver.due_operations(before, &mut due);
    assert_eq!(due, []);
    rig.driver.due_operations(rig.now, &mut due);
    let operations: Vec<OperationId> = due.iter().map(|due| due.operation).collect();
    assert_eq!(operations, [first[0].operation, first[1].operation]);
    due.clear();
    rig.driver.due_operations(rig.now, &mut due);
    assert_eq!(due, [], "each once");
    // Until its executor has answered, it is pending, and counts no longer.
    rig.sends(&[]);
    assert_eq!(rig.driver.requeue_at(), None);
    assert_eq!(rig.driver.summary().pending, 2);
    rig.pass_time(3);
    rig.fail(&first[0], EffectError::ambiguous("timeout"));
    rig.sends_one("w-0", FindLease);
    assert_eq!(
        rig.answer(&first[0], success(&first[0])),
        Folded::Stale,
        "a late completion is discarded"
    );
    // The answer came before anybody classified it: it counts.
    rig.succeed(&first[1]);
}

#[test]
fn g24_an_operation_that_was_answered_in_time_is_never_due() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    let create = rig.sends_one("w-0", CreateLease);
    rig.pass_time(60);
    rig.succeed(&create);
    rig.sends_one("w-0", LookupEndpoint);
    let mut due = Vec::new();
    rig.driver.due_operations(at(rig.now.as_second() + 60), &mut due);
    assert_eq!(due, []);
    rig.driver.due_operations(at(rig.now.as_second() + 120), &mut due);
    assert_eq!(due.len(), 1);
}

#[test]
fn g24_waiting_for_the_providers_pace_never_counts() {
    let mut rig = Rig::with(&[("w", 2, "plain")], 1, policy());
    let create = rig.sends_one("w-0", CreateLease);
    rig.pass_time(100);
    rig.succeed(&create);
    let ready_by = rig.node("w-0").retry.ready_by.unwrap();
    // The one place goes to w-0's look-up or to w-1's create; whoever waits is not punished.
    let first = rig.drive().remove(0);
    rig.pass_time(100);
    rig.succeed(&first);
    let second = rig.drive().remove(0);
    let deadline = rig
        .node(&second.node.to_string())
        .pending
        .as_ref()
        .unwrap()
        .deadline;
    assert_eq!(deadline, rig.now.checked_add(policy().operation_timeout).unwrap());
    let waited = rig.node("w-0").retry.ready_by.unwrap().as_second() - ready_by.as_second();
    let expected = if first.node == id("w-0") { 0 } else { 100 };
    assert_eq!(waited, expected);
}

#[test]
fn g24_a_clock_that_goes_back_while_a_node_waits_takes_no_time_from_it() {
    let mut rig = Rig::with(&[("w", 2, "plain")], 1, policy());
    let create = rig.sends_one("w-0", CreateLease);
    rig.succeed(&create);
    let ready_by = rig.node("w-0").retry.ready_by.unwrap();
    rig.sends_one("w-0", LookupEndpoint);
    let slot = rig.driver.state.nodes.slot(&id("w-0")).unwrap();
    let later = at(rig.now.as_second() + 500);
    // It has waited since a moment that has not come.
    rig.driver.change(slot, |node, _, _| {
        node.pending = None;
        node.retry.last_command = None;
        node.retry.waiting_since = Some(later);
    });
    rig.settle_partly();
    assert!(rig.node("w-0").retry.waiting_since.is_none());
    assert!(rig.node("w-0").retry.ready_by.unwrap() >= ready_by);
}

impl Rig {
    /// Answers everything but the starts, until nothing else is sent.
    fn settle_partly(&mut self) {
        loop {
            let sent = self.drive();
            let mut answered = false;
            for effect in sent {
                if effect.command.kind() != StartBootstrap {
                    self.succeed(&effect);
                    answered = true;
                }
            }
            if !answered {
                return;
            }
        }
    }
}

#[test]
fn g26_a_leased_node_that_is_not_ready_in_time_is_replaced_whatever_it_hangs_in() {
    let hangs_in = [CreateLease, LookupEndpoint, StartBootstrap];
    for (place, hang) in hangs_in.into_iter().enumerate().skip(1) {
        // Longer than the startup may take, so that the call alone would never end it.
        let patient = Policy {
            operation_timeout: seconds(7200),
            ..policy()
        };
        let mut rig = Rig::with(&[("w", 1, "plain")], 64, patient);
        for kind in &hangs_in[..place] {
            let effect = rig.sends_one("w-0", *kind);
            rig.succeed(&effect);
        }
        let hung = rig.sends_one("w-0", hang);
        assert_eq!(rig.requeue(), 900);
        let before = at(rig.now.as_second() - 1);
        let _ = rig.driver.drive(before, &mut rig.tape);
        assert_eq!(rig.node("w-0").intent, Intent::Active);
        rig.sends(&[]);
        assert_eq!(rig.node("w-0").intent, Intent::Deleting);
        assert_eq!(rig.node("w-0").stage, Stage::Failed);
        rig.succeed_late(&hung);
        rig.settle();
        rig.requeue();
        rig.settle();
        assert_eq!(rig.attempts(), [2]);
        assert!(rig.driver.is_converged());
    }
}

impl Rig {
    /// Answers what nobody waits for any more; its node takes the fact and moves nowhere.
    fn succeed_late(&mut self, effect: &PlannedEffect) {
        let stage = self.node(&effect.node.to_string()).stage;
        assert_eq!(self.answer(effect, success(effect)), Folded::Applied);
        assert_eq!(self.node(&effect.node.to_string()).stage, stage);
    }
}

#[test]
fn g26_a_session_that_falls_silent_is_told_from_one_that_works_slowly() {
    let (mut rig, start) = Rig::booting(policy());
    for line in 1..=2 {
        rig.pass_time(299);
        rig.see(
            &start,
            line,
            StreamEvent::Lines {
                stdout: line,
                stderr: 0,
            },
        );
        rig.sends(&[]);
        assert_eq!(rig.node("w-0").stage, Stage::BootstrapRunning);
    }
    assert_eq!(rig.requeue(), 300);
    rig.sends_one("w-0", CancelBootstrap);
    assert_eq!(rig.node("w-0").stage, Stage::Failed);
}

#[test]
fn g26_a_session_that_is_over_without_a_join_has_its_grace_and_no_more() {
    let (mut rig, start) = Rig::booting(policy());
    rig.see(&start, 1, StreamEvent::Closed);
    rig.sends(&[]);
    assert_eq!(rig.requeue(), 5);
    rig.sends_one("w-0", DestroyLease);
    let (mut rig, start) = Rig::booting(policy());
    rig.see(&start, 1, StreamEvent::Closed);
    rig.pass_time(4);
    let joined = Observation::Joined(AgentId::new("agent"));
    let attempt = start.operation.attempt;
    assert_eq!(
        rig.driver.fold(&id("w-0"), attempt, &joined, rig.now),
        Folded::Applied
    );
    rig.sends(&[]);
    assert!(rig.driver.is_converged());
}

#[test]
fn g26_throttles_and_refusals_end_no_attempt_however_long_they_last() {
    let mut rig = Rig::new(&[("w", 1, "plain")]);
    let create = rig.sends_one("w-0", CreateLease);
    rig.succeed(&create);
    for _ in 0..10 {
        let look = rig.sends_one("w-0", LookupEndpoint);
        rig.fail(&look, EffectError::throttled("slow", Some(seconds(599))));
        rig.sends(&[]);
        assert_eq!(rig.requeue(), 599);
    }
    rig.tape.refuses = true;
    for _ in 0..2000 {
        rig.sends_one("w-0", LookupEndpoint);
        assert_eq!(rig.requeue(), 2, "the net of a look-up");
    }
    rig.tape.refuses = false;
    assert_eq!(rig.attempts(), [1]);
    rig.settle();
    assert!(rig.driver.is_converged());
}

#[test]
fn g27_a_lost_node_is_replaced_also_after_it_was_ready() {
    let mut rig = Rig::converged(&[("w", 2, "plain")]);
    assert_eq!(rig.lose("w-0"), Folded::Applied);
    assert_eq!(rig.lose("w-0"), Folded::Stale, "one death counts once");
    assert!(!rig.driver.is_converged());
    let destroy = rig.sends_one("w-0", DestroyLease);
    assert_eq!(rig.lose("w-0"), Folded::Stale);
    rig.succeed(&destroy);
    rig.sends(&[]);
    assert_eq!(rig.requeue(), 1);
    rig.settle();
    assert_eq!(rig.attempts(), [3, 2]);
    assert!(rig.driver.is_converged());
}

#[test]
fn g33_no_failing_start_or_stream_ends_an_attempt_that_has_joined() {
    let events = [
        StreamEvent::Closed,
        StreamEvent::Cancelled,
        StreamEvent::Failed {
            stage: crate::facts::BootstrapStage::StreamFailed,
            reason: "cut".into(),
        },
    ];
    for event in events {
        let (mut rig, start) = Rig::booting(policy());
        rig.see(&start, 1, StreamEvent::Joined(AgentId::new("agent")));
        let observe = rig.sends_one("w-0", ObserveConvergence);
        rig.see(&start, 2, event);
        rig.fail(&observe, EffectError::fatal("no such session"));
        rig.sends(&[]);
        assert!(rig.driver.is_converged());
        assert_eq!(rig.attempts(), [1]);
    }
}
