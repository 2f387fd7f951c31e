//! Sweeps: what is there, compared with what is known, by hand.

use std::time::Duration;

use jiff::Timestamp;
use nodewright_conformance::{ByHand, group, policy, shape, template};
use nodewright_core::driver::Findings;
use nodewright_core::effect::{CommandKind, Destroyed, EffectError, InventoryEntry, Outcome, PlannedEffect};
use nodewright_core::event::EventKind;
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::NodeAttemptId;
use nodewright_core::node::Stage;
use nodewright_core::observation::Observation;
use nodewright_core::pace::PaceConfig;
use nodewright_core::shape::ClusterShape;

/// The interval of sweeps, and by how much two must be apart whose answers count as two.
const INTERVAL: u64 = 60;
const APART: u64 = 30;

fn of(count: u32) -> ClusterShape {
    shape(1, vec![group("w", count, template("alpha", "one"))])
}

/// A run whose nodes are all ready; slot `w-i` holds `m-(i+1)` of attempt `i+1`.
fn ready(count: u32) -> ByHand {
    let mut run = ByHand::fresh(of(count), policy(), PaceConfig::default());
    run.succeed_all();
    assert!(run.driver.is_converged());
    assert!(
        run.driver.due_looks(run.now).is_empty(),
        "the first sweep comes an interval later"
    );
    run
}

/// What an honest answer lists of such a run: all but these slots.
fn all_but(run: &ByHand, missing: &[u32]) -> Vec<InventoryEntry> {
    let nodes = run.driver.state().nodes.iter();
    let held = nodes.filter_map(|(id, node)| Some((id, node.attempt, node.lease.as_ref()?.id.clone())));
    let held = held.filter(|(id, _, _)| !missing.contains(&id.index));
    held.map(|(id, attempt, lease)| run.entry((&id.to_string(), attempt.number(), lease.as_str())))
        .collect()
}

/// The next sweep, answered with these.
fn answer(run: &mut ByHand, entries: Vec<InventoryEntry>) -> (Findings, Vec<PlannedEffect>) {
    let look = run.due_sweep();
    let findings = run.answer_look(&look, run.now, Ok(entries));
    (findings, run.drive())
}

/// A sweep that somebody asked for, so many seconds later.
fn on_demand(run: &mut ByHand, seconds: u64, missing: &[u32]) -> Findings {
    assert!(run.pass(seconds).is_empty());
    run.driver.sweep(run.now);
    let entries = all_but(run, missing);
    answer(run, entries).0
}

fn lost(run: &ByHand) -> Vec<String> {
    let failed = run.driver.state().nodes.iter();
    let failed = failed.filter(|(_, node)| node.failure.is_some());
    failed.map(|(id, _)| id.to_string()).collect()
}

fn after(start: Timestamp, seconds: u64) -> Timestamp {
    start.checked_add(Duration::from_secs(seconds)).unwrap()
}

/// G27: row 1.
#[test]
fn a_machine_that_is_listed_as_dead_is_lost_at_once_and_replaced() {
    let mut run = ready(2);
    let mut entries = all_but(&run, &[]);
    entries[1].alive = false;
    let (findings, sent) = answer(&mut run, entries);
    assert_eq!((findings.lost, findings.listed), (1, 2));
    assert_eq!(lost(&run), ["w-1"]);
    assert_eq!(ByHand::text(&sent), ["w-1 2.4 destroy-lease"]);
    let _ = run.succeed(&sent[0]);
    run.pass(2);
    assert_eq!(run.node("w-1").attempt, NodeAttemptId::new(3));
}

/// G27: row 2. Two answers count as two when their questions are half an interval apart.
#[test]
fn a_machine_that_is_missing_twice_in_a_row_is_lost() {
    let mut run = ready(10);
    let first = on_demand(&mut run, 5, &[4]);
    assert_eq!((first.lost, first.missing, first.held), (0, 1, false));
    let soon = on_demand(&mut run, APART - 1, &[4]);
    assert_eq!(
        (soon.lost, soon.missing),
        (0, 1),
        "it is too soon to count as a second answer"
    );
    let second = on_demand(&mut run, 1, &[4]);
    assert_eq!((second.lost, second.missing), (1, 0));
    assert_eq!(lost(&run), ["w-4"]);
}

/// Row 2: in a row.
#[test]
fn a_machine_that_is_listed_in_between_begins_a_new_row() {
    let mut run = ready(10);
    on_demand(&mut run, 5, &[4]);
    on_demand(&mut run, 20, &[]);
    let third = on_demand(&mut run, 20, &[4]);
    assert_eq!((third.lost, third.missing), (0, 1));
    assert!(lost(&run).is_empty());
}

