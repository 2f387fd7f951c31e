//! Edges outlive their group: what left the shape goes in order, too.

use std::collections::BTreeSet;

use nodewright_conformance::{ByHand, policy};
use nodewright_core::decide::WaitReason;
use nodewright_core::driver::DriverError;
use nodewright_core::id::GroupId;
use nodewright_core::node::Intent;
use nodewright_core::pace::PaceConfig;
use nodewright_core::state::ClusterState;

use super::{CHAIN, Group, converged, names, said, sends, update, waits, wanted, waves};

#[test]
fn groups_that_leave_the_shape_one_after_another_go_in_reverse_order() {
    let mut run = converged(&CHAIN);
    update(&mut run, 2, &CHAIN[..2]);
    let web = sends(&mut run, &["web-0 destroy-lease"]);
    update(&mut run, 3, &CHAIN[..1]);
    sends(&mut run, &[]);
    update(&mut run, 4, &[]);
    sends(&mut run, &[]);
    for below in ["api-0", "db-0"] {
        assert!(names(&waits(&run, below, WaitReason::Dependents)).contains(&"web"));
    }
    let _ = run.succeed(&web[0]);
    assert_eq!(waves(&mut run), ["destroy-lease api-0", "destroy-lease db-0"]);
}

/// Chapter 7: all that it depended on when it left counts, whatever the shape says since.
#[test]
fn what_a_group_depended_on_when_it_left_counts_though_the_shape_drops_the_edge_between() {
    let mut run = converged(&CHAIN);
    update(&mut run, 2, &CHAIN[..2]);
    let web = sends(&mut run, &["web-0 destroy-lease"]);
    update(&mut run, 3, &[("db", 0, &[]), ("api", 1, &[])]);
    sends(&mut run, &[]);
    assert_eq!(names(&waits(&run, "db-0", WaitReason::Dependents)), ["web"]);
    let _ = run.succeed(&web[0]);
    assert_eq!(waves(&mut run), ["destroy-lease db-0"]);
}

#[test]
fn a_group_that_comes_back_says_anew_what_it_depends_on() {
    let mut run = converged(&CHAIN);
    update(&mut run, 2, &[]);
    let web = sends(&mut run, &["web-0 destroy-lease"]);
    // Half-way the middle comes back, and needs nobody; what is above it still needs what is below.
    update(&mut run, 3, &[("api", 1, &[])]);
    sends(&mut run, &[]);
    assert_eq!(names(&waits(&run, "db-0", WaitReason::Dependents)), ["web"]);
    let _ = run.succeed(&web[0]);
    assert_eq!(waves(&mut run), ["destroy-lease db-0"]);
    assert!(run.driver.is_converged());
    // And then once more, while nothing is above it.
    update(&mut run, 4, &[("db", 1, &[]), ("api", 1, &["db"])]);
    run.succeed_all();
    update(&mut run, 5, &[]);
    let api = sends(&mut run, &["api-0 destroy-lease"]);
    update(&mut run, 6, &[("api", 0, &[])]);
    assert_eq!(waves(&mut run), ["destroy-lease db-0"]);
    let _ = run.succeed(&api[0]);
    run.succeed_all();
    assert!(run.driver.is_converged());
}

#[test]
fn a_group_that_comes_back_half_way_is_filled_once_what_it_depends_on_is_back() {
    let mut run = converged(&CHAIN);
    update(&mut run, 2, &[]);
    let web = sends(&mut run, &["web-0 destroy-lease"]);
    let _ = run.succeed(&web[0]);
    let api = sends(&mut run, &["api-0 destroy-lease"]);
    update(&mut run, 3, &CHAIN);
    // What was not asked to go stays; what was gets a fresh attempt.
    assert_eq!(waves(&mut run), [""; 0]);
    assert_eq!(run.node("db-0").intent, Intent::Active);
    let _ = run.succeed(&api[0]);
    assert_eq!(waves(&mut run), ["create-lease api-0", "create-lease web-0"]);
    assert!(run.driver.is_converged());
}

