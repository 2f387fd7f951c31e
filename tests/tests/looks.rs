//! The first look: what a run already has at its providers.

use std::time::Duration;

use jiff::Timestamp;
use nodewright_conformance::{ByHand, group, policy, shape, template};
use nodewright_core::effect::{EffectError, Outcome};
use nodewright_core::facts::{CreatedLease, LeaseFacts, LeaseId};
use nodewright_core::id::{NodeAttemptId, ProviderKind};
use nodewright_core::node::Intent;
use nodewright_core::observation::Folded;
use nodewright_core::pace::PaceConfig;
use nodewright_core::shape::ClusterShape;

fn two() -> ClusterShape {
    shape(1, vec![group("w", 2, template("alpha", "one"))])
}

fn unlooked(shape: ClusterShape) -> ByHand {
    let setup = ByHand::setup(PaceConfig::default(), false);
    ByHand::with(shape, policy(), [("alpha", setup)])
}

fn alpha() -> ProviderKind {
    "alpha".parse().unwrap()
}

/// G32, G4: what is found is ended before its slot is filled anew, and no attempt is used twice.
#[test]
fn of_several_machines_of_a_slot_the_highest_attempt_is_the_node_and_all_are_ended_first() {
    let mut run = unlooked(two());
    assert!(run.drive().is_empty());
    let look = run.look();
    let findings = run.list(
        &look,
        &[
            ("w-0", 3, "m-3"),
            ("w-0", 7, "m-7"),
            ("w-0", 5, "m-5"),
            ("x-9", 2, "m-2"),
        ],
    );
    assert_eq!((findings.found, findings.orphans), (2, 2));
    assert_eq!(run.node("w-0").attempt, NodeAttemptId::new(7));
    assert_eq!(run.node("w-0").intent, Intent::Deleting);
    // They are ended at once; nothing new is made.
    let sent = run.drive();
    assert_eq!(
        ByHand::text(&sent),
        [
            "w-0 7.1 destroy-lease",
            "w-0 3.1 destroy-lease",
            "w-0 5.1 destroy-lease",
            "x-9 2.1 destroy-lease"
        ]
        .map(ToOwned::to_owned)
        .to_vec(),
    );
    let node = sent
        .iter()
        .find(|effect| effect.operation.attempt.number() == 7)
        .unwrap()
        .clone();
    let orphans: Vec<_> = sent.into_iter().filter(|effect| *effect != node).collect();
    let _ = run.succeed(&node);
    let _ = run.succeed(&orphans[0]);
    let _ = run.succeed(&orphans[2]);
    assert!(run.drive().is_empty());
    run.now = run.now.checked_add(Duration::from_secs(10)).unwrap();
    let look = run.look();
    let _ = run.list(&look, &[("w-0", 5, "m-5")]);
    // The look is done; the slot whose orphan still lives waits for that, the other does not.
    assert_eq!(ByHand::text(&run.drive()), ["w-1 9.1 create-lease"]);
    assert_eq!(run.node("w-0").attempt, NodeAttemptId::new(8));
    let _ = run.succeed(&orphans[1]);
    assert_eq!(ByHand::text(&run.drive()), ["w-0 8.1 create-lease"]);
    assert!(run.driver.state().orphans.is_empty());
}

/// Chapter 8: a create of the process before may still come through.
#[test]
fn a_look_is_done_only_when_it_was_asked_again_after_the_visibility() {
    let mut run = unlooked(two());
    run.drive();
    let look = run.look();
    assert!(run.driver.due_looks(run.now).is_empty(), "it is asked already");
    let _ = run.list(&look, &[]);
    assert!(run.drive().is_empty());
    assert_eq!(
        run.driver.requeue_at(),
        run.now.checked_add(Duration::from_secs(10)).ok()
    );
    assert!(run.pass(9).is_empty());
    assert!(run.driver.due_looks(run.now).is_empty());
    assert!(run.pass(1).is_empty());
    let look = run.look();
    // The late create shows up now, and is ended before its slot is filled.
    let _ = run.list(&look, &[("w-0", 4, "m-4")]);
    assert_eq!(
        ByHand::text(&run.drive()),
        ["w-0 4.1 destroy-lease", "w-1 5.1 create-lease"]
    );
}