/// G28: what a lagging list has not shown yet. The visibility may be longer than half an interval.
#[test]
fn what_a_list_may_not_show_yet_is_not_missing() {
    let mut setup = ByHand::setup(PaceConfig::default(), true);
    setup.capabilities.visibility = Duration::from_secs(100);
    let mut run = ByHand::with(of(10), policy(), [("alpha", setup)]);
    run.succeed_all();
    on_demand(&mut run, 1, &[0]);
    on_demand(&mut run, 50, &[0]);
    on_demand(&mut run, 49, &[0]);
    assert!(lost(&run).is_empty());
    on_demand(&mut run, 1, &[0]);
    assert_eq!(lost(&run), ["w-0"]);
}

/// G28: an answer is judged against the state as it was when it was asked for.
#[test]
fn what_is_newer_than_the_question_is_not_judged() {
    let mut run = ready(2);
    let look = run.due_sweep();
    // While it is under way one machine is replaced, and another slot is filled.
    run.driver.replace(&"w-1".parse().unwrap());
    let mut next = of(3);
    next.generation.0 = 2;
    run.driver.update_desired(next, run.now).unwrap();
    run.succeed_all();
    run.pass(1);
    run.succeed_all();
    assert!(run.driver.is_converged());
    let asked_at = after(run.now, 0);
    let old = vec![run.entry(("w-0", 1, "m-1")), run.entry(("w-1", 2, "m-2"))];
    let findings = run.answer_look(&look, asked_at, Ok(old.clone()));
    assert_eq!(
        (findings.missing, findings.suspects, findings.passed_over),
        (0, 0, 1)
    );
    assert!(run.drive().is_empty());
    // The same answer to a later question is believed.
    let (findings, _) = answer(&mut run, old);
    assert_eq!(
        (findings.missing, findings.suspects, findings.passed_over),
        (2, 1, 0)
    );
}

/// G28: a lease that is newer than the question is not judged by what the answer says of it.
#[test]
fn what_is_said_of_a_lease_that_is_newer_than_the_question_does_not_count() {
    let mut run = ByHand::fresh(of(1), policy(), PaceConfig::default());
    let sent = run.drive();
    run.driver.sweep(run.now);
    let look = run.due_sweep();
    let _ = run.succeed(&sent[0]);
    run.drive();
    let mut entries = all_but(&run, &[]);
    entries[0].alive = false;
    let findings = run.answer_look(&look, run.now, Ok(entries.clone()));
    assert_eq!((findings.lost, findings.passed_over), (0, 1));
    run.drive();
    let (findings, _) = answer(&mut run, entries);
    assert_eq!((findings.lost, findings.passed_over), (1, 0));
}

/// Row 2: an answer that is too old to be judged shows all the same that the machine was there.
#[test]
fn a_machine_that_is_listed_in_between_begins_a_new_row_whatever_is_newer_than_the_question() {
    let mut run = ByHand::fresh(of(1), policy(), PaceConfig::default());
    let create = run.drive().remove(0);
    let created = CreatedLease {
        lease: LeaseFacts::new(LeaseId::new("m-1")),
        endpoint: None,
    };
    let _ = run.answer(&create, Outcome::LeaseCreated(created));
    let look_up = run.drive().remove(0);
    assert_eq!(on_demand(&mut run, 1, &[0]).missing, 1);
    run.driver.sweep(run.now);
    let look = run.due_sweep();
    let _ = run.succeed(&look_up);
    run.drive();
    let entries = all_but(&run, &[]);
    let findings = run.answer_look(&look, run.now, Ok(entries));
    assert_eq!((findings.missing, findings.passed_over), (0, 1));
    run.succeed_all();
    let third = on_demand(&mut run, APART, &[0]);
    assert_eq!((third.lost, third.missing), (0, 1));
    assert!(lost(&run).is_empty());
}

/// The safety net under all events.
#[test]
fn every_answered_sweep_has_all_slots_looked_at_again() {
    let mut run = ready(3);
    assert!(run.pass(1).is_empty() && run.report.touched.is_empty());
    let entries = all_but(&run, &[]);
    answer(&mut run, entries);
    assert_eq!(run.report.touched.len(), 3);
}

/// Row 3.
#[test]
fn a_machine_that_moved_is_known_where_it_is_and_fails_unless_its_agent_joined() {
    let mut run = ready(1);
    let mut next = of(2);
    next.generation.0 = 2;
    run.driver.update_desired(next, run.now).unwrap();
    run.drive();
    let sent = run.drive();
    assert!(sent.is_empty());
    let create = run.sent.last().unwrap().clone();
    let _ = run.succeed(&create);
    run.drive();
    assert_eq!(run.node("w-1").stage, Stage::EndpointKnown);
    let elsewhere = Endpoint {
        host: "elsewhere".into(),
        port: Some(22),
    };
    let mut entries = all_but(&run, &[]);
    for entry in &mut entries {
        entry.endpoint = Some(elsewhere.clone());
    }
    let (findings, _) = answer(&mut run, entries);
    assert_eq!((findings.moved, findings.lost), (2, 0));
    assert_eq!(run.node("w-0").endpoint.as_ref(), Some(&elsewhere));
    assert!(run.node("w-0").ready);
    assert_eq!(lost(&run), ["w-1"]);
    let moved = |kind: &EventKind| matches!(kind, EventKind::MachineMoved { .. });
    assert_eq!(
        run.report
            .events
            .iter()
            .filter(|event| moved(&event.kind))
            .count(),
        2
    );
}

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

