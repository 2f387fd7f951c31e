//! Resources that no node records: creates whose answer was wrong, orphans, surpluses, and strangers.

use nodewright_conformance::{ByHand, policy, template};
use nodewright_core::effect::{CommandKind, Destroyed, EffectError, Outcome};
use nodewright_core::event::EventKind;
use nodewright_core::facts::{CreatedLease, LeaseFacts, LeaseId};
use nodewright_core::id::NodeAttemptId;
use nodewright_core::observation::Observation;
use nodewright_core::pace::PaceConfig;

use super::{APART, INTERVAL, after, all_but, answer, of, ready};

/// Row 4: somebody's answer was wrong.
#[test]
fn a_resource_of_an_attempt_that_records_none_is_looked_for_and_adopted() {
    let mut run = ByHand::fresh(of(1), policy(), PaceConfig::default());
    let sent = run.drive();
    run.driver.due_looks(run.now);
    let _ = run.fail(&sent[0], EffectError::fatal("it said no, and made one"));
    assert!(run.drive().is_empty());
    assert!(run.node("w-0").retry.halted.is_some());
    let (findings, sent) = run.sweep(&[("w-0", 1, "m-1")]);
    assert_eq!(
        (findings.unrecorded, findings.orphans, findings.suspects),
        (1, 0, 0)
    );
    assert_eq!(ByHand::text(&sent), ["w-0 1.2 find-lease"]);
    let found = CreatedLease {
        lease: LeaseFacts::new(LeaseId::new("m-1")),
        endpoint: None,
    };
    let _ = run.answer(&sent[0], Outcome::LeaseFound(Some(found)));
    assert_eq!(ByHand::text(&run.drive()), ["w-0 1.3 lookup-endpoint"]);
}

/// G28: what is in flight. A create that is at work, or remembered, explains what is listed and what is not.
#[test]
fn what_is_being_made_or_looked_for_is_left_alone() {
    let mut run = ByHand::fresh(of(2), policy(), PaceConfig::default());
    let sent = run.drive();
    run.driver.sweep(run.now);
    let _ = run.fail(&sent[0], EffectError::ambiguous("the wire was cut"));
    run.drive();
    let before = run.driver.state().nodes.clone();
    let (findings, sent) = run.sweep(&[("w-0", 1, "m-1"), ("w-1", 2, "m-2")]);
    assert_eq!(findings.passed_over, 2);
    assert!(findings.is_as_known());
    assert!(sent.is_empty());
    assert_eq!(run.driver.state().nodes, before);
}

/// Row 5: seen twice it is an orphan, which is recorded, destroyed, and reported.
#[test]
fn a_resource_that_no_node_owns_is_an_orphan_once_it_was_seen_twice() {
    let mut run = ready(1);
    // One of an attempt that never was: its number is not given out either.
    let stray = [("w-0", 1, "m-1"), ("x-7", 9, "s-9")];
    let (findings, sent) = run.sweep(&stray);
    assert_eq!((findings.suspects, findings.orphans), (1, 0));
    assert!(sent.is_empty() && run.driver.state().orphans.is_empty());
    assert_eq!(run.driver.state().next_attempt_id, Some(NodeAttemptId::new(10)));
    assert!(run.driver.is_converged(), "it may be a list that lags");
    assert!(!run.driver.holds_nothing());
    let (findings, sent) = run.sweep(&stray);
    assert_eq!((findings.suspects, findings.orphans), (0, 1));
    assert_eq!(ByHand::text(&sent), ["x-7 9.1 destroy-lease"]);
    let (_, orphan) = run.driver.state().orphans.iter().next().unwrap();
    assert_eq!(orphan.last_seen, after(orphan.first_seen, INTERVAL));
    assert!(!run.driver.is_converged());
    let found = |kind: &EventKind| matches!(kind, EventKind::OrphanFound { surplus: false, .. });
    assert!(run.report.events.iter().any(|event| found(&event.kind)));
    let seen = |run: &ByHand| run.driver.state().orphans.values().next().unwrap().last_seen;
    let before = seen(&run);
    run.pass(1);
    run.driver.sweep(run.now);
    let (findings, _) = run.sweep(&stray);
    assert_eq!((findings.suspects, findings.orphans), (0, 1), "it is known");
    assert_eq!(seen(&run), after(before, 1));
    // Recorded operations, with backoff, until it is gone.
    let _ = run.fail(&sent[0], EffectError::definite("not now"));
    assert!(run.drive().is_empty());
    let sent = run.pass(2);
    assert_eq!(ByHand::text(&sent), ["x-7 9.2 destroy-lease"]);
    let _ = run.answer(&sent[0], Outcome::LeaseDestroyed(Destroyed::Gone));
    run.drive();
    assert!(run.driver.is_converged() && run.driver.state().orphans.is_empty());
    assert_eq!(run.retired, [NodeAttemptId::new(9)]);
}

