//! A group starts once what it depends on is there.

use std::collections::BTreeSet;

use nodewright_conformance::{ByHand, policy};
use nodewright_core::decide::WaitReason;
use nodewright_core::effect::EffectError;
use nodewright_core::pace::PaceConfig;

use super::{CHAIN, Group, converged, lose, names, run, said, sends, update, waits, wanted, waves};

#[test]
fn groups_start_once_all_that_they_depend_on_directly_or_not_is_available() {
    let mut run = run(&[("db", 2, &[]), ("api", 1, &["db"]), ("web", 1, &["api"])]);
    let sent = sends(&mut run, &["db-0 create-lease", "db-1 create-lease"]);
    let _ = run.succeed(&sent[0]);
    let start = sends(&mut run, &["db-0 start-bootstrap"]);
    let _ = run.succeed(&start[0]);
    let observe = sends(&mut run, &["db-0 observe-convergence"]);
    let _ = run.succeed(&observe[0]);
    // One of two is not enough.
    sends(&mut run, &[]);
    assert_eq!(
        names(&waits(&run, "web-0", WaitReason::Dependencies)),
        ["api", "db"]
    );
    let _ = run.succeed(&sent[1]);
    assert_eq!(waves(&mut run), ["create-lease api-0", "create-lease web-0"]);
    assert!(run.driver.is_converged());
}

#[test]
fn a_group_waits_for_what_its_dependencies_depend_on_though_these_are_up() {
    let mut run = converged(&[("db", 1, &[]), ("api", 1, &["db"]), ("web", 0, &["api"])]);
    lose(&mut run, "db-0");
    update(&mut run, 2, &CHAIN);
    sends(&mut run, &["db-0 destroy-lease"]);
    assert_eq!(names(&waits(&run, "web-0", WaitReason::Dependencies)), ["db"]);
}

#[test]
fn a_group_of_no_nodes_is_available() {
    let mut run = run(&[("db", 0, &[]), ("api", 1, &["db"])]);
    sends(&mut run, &["api-0 create-lease"]);
}

#[test]
fn groups_that_do_not_depend_on_each_other_advance_in_parallel() {
    let groups: [Group<'_>; 5] = [
        ("a", 1, &[]),
        ("a-user", 1, &["a"]),
        ("b", 1, &[]),
        ("b-user", 1, &["b"]),
        ("c", 1, &[]),
    ];
    let mut run = run(&groups);
    let sent = sends(
        &mut run,
        &["a-0 create-lease", "b-0 create-lease", "c-0 create-lease"],
    );
    // What one waits for holds back no other.
    let _ = run.succeed(&sent[1]);
    assert_eq!(waves(&mut run), ["create-lease b-user-0"]);
    for effect in [&sent[0], &sent[2]] {
        let _ = run.succeed(effect);
    }
    run.succeed_all();
    update(&mut run, 2, &[]);
    let sent = sends(
        &mut run,
        &[
            "a-user-0 destroy-lease",
            "b-user-0 destroy-lease",
            "c-0 destroy-lease",
        ],
    );
    let _ = run.succeed(&sent[0]);
    sends(&mut run, &["a-0 destroy-lease"]);
}

#[test]
fn what_is_already_leased_goes_on_whatever_happens_below_it() {
    let mut run = converged(&[("db", 1, &[]), ("api", 0, &["db"])]);
    update(&mut run, 2, &[("db", 1, &[]), ("api", 2, &["db"])]);
    let sent = sends(&mut run, &["api-0 create-lease", "api-1 create-lease"]);
    let _ = run.succeed(&sent[0]);
    let _ = run.fail(&sent[1], EffectError::definite("no"));
    lose(&mut run, "db-0");
    let sent = sends(&mut run, &["api-0 start-bootstrap", "db-0 destroy-lease"]);
    let _ = run.succeed(&sent[0]);
    sends(&mut run, &["api-0 observe-convergence"]);
    // The other has no lease: it may be tried again, and waits for the group.
    assert_eq!(said(&run.pass(60)), [""; 0]);
    assert_eq!(names(&waits(&run, "api-1", WaitReason::Dependencies)), ["db"]);
}