/// The brake: one answer, or five minutes of them, that list nothing burn nobody down.
#[test]
fn an_api_that_answers_empty_for_a_while_loses_nobody() {
    let mut run = ready(10);
    let (findings, sent) = answer(&mut run, vec![]);
    assert_eq!((findings.missing, findings.held), (10, true));
    assert!(sent.is_empty());
    assert!(run.driver.summary().providers[0].mass_loss_since.is_some());
    for _ in 0..2 {
        answer(&mut run, vec![]);
    }
    let entries = all_but(&run, &[]);
    let (findings, _) = answer(&mut run, entries);
    assert!(findings.is_as_known());
    assert!(lost(&run).is_empty() && run.driver.is_converged());
    assert_eq!(run.driver.summary().providers[0].mass_loss_since, None);
}

/// The brake: what is missing in every answer for longer than the hold is believed.
#[test]
fn a_mass_loss_is_believed_once_the_same_leases_were_missing_for_long_enough() {
    let mut run = ready(10);
    let hold = policy().mass_loss_hold.as_secs();
    let begun = after(run.now, INTERVAL);
    while run.now < after(begun, hold) {
        assert!(lost(&run).is_empty(), "{} after {begun}", run.now);
        answer(&mut run, vec![]);
    }
    assert_eq!(lost(&run).len(), 10);
}

/// The brake: all must miss the same.
#[test]
fn answers_that_each_miss_others_lose_nobody() {
    let mut run = ready(10);
    for round in 0..10 {
        let missing: Vec<u32> = (0..10).filter(|slot| (slot + round) % 3 != 0).collect();
        let entries = all_but(&run, &missing);
        let (findings, _) = answer(&mut run, entries);
        assert!(findings.held);
    }
    assert!(lost(&run).is_empty());
}

/// The brake holds from three on, and only above the share.
#[test]
fn two_of_two_and_half_of_ten_are_lost_and_six_of_ten_are_held() {
    let mut run = ready(2);
    answer(&mut run, vec![]);
    answer(&mut run, vec![]);
    assert_eq!(lost(&run).len(), 2);
    for (missing, expected) in [(5, 5), (6, 0)] {
        let mut run = ready(10);
        for _ in 0..2 {
            let missing: Vec<u32> = (0..missing).collect();
            let entries = all_but(&run, &missing);
            answer(&mut run, entries);
        }
        assert_eq!(lost(&run).len(), expected, "{missing} of ten");
    }
}

/// The brake: what was missed in an outage is missed anew once that is over.
#[test]
fn an_outage_that_ends_little_by_little_loses_nobody() {
    let mut run = ready(10);
    answer(&mut run, vec![]);
    answer(&mut run, vec![]);
    let entries = all_but(&run, &[0, 1, 2]);
    let (findings, _) = answer(&mut run, entries);
    assert_eq!((findings.missing, findings.held), (3, false));
    assert!(lost(&run).is_empty());
    let entries = all_but(&run, &[2]);
    answer(&mut run, entries);
    assert_eq!(lost(&run), ["w-2"]);
}

/// What goes by itself is not missing, and does not count.
#[test]
fn what_is_being_taken_down_is_neither_missing_nor_known() {
    let mut run = ready(4);
    let mut next = of(1);
    next.generation.0 = 2;
    run.driver.update_desired(next, run.now).unwrap();
    assert_eq!(run.drive().len(), 3);
    let (findings, _) = run.sweep(&[("w-0", 1, "m-1")]);
    assert_eq!((findings.missing, findings.held), (0, false));
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

/// The group of a slot that reached the attempt limit is named.
#[test]
fn a_group_with_halted_slots_is_reported_as_degraded() {
    let mut limited = policy();
    limited.attempt_limit = std::num::NonZeroU32::new(1);
    let both = shape(
        1,
        vec![
            group("a", 1, template("alpha", "one")),
            group("b", 2, template("alpha", "one")),
        ],
    );
    let mut run = ByHand::fresh(both, limited, PaceConfig::default());
    run.succeed_all();
    assert!(run.driver.summary().degraded.is_empty());
    let entries: Vec<_> = all_but(&run, &[1]);
    let dead: Vec<_> = entries
        .into_iter()
        .filter(|entry| entry.identity.node.group.as_str() == "b")
        .map(|mut entry| {
            entry.alive = false;
            entry
        })
        .chain([run.entry(("a-0", 1, "m-1")), run.entry(("b-1", 3, "m-3"))])
        .collect();
    run.driver.due_looks(run.now);
    answer(&mut run, dead);
    run.succeed_all();
    let degraded = run.driver.summary().degraded;
    assert_eq!(degraded.len(), 1);
    assert_eq!((degraded[0].group.as_str(), degraded[0].halted), ("b", 1));
    run.driver.retry(&"b-0".parse().unwrap());
    assert!(run.driver.summary().degraded.is_empty());
}
