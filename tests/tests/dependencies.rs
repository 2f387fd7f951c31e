//! What groups that depend on each other promise: they start from below, and go from above.

use std::collections::BTreeSet;
use std::sync::Arc;

use nodewright_conformance::{ByHand, group, policy, shape, template};
use nodewright_core::decide::WaitReason;
use nodewright_core::driver::DriverError;
use nodewright_core::effect::{CommandKind, EffectError, PlannedEffect};
use nodewright_core::id::GroupId;
use nodewright_core::node::Intent;
use nodewright_core::observation::{Folded, Observation};
use nodewright_core::pace::PaceConfig;
use nodewright_core::shape::ClusterShape;
use nodewright_core::state::ClusterState;
use nodewright_core::status::{Awaited, Trouble, Why};

/// A group: its name, how many nodes, and what it depends on.
type Group<'a> = (&'a str, u32, &'a [&'a str]);

fn wanted(generation: u64, groups: &[Group<'_>]) -> ClusterShape {
    let groups = groups.iter().map(|(name, count, depends_on)| {
        let mut group = group(name, *count, template("alpha", "one"));
        group.depends_on = depends_on.iter().map(|name| name.parse().unwrap()).collect();
        group
    });
    shape(generation, groups.collect())
}

fn run(groups: &[Group<'_>]) -> ByHand {
    ByHand::fresh(wanted(1, groups), policy(), PaceConfig::default())
}

/// One node each in a chain: `web` needs `api`, and that needs `db`.
const CHAIN: [Group<'static>; 3] = [("db", 1, &[]), ("api", 1, &["db"]), ("web", 1, &["api"])];

fn converged(groups: &[Group<'_>]) -> ByHand {
    let mut run = run(groups);
    run.succeed_all();
    assert!(run.driver.is_converged());
    run
}

fn update(run: &mut ByHand, generation: u64, groups: &[Group<'_>]) {
    let accepted = run.driver.update_desired(wanted(generation, groups), run.now);
    accepted.unwrap();
}

fn lose(run: &mut ByHand, node: &str) {
    let attempt = run.node(node).attempt;
    let reason = "gone".into();
    let folded = run.observe(&node.parse().unwrap(), attempt, &Observation::NodeLost { reason });
    assert_eq!(folded, Folded::Applied);
}

/// What is sent, as slot and command.
fn said(sent: &[PlannedEffect]) -> Vec<String> {
    let said = sent
        .iter()
        .map(|effect| format!("{} {}", effect.node, effect.command.kind()));
    said.collect()
}

#[track_caller]
fn sends(run: &mut ByHand, expected: &[&str]) -> Vec<PlannedEffect> {
    let sent = run.drive();
    assert_eq!(said(&sent), expected);
    sent
}

/// Drives and lets everything succeed, in passes: what each of them sent that makes or ends a machine.
fn waves(run: &mut ByHand) -> Vec<String> {
    let mut waves = Vec::new();
    loop {
        let sent = run.drive();
        let told = sent.iter().filter(|effect| {
            let kind = effect.command.kind();
            matches!(kind, CommandKind::CreateLease | CommandKind::DestroyLease)
        });
        let told: Vec<String> = told
            .map(|effect| format!("{} {}", effect.command.kind(), effect.node))
            .collect();
        if !told.is_empty() {
            waves.push(told.join(", "));
        }
        if sent.is_empty() {
            return waves;
        }
        for effect in &sent {
            let _ = run.succeed(effect);
        }
    }
}

/// The groups that a slot waits for, and why.
#[track_caller]
fn waits(run: &ByHand, node: &str, why: WaitReason) -> Vec<Awaited> {
    match run.driver.why(&node.parse().unwrap(), run.now) {
        Why::WaitingFor { reason, groups, .. } if reason == why => groups,
        other => panic!("{node}: {other:?}"),
    }
}

fn names(groups: &[Awaited]) -> Vec<&str> {
    groups.iter().map(|awaited| awaited.group.as_str()).collect()
}

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
fn a_group_of_no_nodes_is_available() {
    let mut run = run(&[("db", 0, &[]), ("api", 1, &["db"])]);
    sends(&mut run, &["api-0 create-lease"]);
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

#[test]
fn a_halted_dependency_holds_back_starts_and_is_named_and_holds_back_no_deletion() {
    let mut run = converged(&[("db", 1, &[]), ("api", 1, &["db"])]);
    update(&mut run, 2, &[("db", 2, &[]), ("api", 2, &["db"])]);
    let create = sends(&mut run, &["db-1 create-lease"]);
    let _ = run.fail(&create[0], EffectError::fatal("no such image"));
    sends(&mut run, &[]);
    assert_eq!(
        waits(&run, "api-1", WaitReason::Dependencies),
        [Awaited {
            group: GroupId::new("db").unwrap(),
            slots: 1,
            trouble: Some(Trouble {
                node: "db-1".parse().unwrap(),
                halted: true,
                error: Arc::from("no such image"),
            }),
        }]
    );
    update(&mut run, 3, &[("db", 2, &[]), ("api", 0, &["db"])]);
    assert_eq!(waves(&mut run), ["destroy-lease api-0"]);
}

#[test]
fn a_dependent_that_cannot_be_destroyed_holds_its_dependencies_and_is_named() {
    let mut run = converged(&CHAIN);
    update(&mut run, 2, &[]);
    let mut destroy = sends(&mut run, &["web-0 destroy-lease"]);
    for _ in 0..5 {
        let _ = run.fail(&destroy[0], EffectError::definite("it is locked"));
        destroy = run.pass(60);
        assert_eq!(said(&destroy), ["web-0 destroy-lease"]);
    }
    let awaited = waits(&run, "db-0", WaitReason::Dependents);
    let told: Vec<String> = awaited.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["api (1 to wait for)", "web (1 to wait for; web-0: it is locked)"]
    );
    assert_eq!(
        run.node("db-0").intent,
        Intent::Active,
        "it is not even asked to go"
    );
    let _ = run.succeed(&destroy[0]);
    assert_eq!(waves(&mut run), ["destroy-lease api-0", "destroy-lease db-0"]);
}

#[test]
fn a_view_says_that_a_slot_waits_for_groups_and_names_none() {
    let mut run = run(&CHAIN);
    run.drive();
    let status = run.driver.node_glance(&"web-0".parse().unwrap(), run.now);
    let expected = Why::WaitingFor {
        reason: WaitReason::Dependencies,
        until: None,
        groups: Vec::new(),
    };
    assert_eq!(status.why, expected);
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