/// Chapter 8: a silent provider holds everything back, at all providers, and is named.
#[test]
fn a_failing_look_holds_everything_back_and_is_named_and_asked_again_with_backoff() {
    let beta = ByHand::setup(PaceConfig::default(), true);
    let setup = ByHand::setup(PaceConfig::default(), false);
    let both = shape(
        1,
        vec![
            group("a", 1, template("alpha", "one")),
            group("b", 1, template("beta", "one")),
        ],
    );
    let mut run = ByHand::with(both, policy(), [("alpha", setup), ("beta", beta)]);
    for failures in 1..=5 {
        assert!(run.drive().is_empty());
        let look = run.look();
        let error = Err(EffectError::throttled("not now", None));
        let _ = run
            .driver
            .inventory(&look.provider, look.asked, run.now, error, run.now);
        assert!(run.drive().is_empty());
        assert_eq!(run.driver.summary().unlooked, [alpha()]);
        assert!(!run.driver.is_converged());
        let next = run.driver.requeue_at().expect("it is asked again");
        let waits = next.duration_since(run.now).as_secs_f64();
        let least = f64::from(1 << (failures - 1));
        assert!(
            waits >= least && waits <= least * 1.1,
            "{waits} after {failures} failures"
        );
        run.now = next;
    }
    run.drive();
    run.driver.declare_fresh(&alpha());
    assert_eq!(
        ByHand::text(&run.drive()),
        ["a-0 1.1 create-lease", "b-0 2.1 create-lease"]
    );
    assert!(run.driver.summary().unlooked.is_empty());
}

/// Chapter 3: a provider that says how long to wait is waited for, and is asked less.
#[test]
fn a_throttled_first_look_waits_for_as_long_as_the_provider_asked_for() {
    let mut run = unlooked(two());
    run.drive();
    let look = run.look();
    let error = EffectError::throttled("slow down", Some(Duration::from_secs(50)));
    let _ = run.answer_look(&look, run.now, Err(error));
    assert!(run.drive().is_empty());
    assert_eq!(
        run.driver.requeue_at(),
        run.now.checked_add(Duration::from_secs(50)).ok()
    );
    assert_eq!(run.driver.summary().providers[0].places, 32);
}

/// Chapter 5: nothing is sent to a provider that said to slow down, the question that ends a first look neither.
#[test]
fn a_provider_that_said_to_slow_down_is_not_looked_at_before_its_time() {
    let mut run = unlooked(two());
    run.drive();
    let look = run.look();
    let _ = run.list(&look, &[("w-0", 3, "m-3")]);
    let sent = run.drive();
    let slow_down = EffectError::throttled("slow down", Some(Duration::from_secs(50)));
    let _ = run.fail(&sent[0], slow_down);
    run.drive();
    let until = run.now.checked_add(Duration::from_secs(50)).ok();
    run.now = run.now.checked_add(Duration::from_secs(49)).unwrap();
    assert!(run.driver.due_looks(run.now).is_empty());
    run.drive();
    assert_eq!(run.driver.requeue_at(), until);
    run.pass(1);
    run.look();
}

/// G19: at the end of time there is no moment at which to ask again.
#[test]
fn a_look_that_fails_at_the_end_of_time_is_not_asked_again_for_ever() {
    let mut run = unlooked(two());
    run.now = Timestamp::MAX;
    run.drive();
    let look = run.look();
    let _ = run.answer_look(&look, run.now, Err(EffectError::definite("no")));
    run.drive();
    assert!(run.driver.due_looks(run.now).is_empty());
}