/// Row 5: in a row, and not too soon.
#[test]
fn a_resource_that_is_not_seen_twice_in_a_row_is_no_orphan() {
    let mut run = ready(1);
    let (own, stray) = (("w-0", 1, "m-1"), ("x-7", 1, "s-1"));
    run.sweep(&[own, stray]);
    run.pass(APART - 1);
    run.driver.sweep(run.now);
    run.sweep(&[own, stray]);
    assert!(
        run.driver.state().orphans.is_empty(),
        "the second answer came too soon"
    );
    run.sweep(&[own]);
    run.sweep(&[own, stray]);
    assert!(run.driver.state().orphans.is_empty(), "the row was broken");
    run.sweep(&[own]);
    assert!(run.driver.holds_nothing() || !run.driver.state().nodes.is_empty());
    let suspects = |run: &ByHand| run.driver.summary().providers[0].suspects;
    assert_eq!(suspects(&run), 0, "what is not listed any more takes no room");
}

/// Row 5: the slot's next lease waits for the orphan, and so does a drain.
#[test]
fn the_next_lease_of_its_slot_and_a_drain_wait_for_an_orphan() {
    let mut run = ByHand::fresh(of(1), policy(), PaceConfig::default());
    let stray = [("w-0", 7, "s-7")];
    let no = || EffectError::definite("no");
    let mut sent = run.drive();
    for _ in 0..2 {
        run.driver.sweep(run.now);
        let look = run.driver.due_looks(run.now).remove(0);
        run.list(&look, &stray);
        sent.extend(run.drive());
        for _ in 0..APART {
            for effect in std::mem::take(&mut sent) {
                let create = effect.command.kind() == CommandKind::CreateLease;
                let _ = if create {
                    run.fail(&effect, no())
                } else {
                    run.fail(&effect, EffectError::ambiguous("?"))
                };
            }
            sent = run.pass(1);
        }
    }
    assert_eq!(run.driver.state().orphans.len(), 1);
    for _ in 0..100 {
        for effect in std::mem::take(&mut sent) {
            assert_eq!(
                effect.command.kind(),
                CommandKind::DestroyLease,
                "the slot waits for it"
            );
            let _ = run.fail(&effect, no());
        }
        sent = run.pass(1);
    }
    run.driver.drain(run.now);
    sent.extend(run.drive());
    assert!(run.driver.state().nodes.is_empty());
    assert!(!run.driver.is_converged() && !run.driver.holds_nothing());
    while sent.is_empty() {
        sent = run.pass(1);
    }
    assert_eq!(sent.len(), 1);
    let _ = run.succeed(&sent[0]);
    run.drive();
    assert!(run.driver.is_converged() && run.driver.holds_nothing());
}

/// What was seen once and is owned by nobody keeps a drain from being over, until the next answer tells.
#[test]
fn a_drain_waits_until_a_suspect_is_cleared() {
    let mut run = ready(1);
    run.sweep(&[("w-0", 1, "m-1"), ("x-7", 1, "s-1")]);
    run.driver.drain(run.now);
    run.succeed_all();
    assert!(run.driver.is_converged() && run.driver.state().nodes.is_empty());
    assert!(!run.driver.holds_nothing());
    run.sweep(&[]);
    assert!(run.driver.holds_nothing());
}

/// Row 6.
#[test]
fn a_second_resource_of_a_current_attempt_is_a_surplus_that_goes_with_it() {
    let mut run = ready(1);
    let two = [("w-0", 1, "m-1"), ("w-0", 1, "n-1")];
    let (findings, sent) = run.sweep(&two);
    assert_eq!(findings.orphans, 1);
    assert!(sent.is_empty(), "it may be the one that works");
    let surplus = |kind: &EventKind| matches!(kind, EventKind::OrphanFound { surplus: true, .. });
    assert!(run.report.events.iter().any(|event| surplus(&event.kind)));
    assert!(run.driver.is_converged());
    let (findings, _) = run.sweep(&two);
    assert!(findings.is_as_known(), "{findings}");
    run.driver.drain(run.now);
    let sent = run.drive();
    assert_eq!(ByHand::text(&sent), ["w-0 1.4 destroy-lease"]);
    let _ = run.succeed(&sent[0]);
    let sent = run.drive();
    assert!(!run.driver.holds_nothing(), "a drain waits for it");
    let sent = if sent.is_empty() { run.pass(1) } else { sent };
    assert_eq!(ByHand::text(&sent), ["w-0 1.5 destroy-lease"]);
    let _ = run.succeed(&sent[0]);
    run.drive();
    assert!(run.driver.is_converged() && run.driver.holds_nothing());
}

