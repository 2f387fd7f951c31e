//! A group goes once what depends on it is gone.

use nodewright_conformance::{ByHand, policy, template};
use nodewright_core::effect::EffectError;
use nodewright_core::node::Intent;
use nodewright_core::pace::PaceConfig;

use super::{converged, lose, sends, update, wanted, waves};

#[test]
fn scaled_to_zero_groups_go_in_reverse_order() {
    let mut run = converged(&[("db", 2, &[]), ("api", 1, &["db"]), ("web", 2, &["api"])]);
    update(
        &mut run,
        2,
        &[("db", 0, &[]), ("api", 0, &["db"]), ("web", 0, &["api"])],
    );
    assert_eq!(
        waves(&mut run),
        [
            "destroy-lease web-0, destroy-lease web-1",
            "destroy-lease api-0",
            "destroy-lease db-0, destroy-lease db-1"
        ]
    );
    assert!(run.driver.is_converged());
}

#[test]
fn only_what_is_going_holds_back_what_goes() {
    let mut run = converged(&[("db", 2, &[]), ("api", 2, &["db"])]);
    // The dependents stay, so they say nothing about fewer of what they depend on.
    update(&mut run, 2, &[("db", 1, &[]), ("api", 2, &["db"])]);
    assert_eq!(waves(&mut run), ["destroy-lease db-1"]);
    update(&mut run, 3, &[("db", 0, &[]), ("api", 1, &["db"])]);
    assert_eq!(waves(&mut run), ["destroy-lease api-1", "destroy-lease db-0"]);
}

#[test]
fn a_drain_goes_in_reverse_order_also_across_a_group_without_nodes() {
    let mut run = converged(&[
        ("db", 1, &[]),
        ("cache", 1, &[]),
        ("api", 0, &["cache", "db"]),
        ("web", 1, &["api"]),
    ]);
    run.driver.drain(run.now);
    assert_eq!(
        waves(&mut run),
        ["destroy-lease web-0", "destroy-lease cache-0, destroy-lease db-0"]
    );
    assert!(run.driver.is_converged());
    assert!(run.driver.state().departed.is_empty());
}

#[test]
fn replacements_are_not_held_back() {
    let mut run = converged(&[("db", 4, &[]), ("api", 1, &["db"])]);
    update(&mut run, 2, &[("db", 1, &[]), ("api", 0, &["db"])]);
    let api = sends(&mut run, &["api-0 destroy-lease"]);
    // Of what is undesired and waits: one fails, one is asked to be replaced, one goes on waiting.
    lose(&mut run, "db-1");
    assert!(run.driver.replace(&"db-2".parse().unwrap()));
    // And one that stays drifts.
    let mut drifted = wanted(3, &[("db", 1, &[]), ("api", 0, &["db"])]);
    drifted.groups[0].template = template("alpha", "two");
    run.driver.update_desired(drifted, run.now).unwrap();
    sends(
        &mut run,
        &["db-0 destroy-lease", "db-1 destroy-lease", "db-2 destroy-lease"],
    );
    let _ = run.succeed(&api[0]);
    sends(&mut run, &["db-3 destroy-lease"]);
}

#[test]
fn what_a_first_look_finds_goes_past_every_gate() {
    let setup = ByHand::setup(PaceConfig::default(), false);
    let shape = wanted(1, &[("db", 0, &[]), ("api", 0, &["db"]), ("web", 1, &["api"])]);
    let mut run = ByHand::with(shape, policy(), [("alpha", setup)]);
    run.drive();
    let look = run.look();
    let found = [("web-0", 3, "m-3"), ("api-0", 2, "m-2"), ("db-0", 1, "m-1")];
    assert_eq!(run.list(&look, &found).found, 3);
    sends(
        &mut run,
        &["api-0 destroy-lease", "db-0 destroy-lease", "web-0 destroy-lease"],
    );
}

#[test]
fn a_slot_that_holds_nothing_may_always_stop() {
    let mut run = converged(&[("db", 1, &[]), ("api", 1, &["db"])]);
    update(&mut run, 2, &[("db", 2, &[]), ("api", 1, &["db"])]);
    let create = sends(&mut run, &["db-1 create-lease"]);
    update(&mut run, 3, &[]);
    let api = sends(&mut run, &["api-0 destroy-lease"]);
    // While it is asked for it may hold something; once it is refused it does not.
    assert_eq!(run.node("db-1").intent, Intent::Active);
    let _ = run.fail(&create[0], EffectError::definite("no"));
    sends(&mut run, &[]);
    assert!(run.driver.state().nodes.get(&"db-1".parse().unwrap()).is_none());
    assert_eq!(run.node("db-0").intent, Intent::Active);
    let _ = run.succeed(&api[0]);
    assert_eq!(waves(&mut run), ["destroy-lease db-0"]);
}

/// An answer that arrives while the slot is held is no reason to go, and the gate is remembered meanwhile.
#[test]
fn a_held_slot_whose_call_is_at_work_goes_when_the_gate_opens() {
    let mut run = converged(&[("db", 0, &[]), ("api", 1, &["db"])]);
    update(&mut run, 2, &[("db", 1, &[]), ("api", 1, &["db"])]);
    let create = sends(&mut run, &["db-0 create-lease"]);
    update(&mut run, 3, &[]);
    let api = sends(&mut run, &["api-0 destroy-lease"]);
    let _ = run.succeed(&api[0]);
    sends(&mut run, &[]);
    assert_eq!(run.node("db-0").intent, Intent::Deleting);
    let _ = run.succeed(&create[0]);
    assert_eq!(waves(&mut run), ["destroy-lease db-0"]);
}