/// The gate is asked at the moment of the lease, not when the wait for it began.
#[test]
fn a_gate_that_shuts_is_noticed_by_those_that_wait_for_a_place_or_a_moment() {
    let one_at_a_time = PaceConfig {
        max_in_flight: 1.try_into().unwrap(),
        rate: None,
    };
    let shape = wanted(1, &[("db", 1, &[]), ("api", 3, &["db"])]);
    let mut run = ByHand::fresh(shape, policy(), one_at_a_time);
    for kind in ["create-lease", "start-bootstrap", "observe-convergence"] {
        let sent = sends(&mut run, &[&format!("db-0 {kind}")]);
        let _ = run.succeed(&sent[0]);
    }
    let sent = sends(&mut run, &["api-0 create-lease"]);
    lose(&mut run, "db-0");
    // It keeps the place until it is answered; the two that queue for one leave the queue.
    sends(&mut run, &[]);
    assert_eq!(run.driver.summary().waiting, 1, "the cleanup alone");
    let _ = run.fail(&sent[0], EffectError::definite("no"));
    assert_eq!(waves(&mut run), ["destroy-lease db-0"]);
    while !run.driver.is_converged() {
        run.now = run.driver.requeue_at().expect("what failed is tried again");
        run.succeed_all();
    }
}

#[test]
fn a_dependency_that_is_lost_is_replaced_without_its_dependents_and_one_that_starts_just_then_waits() {
    let mut run = converged(&[("db", 1, &[]), ("api", 1, &["db"])]);
    let api = run.node("api-0").clone();
    lose(&mut run, "db-0");
    update(&mut run, 2, &[("db", 1, &[]), ("api", 2, &["db"])]);
    assert_eq!(waves(&mut run), ["destroy-lease db-0"]);
    assert_eq!(names(&waits(&run, "api-1", WaitReason::Dependencies)), ["db"]);
    run.now = run.driver.requeue_at().expect("the restart");
    assert_eq!(waves(&mut run), ["create-lease db-0", "create-lease api-1"]);
    assert_eq!(*run.node("api-0"), api);
}

#[test]
fn a_group_that_gains_a_dependency_holds_back_what_it_was_about_to_start() {
    let mut run = run(&[("api", 1, &[])]);
    let create = sends(&mut run, &["api-0 create-lease"]);
    let _ = run.fail(&create[0], EffectError::definite("no"));
    sends(&mut run, &[]);
    update(&mut run, 2, &[("db", 1, &[]), ("api", 1, &["db"])]);
    sends(&mut run, &["db-0 create-lease"]);
    assert_eq!(said(&run.pass(60)), [""; 0]);
    assert_eq!(names(&waits(&run, "api-0", WaitReason::Dependencies)), ["db"]);
    // And one that loses it goes on at once.
    update(&mut run, 3, &[("db", 1, &[]), ("api", 1, &[])]);
    sends(&mut run, &["api-0 create-lease"]);
}

/// Chapter 7: a gate that opens wakes exactly the slots that waited for it.
#[test]
fn a_gate_that_moves_wakes_those_that_stand_at_it_and_nobody_else() {
    let mut run = converged(&[("db", 1, &[]), ("api", 40, &["db"]), ("web", 40, &["api"])]);
    let touched =
        |run: &ByHand| -> BTreeSet<String> { run.report.touched.iter().map(ToString::to_string).collect() };
    lose(&mut run, "db-0");
    assert_eq!(waves(&mut run), ["destroy-lease db-0"]);
    update(
        &mut run,
        2,
        &[("db", 1, &[]), ("api", 41, &["db"]), ("web", 40, &["api"])],
    );
    run.drive();
    assert_eq!(touched(&run), ["api-40".to_owned()].into());
    run.now = run.driver.requeue_at().expect("the restart");
    let mut sent = run.drive();
    while sent[0].node.to_string() == "db-0" {
        assert_eq!(touched(&run), ["db-0".to_owned()].into());
        let _ = run.succeed(&sent[0]);
        sent = run.drive();
    }
    assert_eq!(said(&sent), ["api-40 create-lease"]);
    assert_eq!(touched(&run), ["api-40", "db-0"].map(String::from).into());
    // And backwards: what is held is woken by the last that held it.
    let _ = run.succeed(&sent[0]);
    run.succeed_all();
    update(
        &mut run,
        3,
        &[("db", 0, &[]), ("api", 40, &["db"]), ("web", 40, &["api"])],
    );
    assert_eq!(said(&run.drive()), ["api-40 destroy-lease"]);
    let destroy = run.sent.last().expect("it was sent").clone();
    let _ = run.succeed(&destroy);
    assert_eq!(said(&run.drive()), ["db-0 destroy-lease"]);
    assert_eq!(touched(&run), ["api-40", "db-0"].map(String::from).into());
}