/// G9, G10: a resource has one owner. What is an orphan is not taken in once its slot is empty, for then two
/// rows of operations would act for one attempt.
#[test]
fn a_listed_orphan_of_an_empty_slot_stays_an_orphan() {
    let mut run = unlooked(shape(1, vec![group("w", 0, template("alpha", "one"))]));
    run.drive();
    let look = run.look();
    let _ = run.list(&look, &[("w-0", 3, "m-3"), ("w-0", 3, "n-3")]);
    assert_eq!(run.driver.state().orphans.len(), 1);
    let sent = run.drive();
    assert_eq!(
        ByHand::text(&sent),
        ["w-0 3.1 destroy-lease"],
        "the surplus waits for its attempt's end"
    );
    let _ = run.succeed(&sent[0]);
    let sent = run.drive();
    assert_eq!(ByHand::text(&sent), ["w-0 3.2 destroy-lease"]);
    assert!(run.driver.state().nodes.is_empty());
    run.pass(10);
    let look = run.look();
    let findings = run.list(&look, &[("w-0", 3, "n-3")]);
    assert_eq!((findings.found, findings.orphans), (0, 1));
    assert!(run.drive().is_empty());
    let _ = run.succeed(&sent[0]);
    assert!(run.driver.state().nodes.is_empty());
}

/// Chapter 8's table: a resource of a current attempt that records no lease is settled by row 7.
#[test]
fn a_resource_of_a_restored_attempt_that_records_no_lease_is_remembered_and_adopted() {
    let mut run = ByHand::fresh(two(), policy(), PaceConfig::default());
    let setup = ByHand::setup(PaceConfig::default(), false);
    let sent = run.drive();
    // The create failed for all that the state knows.
    let _ = run.fail(&sent[0], EffectError::definite("it said no"));
    let _ = run.succeed(&sent[1]);
    let state = run.driver.state().clone();
    let mut run = ByHand::restored(state, two(), policy(), [("alpha", setup)], run.now);
    run.drive();
    let look = run.look();
    let _ = run.list(&look, &[("w-0", 1, "m-1"), ("w-1", 2, "m-2")]);
    assert!(
        run.driver.state().orphans.is_empty(),
        "{:?}",
        run.driver.state().orphans
    );
    let sent = run.pass(2);
    assert_eq!(ByHand::text(&sent), ["w-0 1.2 find-lease"]);
    let lease = LeaseFacts::new(LeaseId::new("m-1"));
    let found = CreatedLease {
        lease,
        endpoint: None,
    };
    assert_eq!(
        run.answer(&sent[0], Outcome::LeaseFound(Some(found))),
        Folded::Applied
    );
    assert_eq!(ByHand::text(&run.drive()), ["w-0 1.3 lookup-endpoint"]);
}

/// Chapter 1, G9: orphans of one attempt share one sequence and take turns.
#[test]
fn orphans_of_one_attempt_take_turns() {
    let mut run = unlooked(shape(1, vec![group("w", 0, template("alpha", "one"))]));
    run.drive();
    let look = run.look();
    let _ = run.list(
        &look,
        &[
            ("w-0", 3, "m-3"),
            ("w-0", 3, "n-3"),
            ("w-0", 3, "o-3"),
            ("w-0", 3, "p-3"),
        ],
    );
    let mut sent = run.drive();
    let mut all = Vec::new();
    while !sent.is_empty() {
        assert_eq!(sent.len(), 1, "{:?}", ByHand::text(&sent));
        all.extend(ByHand::text(&sent));
        // The first of the orphans is not gone at once, and another one may take its turn meanwhile.
        let _ = if all.len() == 2 {
            run.fail(&sent[0], EffectError::definite("it said no"))
        } else {
            run.succeed(&sent[0])
        };
        sent = run.drive();
        if sent.is_empty() {
            sent = run.pass(2);
        }
    }
    let operations = [1, 2, 3, 4, 5].map(|sequence| format!("w-0 3.{sequence} destroy-lease"));
    assert_eq!(all, operations);
    assert_eq!(run.retired, [NodeAttemptId::new(3)]);
    assert!(run.driver.state().orphans.is_empty() && run.driver.state().nodes.is_empty());
}