/// Row 7.
#[test]
fn what_belongs_to_another_run_is_never_touched() {
    let mut run = ready(1);
    for _ in 0..4 {
        let mut entries = all_but(&run, &[]);
        for (node, attempt) in [("w-0", 1), ("w-1", 2), ("x-9", 900)] {
            let mut foreign = run.entry((node, attempt, "f"));
            foreign.identity.run = "another".parse().unwrap();
            foreign.alive = attempt != 1;
            entries.push(foreign);
        }
        let (findings, sent) = answer(&mut run, entries);
        assert_eq!((findings.listed, findings.passed_over), (4, 3));
        assert!(findings.is_as_known() && sent.is_empty());
    }
    assert!(run.driver.is_converged());
    assert_eq!(run.driver.state().next_attempt_id, Some(NodeAttemptId::new(2)));
}

/// G15, G28: an ambiguous create whose machine becomes visible late is one machine, whatever is answered and
/// whatever the shape does meanwhile.
#[test]
fn an_ambiguous_create_that_shows_up_late_leaves_no_machine_behind() {
    /// What comes of the command after the create.
    enum Next {
        Answer,
        Refusal,
        Failure(EffectError),
    }
    let answers: [fn() -> Next; 5] = [
        || Next::Answer,
        || Next::Refusal,
        || Next::Failure(EffectError::throttled("slow down", None)),
        || Next::Failure(EffectError::definite("no")),
        || Next::Failure(EffectError::ambiguous("no answer")),
    ];
    for (case, next) in answers.into_iter().enumerate() {
        for dropped in [false, true] {
            let mut run = ByHand::fresh(of(1), policy(), PaceConfig::default());
            let sent = run.drive();
            let _ = run.fail(&sent[0], EffectError::ambiguous("the wire was cut"));
            // It is there from the fifth second on, and the visibility is ten.
            let visible = after(run.now, 5);
            let mut machine = true;
            if dropped {
                run.driver.drain(run.now);
            }
            let (mut next, mut creates) = (Some(next()), 0);
            for _ in 0..60 {
                let sent = run.pass(1);
                let look = run.driver.due_looks(run.now);
                for look in look {
                    let here = machine && run.now >= visible;
                    let listed: &[_] = if here { &[("w-0", 1, "m-1")] } else { &[] };
                    run.list(&look, listed);
                }
                run.driver.sweep(run.now);
                for effect in sent {
                    match next.take() {
                        Some(Next::Failure(error)) => {
                            let _ = run.fail(&effect, error);
                            continue;
                        }
                        Some(Next::Refusal) => {
                            let operation = effect.operation;
                            let reason = "the executor is restarting".into();
                            let refused = Observation::Refused { operation, reason };
                            let _ = run.observe(&effect.node, operation.attempt, &refused);
                            continue;
                        }
                        Some(Next::Answer) | None => {}
                    }
                    match effect.command.kind() {
                        CommandKind::FindLease => {
                            let here = machine && run.now >= visible;
                            let mut found = LeaseFacts::new(LeaseId::new("m-1"));
                            found.template = Some(template("alpha", "one").digest());
                            let found = here.then_some(CreatedLease {
                                lease: found,
                                endpoint: None,
                            });
                            let _ = run.answer(&effect, Outcome::LeaseFound(found));
                        }
                        CommandKind::DestroyLease => {
                            machine = false;
                            let _ = run.succeed(&effect);
                        }
                        CommandKind::CreateLease => {
                            creates += 1;
                            let _ = run.succeed(&effect);
                        }
                        _ => drop(run.succeed(&effect)),
                    }
                }
            }
            run.drive();
            assert_eq!(creates, 0, "case {case}: one machine ever");
            assert_eq!(machine, !dropped, "case {case}");
            assert!(run.driver.is_converged(), "case {case}: {:?}", run.driver.state());
            assert!(run.driver.state().orphans.is_empty(), "case {case}");
        }
    }
}