#[test]
fn a_group_that_others_name_cannot_be_removed() {
    let mut run = converged(&CHAIN);
    let before = (run.driver.state().clone(), run.driver.desired().clone());
    let refused = run.driver.update_desired(wanted(2, &CHAIN[1..]), run.now);
    let Err(DriverError::Shape { problems, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        problems
            .to_string()
            .contains(r#"groups.api.depends_on: names "db", which is no group of the shape"#),
        "{problems}"
    );
    assert_eq!((run.driver.state().clone(), run.driver.desired().clone()), before);
}

/// What departed groups depended on is part of the state: a process that takes over keeps the order.
#[test]
fn a_process_that_takes_over_half_way_keeps_the_order() {
    let mut run = converged(&CHAIN);
    update(&mut run, 2, &[]);
    sends(&mut run, &["web-0 destroy-lease"]);
    let json = serde_json::to_string(run.driver.state()).unwrap();
    let restored = |shape| {
        let setup = ByHand::setup(PaceConfig::default(), true);
        let state = serde_json::from_str(&json).unwrap();
        ByHand::restored(state, shape, policy(), [("alpha", setup)], run.now)
    };
    let mut other = restored(wanted(2, &[]));
    other.now = run.now;
    other.drive();
    let waited = other.pass(60);
    assert_eq!(said(&waited), ["web-0 destroy-lease"]);
    let _ = other.succeed(&waited[0]);
    assert_eq!(waves(&mut other), ["destroy-lease api-0", "destroy-lease db-0"]);
    assert!(other.driver.state().departed.is_empty());
    // A shape in which one of them is back says for itself what that one depends on.
    let other = restored(wanted(2, &[("api", 1, &[])]));
    let departed = &other.driver.state().departed;
    assert!(!departed.contains_key(&GroupId::new("api").unwrap()));
    assert!(departed[&GroupId::new("web").unwrap()].contains(&GroupId::new("db").unwrap()));
}

/// Whoever takes over with a shape that was edited meanwhile knows what the groups depended on that it lacks.
#[test]
fn a_process_that_takes_over_with_a_shape_that_lacks_groups_takes_them_down_in_their_order() {
    let run = converged(&CHAIN);
    let json = serde_json::to_string(run.driver.state()).unwrap();
    let restored = |shape| {
        let setup = ByHand::setup(PaceConfig::default(), true);
        let state = serde_json::from_str(&json).unwrap();
        let mut other = ByHand::restored(state, shape, policy(), [("alpha", setup)], run.now);
        other.now = run.now;
        other
    };
    let mut none = restored(wanted(2, &[]));
    assert_eq!(
        waves(&mut none),
        ["destroy-lease web-0", "destroy-lease api-0", "destroy-lease db-0"]
    );
    let state = none.driver.state();
    assert!(state.departed.is_empty() && state.depends_on.is_empty());
    // The one in between stays.
    let mut two = restored(wanted(2, &[("api", 1, &[])]));
    assert_eq!(waves(&mut two), ["destroy-lease web-0", "destroy-lease db-0"]);
    // And what a departed group depended on directly is known from the state alone, after any number of processes.
    let mut kept = restored(wanted(2, &[("web", 1, &["api"]), ("api", 1, &[])]));
    assert_eq!(waves(&mut kept), ["destroy-lease db-0"]);
    assert_eq!(kept.driver.state().depends_on.len(), 1);
}

/// What a departed group without slots is kept for may come back, and then it is kept for nothing.
#[test]
fn nothing_is_kept_of_groups_that_nobody_who_goes_depended_on() {
    let mut run = converged(&[("db", 0, &[]), ("api", 0, &["db"]), ("web", 1, &["api"])]);
    update(&mut run, 2, &[]);
    assert_eq!(run.driver.state().departed.len(), 2, "the way from web to db");
    update(&mut run, 3, &[("web", 1, &[])]);
    assert!(run.driver.state().departed.is_empty());
}

/// Two departed groups that hold each other would be held for ever; no driver leaves such a state.
#[test]
fn a_state_whose_departed_groups_depend_on_each_other_in_a_circle_is_not_resumed() {
    let mut run = converged(&CHAIN);
    update(&mut run, 2, &[]);
    let mut state = serde_json::to_value(run.driver.state()).unwrap();
    state["departed"] = serde_json::json!({ "web": ["api"], "api": ["db", "web"] });
    let state: ClusterState = serde_json::from_value(state).unwrap();
    let broken = state.check().unwrap_err();
    assert_eq!(
        broken,
        ["departed groups: api → web → api is a cycle; tied up in cycles: api, web"]
    );
}

/// A chain that is taken down at once keeps its edges, not all of its pairs.
#[test]
fn departed_groups_take_as_much_room_as_their_edges() {
    let names: Vec<String> = (0..200).map(|place| format!("g{place:03}")).collect();
    let below: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let groups: Vec<Group<'_>> = (0..200)
        .map(|place| {
            (
                &*names[place],
                1,
                if place == 0 {
                    &[][..]
                } else {
                    &below[place - 1][..]
                },
            )
        })
        .collect();
    let mut run = converged(&groups);
    run.driver.drain(run.now);
    let edges = |run: &ByHand| {
        run.driver
            .state()
            .departed
            .values()
            .map(BTreeSet::len)
            .sum::<usize>()
    };
    assert_eq!(edges(&run), 199);
    let expected: Vec<String> = names
        .iter()
        .rev()
        .map(|name| format!("destroy-lease {name}-0"))
        .collect();
    assert_eq!(waves(&mut run), expected);
    assert!(run.driver.state().departed.is_empty());
}

/// A look may show more of a group whose entry went with its last slot: that is past every gate, and holds
/// nobody, for nothing says any more what it depended on.
#[test]
fn a_departed_group_that_is_forgotten_holds_nobody_though_a_look_finds_more_of_it() {
    let mut run = converged(&[("db", 1, &[]), ("web", 1, &["db"])]);
    update(&mut run, 2, &[("db", 1, &[])]);
    run.drive();
    let state = run.driver.state().clone();
    let setup = ByHand::setup(PaceConfig::default(), false);
    let shape = wanted(2, &[("db", 1, &[])]);
    let mut run = ByHand::restored(state, shape, policy(), [("alpha", setup)], run.now);
    run.drive();
    assert_eq!(waves(&mut run), [""; 0]);
    let destroy = run.pass(60);
    assert_eq!(said(&destroy), ["web-0 destroy-lease"]);
    let look = run.look();
    let _ = run.succeed(&destroy[0]);
    run.drive();
    assert!(run.driver.state().departed.is_empty());
    assert_eq!(run.list(&look, &[("web-7", 9, "m-9")]).found, 1);
    update(&mut run, 3, &[("db", 0, &[])]);
    sends(&mut run, &["web-7 destroy-lease", "db-0 destroy-lease"]);
}
