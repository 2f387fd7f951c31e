//! Known leases: dead, missing, moved, and what is too new to be judged.

use std::time::Duration;

use nodewright_conformance::{ByHand, group, policy, shape, template};
use nodewright_core::effect::Outcome;
use nodewright_core::event::EventKind;
use nodewright_core::facts::{CreatedLease, Endpoint, LeaseFacts, LeaseId};
use nodewright_core::id::NodeAttemptId;
use nodewright_core::node::Stage;
use nodewright_core::pace::PaceConfig;

use super::{APART, after, all_but, answer, lost, of, on_demand, ready};

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
